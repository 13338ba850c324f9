//! Roles and bindings in the form in which they are asked.

use std::collections::HashMap;
use std::sync::Arc;

use api::json::Value;
use api::labels::Selector;

use super::{Request, resource_of, texts};
use crate::identity::User;
use crate::objects::metadata;
use crate::storage::cache::{Cache, ResourceCache};

/// What a role allows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rule {
    /// Verbs.
    pub verbs: Vec<String>,
    /// Groups of resources.
    pub groups: Vec<String>,
    /// Resources, with subresources as `pods/status`.
    pub resources: Vec<String>,
    /// Names of objects; all if empty.
    pub names: Vec<String>,
    /// Paths that are no resources.
    pub paths: Vec<String>,
}

impl Rule {
    /// Reads a rule.
    #[must_use]
    pub fn from_value(value: &Value) -> Self {
        Self {
            verbs: texts(value, "verbs"),
            groups: texts(value, "apiGroups"),
            resources: texts(value, "resources"),
            names: texts(value, "resourceNames"),
            paths: texts(value, "nonResourceURLs"),
        }
    }

    fn allows(&self, request: &Request<'_>) -> bool {
        match request {
            Request::Path { verb, path } => has(&self.verbs, verb) && self.paths.iter().any(|it| covers_path(it, path)),
            Request::Resource { verb, target } => {
                has(&self.verbs, verb)
                    && has(&self.groups, &target.group)
                    && covers_resource(&self.resources, &resource_of(target))
                    && (self.names.is_empty() || self.names.contains(&target.name))
            }
        }
    }

    /// Whether this rule allows everything that a simple one (one verb, group, resource and name or path) does.
    fn covers(&self, one: &Rule) -> bool {
        let first = |list: &[String]| list.first().cloned().unwrap_or_default();
        if !has(&self.verbs, &first(&one.verbs)) {
            return false;
        }
        if let Some(path) = one.paths.first() {
            return self.paths.iter().any(|it| covers_path(it, path));
        }
        let name_covered = self.names.is_empty() || one.names.first().is_some_and(|name| self.names.contains(name));
        has(&self.groups, &first(&one.groups))
            && covers_resource(&self.resources, &first(&one.resources))
            && name_covered
    }

    /// The rule as many simple ones.
    fn split(&self) -> Vec<Rule> {
        let mut simple = Vec::new();
        for verb in &self.verbs {
            for path in &self.paths {
                simple.push(Rule { verbs: vec![verb.clone()], paths: vec![path.clone()], ..Rule::default() });
            }
            for group in &self.groups {
                for resource in &self.resources {
                    let rule = Rule {
                        verbs: vec![verb.clone()],
                        groups: vec![group.clone()],
                        resources: vec![resource.clone()],
                        ..Rule::default()
                    };
                    if self.names.is_empty() {
                        simple.push(rule);
                    } else {
                        simple.extend(self.names.iter().map(|name| Rule { names: vec![name.clone()], ..rule.clone() }));
                    }
                }
            }
        }
        simple
    }
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|it| it == "*" || it == wanted)
}

fn covers_resource(list: &[String], wanted: &str) -> bool {
    list.iter().any(|it| {
        it == "*"
            || it == wanted
            || it.strip_prefix("*/").is_some_and(|sub| wanted.split_once('/').is_some_and(|(_, it)| it == sub))
    })
}

fn covers_path(rule: &str, path: &str) -> bool {
    rule == path || rule.strip_suffix('*').is_some_and(|start| path.starts_with(start))
}

/// Who gets the rules of a role.
#[derive(Debug)]
struct Binding {
    name: String,
    /// Empty for the whole cluster.
    namespace: String,
    role: (String, String, String),
    subjects: Vec<Subject>,
}

/// Someone whom a binding names.
#[derive(Debug)]
struct Subject {
    kind: &'static str,
    /// The user or the group.
    who: String,
    /// As reasons show it.
    shown: String,
}

impl Subject {
    fn is(&self, user: &User) -> bool {
        if self.kind == "Group" { user.is_in(&self.who) } else { user.name == self.who }
    }
}

