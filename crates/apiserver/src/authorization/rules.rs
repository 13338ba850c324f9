//! One rule of a role: what it allows, what it covers, and how refusals show it.
//!
//! Follows Kubernetes' `pkg/apis/rbac/v1/evaluation_helpers.go` and `component-helpers/auth/rbac/validation`.

use std::collections::{HashMap, HashSet};

use api::go_text::quote;
use api::json::Value;

use super::Request;

/// Bytes that a text of a rule takes besides its characters.
const TEXT_BYTES: usize = 4;

/// Texts that a comparison of rules goes through in the time of a short one.
const TEXTS_PER_COMPARISON: usize = 8;

/// Permissions of a role.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub struct Rule {
    /// Verbs.
    pub verbs: Vec<String>,
    /// Groups of resources.
    pub groups: Vec<String>,
    /// Resources, with subresources as `pods/status`.
    pub resources: Vec<String>,
    /// Names of objects; all if empty.
    pub names: Vec<String>,
    /// Paths that are not resources.
    pub paths: Vec<String>,
}

impl Rule {
    /// Reads a rule; `None` if a part of it is unreadable: without its names a rule would allow more than
    /// intended.
    #[must_use]
    pub fn from_value(value: &Value) -> Option<Self> {
        let texts = |field: &str| match value.get(field) {
            None | Some(Value::Null) => Some(Vec::new()),
            Some(Value::Array(list)) => list.iter().map(|it| it.as_str().map(ToOwned::to_owned)).collect(),
            Some(_) => None,
        };
        Some(Self {
            verbs: texts("verbs")?,
            groups: texts("apiGroups")?,
            resources: texts("resources")?,
            names: texts("resourceNames")?,
            paths: texts("nonResourceURLs")?,
        })
    }

    /// The rules of a role; those that cannot be read allow nothing.
    #[must_use]
    pub(crate) fn of_role(role: &Value) -> Vec<Self> {
        let rules = role.get("rules").and_then(Value::as_array).unwrap_or_default();
        rules.iter().filter_map(Self::from_value).collect()
    }

    /// All permissions, in two rules.
    pub(crate) fn everything() -> Vec<Self> {
        let all = || vec!["*".to_owned()];
        let on_resources = Self { verbs: all(), groups: all(), resources: all(), ..Self::default() };
        vec![on_resources, Self { verbs: all(), paths: all(), ..Self::default() }]
    }

    pub(super) fn allows(&self, request: &Request<'_>) -> bool {
        match request {
            Request::Path { verb, path } => has(&self.verbs, verb) && self.paths.iter().any(|it| covers_path(it, path)),
            Request::Resource { verb, target } => {
                has(&self.verbs, verb)
                    && has(&self.groups, &target.group)
                    && covers_resource(&self.resources, &target.resource, target.first_subresource())
                    && (self.names.is_empty() || self.names.iter().any(|name| name == target.asked_name()))
            }
        }
    }

    /// Whether this rule allows everything that a simple one (one verb, group, resource and name or path) does.
    pub(super) fn covers(&self, one: &Rule) -> bool {
        if !has(&self.verbs, first(&one.verbs)) {
            return false;
        }
        if let Some(path) = one.paths.first() {
            return self.names.is_empty() && self.paths.iter().any(|it| covers_path(it, path));
        }
        let name_covered = self.names.is_empty() || one.names.first().is_some_and(|name| self.names.contains(name));
        has(&self.groups, first(&one.groups)) && name_covered && covers_named(&self.resources, first(&one.resources))
    }

    /// Whether this rule allows everything that another one does, as far as that shows without splitting it.
    pub(super) fn covers_whole(&self, other: &Rule) -> bool {
        has_all(&self.verbs, &other.verbs, true)
            && has_all(&self.groups, &other.groups, true)
            && has_all(&self.resources, &other.resources, true)
            && (self.names.is_empty() || !other.names.is_empty() && has_all(&self.names, &other.names, false))
            && (other.paths.is_empty() || self.names.is_empty() && has_all(&self.paths, &other.paths, true))
    }

    /// Number of simple rules that [`Rule::split`] yields.
    pub(super) fn simple_count(&self) -> usize {
        let of_resources = [self.groups.len(), self.resources.len(), self.names.len().max(1)];
        let of_resources = of_resources.into_iter().fold(1, usize::saturating_mul);
        of_resources.saturating_add(self.paths.len()).saturating_mul(self.verbs.len())
    }

    /// Work of comparing the rule with another one: one for a short rule, more for one with many texts.
    pub(super) fn weight(&self) -> usize {
        let count = self.texts().map(Vec::len).fold(0, usize::saturating_add);
        (count / TEXTS_PER_COMPARISON).saturating_add(1)
    }

    /// Bytes of the rule's texts, about.
    pub(super) fn size(&self) -> usize {
        self.texts().flatten().fold(0, |sum, text| sum.saturating_add(text.len()).saturating_add(TEXT_BYTES))
    }

    fn texts(&self) -> impl Iterator<Item = &Vec<String>> {
        [&self.verbs, &self.groups, &self.resources, &self.names, &self.paths].into_iter()
    }

    /// The rule as many simple ones.
    pub(super) fn split(&self) -> Vec<Rule> {
        let one = |text: &str| vec![text.to_owned()];
        let mut simple = Vec::new();
        for group in &self.groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    let rule =
                        Rule { verbs: one(verb), groups: one(group), resources: one(resource), ..Rule::default() };
                    if self.names.is_empty() {
                        simple.push(rule);
                    } else {
                        simple.extend(self.names.iter().map(|name| Rule { names: one(name), ..rule.clone() }));
                    }
                }
            }
        }
        for path in &self.paths {
            for verb in &self.verbs {
                simple.push(Rule { verbs: one(verb), paths: one(path), ..Rule::default() });
            }
        }
        simple
    }
}

