//! `pods/{name}/eviction`: a deletion that respects disruption budgets.

use api::json::{Object, Value};
use api::well_known::CONDITION_DISRUPTION_TARGET;

use super::super::Call;
use super::super::create::{check_namespace, normalize};
use super::super::delete::{DeleteOptions, delete_object};
use super::super::modify::{Decision, ModifyResult, modify};
use super::super::ownership;
use crate::admission::{Attributes, Operation};
use crate::custom::rows::Row;
use crate::resources;
use crate::wire::answer::Answer;
use crate::wire::payload;
use crate::wire::request::Target;
use crate::wire::status::{Failure, Result};
use api::metadata;

pub(super) async fn evict(call: &Call<'_>) -> Result<Answer> {
    let payload = payload::read(call.headers, &call.body, "Eviction")?;
    let mut eviction = payload.value;
    check_namespace(call, &mut eviction)?;
    let name = call.target.name.as_str();
    let (options, dry_run) = (|| call.options("CreateOptions"), call.is_dry_run()?);
    let attributes = call.attributes(Operation::Create, "eviction", dry_run, &options);
    call.server.admission.mutate(&attributes, &mut eviction).await?;
    if metadata::name(&eviction) != name {
        return Err(Failure::bad_request("name in URL does not match name in Eviction object"));
    }
    call.server.admission.validate(&Attributes { object: Some(&eviction), ..attributes }).await?;
    let mut options = DeleteOptions::dry_run(dry_run);
    if let Some(given) = eviction.get("deleteOptions") {
        options.merge(given)?;
    }
    call.wait_for_now().await?;
    let Some(pod) = call.cache().get(&call.key()) else { return Err(Failure::not_found(call.resource, name)) };
    let pod = pod.decode();
    let mut ignored = None;
    if !ignores_budgets(&pod) {
        let budgets = budgets_of(call, &pod);
        match budgets.as_slice() {
            [] => {}
            [budget] if disrupts_nothing(&pod, budget) => ignored = Some(metadata::name(budget).to_owned()),
            [budget] => spend(call, budget, name, options.dry_run).await?,
            _ => {
                return Err(Failure::unclassified(
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                ));
            }
        }
    }
    // A pod that became ready meanwhile does disrupt something.
    let is_conditional = options.version.is_some();
    if ignored.is_some() && !is_conditional {
        options.version = Some(metadata::text(&pod, "resourceVersion").to_owned());
    }
    match (delete(call, options).await, ignored) {
        (Err(failure), Some(budget)) if failure.code == 409 && !is_conditional => {
            return Err(refuse(still_processed(&budget), Some(10)));
        }
        (done, _) => done?,
    }
    let status = api::json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Ok(Answer::json(201, &status))
}

/// Sets the pod's condition, and deletes it.
async fn delete(call: &Call<'_>, mut options: DeleteOptions) -> Result<()> {
    if !options.dry_run {
        let marked = mark(call, &options).await?;
        if let (Some(version), ModifyResult::Stored(marked)) = (&mut options.version, marked) {
            *version = marked.revision.to_string();
        }
    }
    delete_object(call, &options, None).await?;
    Ok(())
}

/// A pod that is not ready does not count as healthy: without it there are as many as before. Its budget decides whether
/// that is enough.
fn disrupts_nothing(pod: &Value, budget: &Value) -> bool {
    let conditions = pod.list_at(&["status", "conditions"]);
    let is_ready = |it: &Value| it.str_at(&["type"]) == Some("Ready") && it.str_at(&["status"]) == Some("True");
    if conditions.iter().any(is_ready) {
        return false;
    }
    let number = |field: &str| budget.int_at(&["status", field]);
    let (healthy, wanted) = (number("currentHealthy"), number("desiredHealthy"));
    budget.str_at(&["spec", "unhealthyPodEvictionPolicy"]) == Some("AlwaysAllow") || wanted > 0 && healthy >= wanted
}

fn still_processed(budget: &str) -> String {
    format!("The disruption budget {budget} is still being processed by the server.")
}

/// Pods that do not run, or go already, disrupt nothing.
fn ignores_budgets(pod: &Value) -> bool {
    matches!(pod.str_at(&["status", "phase"]), Some("Succeeded" | "Failed" | "Pending")) || metadata::is_deleting(pod)
}

fn budgets_of(call: &Call<'_>, pod: &Value) -> Vec<Value> {
    let budgets = resources::POD_DISRUPTION_BUDGETS;
    let prefix = format!("{}{}/", budgets.prefix(), call.target.namespace);
    let all = call.server.cache.resource(&budgets.prefix()).list(&prefix, None, 0, |_, _| true).objects;
    let nothing = Object::new();
    let labels = metadata::labels(pod).unwrap_or(&nothing);
    let selects = |budget: &Value| {
        let selector = budget.at(&["spec", "selector"])?;
        let selector: api::meta::v1::LabelSelector = api::json::from_value(selector).ok()?;
        Some(selector.to_selector().ok()?.matches(labels))
    };
    all.into_iter().map(|(_, budget)| budget.decode()).filter(|budget| selects(budget) == Some(true)).collect()
}