/// All roles and bindings, as of some change.
#[derive(Debug, Default)]
pub(super) struct Rules {
    versions: [u64; 4],
    /// By kind, namespace and name.
    roles: HashMap<(String, String, String), Vec<Rule>>,
    bindings: Vec<Binding>,
}

const GROUP: &str = "/registry/rbac.authorization.k8s.io";

/// Where roles and bindings are, looked up once.
pub(super) struct Sources([Arc<ResourceCache>; 4]);

impl Sources {
    pub(super) fn of(cache: &Cache) -> Self {
        let plurals = ["clusterroles", "clusterrolebindings", "roles", "rolebindings"];
        Self(plurals.map(|plural| cache.resource(&format!("{GROUP}/{plural}/"))))
    }

    /// Numbers that change whenever a role or binding does.
    pub(super) fn versions(&self) -> [u64; 4] {
        self.0.each_ref().map(|cache| cache.change_count())
    }
}

impl Rules {
    pub(super) fn is_at(&self, versions: [u64; 4]) -> bool {
        self.versions == versions
    }

    pub(super) fn read(cache: &Cache, versions: [u64; 4]) -> Self {
        let objects = |plural: &str| {
            let prefix = format!("{GROUP}/{plural}/");
            let snapshot = cache.resource(&prefix).list(&prefix, None, 0, |_, _| true);
            snapshot.objects.into_iter().map(|(_, object)| object.decode()).collect::<Vec<_>>()
        };
        let mut rules = Self { versions, ..Self::default() };
        let cluster_roles = objects("clusterroles");
        for role in &cluster_roles {
            let selectors = role.at(&["aggregationRule", "clusterRoleSelectors"]).and_then(Value::as_array);
            let own = match selectors {
                Some(selectors) => {
                    let selectors: Vec<Selector> = selectors.iter().filter_map(selector).collect();
                    aggregate(&cluster_roles, &selectors, 0)
                }
                None => rules_of(role),
            };
            rules.roles.insert(("ClusterRole".to_owned(), String::new(), metadata::text(role, "name").to_owned()), own);
        }
        for role in objects("roles") {
            let (namespace, name) = (metadata::text(&role, "namespace"), metadata::text(&role, "name"));
            rules.roles.insert(("Role".to_owned(), namespace.to_owned(), name.to_owned()), rules_of(&role));
        }
        rules.bindings.extend(objects("clusterrolebindings").iter().map(binding));
        rules.bindings.extend(objects("rolebindings").iter().map(binding));
        rules
    }

    pub(super) fn allow(&self, user: &User, request: &Request<'_>) -> bool {
        let namespace = match request {
            Request::Resource { target, .. } => target.namespace.as_str(),
            Request::Path { .. } => "",
        };
        self.for_user(user, namespace).any(|rule| rule.allows(request))
    }

    fn for_user<'a>(&'a self, user: &'a User, namespace: &'a str) -> impl Iterator<Item = &'a Rule> {
        let bindings = self.bindings.iter().filter(move |binding| {
            let in_scope = binding.namespace.is_empty() || binding.namespace == namespace;
            in_scope && binding.subjects.iter().any(|subject| subject.is(user))
        });
        bindings.filter_map(|binding| self.roles.get(&binding.role)).flatten()
    }

    /// The binding that lets a request pass, in Kubernetes' words.
    pub(super) fn reason(&self, user: &User, request: &Request<'_>) -> Option<String> {
        let namespace = match request {
            Request::Resource { target, .. } => target.namespace.as_str(),
            Request::Path { .. } => "",
        };
        self.bindings.iter().find_map(|binding| {
            let in_scope = binding.namespace.is_empty() || binding.namespace == namespace;
            let subject = binding.subjects.iter().find(|subject| in_scope && subject.is(user))?;
            let rules = self.roles.get(&binding.role)?;
            rules.iter().any(|rule| rule.allows(request)).then(|| {
                let (kind, name) = if binding.namespace.is_empty() {
                    ("ClusterRoleBinding", binding.name.clone())
                } else {
                    ("RoleBinding", format!("{}/{}", binding.name, binding.namespace))
                };
                let (role_kind, _, role) = &binding.role;
                format!(
                    "RBAC: allowed by {kind} \"{name}\" of {role_kind} \"{role}\" to {} \"{}\"",
                    subject.kind, subject.shown
                )
            })
        })
    }

    pub(super) fn of_user(&self, user: &User, namespace: &str) -> Vec<Rule> {
        self.for_user(user, namespace).cloned().collect()
    }

    pub(super) fn missing(&self, user: &User, namespace: &str, granted: &[Rule]) -> Vec<Rule> {
        let held: Vec<&Rule> = self.for_user(user, namespace).collect();
        let simple = granted.iter().flat_map(Rule::split);
        simple.filter(|one| !held.iter().any(|rule| rule.covers(one))).collect()
    }

    pub(super) fn of_role(&self, kind: &str, namespace: &str, name: &str) -> Option<Vec<Rule>> {
        let namespace = if kind == "ClusterRole" { "" } else { namespace };
        self.roles.get(&(kind.to_owned(), namespace.to_owned(), name.to_owned())).cloned()
    }
}

