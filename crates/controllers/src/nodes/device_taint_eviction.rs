//! Device taint eviction: pods go whose devices have a `NoExecute` taint that their claim does not tolerate, or no longer.
//!
//! Taints come from the device, or from a DeviceTaintRule. `dra` decides which ones evict; evicting a pod is
//! shared with node taints. The status of a rule reports the progress; `condition` has the texts. Follows
//! Kubernetes' `pkg/controller/devicetainteviction`.

mod condition;

use locks::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use api::core::v1::{ObjectReference, Pod};
use api::json::Text;
use api::resource::v1::{DeviceRequestAllocationResult, DeviceTaint, DeviceTaintRule, ResourceClaim, ResourceSlice};
use api::time::Timestamp;
use api::well_known::EFFECT_NO_EXECUTE;
use client::controller::{Controller, Next};
use client::events::Severity;
use client::informer::{Informer, Key};
use client::resources::ServedView as _;
use dra::taints;

use self::condition::{Counts, EVICTION_IN_PROGRESS, PERIOD};
use crate::machinery::executor::{Executor, Failure};
use crate::manager::Context;
use crate::nodes::taint_eviction::evict::{EvictionReason, evict};

/// The component of its events.
const NAME: &str = "device-taint-eviction-controller";
/// The index of claims by the devices that they have.
const BY_POOL: &str = "pool";
const WHY: EvictionReason = EvictionReason {
    reason: "DeletionByDeviceTaintManager",
    message: "Device Taint manager: deleting due to NoExecute taint",
};

struct Evictions {
    pods: Informer<Pod>,
    claims: Informer<ResourceClaim>,
    slices: Informer<ResourceSlice>,
    rules: Informer<DeviceTaintRule>,
    executor: Executor,
    /// The pods that rules have evicted, by UID: a pod may be reconciled again before its deletion is observed.
    evicted: Mutex<HashMap<Text, BTreeSet<Text>>>,
}

/// An item to reconcile.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Item {
    /// A claim whose users may have to be evicted.
    Claim(Key),
    /// A rule whose status reports the progress.
    Rule(Text),
}

impl std::fmt::Display for Item {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Item::Claim(key) => write!(f, "claim:{key}"),
            Item::Rule(name) => write!(f, "rule:{name}"),
        }
    }
}

/// Runs the controller until shutdown.
pub async fn run(context: Context) {
    let informers = &context.informers;
    let (pods, claims) = (informers.all::<Pod>(), informers.all::<ResourceClaim>());
    let (slices, rules) = (informers.all::<ResourceSlice>(), informers.all::<DeviceTaintRule>());
    claims.store().add_index(BY_POOL, |claim| results(claim).map(|it| pool(&it.driver, &it.pool)).collect());
    slices.store().add_index(BY_POOL, |slice| vec![pool(&slice.spec.driver, &slice.spec.pool.name)]);
    let (of_slice, of_rule, known_rules) = (claims.clone(), claims.clone(), rules.clone());
    let key = |claim: &ResourceClaim| Item::Claim(crate::machinery::edit::key(&claim.metadata));
    let runner = Controller::new(NAME, &context.runtime)
        .watch(&claims, move |claim: &ResourceClaim| {
            let rules = known_rules.store().list();
            let about = rules.iter().filter(|rule| concerns(rule, claim));
            let about = about.map(|rule| Item::Rule(rule.metadata.name.clone()));
            about.chain([key(claim)]).collect::<Vec<_>>()
        })
        .watch(&slices, move |slice: &ResourceSlice| {
            let users = of_slice.store().by_index(BY_POOL, &pool(&slice.spec.driver, &slice.spec.pool.name));
            users.iter().map(|claim| key(claim)).collect::<Vec<_>>()
        })
        .watch(&rules, move |rule: &DeviceTaintRule| {
            let all = of_rule.store().list();
            let selected = all.iter().filter(|claim| concerns(rule, claim)).map(|claim| key(claim));
            selected.chain([Item::Rule(rule.metadata.name.clone())]).collect::<Vec<_>>()
        })
        .workers(4);
    let executor = Executor::new(NAME, context.client.clone(), context.refusals.clone());
    let evictions = Arc::new(Evictions { pods, claims, slices, rules, executor, evicted: Mutex::default() });
    runner
        .run(move |item: Item| {
            let evictions = evictions.clone();
            async move {
                match item {
                    Item::Claim(key) => evictions.reconcile(&key).await,
                    Item::Rule(name) => evictions.write_status(&name).await,
                }
            }
        })
        .await;
}

/// Whether a rule selects a device that a claim has.
fn concerns(rule: &DeviceTaintRule, claim: &ResourceClaim) -> bool {
    results(claim).any(|it| taints::selects(rule, &it.driver, &it.pool, &it.device))
}

