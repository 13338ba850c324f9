//! Taints under running pods, in time: the cases of Kubernetes' end-to-end tests (`test/e2e/node/taints.go`), with
//! expressions beside plain tolerations. Time is paused.

use std::time::Duration;

use api::core::v1::{Event, Node, Pod};
use api::features::Features;
use api::json;
use api::json::Value;
use client::objects::{Patch, Selection};
use client::resources::ServedView as _;
use http::Method;
use tokio::time::Instant;

use crate::paused::Cluster;

const SECOND: Duration = Duration::from_secs(1);

/// A cluster with one node, and the taint eviction controller alone.
struct Test {
    cluster: Cluster,
    _controllers: client::Stop,
}

impl Test {
    /// Starts it with pods of these names and tolerations on the node. Time is paused from then on.
    async fn start(features: Features, pods: &[(&str, Value)]) -> Self {
        let cluster = Cluster::start().await;
        let admin = &cluster.admin;
        let account = client::Resource::new("", "v1", "serviceaccounts", "ServiceAccount");
        admin.documents(account).create("default", &json!({"metadata": {"name": "default"}})).await.unwrap();
        admin.documents(Node::RESOURCE).create("", &json!({"metadata": {"name": "node"}})).await.unwrap();
        for (name, tolerations) in pods {
            let pod = json!({"metadata": {"name": (*name)}, "spec": {
                "nodeName": "node", "containers": [{"name": "c", "image": "app:1"}], "tolerations": (tolerations.clone()),
            }});
            admin.documents(Pod::RESOURCE).create("default", &pod).await.unwrap();
        }
        tokio::time::pause();
        let _controllers = cluster.controllers(&["taint-eviction"], features);
        let test = Self { cluster, _controllers };
        test.taint(&[]).await;
        test.pass(SECOND).await;
        test
    }

    /// Gives the node these taints.
    async fn taint(&self, keys: &[&str]) {
        let taints: Vec<Value> =
            keys.iter().map(|key| json!({"key": (*key), "value": "v", "effect": "NoExecute"})).collect();
        let patch = json!({"spec": {"taints": taints}});
        let nodes = self.cluster.admin.documents(Node::RESOURCE);
        self.cluster.at_once(nodes.patch("", "node", "", Patch::Merge, &patch)).await.unwrap();
    }

    async fn pass(&self, length: Duration) {
        self.cluster.pass(length, || false).await;
    }

    /// Lets time pass and answers after which second each pod was evicted.
    async fn evicted_after(&self, length: Duration) -> Vec<(String, u64)> {
        let start = Instant::now();
        self.pass(length).await;
        let asked = self.cluster.switch.log.between(start, length + SECOND);
        let deletions = asked.into_iter().filter(|it| it.method == Method::DELETE && it.path.contains("/pods/"));
        let mut evicted: Vec<(String, u64)> = deletions
            .map(|it| (it.path.rsplit('/').next().unwrap().to_owned(), (it.at - start).as_secs_f64().round() as u64))
            .collect();
        evicted.sort();
        evicted
    }
}

fn expression(key: &str, seconds: Option<i64>) -> Value {
    let mut toleration = json!({"expression": (format!("taint.key == '{key}' && taint.effect == 'NoExecute'"))});
    if let Some(seconds) = seconds {
        toleration.as_object_mut().unwrap().insert("tolerationSeconds", seconds);
    }
    toleration
}

fn evicted(list: &[(&str, u64)]) -> Vec<(String, u64)> {
    list.iter().map(|(name, after)| ((*name).to_owned(), *after)).collect()
}

