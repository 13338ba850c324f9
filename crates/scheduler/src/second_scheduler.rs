//! Scheduling in a cluster whose other components do not have the proposals' fields.
//!
//! Upstream's kubelet and taint eviction read only `spec.tolerations`, so concrete tolerations are added to a pod before it is
//! bound. Another scheduler may give the same devices to another claim at the same time, so all claims are compared after an
//! allocation was written, and an overlap is taken back. Both sides may take it back then; neither keeps what the other has.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use api::annotations::MERGED;
use api::core::v1::{Node, Pod, Taint, Toleration};
use api::meta::v1::ObjectMeta;
use api::resource::v1::{DeviceRequestAllocationResult, ResourceClaim};
use client::costly::{CostlyWork, RetryAfter, thread_time};
use client::objects::Patch;
use client::{Client, Document, Informer};
use matching::tolerations::resolve;
use matching::{CompileCache, Features, Meter, taints};
use tokio::sync::Notify;
use tracing::info;

use crate::binding::BindError;
use crate::devices;

/// The tolerations that the pods of this scheduler need in addition to their own.
#[derive(Clone)]
pub(crate) struct Resolver {
    pub(crate) nodes: Informer<Node>,
    pub(crate) tolerations: TolerationResolver,
    pub(crate) claims: Claims,
}

/// Evaluates the tolerations of pods, on a thread for costly work: bindings share their threads with leases and watches.
#[derive(Clone)]
pub(crate) struct TolerationResolver {
    cache: CompileCache,
    features: Features,
    costly: Arc<CostlyWork>,
}

impl TolerationResolver {
    pub(crate) fn new(cache: CompileCache, features: Features) -> Self {
        Self { cache, features, costly: Arc::default() }
    }

    /// The tolerations that a pod lacks, as it is stored, for taints that it tolerates with its annotations.
    async fn missing(&self, stored: &Pod, merged: &Pod, taints: &[Taint]) -> Result<Vec<Toleration>, BindError> {
        let (known, wanted) = (stored.spec.tolerations.clone(), merged.spec.tolerations.clone());
        let has_expressions = wanted.iter().any(|toleration| !toleration.expression.is_empty());
        // A budget of its own: that of attempts is in use meanwhile.
        let meter = Arc::new(Meter::new(Arc::new(thread_time)));
        let (cache, features, taints) = (self.cache.metered(meter.clone()), self.features, taints.to_vec());
        let decide = move || {
            let missing = resolve::missing(&known, &wanted, &taints, &cache, features);
            match meter.excess() {
                Some(excess) => Err(format!("expressions exceeded their budget ({excess})")),
                None => missing.map_err(|error| error.to_string()),
            }
        };
        let decided = if has_expressions {
            self.costly.run(&merged.metadata.namespace, decide).await.unwrap_or_else(|RetryAfter(_)| {
                Err("expressions of the namespace have used their share of the time".to_owned())
            })
        } else {
            decide()
        };
        decided.map_err(BindError::Tolerations)
    }
}

impl Resolver {
    /// Adds tolerations to a pod for the `NoExecute` taints of a node that only its annotations tolerate.
    pub(crate) async fn resolve(&self, client: &Client, pod: &Pod, node: &str) -> Result<(), BindError> {
        if !pod.metadata.annotations.contains_key(MERGED) {
            return Ok(());
        }
        let Some(node) = self.nodes.store().get("", node) else { return Ok(()) };
        if !node.spec.taints.iter().any(taints::is_no_execute) {
            return Ok(());
        }
        let pods = client.objects::<Document<Pod>>();
        let (namespace, name) = (&pod.metadata.namespace, &pod.metadata.name);
        let stored = pods.get(namespace, name).await?;
        if stored.metadata.uid != pod.metadata.uid {
            // The binding is refused for the same reason.
            return Ok(());
        }
        let missing = self.tolerations.missing(&stored, pod, &node.spec.taints).await?;
        if missing.is_empty() {
            return Ok(());
        }
        let patch = resolve::patch(&stored.to_value(), &missing);
        let patched = pods.patch(namespace, name, "", Patch::Merge, &patch).await;
        patched.map_err(|error| BindError::Tolerations(error.to_string()))?;
        info!(pod = %pod.metadata.key(), node = %node.metadata.name, count = missing.len(), "Added tolerations to pod");
        Ok(())
    }
}

/// Whether a result allocates its device exclusively. Results with admin access and shares do not.
fn is_exclusive(result: &DeviceRequestAllocationResult) -> bool {
    result.admin_access != Some(true) && result.share_id.is_none()
}

/// The devices that a claim has for itself.
fn exclusive(claim: &ResourceClaim) -> impl Iterator<Item = (&str, &str, &str)> {
    let results = claim.status.allocation.iter().flat_map(|allocation| &allocation.devices.results);
    let results = results.filter(|result| is_exclusive(result));
    results.map(|it| (it.driver.as_str(), it.pool.as_str(), it.device.as_str()))
}

fn device_name((driver, pool, device): (&str, &str, &str)) -> String {
    format!("{driver}/{pool}/{device}")
}

/// The index of claims by the devices that they have for themselves.
const BY_DEVICE: &str = "device";
/// Time after which a written claim must have arrived by the watch.
const SEEN_LIMIT: Duration = Duration::from_secs(10);

