//! The budget for expressions in one attempt, and the handling of an attempt that exceeds it.

use std::time::Duration;

use matching::expressions::meter::Excess;

use super::{Outcome, Scheduler};
use crate::cluster::PodInfo;
use crate::queue::QueuedPod;

/// Finding out why expressions failed may take one part of this many of the budget: the rest is reported by later attempts.
const COMPLAINT_PARTS: u32 = 8;
/// Making room may take one part of this many of the budget; the next attempt continues it.
const ROOM_PARTS: u32 = 2;
/// Share of the budget for judging one change for waiting pods: there may be many changes.
const CHANGE_PARTS: u32 = 20;

impl Scheduler {
    /// Starts the budget of an attempt.
    pub(super) fn begin_budget(&self) {
        if let Some(meter) = self.cluster.meter() {
            meter.begin();
        }
    }

    /// Starts the budget for determining why expressions failed.
    pub(super) fn begin_complaint_budget(&self) {
        self.begin_part(COMPLAINT_PARTS);
    }

    /// Starts the budget for preemption.
    pub(super) fn begin_room_budget(&self) {
        self.begin_part(ROOM_PARTS);
    }

    fn begin_part(&self, parts: u32) {
        if let Some(meter) = self.cluster.meter() {
            meter.begin_with_part(parts);
        }
    }

    /// Starts the budget for judging a change for waiting pods.
    pub(super) fn begin_change_budget(&self) {
        self.begin_part(CHANGE_PARTS);
    }

    /// Charges the pod's namespace for the cost since the budget began; returns the exceeded limit, if any.
    pub(super) fn settle_budget(&mut self, pod: &PodInfo, now: Duration) -> Option<Excess> {
        let meter = self.cluster.meter()?;
        let excess = meter.excess();
        let spent = meter.spent();
        if spent > 0 {
            self.queue.spent(pod.namespace(), spent, now);
        }
        excess
    }

    /// An attempt has ended: other pods with costly expressions are tried after a pause that begins now.
    pub fn attempt_ended(&mut self, now: Duration) {
        self.queue.attempt_ended(now);
    }

