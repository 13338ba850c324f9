//! Claims to devices: made from templates for pods, reserved for pods that are placed by hand, released and deleted when
//! pods are done.
//!
//! Allocation is done by the scheduler. `metrics` reports the use of constraints, `pod` decides which claims a
//! pod needs, `release` when a claim is released. A template that needs a disabled gate (KEP-5254) is reported
//! and reconciled again when it changes, not in a loop. Follows Kubernetes `pkg/controller/resourceclaim`.

mod metrics;
mod pod;
mod release;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use api::core::v1::Pod;
use api::features::Features;
use api::json::Text;
use api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use client::Document;
use client::controller::{Controller, Next};
use client::informer::{Informer, Key};
use client::resources::ServedView as _;

use self::pod::{ClaimNeed, Problem, is_for, known_name, need, reserve, statuses};
use self::release::{OwnerPod, release};
use crate::machinery::action::Action;
use crate::machinery::executor::{Executor, Failure, Owner};
use crate::machinery::expectations::UNSETTLED;
use crate::machinery::outcome;
use crate::manager::Context;
use crate::network::services::BY_NAMESPACE;

/// Keeps a claim from being deleted while it is allocated.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// Annotation with the name of the claim in the pod.
const CLAIM_NAME: &str = "resource.kubernetes.io/pod-claim-name";
/// A claim has at most this many consumers.
const MAX_RESERVED: usize = 256;
/// The component of its events, which is Kubernetes'.
const COMPONENT: &str = "resource_claim";
/// Field manager of the pod's claim status.
const MANAGER: &str = "ResourceClaimController";
/// The index of claims by the pod that they were made for.
const BY_OWNER: &str = "owner";
/// Retry delay for a claim template that requires a disabled feature gate.
const AFTER_GATE: Duration = Duration::from_secs(300);

/// An item to reconcile.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Item {
    Pod(Key),
    Claim(Key),
}

impl std::fmt::Display for Item {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Item::Pod(key) => write!(f, "pod:{key}"),
            Item::Claim(key) => write!(f, "claim:{key}"),
        }
    }
}

struct Claims {
    pods: Informer<Pod>,
    claims: Informer<Document<ResourceClaim>>,
    templates: Informer<Document<ResourceClaimTemplate>>,
    executor: Executor,
    features: Features,
}

