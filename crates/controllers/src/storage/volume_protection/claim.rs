//! Claims: used by pods.

use std::sync::Arc;

use api::core::v1::{PersistentVolumeClaim, Pod, Volume};
use api::json::Text;
use api::time::Timestamp;
use api::well_known::FINALIZER_VOLUME_CLAIM;
use client::Document;
use client::controller::{Controller, Next, own};
use client::informer::{Change, Informer, Key};
use client::objects::Selection;
use client::resources::ServedView as _;

use super::{is_candidate, protect};
use crate::machinery::action::Action;
use crate::machinery::executor::{Executor, Failure};
use crate::machinery::expectations::UNSETTLED;
use crate::manager::Context;
use crate::{machinery::edit, machinery::outcome};

const UNUSED: &str = "Unused";
/// The index of pods by the claims that they name.
const BY_CLAIM: &str = "claim";

struct Claims {
    claims: Informer<Document<PersistentVolumeClaim>>,
    pods: Informer<Pod>,
    executor: Executor,
}

/// Protects claims until shutdown.
pub async fn run(context: Context) {
    let claims = context.informers.all::<Document<PersistentVolumeClaim>>();
    let pods = context.informers.all::<Pod>();
    index_by_claim(&pods, BY_CLAIM);
    let executor = context.executor();
    executor.expectations().follow(&claims, &PersistentVolumeClaim::RESOURCE.plural);
    let runner = Controller::new(context.name, &context.runtime)
        .watch(&claims, |it| {
            own(it).filter(|_| is_candidate(it.metadata(), FINALIZER_VOLUME_CLAIM) || unused(it).is_none())
        })
        .watch_changes(&pods, |change| match change {
            Change::Added(pod) | Change::Deleted(pod) => keys(pod),
            Change::Updated { old, new } if use_changed(old, new) => {
                let mut both = keys(old);
                both.extend(keys(new));
                both
            }
            Change::Updated { .. } => Vec::new(),
        });
    let controller = Arc::new(Claims { claims, pods, executor });
    runner
        .run(move |key| {
            let controller = controller.clone();
            async move { controller.reconcile(key).await }
        })
        .await;
}

/// Keeps pods by the claims that they name.
pub(crate) fn index_by_claim(pods: &Informer<Pod>, name: &'static str) {
    pods.store().add_index(name, |pod| keys(pod).iter().map(|key| Text::from(key.to_string())).collect());
}

fn use_changed(old: &Pod, new: &Pod) -> bool {
    old.metadata.uid != new.metadata.uid
        || old.spec.node_name != new.spec.node_name
        || old.is_terminal() != new.is_terminal()
        || old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
}

/// The name of the claim that a volume of a pod uses.
pub(crate) fn claim_name(pod: &Pod, volume: &Volume) -> Option<Text> {
    if let Some(claim) = &volume.persistent_volume_claim {
        return Some(claim.claim_name.clone());
    }
    volume.ephemeral.as_ref().map(|_| format!("{}-{}", pod.metadata.name, volume.name).into())
}

fn keys(pod: &Pod) -> Vec<Key> {
    let names = pod.spec.volumes.iter().filter_map(|volume| claim_name(pod, volume));
    names.map(|name| Key::new(pod.metadata.namespace.clone(), name)).collect()
}

/// Whether a claim was made for a pod.
pub(crate) fn is_for(claim: &PersistentVolumeClaim, pod: &Pod) -> bool {
    claim.metadata.namespace == pod.metadata.namespace
        && claim.metadata.controller().is_some_and(|owner| owner.uid == pod.metadata.uid)
}

fn unused(claim: &PersistentVolumeClaim) -> Option<bool> {
    let condition = claim.status.conditions.iter().find(|it| it.condition_type == UNUSED)?;
    Some(condition.status == "True")
}

/// Whether a volume of the pod refers to the claim.
fn names(pod: &Pod, claim: &PersistentVolumeClaim, ephemeral: bool) -> bool {
    pod.metadata.namespace == claim.metadata.namespace
        && pod.spec.volumes.iter().any(|volume| match &volume.persistent_volume_claim {
            Some(source) => source.claim_name == claim.metadata.name,
            None => ephemeral && claim_name(pod, volume).as_ref() == Some(&claim.metadata.name) && is_for(claim, pod),
        })
}

/// Whether a pod keeps the claim from being deleted: it is on a node, which is not yet done with it.
fn holds(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    let shut_down = pod.metadata.is_deleting() && pod.metadata.deletion_grace_period_seconds == Some(0);
    !pod.spec.node_name.is_empty() && names(pod, claim, !shut_down)
}

