//! Pod failure policy and success policy of a Job.

use api::batch::v1::{Job, OnExitCodes, PodFailurePolicyRule};
use api::core::v1::Pod;

use super::indexes::Intervals;

/// Decision of the policy about a failed pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The failure counts, as without a policy.
    Count,
    /// The failure does not count.
    Ignore,
    /// The index of the pod has failed.
    FailIndex,
    /// The Job has failed, and why.
    FailJob(String),
}

impl Verdict {
    pub(super) fn counts(&self) -> bool {
        *self != Verdict::Ignore
    }
}

/// The verdict of the first rule that matches.
pub(super) fn verdict(job: &Job, pod: &Pod) -> Verdict {
    let rules = job.spec.pod_failure_policy.as_ref().map(|policy| policy.rules.as_slice()).unwrap_or_default();
    for (index, rule) in rules.iter().enumerate() {
        let Some(cause) = cause(rule, pod) else { continue };
        let action = rule.action.as_str();
        match action {
            "Ignore" => return Verdict::Ignore,
            "FailIndex" => return Verdict::FailIndex,
            "Count" => return Verdict::Count,
            "FailJob" => return Verdict::FailJob(format!("{cause} matching {action} rule at index {index}")),
            // Kubernetes: an action of a newer server is passed over.
            _ => {}
        }
    }
    Verdict::Count
}

/// Returns the reason why a rule matches, if it does.
fn cause(rule: &PodFailurePolicyRule, pod: &Pod) -> Option<String> {
    let (namespace, name) = (&pod.metadata.namespace, &pod.metadata.name);
    if let Some(codes) = &rule.on_exit_codes {
        let (container, code) = exit_code(codes, pod)?;
        return Some(format!("Container {container} for pod {namespace}/{name} failed with exit code {code}"));
    }
    let mut conditions = pod.status.conditions.iter();
    let condition = conditions.find(|it| {
        let is = |wanted: &api::batch::v1::OnPodCondition| {
            wanted.condition_type == it.condition_type && wanted.status == it.status
        };
        rule.on_pod_conditions.iter().any(is)
    })?;
    Some(format!("Pod {namespace}/{name} has condition {}", condition.condition_type))
}

/// The first container with a matching exit code.
fn exit_code<'a>(wanted: &OnExitCodes, pod: &'a Pod) -> Option<(&'a str, i64)> {
    let statuses = pod.status.container_statuses.iter().chain(&pod.status.init_container_statuses);
    let mut exited = statuses.filter_map(|status| {
        let code = status.state.as_ref()?.i64_at(&["terminated", "exitCode"])?;
        Some((status.name.as_str(), code))
    });
    exited.find(|(name, code)| {
        let is_meant = wanted.container_name.as_deref().is_none_or(|container| container == *name);
        let is_listed = wanted.values.iter().any(|value| i64::from(*value) == *code);
        let matches = match wanted.operator.as_str() {
            "In" => is_listed,
            "NotIn" => !is_listed,
            _ => false,
        };
        *code != 0 && is_meant && matches
    })
}

/// Returns the reason why the success policy is met, if it is.
pub(super) fn success(job: &Job, succeeded: &Intervals) -> Option<String> {
    let completions = job.spec.completions.unwrap_or(0);
    let rules = &job.spec.success_policy.as_ref()?.rules;
    let index = rules.iter().position(|rule| match (&rule.succeeded_indexes, rule.succeeded_count) {
        (Some(indexes), count) => {
            let required = Intervals::parse(indexes, completions);
            let has = required.overlap(succeeded);
            !required.is_empty() && (has == required.total() || count.is_some_and(|count| has >= count))
        }
        (None, Some(count)) => succeeded.total() >= count,
        (None, None) => false,
    })?;
    Some(format!("Matched rules at index {index}"))
}
