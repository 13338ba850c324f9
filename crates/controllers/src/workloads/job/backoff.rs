//! Back-off of failed pods: 10 seconds, then twice that, up to 10 minutes, until one succeeds.

use std::sync::Arc;
use std::time::Duration;

use api::core::v1::Pod;
use api::time::Timestamp;

use crate::machinery::pods::{condition, until};

const FIRST: Duration = Duration::from_secs(10);
const MAX: Duration = Duration::from_secs(600);

/// Failures in a row.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Backoff {
    failures: u32,
    last: Option<Timestamp>,
}

impl Backoff {
    /// Returns the back-off including pods that have ended since.
    pub(super) fn after(&self, succeeded: &[Arc<Pod>], failed: &[Arc<Pod>]) -> Self {
        let last_success = succeeded.iter().map(|pod| ended_at(pod)).max();
        let mut failures: Vec<Timestamp> = failed.iter().map(|pod| ended_at(pod)).collect();
        failures.sort_unstable();
        let before = match last_success {
            Some(success) => {
                failures.retain(|failure| *failure > success);
                Self::default()
            }
            None => self.clone(),
        };
        let count = u32::try_from(failures.len()).unwrap_or(u32::MAX);
        Self { failures: before.failures.saturating_add(count), last: failures.last().copied().or(before.last) }
    }

    /// Returns the remaining delay.
    pub(super) fn remaining(&self, now: Timestamp) -> Duration {
        self.last.map_or(Duration::ZERO, |last| remaining(self.failures, last, now))
    }
}

/// Returns the remaining delay after this many failures, given the time of the last one.
pub(super) fn remaining(failures: u32, last: Timestamp, now: Timestamp) -> Duration {
    if failures == 0 {
        return Duration::ZERO;
    }
    let factor = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    let pause = FIRST.saturating_mul(factor).min(MAX);
    let seconds = i64::try_from(pause.as_secs()).unwrap_or(i64::MAX);
    until(last.plus_seconds(seconds), now)
}

/// Time at which a pod ended: from its containers, its conditions, or its deletion.
pub(super) fn ended_at(pod: &Pod) -> Timestamp {
    let of_container = |status: &api::core::v1::ContainerStatus| {
        let text = status.state.as_ref()?.str_at(&["terminated", "finishedAt"])?;
        Timestamp::parse(text).ok()
    };
    // Sidecars end after all others.
    let is_sidecar = |status: &&api::core::v1::ContainerStatus| {
        let mut containers = pod.spec.init_containers.iter();
        containers.any(|it| it.name == status.name && it.restart_policy.as_deref() == Some("Always"))
    };
    let sidecars = pod.status.init_container_statuses.iter().filter(is_sidecar);
    let of_containers: Option<Vec<Timestamp>> =
        pod.status.container_statuses.iter().chain(sidecars).map(of_container).collect();
    if let Some(latest) = of_containers.and_then(|times| times.into_iter().max()) {
        return latest;
    }
    let unready = condition(pod, "Ready").filter(|ready| ready.status == "False");
    if let Some(at) = unready.and_then(|ready| ready.last_transition_time) {
        return at;
    }
    if let Some(at) = pod.metadata.deletion_timestamp {
        let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
        return at.plus_seconds(grace.saturating_neg());
    }
    pod.metadata.creation_timestamp.unwrap_or(Timestamp::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_ends_with_its_last_container_or_sidecar() {
        let status = |name: &str, end: &str| api::json!({"name": name, "state": {"terminated": {"finishedAt": end}}});
        let pod = |sidecar: &str| {
            let statuses = api::json!([(status("c", "2026-01-01T00:00:05Z"))]);
            let others = api::json!([(status("first", "2026-01-01T00:00:01Z")), (status("side", sidecar))]);
            let pod: Pod = api::json::from_value(&api::json!({
                "metadata": {"creationTimestamp": "2025-01-01T00:00:00Z"},
                "spec": {"initContainers": [{"name": "first"}, {"name": "side", "restartPolicy": "Always"}]},
                "status": {"containerStatuses": statuses, "initContainerStatuses": others},
            }))
            .expect("a pod");
            ended_at(&pod).to_string()
        };
        assert_eq!(pod("2026-01-01T00:00:07Z"), "2026-01-01T00:00:07Z");
        assert_eq!(pod("2026-01-01T00:00:03Z"), "2026-01-01T00:00:05Z");
        assert_eq!(pod(""), "2025-01-01T00:00:00Z", "the sidecar still runs");
    }

    #[test]
    fn pauses_double_up_to_ten_minutes() {
        let at = |seconds: i64| Timestamp { seconds, nanos: 0 };
        assert_eq!(remaining(0, at(100), at(100)), Duration::ZERO);
        assert_eq!(remaining(1, at(100), at(104)), Duration::from_secs(6));
        assert_eq!(remaining(3, at(100), at(100)), Duration::from_secs(40));
        assert_eq!(remaining(99, at(100), at(100)), Duration::from_secs(600));
        assert_eq!(remaining(1, at(100), at(111)), Duration::ZERO);
    }
}
