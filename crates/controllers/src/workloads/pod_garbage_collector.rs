//! Removes pods that no other component removes: on deleted or out-of-service nodes, terminated ones beyond a
//! limit, and those being deleted that never had a node.
//!
//! Checks everything every twenty seconds. Follows Kubernetes `pkg/controller/podgc`.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use api::core::v1::{Node, Pod};
use api::json::Text;
use api::time::Timestamp;
use api::well_known::{CONDITION_DISRUPTION_TARGET, TAINT_OUT_OF_SERVICE};
use client::objects::{Deletion, Patch};
use client::resources::ServedView as _;
use telemetry::logs::chain;
use tracing::{debug, info};

use crate::machinery::action::Action;
use crate::machinery::edit;
use crate::machinery::executor::Executor;
use crate::manager::Context;

const PERIOD: Duration = Duration::from_secs(20);
/// Minimum time for which a node must be missing.
const QUARANTINE_SECONDS: i64 = 40;

/// Runs the controller until shutdown.
pub async fn run(context: Context) {
    let (pods, nodes) = (context.informers.all::<Pod>(), context.informers.all::<Node>());
    let executor = context.executor();
    let mut missing = MissingNodes::default();
    let work = async {
        pods.synced().await;
        nodes.synced().await;
        loop {
            let (all, now) = (pods.store().list(), executor.now());
            let all: Vec<&Pod> = all.iter().map(|pod| &**pod).collect();
            let known: Vec<_> = nodes.store().list();
            let known: Vec<&Node> = known.iter().map(|node| &**node).collect();
            let suspects = missing.look(&all, &known, now);
            let mut gone = HashSet::new();
            for name in suspects {
                // The local copy may be late: the server decides.
                match context.client.objects::<Node>().get("", &name).await {
                    Err(error) if error.is_not_found() => drop(gone.insert(name)),
                    Err(error) => debug!(node = %name, err = %chain(&error), "Could not look up node"),
                    Ok(_) => {}
                }
            }
            for (pod, why) in collect(&all, &known, &gone, context.settings.terminated_pods) {
                remove(&executor, pod, why, now).await;
            }
            context.runtime.clock.sleep(PERIOD).await;
        }
    };
    tokio::select! {
        () = work => {}
        () = context.runtime.shutdown.requested() => {}
    }
}

async fn remove(executor: &Executor, pod: &Pod, why: RemovalReason, now: Timestamp) {
    let key = edit::key(&pod.metadata);
    info!(pod = %key, reason = ?why, "Forced deletion of pod");
    if let Err(error) = executor.perform(&key, actions(pod, why, now)).await {
        debug!(pod = %key, err = %chain(&error), "Could not delete pod");
    }
}

/// A reason to remove a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RemovalReason {
    /// Too many pods have ended.
    Ended,
    /// The node is out of service.
    OutOfService,
    /// The node was deleted.
    NodeGone,
    /// The pod is being deleted and has no node.
    NeverPlaced,
}

/// Nodes that pods name and that do not exist, and since when.
#[derive(Debug, Default)]
struct MissingNodes {
    since: HashMap<Text, Timestamp>,
}

impl MissingNodes {
    /// Records the missing nodes; returns those that have been missing long enough, and restarts their time.
    fn look(&mut self, pods: &[&Pod], nodes: &[&Node], now: Timestamp) -> BTreeSet<Text> {
        let known: HashSet<&str> = nodes.iter().map(|node| node.metadata.name.as_str()).collect();
        let named: HashSet<&Text> =
            pods.iter().map(|pod| &pod.spec.node_name).filter(|name| !name.is_empty()).collect();
        self.since.retain(|name, _| named.contains(name) && !known.contains(name.as_str()));
        for name in named.into_iter().filter(|name| !known.contains(name.as_str())) {
            self.since.entry(name.clone()).or_insert(now);
        }
        let long = |at: &Timestamp| at.plus_seconds(QUARANTINE_SECONDS) <= now;
        let suspects: BTreeSet<Text> =
            self.since.iter().filter(|(_, at)| long(at)).map(|(name, _)| name.clone()).collect();
        self.since.retain(|name, _| !suspects.contains(name));
        suspects
    }
}

/// The pods to be removed, each once.
fn collect<'a>(
    pods: &[&'a Pod],
    nodes: &[&Node],
    gone: &HashSet<Text>,
    ended_max: usize,
) -> Vec<(&'a Pod, RemovalReason)> {
    let mut found: Vec<(&Pod, RemovalReason)> = Vec::new();
    if ended_max > 0 {
        let lives = |phase: &str| matches!(phase, "Pending" | "Running" | "Unknown");
        let mut ended: Vec<&Pod> = pods.iter().copied().filter(|pod| !lives(&pod.status.phase)).collect();
        ended.sort_by_key(|pod| {
            let evicted = pod.status.phase == "Failed" && pod.status.reason == "Evicted";
            (!evicted, pod.metadata.creation_timestamp, pod.metadata.name.clone())
        });
        let surplus = ended.len().saturating_sub(ended_max);
        found.extend(ended.into_iter().take(surplus).map(|pod| (pod, RemovalReason::Ended)));
    }
    let out_of_service: HashSet<&str> = nodes
        .iter()
        .filter(|node| !is_ready(node) && node.spec.taints.iter().any(|taint| taint.key == TAINT_OUT_OF_SERVICE))
        .map(|node| node.metadata.name.as_str())
        .collect();
    for pod in pods {
        let (node, deleting) = (&pod.spec.node_name, pod.metadata.is_deleting());
        if gone.contains(node) {
            found.push((pod, RemovalReason::NodeGone));
        } else if deleting && out_of_service.contains(node.as_str()) {
            found.push((pod, RemovalReason::OutOfService));
        } else if deleting && node.is_empty() {
            found.push((pod, RemovalReason::NeverPlaced));
        }
    }
    let mut seen = HashSet::new();
    found.retain(|(pod, _)| seen.insert(&pod.metadata.uid));
    found
}

