//! Device taint eviction: pods go whose devices have a `NoExecute` taint that their claim does not tolerate, or no longer.
//!
//! Taints come with the device, or by a DeviceTaintRule. When that is, is decided in `dra`; how a pod goes is shared with
//! taints of nodes. Follows Kubernetes' `pkg/controller/devicetainteviction`.

use std::sync::Arc;
use std::time::Duration;

use api::core::v1::{ObjectReference, Pod};
use api::json::Text;
use api::resource::v1::{DeviceRequestAllocationResult, DeviceTaint, DeviceTaintRule, ResourceClaim, ResourceSlice};
use api::time::Timestamp;
use client::controller::{Controller, Next};
use client::events::Severity;
use client::informer::{Informer, Key};
use dra::taints;

use crate::executor::{Executor, Failure};
use crate::manager::{Context, now};
use crate::taint_eviction::evict::{Why, evict};

/// The component of its events.
const NAME: &str = "device-taint-eviction-controller";
/// The index of claims by the devices that they have.
const BY_POOL: &str = "pool";
const WHY: Why =
    Why { reason: "DeletionByDeviceTaintManager", message: "Device Taint manager: deleting due to NoExecute taint" };

struct Evictions {
    pods: Informer<Pod>,
    claims: Informer<ResourceClaim>,
    slices: Informer<ResourceSlice>,
    rules: Informer<DeviceTaintRule>,
    executor: Executor,
}

/// Runs the controller until the end is asked for.
pub async fn run(context: Context) {
    let informers = &context.informers;
    let (pods, claims) = (informers.all::<Pod>(), informers.all::<ResourceClaim>());
    let (slices, rules) = (informers.all::<ResourceSlice>(), informers.all::<DeviceTaintRule>());
    claims.store().add_index(BY_POOL, |claim| results(claim).map(|it| pool(&it.driver, &it.pool)).collect());
    slices.store().add_index(BY_POOL, |slice| vec![pool(&slice.spec.driver, &slice.spec.pool.name)]);
    let (of_slice, of_rule) = (claims.clone(), claims.clone());
    let key = |claim: &ResourceClaim| crate::edit::key(&claim.metadata);
    let runner = Controller::new(NAME, &context.runtime)
        .watch(&claims, move |claim: &ResourceClaim| Some(key(claim)))
        .watch(&slices, move |slice: &ResourceSlice| {
            let users = of_slice.store().by_index(BY_POOL, &pool(&slice.spec.driver, &slice.spec.pool.name));
            users.iter().map(|claim| key(claim)).collect::<Vec<_>>()
        })
        .watch(&rules, move |rule: &DeviceTaintRule| {
            let selected = |claim: &ResourceClaim| {
                results(claim).any(|it| taints::selects(rule, &it.driver, &it.pool, &it.device))
            };
            let all = of_rule.store().list();
            all.iter().filter(|claim| selected(claim)).map(|claim| key(claim)).collect::<Vec<_>>()
        })
        .workers(4);
    let executor = Executor::new(NAME, context.client.clone(), context.refusals.clone());
    let evictions = Arc::new(Evictions { pods, claims, slices, rules, executor });
    runner
        .run(move |key: Key| {
            let evictions = evictions.clone();
            async move { evictions.reconcile(&key).await }
        })
        .await;
}

fn pool(driver: &str, pool: &str) -> Text {
    format!("{driver}/{pool}").into()
}

fn results(claim: &ResourceClaim) -> impl Iterator<Item = &DeviceRequestAllocationResult> {
    claim.status.allocation.iter().flat_map(|allocation| &allocation.devices.results)
}

impl Evictions {
    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        let Some(claim) = self.claims.store().get_key(key) else { return Ok(Next::Done) };
        let now = now();
        let rules = self.rules.store().list();
        let times = results(&claim).flat_map(|device| self.evictions(device, &rules, now));
        let Some(at) = times.min() else { return Ok(Next::Done) };
        if at > now {
            return Ok(Next::After(now.until(at).max(Duration::from_millis(1))));
        }
        for user in claim.status.reserved_for.iter().filter(|user| user.resource == "pods") {
            let Some(pod) = self.pods.store().get(&key.namespace, &user.name) else { continue };
            let is_it = pod.metadata.uid == user.uid && !pod.metadata.is_deleting() && !pod.is_terminal();
            if is_it && !pod.spec.node_name.is_empty() {
                self.tell(&pod);
                evict(&self.executor, &pod, now, &WHY).await?;
            }
        }
        Ok(Next::Done)
    }

    /// When each taint of a device sends its users away.
    fn evictions(
        &self,
        device: &DeviceRequestAllocationResult,
        rules: &[Arc<DeviceTaintRule>],
        now: Timestamp,
    ) -> Vec<Timestamp> {
        let slices = self.slices.store().by_index(BY_POOL, &pool(&device.driver, &device.pool));
        let newest = slices.iter().map(|slice| slice.spec.pool.generation).max();
        let current = slices.iter().filter(|slice| Some(slice.spec.pool.generation) == newest);
        let published = current.flat_map(|slice| &slice.spec.devices).filter(|it| it.name == device.device);
        let own = published.flat_map(|it| &it.taints);
        let by_rule = rules.iter().filter(|rule| taints::selects(rule, &device.driver, &device.pool, &device.device));
        let all = own.chain(by_rule.map(|rule| &rule.spec.taint));
        all.filter_map(|taint: &DeviceTaint| taints::evicts_at(taint, &device.tolerations, now)).collect()
    }

    fn tell(&self, pod: &Pod) {
        let about = ObjectReference {
            kind: "Pod".into(),
            api_version: "v1".into(),
            namespace: pod.metadata.namespace.clone(),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
            ..ObjectReference::default()
        };
        let recorder = self.executor.recorder();
        recorder.event(about, Severity::Normal, "DeviceTaintManagerEviction", "Marking for deletion");
    }
}
