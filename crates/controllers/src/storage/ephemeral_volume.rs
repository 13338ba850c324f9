//! Makes the claims of ephemeral volumes, which live as long as their pod.
//!
//! Follows Kubernetes `pkg/controller/volume/ephemeral`.

use std::sync::Arc;

use api::core::v1::{PersistentVolumeClaim, Pod};
use api::json::Value;
use client::controller::{Controller, Next, own};
use client::informer::{Change, Informer, Key};
use client::resources::ServedView as _;

use crate::machinery::action::Action;
use crate::machinery::executor::{Executor, Failure, Owner};
use crate::machinery::expectations::UNSETTLED;
use crate::manager::Context;
use crate::storage::volume_protection::{claim_name, is_for};

/// The component of its events, which is Kubernetes'.
const COMPONENT: &str = "ephemeral_volume";

struct EphemeralVolumes {
    pods: Informer<Pod>,
    claims: Informer<PersistentVolumeClaim>,
    executor: Executor,
}

/// A reason why a pod does not have its claims.
#[derive(Debug, thiserror::Error)]
enum EphemeralError {
    /// A request failed.
    #[error(transparent)]
    Failure(#[from] Failure),
    /// One of its volumes cannot have its claim.
    #[error("{0}")]
    Volume(String),
}

/// Runs the controller until shutdown.
pub async fn run(context: Context) {
    let (pods, claims) = (context.informers.all::<Pod>(), context.informers.all::<PersistentVolumeClaim>());
    let executor = Executor::new(COMPONENT, context.client.clone(), context.refusals.clone());
    executor.expectations().follow(&claims, &PersistentVolumeClaim::RESOURCE.plural);
    let has_ephemeral = |pod: &Pod| pod.spec.volumes.iter().any(|volume| volume.ephemeral.is_some());
    let runner = Controller::new(context.name, &context.runtime)
        .watch_changes(&pods, move |change| match change {
            // Volumes of a pod do not change, and its end is the claim's.
            Change::Added(pod) if has_ephemeral(pod) => own(&**pod),
            _ => None,
        })
        .watch_changes(&claims, |change| match change {
            Change::Deleted(claim) => {
                let owner = claim.metadata.controller().filter(|owner| owner.kind == "Pod");
                owner.map(|owner| Key::new(claim.metadata.namespace.clone(), owner.name.clone()))
            }
            _ => None,
        });
    let controller = Arc::new(EphemeralVolumes { pods, claims, executor });
    runner
        .run(move |key| {
            let controller = controller.clone();
            async move { controller.reconcile(key).await }
        })
        .await;
}

impl EphemeralVolumes {
    async fn reconcile(&self, key: Key) -> Result<Next, EphemeralError> {
        let Some(pod) = self.pods.store().get_key(&key).filter(|pod| !pod.metadata.is_deleting()) else {
            self.executor.forget(&key);
            return Ok(Next::Done);
        };
        if !self.executor.settled(&key) {
            return Ok(Next::After(UNSETTLED));
        }
        // The view has only some fields of the templates.
        let whole = self.executor.client().documents(Pod::RESOURCE).get(&key.namespace, &key.name).await;
        let whole = match whole {
            Ok(whole) if whole.str_at(&["metadata", "uid"]) == Some(pod.metadata.uid.as_str()) => whole,
            Ok(_) => return Ok(Next::Done),
            Err(error) if error.is_not_found() => return Ok(Next::Done),
            Err(error) => return Err(Failure::from(error).into()),
        };
        let known = |name: &str| self.claims.store().get(&key.namespace, name);
        let (claims, problem) = claims_of(&pod, &whole, known);
        let about = client::events::reference(&*pod);
        let owner = Owner { about: about.clone(), generation: pod.metadata.generation };
        for (volume, claim) in claims {
            let resource = PersistentVolumeClaim::RESOURCE;
            let created = self.executor.create_all(&key, &owner, &resource, vec![claim]).await;
            let Some(failure) = created.failure else { continue };
            if failure.is_ending_namespace() {
                return Ok(Next::Done);
            }
            if created.is_news {
                let name = format!("{}-{volume}", key.name);
                let message = format!("ephemeral volume {volume}: create PVC {name}: {failure}");
                self.executor.perform(&key, vec![Action::warning(&about, "FailedBinding", message)]).await?;
            }
            return failure.held().map(Next::After).ok_or(failure.into());
        }
        if let Some(problem) = problem {
            let event = Action::warning(&about, "FailedBinding", problem.clone());
            self.executor.perform(&key, vec![event]).await?;
            return Err(EphemeralError::Volume(problem));
        }
        Ok(Next::Done)
    }
}

/// Returns the claims to create, each with the name of its volume, up to the first volume whose claim belongs
/// to another owner.
fn claims_of(
    pod: &Pod,
    whole: &Value,
    known: impl Fn(&str) -> Option<Arc<PersistentVolumeClaim>>,
) -> (Vec<(String, Value)>, Option<String>) {
    let mut claims = Vec::new();
    let (namespace, pod_name) = (&pod.metadata.namespace, &pod.metadata.name);
    let volumes = whole.list_at(&["spec", "volumes"]);
    for (volume, document) in pod.spec.volumes.iter().zip(volumes).filter(|(volume, _)| volume.ephemeral.is_some()) {
        let Some(name) = claim_name(pod, volume) else { continue };
        if let Some(claim) = known(&name) {
            if is_for(&claim, pod) {
                continue;
            }
            let problem = format!(
                "ephemeral volume {}: PVC {namespace}/{name} was not created for pod {namespace}/{pod_name} (pod is not owner)",
                volume.name
            );
            return (claims, Some(problem));
        }
        let template =
            |path: &[&str]| document.at(&["ephemeral", "volumeClaimTemplate"]).and_then(|it| it.at(path)).cloned();
        let uid = pod.metadata.uid.clone();
        let mut object = api::json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": (namespace.clone()), "ownerReferences": [{
                "apiVersion": "v1", "kind": "Pod", "name": (pod_name.clone()), "uid": uid,
                "controller": true, "blockOwnerDeletion": true,
            }]},
        });
        for field in ["annotations", "labels"] {
            if let Some(value) = template(&["metadata", field]) {
                object.set_at(&["metadata", field], value);
            }
        }
        object.set_at(&["spec"], template(&["spec"]).unwrap_or_default());
        claims.push((volume.name.to_string(), object));
    }
    (claims, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_made_from_the_template_and_never_taken_from_others() {
        let whole = api::json!({
            "metadata": {"name": "p", "namespace": "a", "uid": "u"},
            "spec": {"volumes": [
                {"name": "other", "emptyDir": {}},
                {"name": "v", "ephemeral": {"volumeClaimTemplate": {"metadata": {"labels": {"l": "1"}},
                    "spec": {"accessModes": ["ReadWriteOnce"]}}}},
            ]},
        });
        let pod: Pod = api::json::from_value(&whole).expect("a pod");
        let (claims, problem) = claims_of(&pod, &whole, |_| None);
        assert_eq!(problem, None);
        let [(_, object)] = claims.as_slice() else { panic!("{claims:?}") };
        assert_eq!(api::metadata::name(object), "p-v");
        assert_eq!(object.at(&["metadata", "labels"]), Some(&api::json!({"l": "1"})));
        let made: Arc<PersistentVolumeClaim> = Arc::new(api::json::from_value(object).expect("a claim"));
        assert_eq!(claims_of(&pod, &whole, |_| Some(made.clone())), (Vec::new(), None));
        let foreign = Arc::new(PersistentVolumeClaim::default());
        let (_, problem) = claims_of(&pod, &whole, |_| Some(foreign.clone()));
        let expected = "ephemeral volume v: PVC a/p-v was not created for pod a/p (pod is not owner)";
        assert_eq!(problem.as_deref(), Some(expected));
    }
}
