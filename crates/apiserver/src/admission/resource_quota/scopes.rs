//! Objects that a quota counts: all, or those of its scopes.
//!
//! Follows `podMatchesScopeFunc` and its siblings in Kubernetes' `pkg/quota/v1/evaluator/core`.

use api::json::Value;

use crate::resources::Resource;

/// Whether an object is in all scopes of a quota.
pub(super) fn match_all(resource: &Resource<'_>, object: &Value, quota: &Value) -> bool {
    let list = |path: &[&str]| quota.list_at(path);
    let plain = list(&["spec", "scopes"]).iter().filter_map(Value::as_str);
    let selected = list(&["spec", "scopeSelector", "matchExpressions"]);
    let mut all = plain.map(|scope| (scope, "Exists", &[][..])).chain(selected.iter().map(|it| {
        let text = |field: &str| it.text(field);
        (text("scopeName"), text("operator"), it.get("values").and_then(Value::as_array).unwrap_or_default())
    }));
    match (resource.group, resource.plural) {
        ("", "pods") => all.all(|(scope, operator, values)| match scope {
            "Terminating" => is_terminating(object),
            "NotTerminating" => !is_terminating(object),
            "BestEffort" => is_best_effort(object),
            "NotBestEffort" => !is_best_effort(object),
            "PriorityClass" => chooses(object.str_at(&["spec", "priorityClassName"]), operator, values),
            "CrossNamespacePodAffinity" => crosses_namespaces(object),
            _ => false,
        }),
        ("", "persistentvolumeclaims") => all.all(|(scope, operator, values)| {
            let class = object.str_at(&["spec", "volumeAttributesClassName"]);
            scope == "VolumeAttributesClass" && chooses(class, operator, values)
        }),
        // Others are in no scope.
        _ => all.next().is_none(),
    }
}

fn chooses(class: Option<&str>, operator: &str, values: &[Value]) -> bool {
    let class = class.unwrap_or_default();
    let is_named = values.iter().any(|value| value.as_str() == Some(class));
    match operator {
        "Exists" => !class.is_empty(),
        "DoesNotExist" => class.is_empty(),
        "In" => !class.is_empty() && is_named,
        "NotIn" => !is_named,
        _ => false,
    }
}

pub(super) fn is_terminating(pod: &Value) -> bool {
    pod.i64_at(&["spec", "activeDeadlineSeconds"]).is_some_and(|seconds| seconds >= 0)
}

/// Whether no container has requests or limits.
fn is_best_effort(pod: &Value) -> bool {
    let containers = ["containers", "initContainers"].iter().flat_map(|list| super::containers(pod, list));
    let mut amounts = containers
        .chain(pod.get("spec"))
        .flat_map(|container| ["requests", "limits"].iter().flat_map(move |kind| super::amounts(container, kind)));
    !amounts.any(|(name, amount)| matches!(name.as_str(), "cpu" | "memory") && amount > api::Quantity::default())
}

/// Whether a pod has affinity to pods of other namespaces.
fn crosses_namespaces(pod: &Value) -> bool {
    let terms = |kind: &str| {
        let affinity = pod.at(&["spec", "affinity", kind]);
        let list = |field: &str| affinity.and_then(|it| it.get(field)).and_then(Value::as_array).unwrap_or_default();
        let required = list("requiredDuringSchedulingIgnoredDuringExecution").iter();
        let preferred = list("preferredDuringSchedulingIgnoredDuringExecution").iter();
        required.chain(preferred.filter_map(|it| it.get("podAffinityTerm"))).cloned().collect::<Vec<Value>>()
    };
    ["podAffinity", "podAntiAffinity"].iter().flat_map(|kind| terms(kind)).any(|term| {
        term.get("namespaces").and_then(Value::as_array).is_some_and(|it| !it.is_empty())
            || term.get("namespaceSelector").is_some_and(|it| !it.is_null())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pod: &str, spec: &str, matches: bool) {
        let parse = |text: &str| api::json::parse(text.as_bytes()).unwrap();
        let pods = crate::resources::find("", "v1", "pods").unwrap();
        let (pod, quota) = (api::json!({"spec": (parse(pod))}), api::json!({"spec": (parse(spec))}));
        assert_eq!(match_all(pods, &pod, &quota), matches, "{spec}");
    }

    #[test]
    fn quota_counts_objects_in_all_its_scopes() {
        let idle = r#"{"containers":[{"name":"c"}]}"#;
        let busy = r#"{"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}],"activeDeadlineSeconds":5,"priorityClassName":"high"}"#;
        check(idle, "{}", true);
        check(idle, r#"{"scopes":["BestEffort"]}"#, true);
        check(busy, r#"{"scopes":["BestEffort"]}"#, false);
        check(busy, r#"{"scopes":["NotBestEffort","Terminating"]}"#, true);
        check(idle, r#"{"scopes":["NotBestEffort","NotTerminating"]}"#, false);
        let class = |operator: &str| {
            format!(
                r#"{{"scopeSelector":{{"matchExpressions":[{{"scopeName":"PriorityClass","operator":"{operator}","values":["high"]}}]}}}}"#
            )
        };
        check(busy, &class("In"), true);
        check(idle, &class("In"), false);
        check(idle, &class("NotIn"), true);
        check(busy, r#"{"scopes":["CrossNamespacePodAffinity"]}"#, false);
        check(busy, r#"{"scopes":["Unknown"]}"#, false);
    }
}
