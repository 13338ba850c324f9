//! ReplicationControllers: the older form of ReplicaSets, without a selector of expressions.
//!
//! It watches ReplicationControllers and pods, and works like the [ReplicaSet controller](crate::workloads::replicaset).
//! Follows Kubernetes' `pkg/controller/replication`.

use api::apps::v1::WorkloadCondition;
use api::core::v1::ReplicationController;
use api::json::Text;
use api::labels::{Operator, Requirement, Selector, SelectorError};
use api::meta::v1::StringMap;

use crate::manager::Context;
use crate::workloads::replicaset::{Counts, ReplicatedKind, reconcile};

impl ReplicatedKind for ReplicationController {
    const COUNTS_TERMINATING: bool = false;

    fn replicas(&self) -> i32 {
        self.spec.replicas.unwrap_or(1)
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.min_ready_seconds
    }

    fn selector(&self) -> Result<Selector, SelectorError> {
        let required = |(key, value): (&Text, &Text)| Requirement::new(key, Operator::Equals, vec![value.clone()]);
        let requirements = self.spec.selector.iter().map(required).collect::<Result<_, _>>()?;
        Ok(Selector::from_requirements(requirements))
    }

    fn template_labels(&self) -> Option<&StringMap> {
        self.spec.template.as_ref().map(|template| &template.metadata.labels)
    }

    fn counts(&self) -> Counts {
        let status = &self.status;
        Counts {
            replicas: status.replicas,
            fully_labeled: status.fully_labeled_replicas,
            ready: status.ready_replicas,
            available: status.available_replicas,
            terminating: None,
            observed_generation: status.observed_generation,
        }
    }

    fn conditions(&self) -> &[WorkloadCondition] {
        &self.status.conditions
    }
}

/// Runs the controller until shutdown.
pub async fn run(context: Context) {
    reconcile::run::<ReplicationController>(context).await;
}