#[tokio::test]
async fn pods_go_stay_or_go_later() {
    let pods = [
        ("endless", json!([(expression("maint", None))])),
        ("later", json!([(expression("maint", Some(30)))])),
        ("none", json!([])),
        ("other", json!([(expression("another", None))])),
        // The first that matches counts, not the longest.
        ("first", json!([(expression("maint", Some(10))), (expression("maint", Some(60)))])),
        ("broken", json!([{"expression": "taint.key == string(1 / int(taint.value.size() - 1))"}])),
    ];
    let test = Test::start(Features::all_proposals(), &pods).await;
    test.taint(&["maint"]).await;
    let expected = [("broken", 0), ("first", 10), ("later", 30), ("none", 0), ("other", 0)];
    assert_eq!(test.evicted_after(120 * SECOND).await, evicted(&expected));
    let pods = test.cluster.admin.objects::<Pod>();
    let later = test.cluster.at_once(pods.get("default", "later")).await.unwrap();
    let condition = later.status.conditions.iter().find(|it| it.condition_type == "DisruptionTarget").unwrap();
    let words = (&*condition.status, &*condition.reason, &*condition.message);
    assert_eq!(words, ("True", "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"));
    // A pod that goes because its expression has no answer says so.
    let events = test.cluster.admin.objects::<Event>();
    let events = test.cluster.at_once(events.list(&Selection::default())).await.unwrap();
    let failed: Vec<(&str, &str)> = events
        .items
        .iter()
        .filter(|it| it.reason == "ExpressionFailed")
        .map(|it| (&*it.involved_object.name, &*it.message))
        .collect();
    let message = "expression \"taint.key == string(1 / int(taint.value.size() - 1))\" failed on node node for taint maint=v:NoExecute: division by zero";
    assert_eq!(failed, [("broken", message)]);
}

#[tokio::test]
async fn with_the_gate_off_only_plain_tolerations_keep_pods() {
    let plain = json!({"key": "maint", "operator": "Exists", "effect": "NoExecute"});
    let pods = [("expression", json!([(expression("maint", None))])), ("plain", json!([plain]))];
    let test = Test::start(Features::none(), &pods).await;
    test.taint(&["maint"]).await;
    assert_eq!(test.evicted_after(60 * SECOND).await, evicted(&[("expression", 0)]));
}

#[tokio::test]
async fn a_taint_that_is_removed_in_time_cancels() {
    let pods = [("a", json!([(expression("maint", Some(20)))])), ("b", json!([(expression("maint", Some(60)))]))];
    let test = Test::start(Features::all_proposals(), &pods).await;
    test.taint(&["maint"]).await;
    assert_eq!(test.evicted_after(30 * SECOND).await, evicted(&[("a", 20)]));
    test.taint(&[]).await;
    assert_eq!(test.evicted_after(120 * SECOND).await, evicted(&[]));
    let events = test.cluster.admin.objects::<Event>();
    let events = test.cluster.at_once(events.list(&Selection::default())).await.unwrap();
    let told: Vec<&str> =
        events.items.iter().filter(|it| it.reason == "TaintManagerEviction").map(|it| &*it.message).collect();
    assert!(told.contains(&"Marking for deletion Pod default/a"), "{told:?}");
    assert!(told.contains(&"Cancelling deletion of Pod default/b"), "{told:?}");
    // The next taint starts a new eviction.
    test.taint(&["maint"]).await;
    assert_eq!(test.evicted_after(90 * SECOND).await, evicted(&[("b", 60)]));
}

#[tokio::test]
async fn of_several_taints_the_least_time_counts() {
    let both = json!([(expression("disk", Some(40))), (expression("maint", Some(15)))]);
    let one = json!([(expression("maint", None))]);
    let all = json!([{"expression": "true", "tolerationSeconds": 25}]);
    let pods = [("both", both), ("one", one), ("all", all)];
    let test = Test::start(Features::all_proposals(), &pods).await;
    test.taint(&["disk", "maint"]).await;
    assert_eq!(test.evicted_after(90 * SECOND).await, evicted(&[("all", 25), ("both", 15), ("one", 0)]));
}

#[tokio::test]
async fn a_plan_is_neither_shortened_nor_extended_by_further_taints() {
    let pods = [("a", json!([(expression("maint", Some(40))), (expression("disk", Some(5)))]))];
    let test = Test::start(Features::all_proposals(), &pods).await;
    test.taint(&["maint"]).await;
    assert_eq!(test.evicted_after(10 * SECOND).await, evicted(&[]));
    test.taint(&["maint", "disk"]).await;
    assert_eq!(test.evicted_after(60 * SECOND).await, evicted(&[("a", 30)]));
}

