//! What controllers that look at pods on nodes share: an index of pods by node, and a cache of compiled expressions each.

use std::num::NonZeroUsize;
use std::sync::Arc;

use api::core::v1::Pod;
use client::informer::Informer;
use matching::CompileCache;
use tokio::time::Instant;
use tracing::error;

/// Expressions that a controller keeps compiled; as many as Kubernetes' scheduler.
const EXPRESSIONS: NonZeroUsize = match NonZeroUsize::new(4096) {
    Some(count) => count,
    None => NonZeroUsize::MIN,
};
const INDEX: &str = "node";

/// Keeps pods by the node that they are bound to.
pub(crate) fn index_pods_by_node(pods: &Informer<Pod>) {
    pods.store().add_index(INDEX, |pod| match pod.spec.node_name.as_str() {
        "" => Vec::new(),
        _ => vec![pod.spec.node_name.clone()],
    });
}

/// The pods that are bound to a node.
pub(crate) fn pods_on(pods: &Informer<Pod>, node: &str) -> Vec<Arc<Pod>> {
    pods.store().by_index(INDEX, node)
}

/// A cache of compiled expressions for one controller. Without one it cannot decide anything, so it does not run.
pub(crate) fn compile_cache(controller: &str) -> Option<Arc<CompileCache>> {
    let start = Instant::now();
    match CompileCache::new(EXPRESSIONS, Arc::new(move || start.elapsed())) {
        Ok(cache) => Some(Arc::new(cache)),
        Err(error) => {
            error!(controller, err = %error, "Controller cannot run");
            None
        }
    }
}
