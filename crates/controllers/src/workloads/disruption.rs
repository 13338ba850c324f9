//! Maintains the status of disruption budgets, which evictions check, and removes announced disruptions that
//! did not happen.
//!
//! It watches budgets, pods, and the controllers of pods. `rule` counts. The server itself records evictions in
//! the status; here they are removed once the pod's end is observed. Follows Kubernetes
//! `pkg/controller/disruption`.

mod rule;

use locks::Mutex;
use std::sync::Arc;
use std::time::Duration;

use api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use api::core::v1::{Pod, ReplicationController};
use api::json::Text;
use api::meta::v1::OwnerReference;
use api::policy::v1::PodDisruptionBudget;
use api::time::Timestamp;
use api::well_known::CONDITION_DISRUPTION_TARGET;
use client::controller::{Controller, Next, own};
use client::discovery::Discovery;
use client::informer::{Informer, Key};
use client::objects::Patch;
use client::resources::ServedView as _;
use client::{Client, Document};

use self::rule::{Scale, Scales, decide};
use crate::machinery::action::Action;
use crate::machinery::executor::{Executor, Failure};
use crate::machinery::expectations::UNSETTLED;
use crate::manager::Context;
use crate::network::services::BY_NAMESPACE;
use crate::{machinery::outcome, machinery::pods};

/// The component of its events, which is Kubernetes'.
const COMPONENT: &str = "controllermanager";
/// An announced disruption that has not come after this time is taken back.
const STALE_SECONDS: i64 = 120;

struct Disruption {
    budgets: Informer<Document<PodDisruptionBudget>>,
    pods: Informer<Pod>,
    replica_sets: Informer<ReplicaSet>,
    deployments: Informer<Deployment>,
    stateful_sets: Informer<StatefulSet>,
    replication_controllers: Informer<ReplicationController>,
    executor: Executor,
    /// Discovered kinds, to find the scale of custom workloads; refreshed when a kind is unknown.
    discovery: Mutex<Arc<Discovery>>,
}

/// Runs the controller until shutdown.
pub async fn run(context: Context) {
    let informers = &context.informers;
    let budgets = informers.all::<Document<PodDisruptionBudget>>();
    let pods = informers.all::<Pod>();
    budgets.store().add_index(BY_NAMESPACE, |it| vec![it.metadata.namespace.clone()]);
    pods.store().add_index(BY_NAMESPACE, |it| vec![it.metadata.namespace.clone()]);
    let executor = Executor::new(COMPONENT, context.client.clone(), context.refusals.clone());
    executor.expectations().follow(&budgets, &PodDisruptionBudget::RESOURCE.plural);
    let known = budgets.clone();
    let runner = Controller::new(context.name, &context.runtime)
        .watch(&budgets, own)
        .watch(&pods, move |pod| budgets_of(&known, pod));
    let stale = Controller::new("disruption_stale_pod", &context.runtime)
        .watch(&pods, |pod: &Pod| disruption_since(pod).and_then(|_| own(pod)));
    let controller = Arc::new(Disruption {
        budgets,
        pods,
        replica_sets: informers.all(),
        deployments: informers.all(),
        stateful_sets: informers.all(),
        replication_controllers: informers.all(),
        executor,
        discovery: Mutex::default(),
    });
    let other = controller.clone();
    tokio::join!(
        runner.run(move |key| {
            let controller = controller.clone();
            async move { controller.reconcile(key).await }
        }),
        stale.run(move |key| {
            let controller = other.clone();
            async move { controller.clear_stale(key).await }
        }),
    );
}

fn budgets_of(budgets: &Informer<Document<PodDisruptionBudget>>, pod: &Pod) -> Vec<Key> {
    let near = budgets.store().by_index(BY_NAMESPACE, &pod.metadata.namespace);
    near.iter().filter(|budget| selects(budget, pod)).filter_map(|budget| own(&**budget)).collect()
}

fn selects(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    let selector = budget.spec.selector.as_ref().and_then(|it| it.to_selector().ok());
    selector.is_some_and(|selector| selector.matches(&pod.metadata.labels))
}

/// Start of the announced disruption of a pod that is still running, unless it was announced by its node, which
/// may take longer.
fn disruption_since(pod: &Pod) -> Option<Timestamp> {
    let condition = pods::condition(pod, CONDITION_DISRUPTION_TARGET)?;
    let counts = !pod.metadata.is_deleting()
        && !pod.is_terminal()
        && condition.status == "True"
        && condition.reason != "TerminationByKubelet";
    condition.last_transition_time.filter(|_| counts)
}

impl Disruption {
    async fn reconcile(&self, key: Key) -> Result<Next, Failure> {
        let Some(budget) = self.budgets.store().get_key(&key) else {
            self.executor.forget(&key);
            return Ok(Next::Done);
        };
        if !self.executor.settled(&key) {
            return Ok(Next::After(UNSETTLED));
        }
        let near = self.pods.store().by_index(BY_NAMESPACE, &key.namespace);
        let selected: Vec<&Pod> = near.iter().map(|pod| &**pod).filter(|pod| selects(&budget, pod)).collect();
        let scales = self.scales(&selected).await;
        let decision = decide(&budget, &selected, &scales, self.executor.now());
        let next = outcome::next(self.executor.perform(&key, decision.actions).await)?;
        Ok(match (next, decision.again) {
            (Next::Done, Some(again)) => Next::After(again),
            (next, _) => next,
        })
    }