/// Simple rules as refusals list them: those of one resource as one, sorted.
pub(crate) fn show_all(simple: Vec<Rule>) -> Vec<String> {
    let mut compact: Vec<Rule> = Vec::new();
    let mut places: HashMap<[Vec<String>; 3], usize> = HashMap::new();
    for rule in simple {
        if !rule.paths.is_empty() {
            compact.push(rule);
            continue;
        }
        let place = [rule.groups.clone(), rule.resources.clone(), rule.names.clone()];
        let place = *places.entry(place).or_insert(compact.len());
        match compact.get_mut(place) {
            Some(known) => known.verbs.extend(rule.verbs),
            None => compact.push(rule),
        }
    }
    let mut lines: Vec<String> = compact.iter().map(show).collect();
    lines.sort();
    lines.dedup();
    lines
}

fn show(rule: &Rule) -> String {
    let lists = [
        ("APIGroups", &rule.groups),
        ("Resources", &rule.resources),
        ("ResourceNames", &rule.names),
        ("NonResourceURLs", &rule.paths),
        ("Verbs", &rule.verbs),
    ];
    let parts = lists.iter().filter(|(_, list)| !list.is_empty()).map(|(name, list)| {
        let items: Vec<String> = list.iter().map(|item| quote(item)).collect();
        format!("{name}:[{}]", items.join(" "))
    });
    format!("{{{}}}", parts.collect::<Vec<_>>().join(", "))
}

fn first(list: &[String]) -> &str {
    list.first().map_or("", String::as_str)
}

/// Whether each of some texts is in a list, in time proportional to both.
fn has_all(list: &[String], wanted: &[String], is_star_all: bool) -> bool {
    /// Shorter lists are searched directly.
    const SHORT: usize = 16;
    if is_star_all && list.iter().any(|it| it == "*") {
        return true;
    }
    if list.len() <= SHORT || wanted.len() <= SHORT {
        return wanted.iter().all(|text| list.contains(text));
    }
    let list: HashSet<&String> = list.iter().collect();
    wanted.iter().all(|text| list.contains(text))
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|it| it == "*" || it == wanted)
}

/// Whether a list names a resource, or a part of it: `*` is everything, `*/scale` every part of that name.
fn covers_resource(list: &[String], resource: &str, subresource: &str) -> bool {
    list.iter().any(|it| {
        let is_same = if subresource.is_empty() {
            it == resource
        } else {
            it.strip_prefix(resource).and_then(|rest| rest.strip_prefix('/')) == Some(subresource)
        };
        it == "*" || is_same || !subresource.is_empty() && it.strip_prefix("*/") == Some(subresource)
    })
}

/// Whether a list covers an entry of another one, whatever that entry stands for: what is written alike is the same.
fn covers_named(list: &[String], named: &str) -> bool {
    let part = named.split_once('/').map(|(_, part)| part);
    list.iter().any(|it| it == "*" || it == named || part.is_some() && it.strip_prefix("*/") == part)
}

fn covers_path(rule: &str, path: &str) -> bool {
    rule == path || rule.ends_with('*') && path.starts_with(rule.trim_end_matches('*'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_that_cannot_be_read_is_no_rule() {
        let rule = |text: &str| Rule::from_value(&api::json::parse(text.as_bytes()).unwrap());
        assert!(rule(r#"{"verbs": ["get"], "resourceNames": null}"#).is_some());
        assert_eq!(rule(r#"{"verbs": ["get"], "resourceNames": [1]}"#), None);
        assert_eq!(rule(r#"{"verbs": ["get"], "resourceNames": "a"}"#), None);
    }

    #[track_caller]
    fn check(list: &[&str], wanted: &str, covered: bool) {
        let list: Vec<String> = list.iter().map(|it| (*it).to_owned()).collect();
        let (resource, part) = wanted.split_once('/').unwrap_or((wanted, ""));
        assert_eq!(covers_resource(&list, resource, part), covered);
    }

    #[test]
    fn stars_stand_for_resources_or_for_those_with_a_part() {
        check(&["*"], "pods", true);
        check(&["*"], "pods/status", true);
        check(&["pods"], "pods/status", false);
        check(&["pods/status"], "pods", false);
        check(&["*/scale"], "deployments/scale", true);
        check(&["*/scale"], "*/scale", true);
        check(&["*/scale"], "deployments", false);
        check(&["pods/*"], "pods/status", false);
    }

    #[test]
    fn entries_are_covered_as_they_are_written() {
        let covers = |list: &[&str], named: &str| {
            covers_named(&list.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>(), named)
        };
        for (list, named) in
            [("*", "pods"), ("pods", "pods"), ("pods/", "pods/"), ("*/scale", "a/scale"), ("*/a/b", "x/a/b")]
        {
            assert!(covers(&[list], named), "{list} {named}");
        }
        for (list, named) in [
            ("pods", "pods/"),
            ("pods", "pods/log"),
            ("pods/*", "pods/log"),
            ("*/*", "pods/log"),
            ("*/scale", "scale"),
            ("pods", "*"),
        ] {
            assert!(!covers(&[list], named), "{list} {named}");
        }
    }
}
