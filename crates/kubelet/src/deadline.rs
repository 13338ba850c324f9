//! Active deadline of a pod: `activeDeadlineSeconds`, from its start on the node.
//!
//! Follows `pkg/kubelet/active_deadline.go` of Kubernetes.

use std::time::Duration;

use api::core::v1::Pod;
use api::time::Timestamp;

/// Reason for a pod that has reached its deadline.
pub const REASON: &str = "DeadlineExceeded";
/// Message for a pod that has reached its deadline.
pub const MESSAGE: &str = "Pod was active on the node longer than the specified deadline";

/// Returns the time until the pod's deadline; `None` if it has none.
#[must_use]
pub fn left(pod: &Pod, now: Timestamp) -> Option<Duration> {
    let seconds = u64::try_from(pod.spec.active_deadline_seconds?).unwrap_or_default();
    let since = pod.status.start_time.unwrap_or(now);
    Some(Duration::from_secs(seconds).saturating_sub(since.until(now)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(spec: &str, status: &str, expected: Option<u64>) {
        let text = format!(r#"{{"spec": {spec}, "status": {status}}}"#);
        let pod = api::json::from_value(&api::json::parse(text.as_bytes()).expect("JSON")).expect("a pod");
        let now = Timestamp::parse("2026-01-01T00:01:00Z").expect("a time");
        assert_eq!(left(&pod, now), expected.map(Duration::from_secs));
    }

    #[test]
    fn the_time_of_a_pod_is_up_once_it_was_active_for_so_long() {
        let since = r#"{"startTime": "2026-01-01T00:00:55Z"}"#;
        check("{}", since, None);
        check(r#"{"activeDeadlineSeconds": 30}"#, "{}", Some(30));
        check(r#"{"activeDeadlineSeconds": 30}"#, since, Some(25));
        check(r#"{"activeDeadlineSeconds": 5}"#, since, Some(0));
        check(r#"{"activeDeadlineSeconds": 1}"#, since, Some(0));
    }
}
