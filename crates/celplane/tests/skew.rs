//! Gates that differ between components: what is refused, rejected by the node, evicted, or left out, and what stays.
//!
//! The skew section of KEP-5500, component by component, in one process; `TaintTolerationCEL` is on or off in each.

mod matrix;
mod old_client;
mod order;

use api::apps::v1::DaemonSet;
use api::core::v1::Node;
use api::features::{Features, Gate};
use api::json::Value;
use client::informer::Informer;
use client::objects::{Patch, Selection};
use client::resources::ServedView as _;

use crate::fleet::{Cluster, on, until};

fn cel(is_on: bool) -> Features {
    Features::none().with(Gate::TaintTolerationCEL, is_on)
}

/// A pod on a node that an expression keeps there.
fn kept_on(node: &str) -> Value {
    let mut spec = on(node);
    let tolerations = api::json!([{"expression": "taint.key == 'maint'"}]);
    spec.as_object_mut().unwrap().insert("tolerations", tolerations);
    spec
}

async fn taint(cluster: &Cluster, node: &str) {
    let taints = api::json!({"spec": {"taints": [{"key": "maint", "value": "now", "effect": "NoExecute"}]}});
    cluster.admin.objects::<Node>().patch("", node, "", Patch::Merge, &taints).await.unwrap();
}

fn runs(cluster: &Cluster, pod: &str) -> bool {
    cluster.pod(pod).is_some_and(|pod| pod.status.phase == "Running" && !pod.metadata.is_deleting())
}

/// Two pods run on a node that is then tainted: one that an expression keeps, and one that nothing keeps.
async fn tainted_under_pods(controllers: bool) -> bool {
    let cluster = Cluster::start(cel(true)).await;
    let _fleet = cluster.fleet(1, cel(true));
    let _controllers = cluster.controllers(cel(controllers));
    until(&cluster.nodes, || cluster.nodes.store().get("", "node-0").is_some_and(|it| it.spec.taints.is_empty())).await;
    cluster.create("kept", kept_on("node-0")).await;
    cluster.create("other", on("node-0")).await;
    until(&cluster.pods, || runs(&cluster, "kept") && runs(&cluster, "other")).await;
    taint(&cluster, "node-0").await;
    until(&cluster.pods, || cluster.pod("other").is_none()).await;
    if !controllers {
        until(&cluster.pods, || cluster.pod("kept").is_none()).await;
    }
    runs(&cluster, "kept")
}

#[tokio::test(flavor = "multi_thread")]
async fn with_all_gates_on_the_expression_keeps_the_pod() {
    assert!(tainted_under_pods(true).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn controllers_without_the_gate_evict_expression_tolerations() {
    assert!(!tainted_under_pods(false).await);
}

/// A pod is assigned to a node that already has the taint.
async fn phase_on_tainted_node(kubelet: bool) -> (String, String) {
    let cluster = Cluster::start(cel(true)).await;
    let _fleet = cluster.fleet(1, cel(kubelet));
    until(&cluster.nodes, || cluster.nodes.store().get("", "node-0").is_some()).await;
    taint(&cluster, "node-0").await;
    let is_tainted = |node: &Node| node.spec.taints.iter().any(|it| it.key == "maint");
    until(&cluster.nodes, || cluster.nodes.store().get("", "node-0").is_some_and(|it| is_tainted(&it))).await;
    cluster.create("kept", kept_on("node-0")).await;
    until(&cluster.pods, || {
        cluster.pod("kept").is_some_and(|pod| !matches!(pod.status.phase.as_str(), "" | "Pending"))
    })
    .await;
    let status = &cluster.pod("kept").unwrap().status;
    (status.phase.to_string(), status.reason.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_the_gate_rejects_the_pod() {
    assert_eq!(phase_on_tainted_node(false).await, ("Failed".to_owned(), "TaintToleration".to_owned()));
    assert_eq!(phase_on_tainted_node(true).await, ("Running".to_owned(), String::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_the_gate_refuses_new_pods_and_old_ones_run_on() {
    let cluster = Cluster::start(cel(true)).await;
    let _fleet = cluster.fleet(1, cel(true));
    let _controllers = cluster.controllers(cel(true));
    until(&cluster.nodes, || cluster.nodes.store().get("", "node-0").is_some_and(|it| it.spec.taints.is_empty())).await;
    cluster.create("kept", kept_on("node-0")).await;
    cluster.create("other", on("node-0")).await;
    until(&cluster.pods, || runs(&cluster, "kept") && runs(&cluster, "other")).await;

    let rolled_back = cluster.beside(cel(false)).await;
    let pod = api::json!({"metadata": {"name": "new"}, "spec": (kept_on("node-0"))});
    let refusal = rolled_back.admin.documents(api::core::v1::Pod::RESOURCE).create("default", &pod).await.unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "Pod \"new\" is invalid: spec.tolerations[0].expression: Forbidden: toleration CEL expressions require feature \
         gate TaintTolerationCEL"
    );
    // The components with the gate continue with existing objects.
    taint(&rolled_back, "node-0").await;
    until(&cluster.pods, || cluster.pod("other").is_none()).await;
    assert!(runs(&cluster, "kept"));
    // What cannot be made any more can still be deleted, at once if need be.
    let how = client::objects::Deletion { grace_period_seconds: Some(0), ..Default::default() };
    rolled_back.admin.documents(api::core::v1::Pod::RESOURCE).delete("default", "kept", &how).await.unwrap();
    until(&cluster.pods, || cluster.pod("kept").is_none()).await;
}

/// Waits until a daemon set runs on as many nodes as expected, one of three being tainted.
async fn runs_on(expected: i32, controllers: bool) {
    let cluster = Cluster::start(cel(true)).await;
    let _fleet = cluster.fleet(3, cel(true));
    let _controllers = cluster.controllers(cel(controllers));
    let is_free = |node: &Node| node.spec.taints.is_empty();
    until(&cluster.nodes, || cluster.nodes.store().list().iter().filter(|node| is_free(node)).count() == 3).await;
    taint(&cluster, "node-1").await;
    until(&cluster.nodes, || cluster.nodes.store().list().iter().filter(|node| is_free(node)).count() == 2).await;
    let sets: Informer<DaemonSet> = Informer::start(&cluster.admin, Selection::default());
    let set = api::json!({"metadata": {"name": "logs"}, "spec": {
        "selector": {"matchLabels": {"app": "logs"}},
        "template": {
            "metadata": {"labels": {"app": "logs"}},
            "spec": {
                "containers": [{"name": "c", "image": "app:1"}],
                "tolerations": [{"expression": "taint.key.startsWith('maint')"}],
            },
        },
    }});
    cluster.admin.documents(DaemonSet::RESOURCE).create("default", &set).await.unwrap();
    let status = || sets.store().get("default", "logs").map(|set| set.status.clone()).unwrap_or_default();
    let counts = || (status().desired_number_scheduled, status().current_number_scheduled);
    until(&sets, || status().observed_generation == 1 && counts() == (expected, expected)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_set_leaves_tainted_nodes_out_where_its_controller_lacks_the_gate() {
    runs_on(3, true).await;
    runs_on(2, false).await;
}