/// A reason why a pod does not have its claims.
#[derive(Debug, thiserror::Error)]
enum ClaimError {
    /// A request failed.
    #[error(transparent)]
    Failure(#[from] Failure),
    /// One of its claims cannot be made.
    #[error(transparent)]
    Problem(#[from] Problem),
}

impl From<client::Error> for ClaimError {
    fn from(error: client::Error) -> Self {
        Failure::from(error).into()
    }
}

/// Runs the controller until shutdown.
pub async fn run(context: Context) {
    let informers = &context.informers;
    let pods = informers.all::<Pod>();
    let claims = informers.all::<Document<ResourceClaim>>();
    let templates = informers.all::<Document<ResourceClaimTemplate>>();
    pods.store().add_index(BY_NAMESPACE, |it| vec![it.metadata.namespace.clone()]);
    claims
        .store()
        .add_index(BY_OWNER, |it| it.metadata.controller().map(|owner| owner.uid.clone()).into_iter().collect());
    let executor = Executor::new(COMPONENT, context.client.clone(), context.refusals.clone());
    executor.expectations().follow(&claims, &ResourceClaim::RESOURCE.plural);
    executor.expectations().follow(&pods, &Pod::RESOURCE.plural);
    metrics::publish(&context.runtime.registry, &claims, &pods);
    let near = pods.clone();
    let runner = Controller::new(context.name, &context.runtime)
        .watch(&pods, items_of)
        .watch(&claims, |claim: &Document<ResourceClaim>| {
            let namespace = &claim.metadata.namespace;
            let owner = claim.metadata.controller().filter(|owner| owner.kind == "Pod");
            let pod = owner.map(|owner| Item::Pod(Key::new(namespace.clone(), owner.name.clone())));
            pod.into_iter()
                .chain([Item::Claim(Key::new(namespace.clone(), claim.metadata.name.clone()))])
                .collect::<Vec<_>>()
        })
        .watch(&templates, move |template: &Document<ResourceClaimTemplate>| {
            let metadata = template.metadata();
            let names = |pod: &Pod| {
                let mut claims = pod.spec.resource_claims.iter();
                claims.any(|it| it.resource_claim_template_name.as_ref() == Some(&metadata.name))
            };
            let pods = near.store().by_index(BY_NAMESPACE, &metadata.namespace);
            let waiting = pods.iter().filter(|pod| names(pod));
            waiting.map(|pod| Item::Pod(crate::machinery::edit::key(&pod.metadata))).collect::<Vec<_>>()
        })
        .workers(10);
    let features = context.features;
    let controller = Arc::new(Claims { pods, claims, templates, executor, features });
    runner
        .run(move |item: Item| {
            let controller = controller.clone();
            async move {
                match item {
                    Item::Pod(key) => controller.reconcile_pod(key).await,
                    Item::Claim(key) => controller.reconcile_claim(key).await,
                }
            }
        })
        .await;
}

/// A pod with claims, and each of them; also the one that the scheduler created for its extended resources.
fn items_of(pod: &Pod) -> Vec<Item> {
    let extended = pod.status.extended_resource_claim_status.as_ref().map(|it| &it.resource_claim_name);
    if pod.spec.resource_claims.is_empty() && extended.is_none() {
        return Vec::new();
    }
    let namespace = &pod.metadata.namespace;
    let names = pod.spec.resource_claims.iter().filter_map(|claim| known_name(pod, claim));
    let claims = names.chain(extended).map(|name| Item::Claim(Key::new(namespace.clone(), name.clone())));
    claims.chain([Item::Pod(crate::machinery::edit::key(&pod.metadata))]).collect()
}

/// Whether a pod will not run any more.
fn is_done(pod: &Pod) -> bool {
    pod.is_terminal() || (pod.metadata.is_deleting() && pod.spec.node_name.is_empty())
}

impl Claims {
    async fn reconcile_pod(&self, key: Key) -> Result<Next, ClaimError> {
        let Some(pod) = self.pods.store().get_key(&key).filter(|pod| !pod.metadata.is_deleting()) else {
            self.executor.forget(&key);
            return Ok(Next::Done);
        };
        if is_done(&pod) || pod.spec.resource_claims.is_empty() {
            return Ok(Next::Done);
        }
        if !self.executor.settled(&key) {
            return Ok(Next::After(UNSETTLED));
        }
        let near = self.claims.store().by_index(BY_OWNER, &pod.metadata.uid);
        let mut reported: Vec<(Text, Text)> = Vec::new();
        for wanted in &pod.spec.resource_claims {
            let views = near.iter().map(|claim| &***claim);
            let template = |name: &str| self.templates.store().get(&key.namespace, name).map(|it| (*it).clone());
            let name = match need(&pod, wanted, views, template, self.features) {
                Ok(ClaimNeed::Nothing) => continue,
                Ok(ClaimNeed::Tell(name)) => name,
                Ok(ClaimNeed::Create(object)) => {
                    let owner = Owner { about: client::events::reference(&*pod), generation: pod.metadata.generation };
                    let resource = ResourceClaim::RESOURCE;
                    let created = self.executor.create_all(&key, &owner, &resource, vec![object]).await;
                    match (created.objects.first(), created.failure) {
                        (Some(made), _) => api::metadata::name(made).into(),
                        (None, None) => continue,
                        (None, Some(failure)) if failure.is_ending_namespace() => return Ok(Next::Done),
                        (None, Some(failure)) => {
                            if created.is_news {
                                let why = format!("create ResourceClaim : {failure}");
                                self.report(&key, &pod, &wanted.name, &why).await?;
                            }
                            return failure.held().map(Next::After).ok_or(failure.into());
                        }
                    }
                }
                Err(problem) => {
                    self.report(&key, &pod, &wanted.name, &problem.to_string()).await?;
                    return match problem {
                        Problem::Gate(_) => Ok(Next::After(AFTER_GATE)),
                        Problem::NoTemplate(_) => Err(problem.into()),
                    };
                }
            };
            reported.push((wanted.name.clone(), name));
        }
        if !reported.is_empty() {
            let (name, namespace) = (key.name.clone(), key.namespace.clone());
            let fields = api::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
                "status": {"resourceClaimStatuses": (statuses(&pod, &reported))}});
            let pods = self.executor.client().documents(Pod::RESOURCE);
            pods.apply(&key.namespace, &key.name, "status", &fields, MANAGER, true).await?;
        }
        if !pod.spec.node_name.is_empty() {
            self.reserve_all(&key, &pod).await?;
        }
        Ok(Next::Done)
    }