/// All claims, as the watch sends them.
#[derive(Clone)]
pub(crate) struct Claims {
    informer: Informer<ResourceClaim>,
    /// Notified of every change.
    changed: Arc<Notify>,
}

impl Claims {
    pub(crate) fn new(informer: Informer<ResourceClaim>) -> Self {
        let names = |claim: &ResourceClaim| exclusive(claim).map(|device| device_name(device).into()).collect();
        informer.store().add_index(BY_DEVICE, names);
        let changed = Arc::new(Notify::new());
        let signal = changed.clone();
        informer.on_change(move |_, _| signal.notify_waiters());
        Self { informer, changed }
    }

    /// Waits until the watch has sent a claim as it was written, or later. Returns nothing if another claim has its name.
    async fn seen(&self, written: &ObjectMeta) -> Option<Arc<ResourceClaim>> {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            // A claim that was created just now may be missing.
            if let Some(claim) = self.informer.store().get(&written.namespace, &written.name) {
                if claim.metadata.uid != written.uid {
                    return None;
                }
                if is_reached(&claim.metadata.resource_version, &written.resource_version) {
                    return Some(claim);
                }
            }
            changed.await;
        }
    }

    /// Another claim that has a device of this one, and the device.
    fn overlap(&self, claim: &ResourceClaim) -> Option<(String, String)> {
        exclusive(claim).find_map(|device| {
            let name = device_name(device);
            let holders = self.informer.store().by_index(BY_DEVICE, &name);
            let other = holders.iter().find(|other| other.metadata.uid != claim.metadata.uid)?;
            Some((other.metadata.key().to_string(), name))
        })
    }
}

/// Whether an object of one version is as new as one of another.
fn is_reached(current: &str, written: &str) -> bool {
    match (current.parse::<u64>(), written.parse::<u64>()) {
        (Ok(current), Ok(written)) => current >= written,
        _ => current == written,
    }
}

/// Compares a claim that was just given devices with all others, and takes the devices back where another one has them.
///
/// The watch sends changes in the order of their writes. Once it has sent this one, it has sent all earlier ones as well: of
/// two schedulers that give out the same device, at least the later one sees both.
pub(crate) async fn check_overlap(
    client: &Client,
    claims: &Claims,
    written: &Document<ResourceClaim>,
) -> Result<(), BindError> {
    let about = &written.metadata;
    let problem = match tokio::time::timeout(SEEN_LIMIT, claims.seen(about)).await {
        Ok(None) => return Ok(()),
        Ok(Some(claim)) => match claims.overlap(&claim) {
            None => return Ok(()),
            Some((claim, device)) => BindError::DeviceTaken { device, claim },
        },
        Err(_) => {
            let why = format!("the watch did not send the allocation within {SEEN_LIMIT:?}");
            BindError::DevicesNotReady { claim: about.name.to_string(), why }
        }
    };
    let current = client.objects::<Document<ResourceClaim>>().get(&about.namespace, &about.name).await?;
    if current.metadata.uid == about.uid {
        devices::give_back(client, &current).await?;
    }
    Err(problem)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn devices(results: api::json::Value) -> Vec<String> {
        let claim =
            api::json!({"metadata": {}, "spec": {}, "status": {"allocation": {"devices": {"results": results}}}});
        let claim: ResourceClaim = api::json::from_value(&claim).unwrap();
        exclusive(&claim).map(device_name).collect()
    }

    #[test]
    fn shares_and_administrators_do_not_take_devices() {
        let own = api::json!({"request": "r", "driver": "d", "pool": "p", "device": "g1"});
        let watching = api::json!({"request": "r", "driver": "d", "pool": "p", "device": "g2", "adminAccess": true});
        let share = api::json!({"request": "r", "driver": "d", "pool": "p", "device": "g3", "shareID": "s"});
        assert_eq!(devices(api::json!([(own), (watching), (share)])), ["d/p/g1"]);
    }

    #[tokio::test]
    async fn tolerations_are_evaluated_aside() {
        let threads: Arc<locks::Mutex<Vec<String>>> = Arc::default();
        let seen = threads.clone();
        let clock = move || {
            seen.lock().push(std::thread::current().name().unwrap_or_default().to_owned());
            Duration::ZERO
        };
        let cache = CompileCache::new(16.try_into().unwrap(), Arc::new(clock)).unwrap();
        let resolver = TolerationResolver::new(cache, Features::ALL);
        let pod = api::json!({"metadata": {}, "spec": {"tolerations": [{"expression": "taint.key.startsWith('a')"}]}});
        let pod: Pod = api::json::from_value(&pod).unwrap();
        let taints: Vec<Taint> = ["a1", "b1"]
            .map(|key| api::json::from_value(&api::json!({"key": key, "effect": "NoExecute"})).unwrap())
            .to_vec();
        let missing = resolver.missing(&Pod::default(), &pod, &taints).await.unwrap();
        assert_eq!(missing.iter().map(|it| it.key.as_str()).collect::<Vec<_>>(), ["a1"]);
        let threads = threads.lock();
        assert!(!threads.is_empty() && threads.iter().all(|name| name == "costly"), "{threads:?}");
    }

    #[test]
    fn later_versions_of_an_object_are_reached() {
        assert!(is_reached("10", "9") && is_reached("9", "9") && !is_reached("9", "10"));
        assert!(is_reached("a", "a") && !is_reached("b", "a"));
    }
}