/// Tolerations within the limits of one object, whose expressions cost 3,200,000 for each taint.
///
/// Their cost is mostly that of searches in a long text, which take little time: a check exceeds the budget by its cost,
/// also without optimizations. The last one tolerates all taints for a second.
pub(crate) fn costly_tolerations() -> Value {
    let ten = "[1,2,3,4,5,6,7,8,9,10]";
    let expression = |number: usize| {
        let search = format!("!'{}'.contains('{number}')", "x".repeat(8000));
        let is_last = number == 3;
        format!("{ten}.all(a,{ten}.all(b,{ten}.all(c,{search})))&&taint.key.startsWith('t')=={is_last}")
    };
    let toleration = |number: usize| json!({"expression": (expression(number)), "tolerationSeconds": 1});
    Value::Array((0..4).map(toleration).collect())
}

/// Taints for which the expressions of [`costly_tolerations`] cost 16,000,000, more than the budget of one check.
const COSTLY_TAINTS: [&str; 5] = ["t0", "t1", "t2", "t3", "t4"];

#[tokio::test]
async fn check_over_budget_is_reported_and_continued() {
    let test = Test::start(Features::all_proposals(), &[("costly", costly_tolerations())]).await;
    test.taint(&COSTLY_TAINTS).await;
    let log = test.cluster.switch.log.clone();
    let start = Instant::now();
    let is_evicted = || {
        let all = log.between(start, 7200 * SECOND);
        all.iter().any(|it| it.method == Method::DELETE && it.path.ends_with("/pods/costly"))
    };
    // Namespaces share the thread for expressions in real time, which passes slowly here.
    test.cluster.pass(3600 * SECOND, is_evicted).await;
    assert!(is_evicted(), "a later check continues");
    reported(&test.cluster, "costly").await;
}

/// Checks that a pod has the event about expressions that exceeded the budget.
async fn reported(cluster: &Cluster, pod: &str) {
    let events = cluster.admin.objects::<Event>();
    let events = cluster.at_once(events.list(&Selection::default())).await.unwrap();
    let found = events
        .items
        .iter()
        .find(|it| it.reason == "ExpressionBudgetExceeded" && it.involved_object.name == pod)
        .expect("an event");
    let begin = "Expressions exceeded the budget of one reconciliation (";
    assert!(found.message.starts_with(begin), "{}", found.message);
}

#[tokio::test]
async fn resolver_over_budget_is_reported_and_continued() {
    let cluster = Cluster::start().await;
    let admin = &cluster.admin;
    let account = client::Resource::new("", "v1", "serviceaccounts", "ServiceAccount");
    admin.documents(account).create("default", &json!({"metadata": {"name": "default"}})).await.unwrap();
    let taint = |key: &str| json!({"key": key, "value": "v", "effect": "NoExecute"});
    let taints: Vec<Value> = COSTLY_TAINTS.into_iter().map(taint).collect();
    let node = json!({"metadata": {"name": "node"}, "spec": {"taints": taints}});
    admin.documents(Node::RESOURCE).create("", &node).await.unwrap();
    let name = api::annotations::TOLERATIONS;
    let annotations = json!({name: (costly_tolerations().to_string())});
    let pod = json!({"metadata": {"name": "costly", "annotations": annotations}, "spec": {
        "nodeName": "node", "containers": [{"name": "c", "image": "app:1"}]}});
    admin.documents(Pod::RESOURCE).create("default", &pod).await.unwrap();
    tokio::time::pause();
    let features = Features::all_proposals();
    let rewrite = controlplane::placement::rewrite(features, controlplane::placement::Devices::default()).unwrap();
    let settings = controllers::settings::Settings { placement: Some(rewrite), ..Default::default() };
    let _controllers = cluster.controllers_with(&["toleration-resolver"], features, settings);
    let (log, start) = (cluster.switch.log.clone(), Instant::now());
    let is_patched = || {
        let all = log.between(start, 7200 * SECOND);
        all.iter().any(|it| it.method == Method::PATCH && it.path.ends_with("/pods/costly") && it.code == 200)
    };
    cluster.pass(3600 * SECOND, is_patched).await;
    assert!(is_patched(), "a later reconciliation continues");
    reported(&cluster, "costly").await;
    let pods = cluster.admin.objects::<Pod>();
    let pod = cluster.at_once(pods.get("default", "costly")).await.unwrap();
    let added = pod.spec.tolerations.iter().filter(|it| it.key.starts_with('t') && it.expression.is_empty());
    assert_eq!(added.count(), COSTLY_TAINTS.len());
}