    /// Returns a pod whose attempt exceeded its budget to the queue.
    pub(super) fn postpone(&mut self, queued: QueuedPod, excess: Excess, now: Duration) -> Outcome {
        self.queue.postpone(queued, now);
        Outcome::Error(format!(
            "expressions of the pod or its volumes exceeded the budget of one scheduling attempt ({excess}); verdicts are kept, and the next attempt continues after a back-off"
        ))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::arithmetic_side_effects, reason = "tests")]

    use std::num::NonZeroUsize;
    use std::sync::Arc;

    use api::core::v1::{Node, Pod};
    use matching::expressions::meter::COST_MAX;
    use matching::{Features, Matcher, Meter};

    use super::*;
    use crate::plugins;
    use crate::queue::Backoff;

    const NODES: u64 = 20;

    /// A scheduler with a cost limit per attempt, nodes with one distinct taint each, and one node without.
    fn scheduler(cost_max: u64) -> (Scheduler, Arc<Matcher>) {
        let clock: Arc<dyn Fn() -> Duration + Send + Sync> = Arc::new(|| Duration::ZERO);
        let meter = Meter::with_limits(cost_max, Duration::MAX, clock.clone());
        let matcher = Matcher::new(NonZeroUsize::new(64).unwrap(), clock, Features::ALL).unwrap();
        let matcher = Arc::new(matcher.with_meter(Arc::new(meter)));
        let profile = plugins::default_profile(&matcher).unwrap();
        let mut scheduler = Scheduler::new(vec![profile], Backoff::default(), matcher.clone(), 1);
        for number in 0..NODES {
            let taint = format!(r#"{{"key": "k", "value": "{number}", "effect": "NoSchedule"}}"#);
            scheduler.set_node(&node(&format!("n{number}"), &taint), Duration::ZERO);
        }
        (scheduler, matcher)
    }

    fn node(name: &str, taint: &str) -> Node {
        let json = format!(
            r#"{{"metadata": {{"name": "{name}"}}, "spec": {{"taints": [{taint}]}},
                "status": {{"allocatable": {{"cpu": "8", "memory": "8Gi", "pods": "100"}}}}}}"#
        );
        api::json::from_value(&api::json::parse(json.as_bytes()).unwrap()).unwrap()
    }

    fn pod(namespace: &str, name: &str, expression: &str) -> Pod {
        pod_with(namespace, name, expression, "")
    }

    fn pod_with(namespace: &str, name: &str, expression: &str, more: &str) -> Pod {
        let tolerations =
            if expression.is_empty() { String::new() } else { format!(r#"{{"expression": "{expression}"}}"#) };
        let json = format!(
            r#"{{"metadata": {{"name": "{name}", "namespace": "{namespace}", "uid": "{namespace}-{name}"}},
                "spec": {{"containers": [{{"name": "c"}}], "tolerations": [{tolerations}] {more}}}}}"#
        );
        api::json::from_value(&api::json::parse(json.as_bytes()).unwrap()).unwrap()
    }

    fn costly(number: usize) -> String {
        format!("[1,2,3,4,5,6,7,8,9,10].all(a, taint.value != 'x{number}') && false")
    }

    #[test]
    fn attempt_over_budget_is_continued_by_the_next() {
        let (mut scheduler, matcher) = scheduler(100);
        scheduler.set_pod(&pod("a", "p", &costly(0)), Duration::ZERO);
        let (mut now, mut attempts) = (Duration::ZERO, 0);
        let message = loop {
            match scheduler.schedule_one(now).expect("a pod to try").outcome {
                Outcome::Error(message) => {
                    assert!(
                        message.contains("exceeded the budget of one scheduling attempt (run-time cost 100)"),
                        "{message}"
                    );
                    assert!(scheduler.schedule_one(now).is_none(), "it has to wait");
                }
                Outcome::Unschedulable(unplaced) => break unplaced.message,
                other => panic!("{other:?}"),
            }
            attempts += 1;
            assert!(attempts <= NODES);
            now += Duration::from_secs(15);
        };
        assert!(attempts > 1, "one attempt may not do everything");
        assert!(message.starts_with("0/20 nodes are available: "), "{message}");
        assert_eq!(matcher.cache().counts().evaluations, NODES, "no verdict is found twice");
    }

    #[test]
    fn wrong_answers_of_an_attempt_over_budget_are_not_remembered() {
        let (mut scheduler, _) = scheduler(100);
        // The last node is tolerated, and its verdict is found last.
        scheduler.set_pod(&pod("a", "p", "[1,2,3,4,5,6,7,8,9,10].all(a, taint.value == '19')"), Duration::ZERO);
        scheduler.set_pod(&pod("a", "q", "[1,2,3,4,5,6,7,8,9,10].all(a, taint.value == '19')"), Duration::ZERO);
        let mut now = Duration::ZERO;
        let mut placed = Vec::new();
        for _ in 0..100 {
            if let Some(attempt) = scheduler.schedule_one(now)
                && let Outcome::Scheduled(placement) = attempt.outcome
            {
                placed.push(placement.node.to_string());
            }
            now += Duration::from_secs(5);
        }
        assert_eq!(placed, ["n19", "n19"]);
    }

    #[test]
    fn plain_pod_does_not_wait_for_costly_ones() {
        let (mut scheduler, _) = scheduler(100);
        scheduler.set_node(&node("free", ""), Duration::ZERO);
        // Each pod has a different expression, so that no result can be reused.
        for number in 0..50 {
            scheduler.set_pod(&pod("hostile", &format!("p{number}"), &costly(number)), Duration::ZERO);
        }
        let mut now = Duration::from_millis(10);
        for round in 0..20 {
            let name = format!("plain{round}");
            scheduler.set_pod(&pod("other", &name, ""), now);
            let mut before = 0;
            loop {
                let attempt = scheduler.schedule_one(now).expect("the plain pod waits");
                if attempt.pod.name == *name {
                    assert!(matches!(attempt.outcome, Outcome::Scheduled(_)), "{:?}", attempt.outcome);
                    break;
                }
                before += 1;
                // The maximum duration of an attempt.
                now += Duration::from_millis(200);
            }
            assert!(before <= 1, "{before} costly attempts before plain pod {round}");
        }
    }

    #[test]
    fn plain_pods_take_turns_with_remembered_ones_of_a_costly_namespace() {
        let (mut scheduler, _) = scheduler(u64::MAX);
        scheduler.set_node(&node("free", ""), Duration::ZERO);
        scheduler.queue.spent(&"hostile".into(), 2 * COST_MAX, Duration::ZERO);
        // Attempts whose verdicts are all cached cost nothing, and do not close the lane.
        for number in 0..50 {
            let (name, more) = (format!("p{number}"), r#", "nodeSelector": {"nowhere": "true"}"#);
            scheduler.set_pod(&pod_with("hostile", &name, "taint.value == 'x'", more), Duration::ZERO);
        }
        let now = Duration::from_millis(900);
        assert!(scheduler.schedule_one(now).is_some());
        scheduler.set_pod(&pod("other", "plain", ""), now);
        let next: Vec<String> =
            (0..2).filter_map(|_| scheduler.schedule_one(now)).map(|it| it.pod.name.to_string()).collect();
        assert!(next.contains(&"plain".to_owned()), "{next:?}");
    }

    #[test]
    fn costly_pods_are_tried_with_pauses() {
        let (mut scheduler, _) = scheduler(100);
        for number in 0..50 {
            scheduler.set_pod(&pod("hostile", &format!("p{number}"), &costly(number)), Duration::ZERO);
        }
        let mut attempts = 0;
        for tenth in 0..100 {
            while scheduler.schedule_one(Duration::from_millis(tenth * 100)).is_some() {
                attempts += 1;
            }
        }
        assert!((8..=14).contains(&attempts), "{attempts} attempts of 200 ms in 10 s");
        let wake_up = scheduler.next_wake_up(Duration::from_secs(10)).unwrap();
        assert!(wake_up <= Duration::from_secs(11), "{wake_up:?}");
    }
}
