//! Taint eviction: pods leave nodes whose `NoExecute` taints they do not tolerate, or no longer.
//!
//! It watches nodes and pods. [`plan`] decides when a pod goes, `evict` sends it away. With its gate off an expression
//! tolerates nothing: pods that only an expression keeps are evicted.
//! Follows Kubernetes' `pkg/controller/tainteviction`.

pub(crate) mod evict;
pub mod plan;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::core::v1::{Node, Pod, Taint};
use api::json::Text;
use client::controller::{Controller, Next, own};
use client::informer::{Change, Informer, Key};
use matching::tolerations::{Stay, Tolerations};
use matching::{CompileCache, Features, taints};

use self::plan::{Plan, Step, revise};
use crate::executor::{Executor, Failure};
use crate::manager::{Context, now};
use crate::placement::{compile_cache, index_pods_by_node, pods_on};

/// The component of its events; it acts under the account of the node controller.
const NAME: &str = "taint-eviction-controller";
/// As many pods are looked at a time.
const WORKERS: usize = 8;

/// The controller.
struct Evictions {
    nodes: Informer<Node>,
    pods: Informer<Pod>,
    executor: Executor,
    cache: Arc<CompileCache>,
    features: Features,
    plans: Mutex<HashMap<Key, Planned>>,
}

/// A plan for one pod.
#[derive(Debug, Clone)]
struct Planned {
    uid: Text,
    plan: Plan,
    /// Users were told that the pod goes: from now on it does.
    is_told: bool,
}

/// Runs the controller until the end is asked for.
pub async fn run(context: Context) {
    let Some(cache) = compile_cache(NAME) else { return };
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
fn keys_of_node(pods: &Informer<Pod>, change: &Change<Node>) -> Vec<Key> {
    let (node, matters) = match change {
        Change::Added(node) => (node, !no_execute(node).is_empty()),
        Change::Updated { old, new } => (new, no_execute(old) != no_execute(new)),
        // Its pods are collected with it.
        Change::Deleted(node) => (node, false),
    };
    if !matters {
        return Vec::new();
    }
    pods_on(pods, &node.metadata.name).iter().filter_map(|pod| own(&**pod)).collect()
}

/// A pod that has come to a node, tolerates something else, or is gone.
fn keys_of_pod(change: &Change<Pod>) -> Option<Key> {
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
    fn plans(&self) -> MutexGuard<'_, HashMap<Key, Planned>> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
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
        let Some(pod) = pod else { return Ok(Next::Done) };
        if pod.spec.node_name.is_empty() || pod.metadata.is_deleting() {
            self.plans().remove(&key);
            return Ok(Next::Done);
        }
        let now = now();
        let step = match self.nodes.store().get("", &pod.spec.node_name) {
            Some(node) => revise(planned.as_ref().map(|it| it.plan), self.stay(&pod, &node), now),
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
            (Step::EvictNow { .. }, Some(planned)) if planned.is_told => planned,
            (Step::EvictNow { .. }, planned) => self.replace(&key, planned, &pod, Plan { made_at: now, fires_at: now }),
            (Step::Schedule { plan, .. }, planned) => self.replace(&key, planned, &pod, plan),
        };
        if planned.plan.fires_at > now {
            return Ok(Next::After(now.until(planned.plan.fires_at)));
        }
        if !planned.is_told {
            evict::tell(&self.executor, &key, evict::MARKING);
            self.plans().insert(key.clone(), Planned { is_told: true, ..planned });
        }
        evict::evict(&self.executor, &pod, now, &evict::NODE_TAINT).await?;
        self.plans().remove(&key);
        Ok(Next::Done)
    }

    /// How long the pod may stay on its node.
    fn stay(&self, pod: &Pod, node: &Node) -> Stay {
        let taints: Vec<Taint> = no_execute(node).into_iter().cloned().collect();
        match taints.as_slice() {
            [] => Stay::Forever,
            taints => Tolerations::new(&pod.spec.tolerations, &self.cache, &self.features).stay(taints),
        }
    }

    fn replace(&self, key: &Key, old: Option<Planned>, pod: &Pod, plan: Plan) -> Planned {
        if let Some(old) = old {
            self.cancel(key, &old);
        }
        let planned = Planned { uid: pod.metadata.uid.clone(), plan, is_told: false };
        self.plans().insert(key.clone(), planned.clone());
        planned
    }

    fn cancel(&self, key: &Key, planned: &Planned) {
        self.plans().remove(key);
        if !planned.is_told {
            evict::tell(&self.executor, key, evict::CANCELLING);
        }
    }
}