fn refuse(cause: String, retry_after: Option<i64>) -> Box<Failure> {
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    let cause = api::json!({"reason": "DisruptionBudget", "message": cause});
    let failure = Failure::new(429, "TooManyRequests", message).with_detail("causes", Value::Array(vec![cause]));
    match retry_after {
        Some(seconds) => failure.with_detail("retryAfterSeconds", seconds),
        None => failure,
    }
}

/// Takes one disruption out of a budget.
async fn spend(call: &Call<'_>, budget: &Value, pod: &str, dry_run: bool) -> Result<()> {
    let budgets = resources::POD_DISRUPTION_BUDGETS;
    let target = Target {
        group: "policy".to_owned(),
        resource: budgets.plural.to_owned(),
        name: metadata::name(budget).to_owned(),
        subresource: "status".to_owned(),
        ..call.target.clone()
    };
    let row = Row::BuiltIn(budgets);
    let budget_call = call.about(&row, budgets, &target);
    modify(&budget_call, dry_run, |budget| {
        let number = |path: &[&str]| budget.int_at(path);
        let name = &target.name;
        if number(&["status", "observedGeneration"]) < number(&["metadata", "generation"]) {
            return Err(refuse(still_processed(name), Some(10)));
        }
        let allowed = number(&["status", "disruptionsAllowed"]);
        if allowed < 0 {
            let why = "pdb disruptions allowed is negative";
            return Err(Failure::forbidden("policy", "poddisruptionbudget", name, why));
        }
        if allowed == 0 {
            let (healthy, wanted) = (number(&["status", "currentHealthy"]), number(&["status", "desiredHealthy"]));
            let cause = if healthy < wanted || wanted > 0 && healthy == wanted {
                format!("The disruption budget {name} needs {wanted} healthy pods and has {healthy} currently")
            } else {
                format!("The disruption budget {name} does not allow evicting pods currently")
            };
            return Err(refuse(cause, None));
        }
        let (old, generation) = (budget, number(&["metadata", "generation"]));
        let (mut budget, now) = (budget.clone(), call.now().to_string());
        if let Some(status) = budget.get_mut("status").and_then(Value::as_object_mut) {
            status.insert("disruptionsAllowed", allowed.saturating_sub(1));
            if allowed == 1 {
                let conditions = status.get_or_insert("conditions", || Value::Array(Vec::new()));
                exhausted(conditions, generation, &now);
            }
            let disrupted = status.get_or_insert("disruptedPods", Value::object);
            if let Some(disrupted) = disrupted.as_object_mut() {
                disrupted.insert(pod, now);
            }
        }
        normalize(&budget_call, &mut budget);
        if let Some(managed_fields) = ownership::update_by(&budget_call, "kube-apiserver", old, &budget, "status") {
            metadata::set(&mut budget, "managedFields", managed_fields);
            patching::apply::keep_times(&mut budget, old);
        }
        Ok(Decision::Put(budget))
    })
    .await?;
    Ok(())
}

/// Sets a condition that no more disruptions are allowed.
fn exhausted(conditions: &mut Value, generation: i64, now: &str) {
    const KIND: &str = "DisruptionAllowed";
    let Some(conditions) = conditions.as_array_mut() else { return };
    let known = conditions.iter().position(|it| it.str_at(&["type"]) == Some(KIND));
    let is_false = |it: &Value| it.str_at(&["status"]) == Some("False");
    let since = known.and_then(|at| conditions.get(at)).filter(|it| is_false(it));
    let since = since.and_then(|it| it.str_at(&["lastTransitionTime"])).map(ToOwned::to_owned);
    let condition = api::json!({
        "type": KIND, "status": "False", "observedGeneration": generation,
        "lastTransitionTime": (since.unwrap_or_else(|| now.to_owned())),
        "reason": "InsufficientPods", "message": ""
    });
    match known.and_then(|at| conditions.get_mut(at)) {
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
}

/// Sets the pod's condition.
async fn mark(call: &Call<'_>, options: &DeleteOptions) -> Result<ModifyResult> {
    modify(call, false, |pod| {
        options.check_preconditions(call, pod)?;
        if metadata::is_deleting(pod) {
            return Ok(Decision::Keep);
        }
        let mut pod = pod.clone();
        let condition = api::json!({
            "type": CONDITION_DISRUPTION_TARGET, "status": "True", "lastProbeTime": null,
            "lastTransitionTime": (call.now().to_string()),
            "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"
        });
        if let Some(status) = pod.get_mut("status").and_then(Value::as_object_mut) {
            let list = status.get_or_insert("conditions", || Value::Array(Vec::new()));
            if let Some(list) = list.as_array_mut() {
                list.retain(|it| it.str_at(&["type"]) != Some(CONDITION_DISRUPTION_TARGET));
                list.push(condition);
            }
        }
        normalize(call, &mut pod);
        Ok(Decision::Put(pod))
    })
    .await
}