/// Whether a pod counts as a user of the claim.
fn uses(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    !pod.is_terminal() && names(pod, claim, true)
}

/// Returns the claim with its condition set, if that differs.
fn with_condition(claim: &Document<PersistentVolumeClaim>, used: bool, now: Timestamp) -> Option<Action> {
    if claim.metadata.is_deleting() || claim.status.phase != "Bound" || unused(claim) == Some(!used) {
        return None;
    }
    let (status, reason, message) = if used {
        ("False", "PodUsingPVC", "A pod is currently referencing this PVC")
    } else {
        ("True", "NoPodsUsingPVC", "No pods are currently referencing this PVC")
    };
    let time = edit::time(now);
    let condition = api::json!({
        "type": UNUSED, "status": status, "lastTransitionTime": time, "reason": reason, "message": message,
    });
    let mut object = claim.to_value();
    let list = object.make_list_at(&["status", "conditions"]);
    match list.iter_mut().find(|it| it.str_at(&["type"]) == Some(UNUSED)) {
        Some(known) => *known = condition,
        None => list.push(condition),
    }
    Some(Action::UpdateStatus { resource: PersistentVolumeClaim::RESOURCE, object })
}

impl Claims {
    async fn reconcile(&self, key: Key) -> Result<Next, Failure> {
        let Some(claim) = self.claims.store().get_key(&key) else {
            self.executor.forget(&key);
            return Ok(Next::Done);
        };
        if !self.executor.settled(&key) {
            return Ok(Next::After(UNSETTLED));
        }
        let near = self.pods.store().by_index(BY_CLAIM, &key.to_string());
        let used = near.iter().any(|pod| uses(pod, &claim));
        let mut actions: Vec<Action> = with_condition(&claim, used, self.executor.now()).into_iter().collect();
        if is_candidate(claim.metadata(), FINALIZER_VOLUME_CLAIM) {
            let mut in_use = near.iter().any(|pod| holds(pod, &claim));
            if claim.metadata.is_deleting() && !in_use {
                // A pod that uses it may not be in the local copy yet.
                let selection = Selection { namespace: key.namespace.to_string(), ..Selection::default() };
                let pods = self.executor.client().objects::<Pod>().list(&selection).await?;
                in_use = pods.items.iter().any(|pod| holds(pod, &claim));
            }
            let resource = PersistentVolumeClaim::RESOURCE;
            actions.extend(protect(resource, claim.value(), claim.metadata(), FINALIZER_VOLUME_CLAIM, || in_use));
        }
        outcome::next(self.executor.perform(&key, actions).await)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(conditions: &str) -> Document<PersistentVolumeClaim> {
        let text = format!(
            r#"{{"metadata": {{"name": "p-v", "namespace": "a", "ownerReferences": [{{"uid": "p", "controller": true}}]}}, "status": {{"phase": "Bound", "conditions": [{conditions}]}}}}"#
        );
        Document::new(api::json::parse(text.as_bytes()).expect("JSON")).expect("a claim")
    }

    fn pod(volume: &str, node: &str, phase: &str) -> Pod {
        let text = format!(
            r#"{{"metadata": {{"name": "p", "namespace": "a", "uid": "p"}}, "spec": {{"nodeName": "{node}", "volumes": [{{"name": "v", {volume}}}]}}, "status": {{"phase": "{phase}"}}}}"#
        );
        api::json::from_value(&api::json::parse(text.as_bytes()).expect("JSON")).expect("a pod")
    }

    const BY_NAME: &str = r#""persistentVolumeClaim": {"claimName": "p-v"}"#;
    const EPHEMERAL: &str = r#""ephemeral": {}"#;

    #[test]
    fn a_claim_is_held_by_pods_on_nodes_and_used_by_all_that_live() {
        for volume in [BY_NAME, EPHEMERAL] {
            assert!(holds(&pod(volume, "n", "Running"), &claim("")));
            assert!(!holds(&pod(volume, "", "Pending"), &claim("")));
            assert!(uses(&pod(volume, "", "Pending"), &claim("")));
            assert!(!uses(&pod(volume, "n", "Succeeded"), &claim("")));
        }
        let mut other = pod(EPHEMERAL, "n", "Running");
        other.metadata.uid = "another".into();
        assert!(!holds(&other, &claim("")), "the claim was made for another pod of that name");
    }

    #[test]
    fn the_condition_is_written_when_it_changes() {
        let now = Timestamp { seconds: 0, nanos: 0 };
        assert!(with_condition(&claim(""), false, now).is_some());
        let unused = r#"{"type": "Unused", "status": "True"}"#;
        assert!(with_condition(&claim(unused), false, now).is_none());
        assert!(with_condition(&claim(unused), true, now).is_some());
    }
}
