//! The templates that a daemon set has had: ControllerRevisions, newest last.
//!
//! Follows `constructHistory` and `cleanupHistory` of Kubernetes' DaemonSet controller. Which pods came from which
//! template is told by the revision's hash, which they carry as a label.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::apps::v1::{ControllerRevision, DaemonSet};
use api::core::v1::Pod;
use api::json::{Text, Value};

use super::pods::HASH_LABEL;
pub use crate::history::Revision;
use crate::history::{data_of, sort};

/// How many old revisions are kept where nothing is said.
const LIMIT: i32 = 10;

/// What a set's revisions say about its present template.
#[derive(Debug)]
pub struct History {
    /// Those of the present template: one, unless something went wrong.
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

    /// The revision that stands for the present template: the newest of them.
    #[must_use]
    pub fn newest(&self) -> Option<&Revision> {
        self.current.last()
    }

    /// The old revisions that are no longer kept: the oldest, but none that a pod came from.
    #[must_use]
    pub fn surplus(&self, set: &DaemonSet, pods: &[Arc<Pod>]) -> Vec<&Revision> {
        let limit = usize::try_from(set.spec.revision_history_limit.unwrap_or(LIMIT)).unwrap_or(0);
        let live: BTreeSet<&Text> = pods.iter().filter_map(|pod| pod.metadata.labels.get(HASH_LABEL)).collect();
        let surplus = self.old.len().saturating_sub(limit);
        self.old.iter().filter(|it| !live.contains(&hash_of(it))).take(surplus).collect()
    }
}

/// The hash of a revision, by which its pods are known.
#[must_use]
pub fn hash_of(revision: &ControllerRevision) -> Text {
    revision.metadata.labels.get(HASH_LABEL).cloned().unwrap_or_else(|| revision.metadata.name.clone())
}