/// Time at which a rule evicts the users of a claim; `None` if it does not.
fn sends_away(rule: &DeviceTaintRule, claim: &ResourceClaim, now: Timestamp) -> Option<Timestamp> {
    let selected = results(claim).filter(|it| taints::selects(rule, &it.driver, &it.pool, &it.device));
    selected.filter_map(|it| taints::evicts_at(&rule.spec.taint, &it.tolerations, now)).min()
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
        let now = self.executor.now();
        let rules = self.rules.store().list();
        let times = results(&claim).flat_map(|device| self.evictions(device, &rules, now));
        let Some(at) = times.min() else { return Ok(Next::Done) };
        if at > now {
            return Ok(Next::After(now.until(at).max(Duration::from_millis(1))));
        }
        for pod in self.users(&claim) {
            self.report(&pod);
            evict(&self.executor, &pod, now, &WHY).await?;
            let because = rules.iter().filter(|rule| sends_away(rule, &claim, now).is_some_and(|at| at <= now));
            let mut evicted = self.evicted.lock();
            for rule in because {
                evicted.entry(rule.metadata.uid.clone()).or_default().insert(pod.metadata.uid.clone());
            }
        }
        Ok(Next::Done)
    }

    /// The pods on nodes that use a claim and are not terminating.
    fn users(&self, claim: &ResourceClaim) -> Vec<Arc<Pod>> {
        let users = claim.status.reserved_for.iter().filter(|user| user.resource == "pods");
        let pods = users.filter_map(|user| {
            let pod = self.pods.store().get(&claim.metadata.namespace, &user.name)?;
            let is_it = pod.metadata.uid == user.uid && !pod.metadata.is_deleting() && !pod.is_terminal();
            (is_it && !pod.spec.node_name.is_empty()).then_some(pod)
        });
        pods.collect()
    }

    /// Reports the progress of a rule's evictions in its status, at a limited rate.
    async fn write_status(&self, name: &str) -> Result<Next, Failure> {
        let Some(rule) = self.rules.store().get("", name) else {
            let rules = self.rules.store().list();
            let is_known = |uid: &Text| rules.iter().any(|rule| rule.metadata.uid == *uid);
            self.evicted.lock().retain(|uid, _| is_known(uid));
            return Ok(Next::Done);
        };
        let now = self.executor.now();
        let known = rule.status.conditions.iter().find(|it| it.condition_type == EVICTION_IN_PROGRESS);
        if let Some(known) = known
            && known.observed_generation == rule.metadata.generation
            && let Some(reported) = known.last_transition_time
        {
            let next = reported.plus(PERIOD);
            if next > now {
                return Ok(Next::After(now.until(next).max(Duration::from_millis(1))));
            }
        }
        let said = condition::of(&rule.spec.taint.effect, &self.count(&rule, now));
        let is_reported = known.is_some_and(|known| {
            known.observed_generation == rule.metadata.generation
                && (known.status.as_str(), known.reason.as_str(), known.message.as_str())
                    == (said.status, said.reason, said.message.as_str())
        });
        if is_reported {
            return Ok(Next::Done);
        }
        let (uid, generation) = (rule.metadata.uid.clone(), rule.metadata.generation);
        let at = api::json::to_value(&now).unwrap_or_default();
        let fields = api::json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": {"name": name, "uid": uid},
            "status": {"conditions": [{
                "type": EVICTION_IN_PROGRESS, "status": (said.status), "reason": (said.reason), "message": (said.message),
                "observedGeneration": generation, "lastTransitionTime": at,
            }]},
        });
        let rules = self.executor.client().documents(DeviceTaintRule::RESOURCE);
        match rules.apply("", name, "status", &fields, NAME, true).await {
            // Deleted or replaced meanwhile.
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(Next::Done),
            Err(error) => Err(error.into()),
            Ok(_) => Ok(Next::Done),
        }
    }

    /// Counts the devices and pods of a rule.
    fn count(&self, rule: &DeviceTaintRule, now: Timestamp) -> Counts {
        let mut counts = Counts::default();
        let mut rule_that_evicts = rule.clone();
        // The effect that it would have otherwise.
        if rule.spec.taint.effect == "None" {
            rule_that_evicts.spec.taint.effect = EFFECT_NO_EXECUTE.into();
        }
        let (mut pods, mut namespaces) = (BTreeSet::new(), BTreeSet::new());
        for claim in self.claims.store().list() {
            let selected = results(&claim).filter(|it| taints::selects(rule, &it.driver, &it.pool, &it.device));
            counts.allocated = counts.allocated.saturating_add(selected.count());
            if sends_away(&rule_that_evicts, &claim, now).is_some() {
                for pod in self.users(&claim) {
                    pods.insert(pod.metadata.uid.clone());
                    namespaces.insert(pod.metadata.namespace.clone());
                }
            }
        }
        (counts.pending, counts.namespaces) = (pods.len(), namespaces.len());
        let mut newest: HashMap<Text, i64> = HashMap::new();
        let slices = self.slices.store().list();
        for slice in &slices {
            let known = newest.entry(pool(&slice.spec.driver, &slice.spec.pool.name)).or_default();
            *known = (*known).max(slice.spec.pool.generation);
        }
        for slice in slices.iter().map(|slice| &slice.spec) {
            if newest.get(&pool(&slice.driver, &slice.pool.name)) == Some(&slice.pool.generation) {
                let selected =
                    slice.devices.iter().filter(|it| taints::selects(rule, &slice.driver, &slice.pool.name, &it.name));
                counts.published = counts.published.saturating_add(selected.count());
            }
        }
        let evicted = self.evicted.lock();
        counts.evicted = evicted.get(&rule.metadata.uid).map_or(0, BTreeSet::len);
        counts
    }

    /// Times at which each taint of a device evicts its users.
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

    fn report(&self, pod: &Pod) {
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