fn rules_of(role: &Value) -> Vec<Rule> {
    let rules = role.get("rules").and_then(Value::as_array).unwrap_or_default();
    rules.iter().map(Rule::from_value).collect()
}

fn selector(value: &Value) -> Option<Selector> {
    let selector: api::meta::v1::LabelSelector = api::json::from_value(value).ok()?;
    selector.to_selector().ok()
}

/// The rules of all roles that a selector chooses; roles may aggregate roles that aggregate.
fn aggregate(roles: &[Value], selectors: &[Selector], depth: usize) -> Vec<Rule> {
    /// Deeper than any that Kubernetes ships; a circle ends here.
    const DEPTH_MAX: usize = 8;
    let nothing = api::json::Object::new();
    let chosen = roles.iter().filter(|role| {
        let labels = metadata::labels(role).unwrap_or(&nothing);
        selectors.iter().any(|selector| selector.matches(labels))
    });
    let mut rules: Vec<Rule> = Vec::new();
    for role in chosen {
        let selectors = role.at(&["aggregationRule", "clusterRoleSelectors"]).and_then(Value::as_array);
        let more = match selectors {
            Some(selectors) if depth < DEPTH_MAX => {
                let selectors: Vec<Selector> = selectors.iter().filter_map(selector).collect();
                aggregate(roles, &selectors, depth.saturating_add(1))
            }
            _ => rules_of(role),
        };
        for rule in more {
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        }
    }
    rules
}

fn binding(value: &Value) -> Binding {
    let namespace = metadata::text(value, "namespace").to_owned();
    let kind = value.str_at(&["roleRef", "kind"]).unwrap_or_default().to_owned();
    let name = value.str_at(&["roleRef", "name"]).unwrap_or_default().to_owned();
    let role_namespace = if kind == "ClusterRole" { String::new() } else { namespace.clone() };
    let subjects = value.get("subjects").and_then(Value::as_array).unwrap_or_default().iter();
    let subjects = subjects.filter_map(|subject| {
        let name = subject.str_at(&["name"]).unwrap_or_default().to_owned();
        match subject.str_at(&["kind"])? {
            "User" => Some(Subject { kind: "User", who: name.clone(), shown: name }),
            "Group" => Some(Subject { kind: "Group", who: name.clone(), shown: name }),
            "ServiceAccount" => {
                // Without a namespace it is an account of the binding's own.
                let given = subject.str_at(&["namespace"]).unwrap_or_default();
                let account_namespace = if given.is_empty() { namespace.as_str() } else { given };
                let who = format!("system:serviceaccount:{account_namespace}:{name}");
                let shown = format!("{name}/{account_namespace}");
                (!account_namespace.is_empty()).then_some(Subject { kind: "ServiceAccount", who, shown })
            }
            _ => None,
        }
    });
    let subjects = subjects.collect();
    let own = metadata::text(value, "name").to_owned();
    Binding { name: own, namespace, role: (kind, role_namespace, name), subjects }
}
