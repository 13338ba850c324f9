//! Explanations of a pod's placement.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use api::core::v1::Node;
use api::json::from_value;
use matching::{Features, Matcher};

use super::*;
use crate::plugins;
use crate::queue::Backoff;

fn read<T: serde::de::DeserializeOwned>(yaml: &str) -> Vec<T> {
    let (documents, error) = api::yaml::parse_documents(yaml);
    assert!(error.is_none(), "{error:?}");
    documents.iter().map(|document| from_value(&document.value).unwrap()).collect()
}

fn scheduler(nodes: &[Node]) -> Scheduler {
    let clock: Arc<dyn Fn() -> Duration + Send + Sync> = Arc::new(|| Duration::ZERO);
    let matcher = Arc::new(Matcher::new(NonZeroUsize::new(8).unwrap(), clock, Features::ALL).unwrap());
    let profile = plugins::default_profile(&matcher).unwrap();
    let mut scheduler = Scheduler::new(vec![profile], Backoff::default(), matcher, 1);
    for node in nodes {
        scheduler.set_node(node, Duration::ZERO);
    }
    scheduler
}

fn node(name: &str, more: &str) -> String {
    let status = "status: {allocatable: {cpu: '2', memory: 4Gi, pods: '10'}}";
    format!("metadata: {{name: {name}, labels: {{zone: {name}}}}}\n{status}\n{more}\n")
}

/// The remedies of a pod on nodes, as text.
fn remedies(nodes: &[String], pod: &str) -> Vec<String> {
    let nodes: Vec<Node> = read(&nodes.join("---\n"));
    let pod: Pod = read::<Pod>(&format!("metadata: {{name: p, namespace: d, uid: p}}\nspec: {pod}\n")).remove(0);
    let mut scheduler = scheduler(&nodes);
    let known = scheduler.explain(&pod).unwrap();
    assert_eq!(known.fitting(), 0, "{known:?}");
    let found = super::remedies::find(&mut scheduler, &pod, &nodes, &known);
    // The trial changes are reverted.
    assert_eq!(format!("{:?}", scheduler.explain(&pod).unwrap().nodes), format!("{:?}", known.nodes));
    found.iter().map(ToString::to_string).collect()
}

#[test]
fn every_plugin_is_asked_about_every_node() {
    let nodes: Vec<Node> =
        read(&[node("a", ""), node("b", "spec: {taints: [{key: t, effect: NoSchedule}]}")].join("---\n"));
    let pod: Pod = read::<Pod>(
        "metadata: {name: p, uid: p}\nspec: {nodeSelector: {zone: a}, containers: [{resources: {requests: {cpu: '1'}}}]}",
    )
    .remove(0);
    let known = scheduler(&nodes).explain(&pod).unwrap();
    let against = |place: usize| -> Vec<&str> { known.nodes[place].rejections().map(|(plugin, _)| plugin).collect() };
    assert_eq!((against(0), against(1)), (vec![], vec!["TaintToleration", "NodeAffinity"]));
    let fit = known.nodes[0].scores.iter().find(|score| score.plugin == "NodeResourcesFit").unwrap();
    assert_eq!((fit.raw, fit.normalized, fit.weight), (72, 72, 1));
    assert_eq!((known.fitting(), known.nodes[1].total), (1, None));
    assert_eq!(
        known.nodes[0].total,
        Some(known.nodes[0].scores.iter().map(|score| score.normalized * score.weight).sum())
    );
}

#[test]
fn a_toleration_a_label_or_some_room_may_be_all_that_is_missing() {
    let tainted = |name: &str| node(name, "spec: {taints: [{key: gpu, value: a100, effect: NoSchedule}]}");
    assert_eq!(
        remedies(&[tainted("a"), tainted("b")], "{}"),
        ["a toleration of the taint gpu=a100:NoSchedule: then 2 nodes (a, b) would fit"]
    );
    assert_eq!(
        remedies(&[node("a", "")], "{nodeSelector: {disk: ssd}}"),
        ["the pod without spec.nodeSelector: then 1 node (a) would fit", "the label disk=ssd on node a"]
    );
    let nodes = ["a", "b", "c", "d"].map(|name| node(name, ""));
    let label = "the label disk=ssd on any of the nodes a, b, c, …".to_owned();
    assert!(remedies(&nodes, "{nodeSelector: {disk: ssd}}").contains(&label));
    assert_eq!(
        remedies(&[node("a", "")], "{containers: [{resources: {requests: {cpu: 2500m, memory: 1Gi}}}]}"),
        ["500m more of cpu on node a"]
    );
    assert_eq!(
        remedies(
            &[node(
                "a",
                "spec: {unschedulable: true, taints: [{key: node.kubernetes.io/unschedulable, effect: NoSchedule}]}"
            )],
            "{}"
        ),
        ["uncordoning node a"]
    );
}

#[test]
fn remedies_needing_two_changes_are_omitted() {
    let node = node("a", "spec: {taints: [{key: gpu, effect: NoSchedule}]}");
    assert_eq!(remedies(&[node], "{nodeSelector: {disk: ssd}}"), Vec::<String>::new());
}
