//! Reports on annotations of the simulation that cannot be read: an event on the object, and a line in the log.

use api::core::v1::{Node, Pod};
use api::meta::v1::StringMap;
use client::events::{Severity, reference};
use client::informer::Change;
use tracing::warn;

use super::Inner;
use super::member::Member;
use crate::annotations::{Problems, has_any};
use crate::runtime::Runtime;

/// The reason of the events.
const REASON: &str = "InvalidSimulationAnnotation";

impl<R: Runtime> Inner<R> {
    /// Reports invalid annotations of a pod that was assigned to a node, or whose annotations changed.
    pub(super) fn report_annotations_of_pod(&self, change: &Change<Pod>) {
        let (old, pod) = match change {
            // A pod that has started was reported on when it came.
            Change::Added(pod) if pod.status.start_time.is_none() => (None, pod),
            Change::Updated { old, new } => (Some(&old.metadata.annotations), new),
            Change::Added(_) | Change::Deleted(_) => return,
        };
        if !is_news(old, &pod.metadata.annotations) {
            return;
        }
        let problems = Problems::of_pod(&pod.metadata.annotations);
        let Some(member) = self.members.get(&pod.spec.node_name) else { return };
        for why in &problems.errors {
            warn!(pod = %pod.metadata.key(), err = %why, "Ignored annotation of pod");
            member.warn(pod, REASON, why);
        }
        self.log_deprecated(problems.deprecated);
    }

    /// Reports on the annotations of a node that joins, or whose annotations change.
    pub(super) fn report_annotations_of_node(&self, member: &Member, change: &Change<Node>) {
        let (old, node) = match change {
            Change::Added(node) => (None, node),
            Change::Updated { old, new } => (Some(&old.metadata.annotations), new),
            Change::Deleted(_) => return,
        };
        if !is_news(old, &node.metadata.annotations) {
            return;
        }
        let problems = Problems::of_node(&node.metadata.annotations);
        for why in &problems.errors {
            warn!(node = %member.name, err = %why, "Ignored annotation of node");
            member.recorder().event(reference(&**node), Severity::Warning, REASON, why);
        }
        self.log_deprecated(problems.deprecated);
    }

    /// Logs each deprecated name once: thousands of pods may have it.
    fn log_deprecated(&self, deprecated: Vec<String>) {
        let mut logged = self.deprecated.lock();
        for message in deprecated {
            if !logged.contains(&message) {
                warn!(err = %message, "Read a deprecated annotation");
                logged.insert(message);
            }
        }
    }
}

/// Whether annotations of the simulation may have come or changed.
fn is_news(old: Option<&StringMap>, new: &StringMap) -> bool {
    old != Some(new) && has_any(new)
}
