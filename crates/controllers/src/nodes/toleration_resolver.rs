//! Concrete tolerations for the taints of nodes, in place of expressions in annotations.
//!
//! On a cluster with upstream's components, taint eviction and kubelets read only `spec.tolerations`. The scheduler adds
//! tolerations for the `NoExecute` taints that a node has when a pod is bound; this controller does so when the node of a
//! running pod gets a new taint. It races with upstream's taint eviction, which may delete the pod before the toleration
//! arrives, and it never removes a toleration: Kubernetes forbids that.

use std::sync::Arc;
use std::time::Duration;

use api::annotations::MERGED;
use api::core::v1::{Node, Pod};
use client::controller::{Controller, Next};
use client::costly::{CostlyWork, RetryAfter, thread_time};
use client::events::{Severity, reference};
use client::informer::{Informer, Key};
use client::objects::Patch;
use client::{Document, Informers};
use matching::tolerations::resolve;
use matching::{CompileCache, Features, Meter, taints};
use tracing::{error, info};

use crate::machinery::executor::{Executor, Failure};
use crate::machinery::placement::{Overruns, compile_cache, index_pods_by_node};
use crate::manager::Context;
use crate::nodes::taint_eviction::{keys_of_node, keys_of_pod};

const NAME: &str = "toleration-resolver-controller";
const WORKERS: usize = 8;
/// A pod whose toleration was refused is tried again after this time.
const AFTER_REFUSAL: Duration = Duration::from_secs(60);

struct Resolver {
    nodes: Informer<Node>,
    pods: Informer<Pod>,
    executor: Executor,
    cache: Arc<CompileCache>,
    features: Features,
    costly: CostlyWork,
    overruns: Overruns,
}

/// Runs the controller until the end is asked for.
pub(crate) async fn run(context: Context) {
    let Some(rewrite) = context.settings.placement.clone() else {
        error!(controller = NAME, "Controller cannot run without --placement-annotations");
        return;
    };
    let Some(cache) = compile_cache(NAME, "toleration_resolver_controller_cel", &context.runtime) else { return };
    // Pods with their annotations merged: other controllers of this process see pods as they are stored.
    let merging = Informers::new(context.client.clone().rewriting(rewrite));
    let (nodes, pods) = (context.informers.all::<Node>(), merging.all::<Pod>());
    index_pods_by_node(&pods);
    let known = pods.clone();
    let runner = Controller::new(NAME, &context.runtime)
        .watch_changes(&nodes, move |change| keys_of_node(&known, change))
        .watch_changes(&pods, keys_of_pod)
        .workers(WORKERS);
    let resolver = Arc::new(Resolver {
        nodes,
        pods,
        executor: Executor::new(NAME, context.client.clone(), context.refusals.clone()),
        cache,
        features: context.features.into(),
        costly: CostlyWork::default(),
        overruns: Overruns::default(),
    });
    runner
        .run(move |key| {
            let resolver = resolver.clone();
            async move { resolver.reconcile(key).await }
        })
        .await;
}

impl Resolver {
    async fn reconcile(&self, key: Key) -> Result<Next, Failure> {
        let Some(pod) = self.pods.store().get_key(&key) else {
            self.overruns.forget(&key);
            return Ok(Next::Done);
        };
        let is_merged = pod.metadata.annotations.contains_key(MERGED);
        if !is_merged || pod.spec.node_name.is_empty() || pod.metadata.is_deleting() || pod.is_terminal() {
            return Ok(Next::Done);
        }
        let Some(node) = self.nodes.store().get("", &pod.spec.node_name) else { return Ok(Next::Done) };
        if !node.spec.taints.iter().any(taints::is_no_execute) {
            return Ok(Next::Done);
        }
        let pods = self.executor.client().objects::<Document<Pod>>();
        let stored = match pods.get(&key.namespace, &key.name).await {
            Err(error) if error.is_not_found() => return Ok(Next::Done),
            stored => stored?,
        };
        if stored.metadata.uid != pod.metadata.uid {
            return Ok(Next::Done);
        }
        let meter = Arc::new(Meter::new(Arc::new(thread_time)));
        let (cache, features, known) =
            (self.cache.metered(meter.clone()), self.features, stored.spec.tolerations.clone());
        let wanted = pod.clone();
        let decide = move || {
            let missing = resolve::missing(&known, &wanted.spec.tolerations, &node.spec.taints, &cache, features);
            meter.excess().map_or(Ok(missing), Err)
        };
        let missing = match self.costly.run(&key.namespace, decide).await {
            Err(RetryAfter(wait)) => return Ok(Next::After(wait)),
            // Verdicts are kept: the next reconciliation continues.
            Ok(Err(excess)) => {
                let wait = self.overruns.report(&key, self.executor.recorder(), reference(&*pod), excess);
                return Ok(Next::After(wait));
            }
            Ok(Ok(missing)) => missing,
        };
        self.overruns.forget(&key);
        let missing = match missing {
            Ok(missing) if missing.is_empty() => return Ok(Next::Done),
            Ok(missing) => missing,
            Err(error) => return Ok(self.refused(&pod, &error.to_string())),
        };
        let patch = resolve::patch(&stored.to_value(), &missing);
        match pods.patch(&key.namespace, &key.name, "", Patch::Merge, &patch).await {
            Ok(_) => {
                info!(pod = %key, node = %pod.spec.node_name, count = missing.len(), "Added tolerations to pod");
                Ok(Next::Done)
            }
            Err(error) if error.is_not_found() => Ok(Next::Done),
            // Such as PodTolerationRestriction.
            Err(error) if matches!(error.code(), 403 | 422) => Ok(self.refused(&pod, &error.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    fn refused(&self, pod: &Pod, why: &str) -> Next {
        let note = format!("Could not add tolerations for the taints of node {}: {why}", pod.spec.node_name);
        self.executor.recorder().event(reference(pod), Severity::Warning, "TolerationNotAdded", &note);
        Next::After(AFTER_REFUSAL)
    }
}