fn is_ready(node: &Node) -> bool {
    node.status.conditions.iter().any(|it| it.condition_type == "Ready" && it.status == "True")
}

/// A pod is marked as failed, unless it has ended, and deleted at once.
fn actions(pod: &Pod, why: RemovalReason, now: Timestamp) -> Vec<Action> {
    let metadata = &pod.metadata;
    let mut actions = Vec::new();
    if !pod.is_terminal() {
        let (uid, generation) = (metadata.uid.clone(), metadata.generation);
        let mut patch =
            api::json!({"metadata": {"uid": uid}, "status": {"phase": "Failed", "observedGeneration": generation}});
        if why == RemovalReason::NodeGone {
            let time = edit::time(now);
            let condition = api::json!([{
                "type": CONDITION_DISRUPTION_TARGET, "status": "True", "observedGeneration": generation, "lastProbeTime": null,
                "lastTransitionTime": time, "reason": "DeletionByPodGC", "message": "PodGC: node no longer exists",
            }]);
            patch.set_at(&["status", "conditions"], condition);
        }
        actions.push(Action::Patch {
            resource: Pod::RESOURCE,
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
            subresource: "status",
            kind: Patch::StrategicMerge,
            patch,
        });
    }
    actions.push(Action::Delete {
        resource: Pod::RESOURCE,
        namespace: metadata.namespace.clone(),
        name: metadata.name.clone(),
        uid: Text::default(),
        how: Deletion { grace_period_seconds: Some(0), ..Deletion::default() },
    });
    actions
}

#[cfg(test)]
mod tests {

    use super::*;

    fn pod(name: &str, node: &str, phase: &str, deleting: bool) -> Pod {
        let mut pod: Pod = api::json::from_value(&api::json!({
            "metadata": {"name": name, "namespace": "a", "uid": name, "generation": 2},
            "spec": {"nodeName": node}, "status": {"phase": phase},
        }))
        .expect("a pod");
        pod.metadata.deletion_timestamp = deleting.then_some(Timestamp { seconds: 1, nanos: 0 });
        pod
    }

    fn node(name: &str) -> Node {
        api::json::from_value(&api::json!({"metadata": {"name": name}})).expect("a node")
    }

    #[test]
    fn a_node_must_be_missing_for_a_while() {
        let mut missing = MissingNodes::default();
        let (pod, there) = (pod("p", "n", "Running", false), node("n"));
        let at = |seconds| Timestamp { seconds, nanos: 0 };
        assert!(missing.look(&[&pod], &[&there], at(0)).is_empty());
        assert!(missing.look(&[&pod], &[], at(10)).is_empty());
        assert!(missing.look(&[&pod], &[], at(49)).is_empty());
        assert_eq!(missing.look(&[&pod], &[], at(50)).len(), 1);
        assert!(missing.look(&[&pod], &[&there], at(60)).is_empty());
    }

    #[test]
    fn pods_are_found_for_every_reason() {
        let (lost, unplaced, fine) = (
            pod("lost", "gone", "Running", false),
            pod("never", "", "Pending", true),
            pod("fine", "n", "Running", true),
        );
        let (old, new) = (pod("a", "n", "Failed", false), pod("b", "n", "Succeeded", false));
        let n = node("n");
        let found = collect(&[&lost, &unplaced, &fine, &new, &old], &[&n], &HashSet::from(["gone".into()]), 1);
        let found: Vec<(&str, RemovalReason)> =
            found.iter().map(|(pod, why)| (pod.metadata.name.as_str(), *why)).collect();
        assert_eq!(
            found,
            [("a", RemovalReason::Ended), ("lost", RemovalReason::NodeGone), ("never", RemovalReason::NeverPlaced)]
        );
        let mut out = node("n");
        out.spec.taints = vec![api::core::v1::Taint { key: TAINT_OUT_OF_SERVICE.into(), ..Default::default() }];
        assert_eq!(collect(&[&fine], &[&out], &HashSet::new(), 0).len(), 1);
    }

    #[test]
    fn only_pods_that_live_are_marked_as_failed() {
        let now = Timestamp { seconds: 1, nanos: 0 };
        assert_eq!(actions(&pod("p", "n", "Succeeded", false), RemovalReason::NodeGone, now).len(), 1);
        let both = actions(&pod("p", "n", "Running", false), RemovalReason::NodeGone, now);
        let Some(Action::Patch { patch, .. }) = both.first() else { panic!("{both:?}") };
        assert_eq!(patch.i64_at(&["status", "observedGeneration"]), Some(2));
        assert!(patch.at(&["status", "conditions"]).is_some());
        let other = actions(&pod("p", "", "Pending", true), RemovalReason::NeverPlaced, now);
        let Some(Action::Patch { patch, .. }) = other.first() else { panic!("{other:?}") };
        assert!(patch.at(&["status", "conditions"]).is_none());
    }
}
