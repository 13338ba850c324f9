//! Pods on a silent node are not ready, regardless of their last status.

use api::core::v1::Pod;
use api::json::Value;
use api::time::Timestamp;
use client::events::{Severity, reference};

use crate::machinery::action::Action;
use crate::machinery::edit;
use crate::machinery::executor::{Executor, Failure};
use crate::machinery::pods::{PODS, condition};

/// Marks a pod as not ready, unless it already is. A deleted pod is ignored.
pub(super) async fn mark_not_ready(executor: &Executor, pod: &Pod, now: Timestamp) -> Result<(), Failure> {
    if condition(pod, "Ready").is_none_or(|ready| ready.status == "False") {
        return Ok(());
    }
    let (namespace, name) = (&pod.metadata.namespace, &pod.metadata.name);
    // The informers keep a view only: a status is written whole.
    let mut document = match executor.client().documents(PODS).get(namespace, name).await {
        Err(error) if error.is_not_found() => return Ok(()),
        answer => answer?,
    };
    if document.str_at(&["metadata", "uid"]) != Some(&pod.metadata.uid) || !set_not_ready(&mut document, now) {
        return Ok(());
    }
    let action = Action::UpdateStatus { resource: PODS, object: document };
    match executor.perform(&edit::key(&pod.metadata), vec![action]).await {
        Err(failure) if failure.code() == 404 => return Ok(()),
        result => result?,
    }
    executor.recorder().event(reference(pod), Severity::Warning, "NodeNotReady", "Node is not ready");
    Ok(())
}

fn set_not_ready(document: &mut Value, now: Timestamp) -> bool {
    let conditions = document.make_list_at(&["status", "conditions"]);
    let ready = conditions.iter_mut().find(|it| it.str_at(&["type"]) == Some("Ready"));
    let Some(ready) = ready.filter(|it| it.str_at(&["status"]) != Some("False")) else { return false };
    ready.set_at(&["status"], "False");
    ready.set_at(&["lastTransitionTime"], edit::time(now));
    true
}
