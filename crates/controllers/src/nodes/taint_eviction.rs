//! Taint eviction: pods leave nodes whose `NoExecute` taints they do not tolerate, or no longer.
//!
//! It watches nodes and pods. [`plan`] decides when a pod is evicted, `evict` does it. With its gate disabled,
//! an expression tolerates nothing: pods that rely on expressions are evicted. Follows Kubernetes'
//! `pkg/controller/tainteviction`.

pub(crate) mod evict;
pub mod plan;

use locks::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::core::v1::{Node, ObjectReference, Pod, Taint};
use api::json::Text;
use client::controller::{Controller, Next, own};
use client::costly::{CostlyWork, RetryAfter, thread_time};
use client::events::reference;
use client::informer::{Change, Informer, Key};
use matching::complaints::{Complaint, Complaints, about_taint};
use matching::tolerations::{StayDuration, Tolerations};
use matching::{CompileCache, Features, Meter, taints};

use self::plan::{Plan, Step, revise};
use crate::machinery::executor::{Executor, Failure};
use crate::machinery::placement::{Overruns, compile_cache, index_pods_by_node, pods_on, report};
use crate::manager::Context;

/// The component of its events; it acts under the account of the node controller.
const NAME: &str = "taint-eviction-controller";
/// Number of concurrent workers.
const WORKERS: usize = 8;

/// The controller.
struct Evictions {
    nodes: Informer<Node>,
    pods: Informer<Pod>,
    executor: Executor,
    cache: Arc<CompileCache>,
    features: Features,
    plans: Mutex<HashMap<Key, PlannedEviction>>,
    costly: CostlyWork,
    overruns: Overruns,
    /// The pods whose expressions had no answer, with the complaints that were reported.
    reported: Mutex<HashMap<Key, Vec<Complaint>>>,
}

/// A plan for one pod.
#[derive(Debug, Clone)]
struct PlannedEviction {
    uid: Text,
    plan: Plan,
    /// Whether the eviction was announced by an event: from then on it is carried out.
    is_reported: bool,
}

/// Runs the controller until shutdown.
pub async fn run(context: Context) {
    let Some(cache) = compile_cache(NAME, "taint_eviction_controller_cel", &context.runtime) else { return };
    let (nodes, pods) = (context.informers.all::<Node>(), context.informers.all::<Pod>());
    index_pods_by_node(&pods);
    let known = pods.clone();
    let runner = Controller::new(NAME, &context.runtime)
        .watch_changes(&nodes, move |change| keys_of_node(&known, change))
        .watch_changes(&pods, keys_of_pod)
        .workers(WORKERS);
    let evictions = Arc::new(Evictions {
        nodes,
        pods,
        executor: Executor::new(NAME, context.client.clone(), context.refusals.clone()),
        cache,
        features: context.features.into(),
        plans: Mutex::default(),
        costly: CostlyWork::default(),
        overruns: Overruns::default(),
        reported: Mutex::default(),
    });
    runner
        .run(move |key| {
            let evictions = evictions.clone();
            async move { evictions.reconcile(key).await }
        })
        .await;
}

fn no_execute(node: &Node) -> Vec<&Taint> {
    node.spec.taints.iter().filter(|taint| taints::is_no_execute(taint)).collect()
}

/// The pods of a node whose taints have changed.
pub(crate) fn keys_of_node(pods: &Informer<Pod>, change: &Change<Node>) -> Vec<Key> {
    let (node, matters) = match change {
        Change::Added(node) => (node, !no_execute(node).is_empty()),
        Change::Updated { old, new } => (new, no_execute(old) != no_execute(new)),
        // Its pods are garbage collected with it.
        Change::Deleted(node) => (node, false),
    };
    if !matters {
        return Vec::new();
    }
    pods_on(pods, &node.metadata.name).iter().filter_map(|pod| own(&**pod)).collect()
}

/// Selects pods that were assigned to a node, changed their tolerations, or were deleted.
pub(crate) fn keys_of_pod(change: &Change<Pod>) -> Option<Key> {
    match change {
        Change::Updated { old, new }
            if old.spec.node_name == new.spec.node_name && old.spec.tolerations == new.spec.tolerations =>
        {
            None
        }
        _ => own(&**change.newest()),
    }
}

