//! Number of disruptions that a budget allows.
//!
//! Pure. Follows `trySync` in Kubernetes `pkg/controller/disruption/disruption.go`.

use std::collections::BTreeMap;
use std::time::Duration;

use api::core::v1::{ObjectReference, Pod};
use api::int_or_string::IntOrString;
use api::json::{Object, Text, Value};
use api::meta::v1::{LabelSelector, StringMap};
use api::policy::v1::PodDisruptionBudget;
use api::time::Timestamp;
use client::Document;
use client::resources::ServedView as _;

use crate::machinery::action::{Action, Decision};
use crate::machinery::conditions::{self, Condition};
use crate::machinery::pods;

/// Within this time a pod that was evicted must be seen to end.
const DELETION_SECONDS: i64 = 120;

/// Controller of a pod: its identity, and the number of pods that it wants.
pub(crate) type Scale = (Text, i32);

/// Known controllers of pods, by the UID in the pods' references.
pub(crate) type Scales = BTreeMap<Text, Result<Option<Scale>, String>>;

/// Expected number of pods, and minimum number of healthy ones.
struct ExpectedPods {
    pods: i32,
    healthy: i32,
    unmanaged: bool,
}

/// Returns the update of a budget, given the selected pods and their controllers.
pub(crate) fn decide(
    budget: &Document<PodDisruptionBudget>,
    selected: &[&Pod],
    scales: &Scales,
    now: Timestamp,
) -> Decision {
    let about = about(budget);
    let mut decision = Decision::default();
    if selected.is_empty() {
        decision.actions.push(Action::normal(&about, "NoPods", "No matching pods found".to_owned()));
    }
    let expected = match expected(budget, selected, scales) {
        Ok(expected) => expected,
        Err(why) => {
            let message = format!("Failed to calculate the number of expected pods: {why}");
            decision.actions.push(Action::warning(&about, "CalculateExpectedPodCountFailed", message));
            decision.actions.extend(fail_safe(budget, &why, now));
            return decision;
        }
    };
    if expected.unmanaged {
        let selector = printed(budget.spec.selector.as_ref());
        let message = format!(
            "Pods selected by this PodDisruptionBudget (selector: {selector}) were found to be unmanaged. As a result, \
             the status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account \
             for these pods please set \".spec.minAvailable\" field of the PDB to an integer value."
        );
        decision.actions.push(Action::warning(&about, "UnmanagedPods", message));
    }
    let disrupted = disrupted(budget, selected, now, &mut decision);
    let is_healthy =
        |pod: &&&Pod| !pod.metadata.is_deleting() && !disrupted.contains_key(&pod.metadata.name) && pods::is_ready(pod);
    let healthy = i32::try_from(selected.iter().filter(is_healthy).count()).unwrap_or(i32::MAX);
    let spare = healthy.saturating_sub(expected.healthy);
    let allowed = if expected.pods <= 0 { 0 } else { spare.max(0) };
    let counts = Counts { allowed, healthy, expected };
    decision.actions.extend(updated(budget, &counts, &disrupted, now));
    decision
}

fn about(budget: &Document<PodDisruptionBudget>) -> ObjectReference {
    client::events::reference(&**budget)
}

fn expected(budget: &PodDisruptionBudget, selected: &[&Pod], scales: &Scales) -> Result<ExpectedPods, String> {
    let spec = &budget.spec;
    let scaled = |value: &IntOrString, total: i32| -> Result<i32, String> {
        let scaled = value.scaled(i64::from(total), true).map_err(|error| error.to_string())?;
        Ok(i32::try_from(scaled).unwrap_or(i32::MAX))
    };
    match (&spec.max_unavailable, &spec.min_available) {
        (Some(unavailable), _) => {
            let (pods, unmanaged) = wanted(selected, scales)?;
            let healthy = pods.saturating_sub(scaled(unavailable, pods)?).max(0);
            Ok(ExpectedPods { pods, healthy, unmanaged })
        }
        (None, Some(IntOrString::Int(healthy))) => {
            let pods = i32::try_from(selected.len()).unwrap_or(i32::MAX);
            Ok(ExpectedPods { pods, healthy: *healthy, unmanaged: false })
        }
        (None, Some(share)) => {
            let (pods, unmanaged) = wanted(selected, scales)?;
            Ok(ExpectedPods { pods, healthy: scaled(share, pods)?, unmanaged })
        }
        (None, None) => Ok(ExpectedPods { pods: 0, healthy: 0, unmanaged: false }),
    }
}

