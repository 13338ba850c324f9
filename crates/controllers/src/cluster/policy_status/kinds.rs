//! Kinds that the rules of a policy match.
//!
//! Patterns name none: a rule with one among its groups or versions is left out, and so is a pattern or a subresource among
//! its resources. Follows `typesToCheck` of Kubernetes' `policy/validating` and the mapper of its `client-go`.

use std::collections::BTreeSet;
use std::fmt;

use api::admissionregistration::v1::{NamedRuleWithOperations, ParamKind, ValidatingAdmissionPolicySpec};
use api::json::Text;
use client::discovery::Discovery;

/// Maximum number of kinds to check.
const KINDS_MAX: usize = 10;

/// A kind of objects in a version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GroupVersionKind {
    pub(super) group: Text,
    pub(super) version: Text,
    pub(super) kind: Text,
}

impl GroupVersionKind {
    /// The kind of a policy's parameters, if its name is one.
    pub(super) fn of_params(params: &ParamKind) -> Option<Self> {
        let (group, version) = match params.api_version.split_once('/') {
            Some((_, version)) if version.contains('/') => return None,
            Some(split) => split,
            None => ("", params.api_version.as_str()),
        };
        Some(Self { group: group.into(), version: version.into(), kind: params.kind.clone() })
    }
}

impl fmt::Display for GroupVersionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}

/// The kinds in the rules, in order.
pub(super) fn named(spec: &ValidatingAdmissionPolicySpec, served: &Discovery) -> Vec<GroupVersionKind> {
    let mut kinds = BTreeSet::new();
    for rule in &spec.match_constraints.resource_rules {
        // One that is found twice counts twice.
        let mut count = 0_usize;
        for kind in named_by_rule(rule, served) {
            kinds.insert(kind);
            count = count.saturating_add(1);
            if count == KINDS_MAX {
                return kinds.into_iter().collect();
            }
        }
    }
    kinds.into_iter().collect()
}

fn named_by_rule(rule: &NamedRuleWithOperations, served: &Discovery) -> Vec<GroupVersionKind> {
    let sorted = |list: &[Text]| {
        let mut list: Vec<Text> = list.to_vec();
        list.sort();
        list
    };
    let is_pattern = |list: &[Text]| list.iter().any(|it| it.contains('*'));
    if is_pattern(&rule.api_groups) || is_pattern(&rule.api_versions) {
        return Vec::new();
    }
    let mut kinds = Vec::new();
    for group in sorted(&rule.api_groups) {
        for version in sorted(&rule.api_versions) {
            for name in sorted(&rule.resources).into_iter().filter(|it| !it.contains(['*', '/'])) {
                let name = name.to_lowercase();
                let found = served.resources.iter().map(|it| &it.resource).filter(|it| {
                    // Kubernetes: no group means any group.
                    (group.is_empty() || it.group == group)
                        && it.version == version
                        && (it.plural == name || it.kind.to_lowercase() == name)
                });
                kinds.extend(found.map(|it| GroupVersionKind {
                    group: it.group.as_ref().into(),
                    version: it.version.as_ref().into(),
                    kind: it.kind.as_ref().into(),
                }));
            }
        }
    }
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::Resource;
    use client::discovery::ServedResource;

    fn served(resources: &[(&str, &str, &str, &str)]) -> Discovery {
        let served = |(group, version, plural, kind): &(&str, &str, &str, &str)| ServedResource {
            resource: Resource {
                group: (*group).to_owned().into(),
                version: (*version).to_owned().into(),
                plural: (*plural).to_owned().into(),
                kind: (*kind).to_owned().into(),
            },
            namespaced: true,
            verbs: Vec::new(),
            subresources: Vec::new(),
            preferred: true,
        };
        Discovery { resources: resources.iter().map(served).collect(), stale: Vec::new() }
    }

    #[track_caller]
    fn check(rules: &str, wanted: &[&str]) {
        let served = served(&[
            ("", "v1", "pods", "Pod"),
            ("", "v1", "events", "Event"),
            ("events.k8s.io", "v1", "events", "Event"),
            ("apps", "v1", "deployments", "Deployment"),
            ("apps", "v1", "statefulsets", "StatefulSet"),
        ]);
        let text = format!(r#"{{"matchConstraints":{{"resourceRules":{rules}}}}}"#);
        let spec = api::json::from_value(&api::json::parse(text.as_bytes()).unwrap()).unwrap();
        let found: Vec<String> = named(&spec, &served).iter().map(ToString::to_string).collect();
        assert_eq!(found, wanted, "{rules}");
    }

    #[test]
    fn rules_name_kinds_and_patterns_do_not() {
        let rule = |groups: &str, versions: &str, resources: &str| {
            format!(r#"{{"apiGroups":[{groups}],"apiVersions":[{versions}],"resources":[{resources}]}}"#)
        };
        let deployments = rule(r#""apps""#, r#""v1""#, r#""deployments""#);
        check("[]", &[]);
        check(&format!("[{deployments}]"), &["apps/v1, Kind=Deployment"]);
        let pods = rule(r#""""#, r#""v1""#, r#""Pods","pods/status","nothing""#);
        check(&format!("[{deployments},{pods}]"), &["/v1, Kind=Pod", "apps/v1, Kind=Deployment"]);
        check(&format!("[{}]", rule(r#""apps""#, r#""v1""#, r#""*","*/*""#)), &[]);
        let mixed = rule(r#""apps""#, r#""v1","*""#, r#""deployments""#);
        check(&format!("[{deployments},{mixed}]"), &["apps/v1, Kind=Deployment"]);
        check(&format!("[{}]", rule(r#""","*""#, r#""v1""#, r#""pods""#)), &[]);
        check(
            &format!("[{}]", rule(r#""""#, r#""v1""#, r#""events""#)),
            &["/v1, Kind=Event", "events.k8s.io/v1, Kind=Event"],
        );
        check(&format!("[{}]", rule(r#""apps""#, r#""v1""#, r#""statefulset""#)), &["apps/v1, Kind=StatefulSet"]);
    }

    #[test]
    fn ten_kinds_are_enough() {
        let names: Vec<String> = (10..32).map(|it| format!("things{it}")).collect();
        let resources: Vec<(&str, &str, &str, &str)> =
            names.iter().map(|it| ("example.com", "v1", it.as_str(), it.as_str())).collect();
        let list = names.iter().map(|it| format!("\"{it}\"")).collect::<Vec<_>>().join(",");
        let text = format!(
            r#"{{"matchConstraints":{{"resourceRules":[{{"apiGroups":["example.com"],"apiVersions":["v1"],"resources":[{list}]}}]}}}}"#
        );
        let spec = api::json::from_value(&api::json::parse(text.as_bytes()).unwrap()).unwrap();
        assert_eq!(named(&spec, &served(&resources)).len(), 10);
    }

    #[test]
    fn parameters_are_named_by_group_version_and_kind() {
        let of = |version: &str| {
            let params = ParamKind { api_version: version.into(), kind: "Limit".into() };
            GroupVersionKind::of_params(&params).map(|it| it.to_string())
        };
        assert_eq!(of("rules.example.com/v1").as_deref(), Some("rules.example.com/v1, Kind=Limit"));
        assert_eq!(of("v1").as_deref(), Some("/v1, Kind=Limit"));
        assert_eq!(of("a/b/c"), None);
    }
}