    async fn clear_stale(&self, key: Key) -> Result<Next, Failure> {
        let Some(pod) = self.pods.store().get_key(&key) else { return Ok(Next::Done) };
        let Some(since) = disruption_since(&pod) else { return Ok(Next::Done) };
        let left = since.plus_seconds(STALE_SECONDS).seconds.saturating_sub(self.executor.now().seconds);
        if let Some(left) = u64::try_from(left).ok().filter(|left| *left > 0) {
            return Ok(Next::After(Duration::from_secs(left)));
        }
        let (time, uid) = (crate::machinery::edit::time(self.executor.now()), pod.metadata.uid.clone());
        let patch = api::json!({"metadata": {"uid": uid}, "status": {"conditions": [{
            "type": CONDITION_DISRUPTION_TARGET, "status": "False", "lastTransitionTime": time, "reason": null, "message": null,
        }]}});
        let action = Action::Patch {
            resource: Pod::RESOURCE,
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            subresource: "status",
            kind: Patch::StrategicMerge,
            patch,
        };
        outcome::next(self.executor.perform(&key, vec![action]).await)
    }

    async fn scales(&self, selected: &[&Pod]) -> Scales {
        let mut scales = Scales::new();
        for pod in selected {
            let Some(controller) = pod.metadata.controller() else { continue };
            if !scales.contains_key(&controller.uid) {
                let scale = self.scale(controller, &pod.metadata.namespace).await;
                scales.insert(controller.uid.clone(), scale);
            }
        }
        scales
    }

    async fn scale(&self, controller: &OwnerReference, namespace: &str) -> Result<Option<Scale>, String> {
        let group = controller.api_version.split_once('/').map_or("", |(group, _)| group);
        let (name, uid) = (&controller.name, &controller.uid);
        match (group, controller.kind.as_str()) {
            ("apps" | "extensions", "ReplicaSet") => {
                let Some(set) = self.replica_sets.store().get(namespace, name).filter(|it| it.metadata.uid == *uid)
                else {
                    return Ok(None);
                };
                let Some(owner) = set.metadata.controller().filter(|owner| owner.kind == "Deployment") else {
                    return Ok(Some((uid.clone(), set.spec.replicas.unwrap_or(1))));
                };
                let deployment = self.deployments.store().get(namespace, &owner.name);
                let deployment = deployment.filter(|it| it.metadata.uid == owner.uid);
                Ok(deployment.map(|it| (it.metadata.uid.clone(), it.spec.replicas.unwrap_or(1))))
            }
            ("apps", "StatefulSet") => {
                let set = self.stateful_sets.store().get(namespace, name).filter(|it| it.metadata.uid == *uid);
                Ok(set.map(|set| (uid.clone(), set.spec.replicas.unwrap_or(1))))
            }
            ("", "ReplicationController") => {
                let found = self.replication_controllers.store().get(namespace, name);
                let found = found.filter(|it| it.metadata.uid == *uid);
                Ok(found.map(|it| (uid.clone(), it.spec.replicas.unwrap_or(1))))
            }
            _ => self.scale_of_other(controller, namespace).await,
        }
    }

    /// Number of pods that a controller of another kind wants, read from its subresource `scale`.
    async fn scale_of_other(&self, controller: &OwnerReference, namespace: &str) -> Result<Option<Scale>, String> {
        let client: &Client = self.executor.client();
        let known = || self.discovery.lock().clone();
        if known().find(&controller.api_version, &controller.kind).is_none() {
            let fresh = client.discover().await.map_err(|error| error.to_string())?;
            *self.discovery.lock() = Arc::new(fresh);
        }
        let discovery = known();
        let Some(served) = discovery.find(&controller.api_version, &controller.kind) else {
            let (kind, version) = (&controller.kind, &controller.api_version);
            return Err(format!("no matches for kind \"{kind}\" in version \"{version}\""));
        };
        if !served.subresources.iter().any(|it| it == "scale") {
            let resource = match &*served.resource.group {
                "" => served.resource.plural.to_string(),
                group => format!("{}.{group}", served.resource.plural),
            };
            return Err(format!("{resource} does not implement the scale subresource"));
        }
        let scale = client.documents(served.resource.clone()).get_below(namespace, &controller.name, "scale").await;
        match scale {
            Ok(scale) if scale.str_at(&["metadata", "uid"]) == Some(controller.uid.as_str()) => {
                let replicas = scale.int_at(&["spec", "replicas"]);
                Ok(Some((Text::from(controller.uid.as_str()), i32::try_from(replicas).unwrap_or(i32::MAX))))
            }
            Ok(_) => Ok(None),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }
}
