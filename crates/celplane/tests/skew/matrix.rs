//! Every combination of gates: the results for a running pod, a waiting one, a new one, and a daemon set, each
//! of which needs an expression. The table in `docs/simulated-nodes.md` contains the expected results.

use std::sync::Arc;

use api::apps::v1::DaemonSet;
use api::core::v1::{Event, Node, Pod};
use api::json::Value;
use client::informer::Informer;
use client::objects::Selection;
use client::resources::ServedView as _;

use super::{cel, kept_on, runs, taint};
use crate::fleet::{Cluster, on, until};

const DOCUMENTED: &str = include_str!("../../../../docs/simulated-nodes.md");
const CONTROLLERS: [&str; 3] = ["node-lifecycle", "taint-eviction", "daemonset"];

/// Components with the gate, in the order of the table.
#[derive(Debug, Clone, Copy)]
struct Gates {
    apiserver: bool,
    scheduler: bool,
    controllers: bool,
    kubelet: bool,
}

/// A pod that needs an expression to be placed on a node, and selects that node.
fn bound_for(node: &str) -> Value {
    let mut spec = kept_on("");
    let fields = spec.as_object_mut().unwrap();
    fields.remove("nodeName");
    fields.insert("nodeSelector", api::json!({"kubernetes.io/hostname": node}));
    spec
}

fn daemon_set() -> Value {
    let mut spec = bound_for("node-1");
    spec.as_object_mut().unwrap().insert("restartPolicy", "Always");
    api::json!({"metadata": {"name": "daemon"}, "spec": {
        "selector": {"matchLabels": {"app": "daemon"}},
        "template": {"metadata": {"labels": {"app": "daemon"}}, "spec": spec},
    }})
}

struct Table {
    pods: Informer<Pod>,
    events: Informer<Event>,
    sets: Informer<DaemonSet>,
}

impl Table {
    /// Returns the result of a pod, once it is final.
    async fn fate(&self, find: impl Fn() -> Option<Arc<Pod>>, gates: Gates) -> &'static str {
        let is_pending = |pod: &Pod| {
            let waits =
                |it: &api::core::v1::PodCondition| it.condition_type == "PodScheduled" && it.reason == "Unschedulable";
            pod.spec.node_name.is_empty() && pod.status.conditions.iter().any(waits)
        };
        // A pod that is placed on the node is evicted by controllers without the gate.
        until(&self.pods, || match find() {
            None => true,
            Some(pod) if is_pending(&pod) => true,
            Some(pod) => gates.controllers && matches!(pod.status.phase.as_str(), "Running" | "Failed"),
        })
        .await;
        match find() {
            None => "evicted",
            Some(pod) if is_pending(&pod) => "pending",
            Some(pod) if pod.status.phase == "Running" => "runs",
            Some(pod) => {
                assert_eq!(pod.status.reason, "TaintToleration");
                "rejected"
            }
        }
    }

    /// Returns the result of the daemon set's only pod.
    async fn daemon(&self) -> &'static str {
        let pods = || self.pods.store().list().into_iter().filter(|pod| pod.metadata.labels.contains_key("app"));
        let is_told = |reason: &str| {
            let events = self.events.store().list();
            events.iter().any(|it| it.involved_object.kind == "DaemonSet" && it.reason == reason)
        };
        let fate = || {
            let set = self.sets.store().get("default", "daemon")?;
            let desired = set.status.desired_number_scheduled;
            let pod = pods().next();
            let waits = pod.as_ref().is_some_and(|pod| {
                pod.status.conditions.iter().any(|it| it.reason == "Unschedulable") && pod.spec.node_name.is_empty()
            });
            match () {
                () if set.status.observed_generation == 0 => None,
                () if desired == 0 => Some("left out"),
                () if is_told("FailedCreate") => Some("refused"),
                () if is_told("FailedDaemonPod") => Some("rejected"),
                () if waits => Some("pending"),
                () if pod.is_some_and(|pod| pod.status.phase == "Running") => Some("runs"),
                () => None,
            }
        };
        let started = std::time::Instant::now();
        loop {
            if let Some(fate) = fate() {
                return fate;
            }
            assert!(started.elapsed() < std::time::Duration::from_secs(30), "nothing became of the daemon set");
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }
}

