//! ReplicaSets: a number of equal pods.
//!
//! It watches ReplicaSets and pods. Matching pods without a controller are adopted, pods that no longer match
//! are released; then pods are created or deleted until the number is reached, and the status is updated.
//! `rule` decides how many and which, `status` what to report, `reconcile` combines them. The same code serves
//! [ReplicationControllers](crate::workloads::replicationcontroller). Follows Kubernetes' `pkg/controller/replicaset`.

pub(crate) mod reconcile;
pub(crate) mod rule;
pub(crate) mod status;

use api::apps::v1::{ReplicaSet, WorkloadCondition};
use api::labels::{Selector, SelectorError};
use api::meta::v1::StringMap;
use client::resources::ServedView;

use crate::manager::Context;

/// A kind that maintains a number of equal pods: a ReplicaSet or a ReplicationController.
pub(crate) trait ReplicatedKind: ServedView {
    /// Whether the status counts pods that are ending.
    const COUNTS_TERMINATING: bool;

    fn replicas(&self) -> i32;
    fn min_ready_seconds(&self) -> i32;
    fn selector(&self) -> Result<Selector, SelectorError>;
    fn template_labels(&self) -> Option<&StringMap>;
    fn counts(&self) -> Counts;
    fn conditions(&self) -> &[WorkloadCondition];
}

/// Counts of the status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    pub(crate) replicas: i32,
    pub(crate) fully_labeled: i32,
    pub(crate) ready: i32,
    pub(crate) available: i32,
    pub(crate) terminating: Option<i32>,
    pub(crate) observed_generation: i64,
}

impl ReplicatedKind for ReplicaSet {
    const COUNTS_TERMINATING: bool = true;

    fn replicas(&self) -> i32 {
        self.spec.replicas.unwrap_or(1)
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.min_ready_seconds
    }

    fn selector(&self) -> Result<Selector, SelectorError> {
        self.spec.selector.clone().unwrap_or_default().to_selector()
    }

    fn template_labels(&self) -> Option<&StringMap> {
        Some(&self.spec.template.metadata.labels)
    }

    fn counts(&self) -> Counts {
        let status = &self.status;
        Counts {
            replicas: status.replicas,
            fully_labeled: status.fully_labeled_replicas,
            ready: status.ready_replicas,
            available: status.available_replicas,
            terminating: status.terminating_replicas,
            observed_generation: status.observed_generation,
        }
    }

    fn conditions(&self) -> &[WorkloadCondition] {
        &self.status.conditions
    }
}

/// Runs the controller until shutdown.
pub async fn run(context: Context) {
    reconcile::run::<ReplicaSet>(context).await;
}