    async fn report(&self, key: &Key, pod: &Pod, claim: &str, why: &str) -> Result<(), Failure> {
        let about = client::events::reference(pod);
        let message = format!("PodResourceClaim {claim}: {why}");
        let event = Action::warning(&about, "FailedResourceClaimCreation", message);
        self.executor.perform(key, vec![event]).await
    }

    /// A pod that was put on a node without the scheduler needs its claims reserved.
    async fn reserve_all(&self, key: &Key, pod: &Pod) -> Result<(), Failure> {
        for wanted in &pod.spec.resource_claims {
            let Some(name) = known_name(pod, wanted) else { continue };
            let Some(claim) = self.claims.store().get(&key.namespace, name) else { continue };
            if wanted.resource_claim_template_name.is_some() && !is_for(&claim, pod) {
                continue;
            }
            if let Some(object) = reserve(&claim, pod) {
                let action = Action::UpdateStatus { resource: ResourceClaim::RESOURCE, object };
                self.executor.perform(key, vec![action]).await?;
            }
        }
        Ok(())
    }

    async fn reconcile_claim(&self, key: Key) -> Result<Next, ClaimError> {
        let Some(claim) = self.claims.store().get_key(&key) else {
            self.executor.forget(&key);
            return Ok(Next::Done);
        };
        if !self.executor.settled(&key) {
            return Ok(Next::After(UNSETTLED));
        }
        let mut keeps = Vec::with_capacity(claim.status.reserved_for.len());
        for consumer in &claim.status.reserved_for {
            let is_pod = consumer.api_group.is_empty() && consumer.resource == "pods";
            let keep = !is_pod || self.needs(&key.namespace, &consumer.name, &consumer.uid).await?;
            keeps.push(keep);
        }
        let owner = match claim.metadata.controller().filter(|owner| owner.kind == "Pod") {
            None => OwnerPod::None,
            Some(owner) => match self.pods.store().get(&key.namespace, &owner.name) {
                Some(pod) if pod.metadata.uid != owner.uid || is_done(&pod) => OwnerPod::Done,
                _ => OwnerPod::Keeps,
            },
        };
        let actions = release(&claim, |index| keeps.get(index).copied().unwrap_or(true), owner);
        Ok(outcome::next(self.executor.perform(&key, actions).await)?)
    }

    /// Whether a pod still needs its reservation.
    async fn needs(&self, namespace: &str, name: &str, uid: &str) -> Result<bool, client::Error> {
        if let Some(pod) = self.pods.store().get(namespace, name) {
            return Ok(pod.metadata.uid == uid && !is_done(&pod));
        }
        // The local copy may be late: the server decides.
        match self.executor.client().objects::<Pod>().get(namespace, name).await {
            Ok(pod) => Ok(pod.metadata.uid == uid),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }
}
