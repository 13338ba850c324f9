//! The templates that a daemon set has had: ControllerRevisions, newest last.
//!
//! Follows `constructHistory` and `cleanupHistory` of Kubernetes' DaemonSet controller. The template of a pod
//! is identified by the revision's hash in its labels.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::apps::v1::{ControllerRevision, DaemonSet};
use api::core::v1::Pod;
use api::json::{Text, Value};
use api::well_known::LABEL_CONTROLLER_REVISION_HASH;

pub use crate::machinery::history::Revision;
use crate::machinery::history::{data_of, sort};

/// Default number of old revisions to keep.
const LIMIT: i32 = 10;

/// Revisions of a set in relation to its present template.
#[derive(Debug)]
pub struct History {
    /// Revisions of the present template: normally one.
    pub current: Vec<Revision>,
    /// The others, oldest first.
    pub old: Vec<Revision>,
}

impl History {
    /// Sorts the revisions of a set.
    #[must_use]
    pub fn new(document: &Value, revisions: Vec<Revision>) -> Self {
        let data = data_of(document);
        let (mut current, mut old): (Vec<_>, Vec<_>) =
            revisions.into_iter().partition(|it| it.data.as_ref() == Some(&data));
        sort(&mut current);
        sort(&mut old);
        History { current, old }
    }

    /// The number that the present revision should have.
    #[must_use]
    pub fn number(&self) -> i64 {
        self.old.last().map_or(0, |it| it.revision).saturating_add(1)
    }

    /// The revision of the present template: the newest of them.
    #[must_use]
    pub fn newest(&self) -> Option<&Revision> {
        self.current.last()
    }

    /// The old revisions that are no longer kept: the oldest, but none that a pod came from.
    #[must_use]
    pub fn surplus(&self, set: &DaemonSet, pods: &[Arc<Pod>]) -> Vec<&Revision> {
        let limit = usize::try_from(set.spec.revision_history_limit.unwrap_or(LIMIT)).unwrap_or(0);
        let live: BTreeSet<&Text> =
            pods.iter().filter_map(|pod| pod.metadata.labels.get(LABEL_CONTROLLER_REVISION_HASH)).collect();
        let surplus = self.old.len().saturating_sub(limit);
        self.old.iter().filter(|it| !live.contains(&hash_of(it))).take(surplus).collect()
    }
}

/// The hash of a revision, by which its pods are known.
#[must_use]
pub fn hash_of(revision: &ControllerRevision) -> Text {
    revision
        .metadata
        .labels
        .get(LABEL_CONTROLLER_REVISION_HASH)
        .cloned()
        .unwrap_or_else(|| revision.metadata.name.clone())
}
