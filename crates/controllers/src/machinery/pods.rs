//! Helpers for controllers that own pods: queries, creation and deletion.

mod order;
mod template;

use std::sync::Arc;
use std::time::Duration;

use api::core::v1::{ObjectReference, Pod, PodCondition};
use api::json::Value;
use api::metadata;
use api::time::Timestamp;
use client::Resource;
use client::events::Severity;
use client::informer::Key;
use client::objects::Deletion;
use client::resources::ServedView as _;
use futures::future::join_all;

use crate::machinery::executor::{CreationResult, Executor, Failure, Owner};

pub use order::{RankedPod, sort_for_deletion, sort_newest_first};
pub use template::from_template;

/// The resource of pods.
pub const PODS: Resource = Pod::RESOURCE;

/// Whether a pod has neither ended nor is being deleted.
#[must_use]
pub fn is_active(pod: &Pod) -> bool {
    !pod.is_terminal() && !pod.metadata.is_deleting()
}

/// Whether a pod is being deleted and has not ended yet.
#[must_use]
pub fn is_terminating(pod: &Pod) -> bool {
    !pod.is_terminal() && pod.metadata.is_deleting()
}

/// A condition of a pod.
#[must_use]
pub fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status.conditions.iter().find(|condition| condition.condition_type == kind)
}

/// Whether a pod serves.
#[must_use]
pub fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|ready| ready.status == "True")
}

/// Since when a pod serves.
#[must_use]
pub fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let since = condition(pod, "Ready").filter(|ready| ready.status == "True")?.last_transition_time;
    since.filter(|since| !since.is_zero())
}

/// Whether a pod has been ready for at least `min_ready_seconds`.
#[must_use]
pub fn is_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    if !is_ready(pod) {
        return false;
    }
    let enough = |since: Timestamp| since.plus_seconds(i64::from(min_ready_seconds)) <= now;
    min_ready_seconds == 0 || ready_since(pod).is_some_and(enough)
}

/// Returns the time until the next ready pod becomes available.
#[must_use]
pub fn next_available<'a>(
    pods: impl IntoIterator<Item = &'a Arc<Pod>>,
    min_ready_seconds: i32,
    now: Timestamp,
) -> Option<Duration> {
    if min_ready_seconds <= 0 {
        return None;
    }
    let waits = pods.into_iter().filter_map(|pod| {
        let nanos = until(ready_since(pod)?.plus_seconds(i64::from(min_ready_seconds)), now);
        (nanos > Duration::ZERO).then_some(nanos)
    });
    waits.min()
}

/// Returns the time from `now`, zero if it has passed.
#[must_use]
pub fn until(at: Timestamp, now: Timestamp) -> Duration {
    let nanos = at.unix_nanos().saturating_sub(now.unix_nanos());
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

impl Executor {
    /// Creates pods for their owner, with an event for each, and one for a new failure. See
    /// [`create_all`](Self::create_all).
    pub async fn create_pods(&self, key: &Key, owner: &Owner, pods: Vec<Value>) -> CreationResult {
        let created = self.create_all(key, owner, &PODS, pods).await;
        for pod in &created.objects {
            let message = format!("Created pod: {}", metadata::name(pod));
            self.recorder().event(owner.about.clone(), Severity::Normal, "SuccessfulCreate", &message);
        }
        // A terminating namespace rejects everything, which is not reported.
        if let Some(failure) = created.failure.as_ref().filter(|it| created.is_news && !it.is_ending_namespace()) {
            let message = format!("Error creating: {failure}");
            self.recorder().event(owner.about.clone(), Severity::Warning, "FailedCreate", &message);
        }
        created
    }

    /// Deletes pods at once, with an event for each. A pod that was already deleted is not a failure.
    ///
    /// # Errors
    /// The first failure.
    pub async fn delete_pods(&self, key: &Key, about: &ObjectReference, pods: &[Arc<Pod>]) -> Result<(), Failure> {
        let deletions = pods.iter().map(|pod| async move {
            let (namespace, name) = (&pod.metadata.namespace, &pod.metadata.name);
            let how = Deletion::default();
            let result = self.delete(key, &PODS, namespace, name, &pod.metadata.uid, &how).await;
            let (severity, reason, message) = match &result {
                Ok(true) => (Severity::Normal, "SuccessfulDelete", format!("Deleted pod: {name}")),
                Ok(false) => return Ok(()),
                Err(failure) => (Severity::Warning, "FailedDelete", format!("Error deleting: {failure}")),
            };
            self.recorder().event(about.clone(), severity, reason, &message);
            result.map(|_| ())
        });
        join_all(deletions).await.into_iter().collect()
    }
}
