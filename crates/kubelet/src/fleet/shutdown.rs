//! Shutdown of a machine: its node becomes unready, and its pods end in the order of their priority.
//!
//! Follows `pkg/kubelet/nodeshutdown` of Kubernetes: pods of at least the priority of system components come last, each
//! group has its own time, and pods that are still there when it is over are left to the machine.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use api::core::v1::Pod;
use api::json::Text;
use client::informer::Key;
use tracing::{info, warn};

use super::Fleet;
use crate::runtime::{Runtime, Termination};

/// The condition and the refusal of a node that is shutting down.
pub const NOT_READY: &str = "node is shutting down";
pub(crate) const REFUSAL: (&str, &str) = ("NodeShutdown", "Pod was rejected as the node is shutting down.");
const REASON: &str = "Terminated";
const MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";
/// Pods of at least this priority are critical.
const CRITICAL: i32 = 2_000_000_000;
/// Interval at which the ends of pods are looked for.
const LOOK: Duration = Duration::from_millis(100);
/// Time for the last status of a group.
const MARGIN: Duration = Duration::from_secs(2);

/// The time for a shutdown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ShutdownPeriods {
    /// For all pods; zero disables graceful shutdown.
    pub total: Duration,
    /// The part of it for critical pods.
    pub critical: Duration,
}

impl ShutdownPeriods {
    /// Checks that critical pods take no more than all.
    ///
    /// # Errors
    /// A message for users.
    pub fn check(self) -> Result<Self, String> {
        match self.critical <= self.total {
            true => Ok(self),
            false => Err("the shutdown grace period of critical pods is longer than that of all pods".to_owned()),
        }
    }

    /// The least priority of each group and its time, in the order in which groups end.
    fn groups(self) -> [(i32, Duration); 2] {
        [(i32::MIN, self.total.saturating_sub(self.critical)), (CRITICAL, self.critical)]
    }
}

/// The grace period of a pod in a group: its own, if that is shorter.
fn grace(pod: &Pod, period: Duration) -> i64 {
    let period = i64::try_from(period.as_secs()).unwrap_or(i64::MAX);
    pod.spec.termination_grace_period_seconds.map_or(period, |own| own.min(period))
}

impl<R: Runtime> Fleet<R> {
    /// Ends all pods of the fleet within the periods. From now on the nodes are not ready and take no pods.
    pub async fn shut_down(&self, periods: ShutdownPeriods) {
        let fleet = &self.inner;
        fleet.runtime.shut_down();
        for member in fleet.members.all() {
            fleet.node_queue.add(member.name.clone());
        }
        let groups = periods.groups();
        for (index, (least, period)) in groups.into_iter().enumerate() {
            let next = groups.get(index.saturating_add(1)).map_or(i32::MAX, |(priority, _)| *priority);
            let priority = |pod: &Pod| pod.spec.priority.unwrap_or(0);
            let is_of_group = |pod: &Pod| priority(pod) >= least && (priority(pod) < next || next == i32::MAX);
            let all = self.running_pods();
            let pods: Vec<Arc<Pod>> = all.into_iter().filter(|pod| is_of_group(pod)).collect();
            if pods.is_empty() {
                continue;
            }
            info!(pods = pods.len(), period = ?period, "Ending pods before the machine shuts down");
            for pod in &pods {
                let ending =
                    Termination { reason: REASON, message: MESSAGE.to_owned(), grace: Some(grace(pod, period)) };
                fleet.runtime.end_pod(&pod.metadata.uid, ending);
                fleet.pod_queue.add(Key::new(pod.metadata.namespace.clone(), pod.metadata.name.clone()));
            }
            let uids: HashSet<Text> = pods.iter().map(|pod| pod.metadata.uid.clone()).collect();
            let ended = async {
                while self.running_pods().iter().any(|pod| uids.contains(&pod.metadata.uid)) {
                    tokio::time::sleep(LOOK).await;
                }
            };
            if tokio::time::timeout(period.saturating_add(MARGIN), ended).await.is_err() {
                warn!(period = ?period, "Pods did not end in time");
            }
        }
    }

    /// Pods of the fleet that have not ended.
    fn running_pods(&self) -> Vec<Arc<Pod>> {
        let all = self.inner.pods.store().list();
        let runs = |pod: &Arc<Pod>| !pod.is_terminal() && self.has_node(&pod.spec.node_name);
        all.into_iter().filter(runs).filter(|pod| !crate::static_pods::is_mirror(pod)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_are_divided_between_groups() {
        let seconds = Duration::from_secs;
        let periods = ShutdownPeriods { total: seconds(30), critical: seconds(10) };
        assert_eq!(periods.check(), Ok(periods));
        assert_eq!(periods.groups(), [(i32::MIN, seconds(20)), (CRITICAL, seconds(10))]);
        assert!(ShutdownPeriods { total: seconds(5), critical: seconds(10) }.check().is_err());
        let mut pod = Pod::default();
        assert_eq!(grace(&pod, seconds(20)), 20);
        pod.spec.termination_grace_period_seconds = Some(3);
        assert_eq!(grace(&pod, seconds(20)), 3);
        pod.spec.termination_grace_period_seconds = Some(300);
        assert_eq!(grace(&pod, seconds(20)), 20);
    }
}
