//! Order in which surplus pods are deleted.
//!
//! Follows `ActivePodsWithRanks` in Kubernetes: unscheduled, pending and unready pods before others, then by the
//! annotation for deletion cost, crowded nodes, time of service, restarts and age.

use std::cmp::{Ordering, Reverse};
use std::sync::Arc;

use api::core::v1::Pod;
use api::time::Timestamp;
use api::well_known::ANNOTATION_POD_DELETION_COST;

use super::{is_ready, ready_since};

/// A pod and how many of its kin run on its node.
#[derive(Debug, Clone)]
pub struct RankedPod {
    /// The pod.
    pub pod: Arc<Pod>,
    /// Number of related pods on its node.
    pub crowd: usize,
}

/// Sorts pods so that those to be deleted come first.
pub fn sort_for_deletion(pods: &mut [RankedPod], now: Timestamp) {
    pods.sort_by(|left, right| compare(left, right, now));
}

fn compare(left: &RankedPod, right: &RankedPod, now: Timestamp) -> Ordering {
    let (a, b) = (&*left.pod, &*right.pod);
    let is_bound = |pod: &Pod| !pod.spec.node_name.is_empty();
    is_bound(a)
        .cmp(&is_bound(b))
        .then_with(|| phase_rank(a).cmp(&phase_rank(b)))
        .then_with(|| is_ready(a).cmp(&is_ready(b)))
        .then_with(|| cost(a).cmp(&cost(b)))
        .then_with(|| right.crowd.cmp(&left.crowd))
        .then_with(|| match (is_ready(a), is_ready(b)) {
            (true, true) => youngest_first(a, b, ready_since(a), ready_since(b), now),
            _ => Ordering::Equal,
        })
        .then_with(|| Reverse(restarts(a)).cmp(&Reverse(restarts(b))))
        .then_with(|| youngest_first(a, b, a.metadata.creation_timestamp, b.metadata.creation_timestamp, now))
}

/// Sorts pods so that the least useful come first, and among those that serve the newest. Follows `ActivePods`.
pub fn sort_newest_first(pods: &mut [Arc<Pod>]) {
    let newest = |a: Option<Timestamp>, b: Option<Timestamp>| match (a, b) {
        (Some(a), Some(b)) => b.cmp(&a),
        (a, b) => a.is_some().cmp(&b.is_some()),
    };
    pods.sort_by(|a, b| {
        let is_bound = |pod: &Pod| !pod.spec.node_name.is_empty();
        let by_service =
            if is_ready(a) && is_ready(b) { newest(ready_since(a), ready_since(b)) } else { Ordering::Equal };
        is_bound(a)
            .cmp(&is_bound(b))
            .then_with(|| phase_rank(a).cmp(&phase_rank(b)))
            .then_with(|| is_ready(a).cmp(&is_ready(b)))
            .then(by_service)
            .then_with(|| restarts(b).cmp(&restarts(a)))
            .then_with(|| newest(a.metadata.creation_timestamp, b.metadata.creation_timestamp))
    });
}

fn phase_rank(pod: &Pod) -> u8 {
    match pod.status.phase.as_str() {
        "Unknown" => 1,
        "Running" => 2,
        // Kubernetes: phases that it does not list count as Pending.
        _ => 0,
    }
}

/// Returns the deletion cost set by the user; 0 if it is not a number in Kubernetes' notation.
fn cost(pod: &Pod) -> i32 {
    let text = pod.metadata.annotations.get(ANNOTATION_POD_DELETION_COST).map_or("0", |text| text.as_str());
    let is_plain = !(text.starts_with('+') || (text.len() > 1 && text.starts_with('0')));
    if is_plain { text.parse().unwrap_or(0) } else { 0 }
}

/// The younger pod comes first; ages within one power of two count as equal, so that the choice is not always
/// the youngest.
fn youngest_first(a: &Pod, b: &Pod, at: Option<Timestamp>, bt: Option<Timestamp>, now: Timestamp) -> Ordering {
    match (at, bt) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Less,
        (Some(_), None) => Ordering::Greater,
        (Some(at), Some(bt)) if at == bt => Ordering::Equal,
        (Some(at), Some(bt)) => {
            age_rank(at, now).cmp(&age_rank(bt, now)).then_with(|| a.metadata.uid.cmp(&b.metadata.uid))
        }
    }
}

/// The binary logarithm of the age in nanoseconds, rounded down: pods of similar age have equal rank.
fn age_rank(since: Timestamp, now: Timestamp) -> i64 {
    let age = now.unix_nanos().saturating_sub(since.unix_nanos());
    u64::try_from(age).ok().and_then(u64::checked_ilog2).map_or(-1, i64::from)
}

/// The most restarts of a container, then those of a restartable init container.
fn restarts(pod: &Pod) -> (i32, i32) {
    let regular = pod.status.container_statuses.iter().map(|status| status.restart_count).max();
    let is_sidecar = |name: &str| {
        let mut containers = pod.spec.init_containers.iter();
        containers.any(|it| it.name == name && it.restart_policy.as_deref() == Some("Always"))
    };
    let sidecars = pod.status.init_container_statuses.iter().filter(|status| is_sidecar(&status.name));
    (regular.unwrap_or(0), sidecars.map(|status| status.restart_count).max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(json: &str) -> RankedPod {
        let value = api::json::parse(json.as_bytes()).unwrap();
        RankedPod { pod: Arc::new(api::json::from_value(&value).unwrap()), crowd: 0 }
    }

    fn ready(uid: &str, since: i64, restarts: i32) -> String {
        let at = Timestamp { seconds: since, nanos: 0 };
        format!(
            r#"{{"metadata":{{"uid":"{uid}"}},"spec":{{"nodeName":"n"}},"status":{{"phase":"Running",
            "conditions":[{{"type":"Ready","status":"True","lastTransitionTime":"{at}"}}],
            "containerStatuses":[{{"restartCount":{restarts}}}]}}}}"#
        )
    }

    #[track_caller]
    fn check(first: &str, second: &str) {
        let now = Timestamp { seconds: 100_000, nanos: 0 };
        for order in [[first, second], [second, first]] {
            let mut pods = order.map(pod);
            sort_for_deletion(&mut pods, now);
            assert_eq!(pods[0].pod, pod(first).pod);
        }
    }

    #[test]
    fn the_less_useful_go_first() {
        let running = ready("z", 0, 0);
        check(r#"{"status":{"phase":"Running"}}"#, &running);
        check(r#"{"spec":{"nodeName":"n"},"status":{"phase":"Pending"}}"#, &running);
        check(r#"{"spec":{"nodeName":"n"},"status":{"phase":"Running"}}"#, &running);
        check(
            &ready("a", 0, 0)
                .replace("\"uid\"", r#""annotations":{"controller.kubernetes.io/pod-deletion-cost":"-1"},"uid""#),
            &running,
        );
        check(&ready("a", 0, 3), &running);
        // One has served for seconds, the other for a day.
        check(&ready("z", 99_990, 0), &ready("a", 0, 0));
        // Both for about a day: the uid decides.
        check(&ready("a", 0, 0), &ready("b", 10, 0));
    }

    #[test]
    fn crowded_nodes_lose_pods_first() {
        let now = Timestamp { seconds: 1, nanos: 0 };
        let mut pods = [pod(&ready("a", 0, 0)), RankedPod { crowd: 2, ..pod(&ready("b", 0, 0)) }];
        sort_for_deletion(&mut pods, now);
        assert_eq!(pods[0].crowd, 2);
    }
}