/// Plays one combination; answers with the last columns of its row.
async fn play(gates: Gates) -> [&'static str; 4] {
    // Before: everything is on; one pod runs, one waits for a scheduler, and a daemon set waits for a controller.
    let before = Cluster::start(cel(true)).await;
    let fleet = before.fleet(2, cel(true));
    let lifecycle = before.some_controllers(&["node-lifecycle"], cel(true));
    let is_free = |node: &Node| node.spec.taints.is_empty();
    until(&before.nodes, || before.nodes.store().list().iter().filter(|node| is_free(node)).count() == 2).await;
    taint(&before, "node-1").await;
    before.create("kept", kept_on("node-0")).await;
    before.create("other", on("node-0")).await;
    before.create("waits", bound_for("node-1")).await;
    before.admin.documents(DaemonSet::RESOURCE).create("default", &daemon_set()).await.unwrap();
    until(&before.pods, || runs(&before, "kept") && runs(&before, "other")).await;
    lifecycle.end().await;
    fleet.stop().await;

    let cluster = before.beside(cel(gates.apiserver)).await;
    let _fleet = cluster.fleet(2, cel(gates.kubelet));
    let _controllers = cluster.some_controllers(&CONTROLLERS, cel(gates.controllers));
    let _scheduler = cluster.scheduler(cel(gates.scheduler));
    let table = Table {
        pods: Informer::start(&cluster.admin, Selection::default()),
        events: Informer::start(&cluster.admin, Selection::default()),
        sets: Informer::start(&cluster.admin, Selection::default()),
    };
    table.pods.synced().await;
    let find = |name: &'static str| move |pods: &Informer<Pod>| pods.store().get("default", name);

    let waited = table.fate(|| find("waits")(&table.pods), gates).await;
    let pod = api::json!({"metadata": {"name": "new"}, "spec": (bound_for("node-1"))});
    let new = match cluster.admin.documents(Pod::RESOURCE).create("default", &pod).await {
        Ok(_) => {
            until(&table.pods, || find("new")(&table.pods).is_some()).await;
            table.fate(|| find("new")(&table.pods), gates).await
        }
        Err(error) => {
            assert!(error.to_string().contains("require feature gate TaintTolerationCEL"), "{error}");
            "refused"
        }
    };
    let daemon = table.daemon().await;

    // A taint under running pods; the eviction of the unprotected one shows that all were processed.
    taint(&cluster, "node-0").await;
    until(&table.pods, || find("other")(&table.pods).is_none()).await;
    if !gates.controllers {
        until(&table.pods, || find("kept")(&table.pods).is_none()).await;
    }
    let stays =
        find("kept")(&table.pods).is_some_and(|pod| pod.status.phase == "Running" && !pod.metadata.is_deleting());

    // Whatever is disabled: only a component with the gate places such a pod on the node.
    let placed = table.pods.store().list().into_iter().filter(|pod| pod.spec.node_name == "node-1").count();
    assert!(placed == 0 || gates.scheduler, "{placed} placed with {gates:?}");
    [if stays { "stays" } else { "evicted" }, waited, new, daemon]
}

#[tokio::test(flavor = "multi_thread")]
async fn every_combination_of_gates_ends_as_documented() {
    let word = |is_on| if is_on { "on" } else { "off" };
    let mut rows = Vec::new();
    for bits in (0..16).rev() {
        let is_on = |bit: u32| bits & (8 >> bit) != 0;
        let gates = Gates { apiserver: is_on(0), scheduler: is_on(1), controllers: is_on(2), kubelet: is_on(3) };
        let outcome = play(gates).await;
        let words = [gates.apiserver, gates.scheduler, gates.controllers, gates.kubelet].map(word);
        rows.push(format!("| {} |", [words, outcome].concat().join(" | ")));
    }
    let table = rows.join("\n");
    assert!(DOCUMENTED.contains(&table), "docs/simulated-nodes.md must have:\n{table}");
}