/// Returns the number of pods that their controllers want, and whether some have no controller.
fn wanted(selected: &[&Pod], scales: &Scales) -> Result<(i32, bool), String> {
    let mut by_controller: BTreeMap<&Text, i32> = BTreeMap::new();
    let mut unmanaged = false;
    for pod in selected {
        let Some(controller) = pod.metadata.controller() else {
            unmanaged = true;
            continue;
        };
        match scales.get(&controller.uid) {
            Some(Ok(Some((uid, replicas)))) => drop(by_controller.insert(uid, *replicas)),
            Some(Err(why)) => return Err(why.clone()),
            Some(Ok(None)) | None => return Err(format!("found no controllers for pod \"{}\"", pod.metadata.name)),
        }
    }
    Ok((by_controller.values().fold(0, |sum, replicas| sum.saturating_add(*replicas)), unmanaged))
}

/// The pods that were evicted and are not yet seen to end.
fn disrupted(budget: &PodDisruptionBudget, selected: &[&Pod], now: Timestamp, decision: &mut Decision) -> StringMap {
    let mut still = StringMap::new();
    for pod in selected.iter().filter(|pod| !pod.metadata.is_deleting()) {
        let name = &pod.metadata.name;
        let Some(text) = budget.status.disrupted_pods.get(name) else { continue };
        let Ok(since) = Timestamp::parse(text) else { continue };
        let until = since.plus_seconds(DELETION_SECONDS);
        if until < now {
            let (namespace, about) = (&budget.metadata.namespace, client::events::reference(*pod));
            // Kubernetes: the namespace is printed instead of the name.
            let message = format!("Pod was expected by PDB {namespace}/{namespace} to be deleted but it wasn't");
            decision.actions.push(Action::warning(&about, "NotDeleted", message));
        } else {
            let seconds = u64::try_from(until.seconds.saturating_sub(now.seconds)).unwrap_or(0);
            decision.look_again(Duration::from_secs(seconds.saturating_add(1)));
            still.insert(name.clone(), text.clone());
        }
    }
    still
}

struct Counts {
    allowed: i32,
    healthy: i32,
    expected: ExpectedPods,
}

fn updated(
    budget: &Document<PodDisruptionBudget>,
    counts: &Counts,
    disrupted: &StringMap,
    now: Timestamp,
) -> Option<Action> {
    let generation = budget.metadata.generation;
    let mut object = budget.to_value();
    let mut list = object.list_at(&["status", "conditions"]).to_vec();
    let condition = if counts.allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let is = |it: &&Value, field: &str, value: &str| it.str_at(&[field]) == Some(value);
    let known = list.iter().find(|it| is(it, "type", "DisruptionAllowed"));
    let fresh = known.is_some_and(|it| {
        is(&it, "status", condition.0)
            && is(&it, "reason", condition.1)
            && it.get("observedGeneration").and_then(Value::as_i64) == Some(generation)
    });
    let status = &budget.status;
    if fresh
        && status.current_healthy == counts.healthy
        && status.desired_healthy == counts.expected.healthy
        && status.expected_pods == counts.expected.pods
        && status.disruptions_allowed == counts.allowed
        && status.disrupted_pods == *disrupted
        && status.observed_generation == generation
    {
        return None;
    }
    let set = Condition {
        kind: "DisruptionAllowed",
        status: condition.0,
        reason: condition.1,
        message: "",
        observed_generation: Some(generation),
    };
    conditions::set(&mut list, set, now);
    let mut status = Object::new();
    status.insert("observedGeneration", generation);
    if !disrupted.is_empty() {
        let pods: Object = disrupted.iter().map(|(name, since)| (name.clone(), since.clone())).collect();
        status.insert("disruptedPods", pods);
    }
    status.insert("disruptionsAllowed", counts.allowed);
    status.insert("currentHealthy", counts.healthy);
    status.insert("desiredHealthy", counts.expected.healthy);
    status.insert("expectedPods", counts.expected.pods);
    status.insert("conditions", list);
    object.set_at(&["status"], status);
    Some(Action::UpdateStatus { resource: PodDisruptionBudget::RESOURCE, object })
}

/// Returns an update that forbids evictions after an error.
fn fail_safe(budget: &Document<PodDisruptionBudget>, why: &str, now: Timestamp) -> Option<Action> {
    let mut object = budget.to_value();
    object.set_at(&["status", "disruptionsAllowed"], 0);
    let generation = budget.status.observed_generation;
    let condition = Condition {
        kind: "DisruptionAllowed",
        status: "False",
        reason: "SyncFailed",
        message: why,
        observed_generation: Some(generation),
    };
    conditions::set(object.make_list_at(&["status", "conditions"]), condition, now);
    (object != *budget.value()).then_some(Action::UpdateStatus { resource: PodDisruptionBudget::RESOURCE, object })
}

/// A selector as Go prints it.
fn printed(selector: Option<&LabelSelector>) -> String {
    let Some(selector) = selector else { return "nil".to_owned() };
    let labels: String = selector.match_labels.iter().map(|(key, value)| format!("{key}: {value},")).collect();
    let expressions: String = selector
        .match_expressions
        .iter()
        .map(|it| {
            let values = it.values.join(" ");
            format!("LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},", it.key, it.operator)
        })
        .collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

#[cfg(test)]
mod tests;