impl Evictions {
    fn plans(&self) -> MutexGuard<'_, HashMap<Key, PlannedEviction>> {
        self.plans.lock()
    }

    async fn reconcile(&self, key: Key) -> Result<Next, Failure> {
        let planned = self.plans().get(&key).cloned();
        let pod = self.pods.store().get_key(&key);
        // A plan belongs to one pod, not to the next one of that name.
        let planned = match (&pod, planned) {
            (Some(pod), Some(planned)) if planned.uid == pod.metadata.uid => Some(planned),
            (_, Some(planned)) => {
                self.cancel(&key, &planned);
                None
            }
            (_, None) => None,
        };
        let Some(pod) = pod else {
            self.overruns.forget(&key);
            self.reported.lock().remove(&key);
            return Ok(Next::Done);
        };
        if pod.spec.node_name.is_empty() || pod.metadata.is_deleting() {
            self.plans().remove(&key);
            return Ok(Next::Done);
        }
        let now = self.executor.now();
        let step = match self.nodes.store().get("", &pod.spec.node_name) {
            Some(node) => match self.stay(&key, &pod, &node).await {
                Ok(stay) => revise(planned.as_ref().map(|it| it.plan), stay, now),
                Err(wait) => return Ok(Next::After(wait)),
            },
            None => Step::Nothing,
        };
        let planned = match (step, planned) {
            (Step::Nothing, None) => return Ok(Next::Done),
            (Step::Nothing, Some(planned)) => planned,
            (Step::Cancel, planned) => {
                if let Some(planned) = planned {
                    self.cancel(&key, &planned);
                }
                return Ok(Next::Done);
            }
            (Step::EvictNow { .. }, Some(planned)) if planned.is_reported => planned,
            (Step::EvictNow { .. }, planned) => self.replace(&key, planned, &pod, Plan { made_at: now, fires_at: now }),
            (Step::Schedule { plan, .. }, planned) => self.replace(&key, planned, &pod, plan),
        };
        if planned.plan.fires_at > now {
            return Ok(Next::After(now.until(planned.plan.fires_at)));
        }
        if !planned.is_reported {
            evict::report(&self.executor, &key, evict::MARKING);
            self.plans().insert(key.clone(), PlannedEviction { is_reported: true, ..planned });
        }
        evict::evict(&self.executor, &pod, now, &evict::NODE_TAINT).await?;
        self.plans().remove(&key);
        Ok(Next::Done)
    }

    /// Returns how long the pod may stay on its node; or how long to wait if its expressions exceeded the
    /// budget.
    async fn stay(&self, key: &Key, pod: &Arc<Pod>, node: &Node) -> Result<StayDuration, Duration> {
        let taints: Vec<Taint> = no_execute(node).into_iter().cloned().collect();
        if taints.is_empty() {
            return Ok(StayDuration::Forever);
        }
        let meter = Arc::new(Meter::new(Arc::new(thread_time)));
        let (pod, cache, features) = (pod.clone(), self.cache.metered(meter.clone()), self.features);
        let has_expressions = pod.spec.tolerations.iter().any(|it| !it.expression.is_empty());
        let about = has_expressions.then(|| reference(&*pod));
        let name = node.metadata.name.clone();
        let decide = move || {
            let tolerations = Tolerations::new(&pod.spec.tolerations, &cache, &features);
            let stay = tolerations.stay(&taints);
            let mut complaints = Complaints::default();
            // An expression that failed matters where the pod has to go.
            if stay != StayDuration::Forever {
                complaints.extend(taints.iter().flat_map(|taint| about_taint(&tolerations, &name, taint)));
            }
            meter.excess().map_or(Ok((stay, complaints.into_vec())), Err)
        };
        let Some(about) = about else { return Ok(decide().map_or(StayDuration::Forever, |(stay, _)| stay)) };
        let decided = self.costly.run(&key.namespace, decide).await.map_err(|RetryAfter(wait)| wait)?;
        match decided {
            Ok((stay, complaints)) => {
                self.overruns.forget(key);
                self.report(key, &about, complaints);
                Ok(stay)
            }
            Err(excess) => Err(self.overruns.report(key, self.executor.recorder(), about, excess)),
        }
    }

    /// Reports complaints about a pod, each once.
    fn report(&self, key: &Key, about: &ObjectReference, complaints: Vec<Complaint>) {
        let mut reported = self.reported.lock();
        if complaints.is_empty() {
            reported.remove(key);
        } else if reported.get(key) != Some(&complaints) {
            report(self.executor.recorder(), about, &complaints);
            reported.insert(key.clone(), complaints);
        }
    }

    fn replace(&self, key: &Key, old: Option<PlannedEviction>, pod: &Pod, plan: Plan) -> PlannedEviction {
        if let Some(old) = old {
            self.cancel(key, &old);
        }
        let planned = PlannedEviction { uid: pod.metadata.uid.clone(), plan, is_reported: false };
        self.plans().insert(key.clone(), planned.clone());
        planned
    }

    fn cancel(&self, key: &Key, planned: &PlannedEviction) {
        self.plans().remove(key);
        if !planned.is_reported {
            evict::report(&self.executor, key, evict::CANCELLING);
        }
    }
}
