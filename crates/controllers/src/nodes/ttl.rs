//! Cache lifetime of secrets and config maps on nodes: the more nodes, the longer.
//!
//! It watches nodes, and writes the time as an annotation that kubelets read. Follows Kubernetes'
//! `pkg/controller/ttl`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use api::core::v1::Node;
use api::json::Text;
use client::controller::{Controller, Next, own};
use client::informer::{Informer, Key};
use client::objects::Patch;
use client::resources::ServedView as _;

use crate::machinery::action::Action;
use crate::machinery::executor::{Executor, Failure};
use crate::manager::Context;

const ANNOTATION: &str = "node.alpha.kubernetes.io/ttl";
const WORKERS: usize = 4;

/// Minimum and maximum number of nodes, and the TTL in seconds. The ranges overlap, so that the TTL does not flap at a
/// boundary.
const STEPS: [(usize, usize, u32); 5] =
    [(0, 100, 0), (90, 500, 15), (450, 1000, 30), (900, 2000, 60), (1800, usize::MAX, 300)];

struct Ttl {
    nodes: Informer<Node>,
    executor: Executor,
    step: AtomicUsize,
}

/// Runs the controller until shutdown.
pub async fn run(context: Context) {
    let nodes = context.informers.all::<Node>();
    let runner = Controller::new(context.name, &context.runtime).watch(&nodes, own).workers(WORKERS);
    let ttl = Arc::new(Ttl { nodes, executor: context.executor(), step: AtomicUsize::new(0) });
    runner
        .run(move |key: Key| {
            let ttl = ttl.clone();
            async move { ttl.reconcile(key).await }
        })
        .await;
}

/// The step that follows from the last one, with this many nodes.
fn next_step(mut step: usize, nodes: usize) -> usize {
    while STEPS.get(step).is_some_and(|(_, most, _)| nodes > *most) {
        step = step.saturating_add(1);
    }
    while STEPS.get(step).is_some_and(|(least, _, _)| nodes < *least) {
        step = step.saturating_sub(1);
    }
    step
}

impl Ttl {
    async fn reconcile(&self, key: Key) -> Result<Next, Failure> {
        let Some(node) = self.nodes.store().get_key(&key) else { return Ok(Next::Done) };
        let step = next_step(self.step.load(Ordering::Relaxed), self.nodes.store().len());
        self.step.store(step, Ordering::Relaxed);
        let seconds = STEPS.get(step).map_or(0, |(_, _, seconds)| *seconds).to_string();
        if node.metadata.annotations.get(ANNOTATION).is_some_and(|known| *known == seconds) {
            return Ok(Next::Done);
        }
        let action = Action::Patch {
            resource: Node::RESOURCE,
            namespace: Text::default(),
            name: key.name.clone(),
            subresource: "",
            kind: Patch::StrategicMerge,
            patch: api::json!({"metadata": {"annotations": {ANNOTATION: seconds}}}),
        };
        match self.executor.perform(&key, vec![action]).await {
            Err(failure) if failure.code() == 404 => Ok(Next::Done),
            result => result.map(|()| Next::Done),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_left_later_than_they_are_entered() {
        assert_eq!(next_step(0, 100), 0);
        assert_eq!(next_step(0, 101), 1);
        assert_eq!(next_step(1, 90), 1);
        assert_eq!(next_step(1, 89), 0);
        assert_eq!(next_step(0, 5000), 4);
        assert_eq!(next_step(4, 3), 0);
    }
}
