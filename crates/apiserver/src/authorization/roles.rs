//! All roles and bindings in decoded form, as of some change.
//!
//! What has not changed since the last reading is kept, so that one changed role among thousands costs one decoding.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use api::json::{Object, Value};
use api::labels::Selector;
use store::Revision;

use super::aggregation::{self, Candidate};
use super::{Request, Rule};
use crate::identity::User;
use api::metadata;
use cache::{Cache, ResourceCache};

const GROUP: &str = "/registry/rbac.authorization.k8s.io";

/// The place of cluster roles in lists of the four kinds; then come their bindings, roles, and role bindings.
const CLUSTER_ROLES: usize = 0;
const PLURALS: [&str; 4] = ["clusterroles", "clusterrolebindings", "roles", "rolebindings"];

/// Bytes of rules that are listed for a user.
const LISTED_BYTES_MAX: usize = 1 << 20;

/// Comparisons of a granted permission with a rule of the user that one check makes. Verbs, groups, resources and names of
/// a rule multiply: 20 kB can stand for millions of permissions.
const COMPARISONS_MAX: usize = 20_000_000;

/// Caches of roles and bindings, looked up once.
pub(super) struct Sources([Arc<ResourceCache>; 4]);

impl Sources {
    pub(super) fn of(cache: &Cache) -> Self {
        Self(PLURALS.map(|plural| cache.resource(&format!("{GROUP}/{plural}/"))))
    }

    /// Numbers that change whenever a role or binding does.
    pub(super) fn versions(&self) -> [u64; 4] {
        self.0.each_ref().map(|cache| cache.change_count())
    }
}

/// Kind, namespace and name of a role.
type RoleName = (String, String, String);

/// A role as it is written.
struct Role {
    name: RoleName,
    labels: Object,
    rules: Arc<[Rule]>,
    selectors: Option<Vec<Selector>>,
}

impl Role {
    fn as_candidate(&self) -> Candidate<'_> {
        let has_rules = !self.rules.is_empty();
        Candidate { labels: &self.labels, has_rules, selectors: self.selectors.as_deref() }
    }
}

/// Subjects of a role's rules.
struct Binding {
    name: String,
    /// Empty for the whole cluster.
    namespace: String,
    role: RoleName,
    subjects: Vec<Subject>,
}

/// A subject of a binding.
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

/// An object as it was read at a revision.
#[derive(Clone)]
enum Document {
    Role(Arc<Role>),
    Binding(Arc<Binding>),
}

/// A binding with the rules of its role; none if there is no such role.
type Grant = (Arc<Binding>, Option<Arc<[Rule]>>);

/// All roles and bindings.
#[derive(Default)]
pub(super) struct Roles {
    versions: [u64; 4],
    documents: HashMap<Arc<str>, (Revision, Document)>,
    rules: HashMap<RoleName, Arc<[Rule]>>,
    bindings: Vec<Grant>,
    /// The bindings that name a user, or a group.
    of_users: HashMap<String, Vec<usize>>,
    of_groups: HashMap<String, Vec<usize>>,
}

impl Roles {
    pub(super) fn is_at(&self, versions: [u64; 4]) -> bool {
        self.versions == versions
    }

    /// Reads everything that `before` does not know.
    pub(super) fn read(sources: &Sources, versions: [u64; 4], before: &Self) -> Self {
        let mut all = Self { versions, ..Self::default() };
        let (mut roles, mut bindings) = (Vec::new(), Vec::new());
        for (index, (cache, plural)) in sources.0.iter().zip(PLURALS).enumerate() {
            let snapshot = cache.list(&format!("{GROUP}/{plural}/"), None, 0, |_, _| true);
            for (key, object) in snapshot.objects {
                let known = before.documents.get(&key).filter(|(revision, _)| *revision == object.revision);
                let document = match known {
                    Some((_, document)) => document.clone(),
                    None if index % 2 == CLUSTER_ROLES => Document::Role(Arc::new(role(&object.decode(), index))),
                    None => Document::Binding(Arc::new(binding(&object.decode()))),
                };
                match &document {
                    Document::Role(role) => roles.push(role.clone()),
                    Document::Binding(binding) => bindings.push(binding.clone()),
                }
                all.documents.insert(key, (object.revision, document));
            }
        }
        all.rules = resolve(&roles);
        all.bind(&bindings);
        all
    }

    /// Indexes bindings by subject. Further bindings of a subject to the same role have no effect: every request would go
    /// through the rules of the role once more.
    fn bind(&mut self, bindings: &[Arc<Binding>]) {
        let mut known = HashSet::new();
        for (place, binding) in bindings.iter().enumerate() {
            for subject in &binding.subjects {
                let is_group = subject.kind == "Group";
                if known.insert((is_group, &subject.who, &binding.namespace, &binding.role)) {
                    let index = if is_group { &mut self.of_groups } else { &mut self.of_users };
                    index.entry(subject.who.clone()).or_default().push(place);
                }
            }
            let rules = self.rules.get(&binding.role).cloned();
            self.bindings.push((binding.clone(), rules));
        }
    }

    /// The bindings that give a user something in a namespace, cluster-wide ones first.
    fn of_user(&self, user: &User, namespace: &str) -> Vec<&Grant> {
        let groups = user.groups.iter().filter_map(|group| self.of_groups.get(group));
        let mut places: Vec<usize> =
            self.of_users.get(&user.name).into_iter().chain(groups).flatten().copied().collect();
        places.sort_unstable();
        places.dedup();
        let bindings = places.into_iter().filter_map(|place| self.bindings.get(place));
        bindings.filter(|(it, _)| it.namespace.is_empty() || it.namespace == namespace).collect()
    }

    /// Whether a request may pass.
    pub(super) fn allow(&self, user: &User, request: &Request<'_>) -> bool {
        let groups = user.groups.iter().filter_map(|group| self.of_groups.get(group));
        let mut places = self.of_users.get(&user.name).into_iter().chain(groups).flatten();
        let namespace = request.namespace();
        places.any(|place| {
            let Some((binding, Some(rules))) = self.bindings.get(*place) else { return false };
            (binding.namespace.is_empty() || binding.namespace == namespace)
                && rules.iter().any(|rule| rule.allows(request))
        })
    }

    /// The binding that lets a request pass, in Kubernetes' words.
    pub(super) fn reason(&self, user: &User, request: &Request<'_>) -> Option<String> {
        self.of_user(user, request.namespace()).into_iter().find_map(|(binding, rules)| {
            let subject = binding.subjects.iter().find(|subject| subject.is(user))?;
            rules.as_ref()?.iter().any(|rule| rule.allows(request)).then(|| {
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

    /// The rules that a user has in a namespace, and whether there are more than are listed.
    pub(super) fn rules_of(&self, user: &User, namespace: &str) -> (Vec<Rule>, bool) {
        let rules = self.of_user(user, namespace).into_iter().filter_map(|(_, rules)| rules.as_ref());
        let (mut listed, mut bytes) = (Vec::new(), 0_usize);
        for rule in rules.flat_map(|rules| rules.iter()) {
            bytes = bytes.saturating_add(rule.size());
            if bytes > LISTED_BYTES_MAX {
                return (listed, true);
            }
            listed.push(rule.clone());
        }
        (listed, false)
    }

    /// Kind and name of the roles that do not exist although a user is bound to them.
    pub(super) fn lost_roles(&self, user: &User, namespace: &str) -> Vec<(String, String)> {
        let bindings = self.of_user(user, namespace).into_iter().filter(|(_, rules)| rules.is_none());
        bindings.map(|(binding, _)| (binding.role.0.clone(), binding.role.2.clone())).collect()
    }

    /// Returns the permissions of `granted` that a user lacks in a namespace, as simple rules.
    ///
    /// A rule that stands for too many simple ones counts as missing as a whole, unless one rule of the user covers it.
    pub(super) fn missing(&self, user: &User, namespace: &str, granted: &[Rule]) -> Vec<Rule> {
        let held = self.of_user(user, namespace).into_iter().filter_map(|(_, rules)| rules.as_ref());
        let held: Vec<&Rule> = held.flat_map(|rules| rules.iter()).collect();
        let weight = held.iter().map(|own| own.weight()).fold(1, usize::saturating_add);
        let (mut missing, mut left) = (Vec::new(), COMPARISONS_MAX);
        for rule in granted {
            left = left.saturating_sub(held.len().saturating_mul(rule.weight()).saturating_add(weight));
            if left > 0 && held.iter().any(|own| own.covers_whole(rule)) {
                continue;
            }
            match left.checked_sub(rule.simple_count().saturating_mul(weight)) {
                Some(rest) => {
                    left = rest;
                    let simple = rule.split().into_iter();
                    missing.extend(simple.filter(|one| !held.iter().any(|own| own.covers(one))));
                }
                None => missing.push(rule.clone()),
            }
        }
        missing
    }

    /// The rules of a role; none if there is no such role.
    pub(super) fn of_role(&self, kind: &str, namespace: &str, name: &str) -> Option<Arc<[Rule]>> {
        let namespace = if kind == "ClusterRole" { "" } else { namespace };
        self.rules.get(&(kind.to_owned(), namespace.to_owned(), name.to_owned())).cloned()
    }
}

/// The rules of all roles, aggregated ones filled.
fn resolve(roles: &[Arc<Role>]) -> HashMap<RoleName, Arc<[Rule]>> {
    let cluster: Vec<&Arc<Role>> = roles.iter().filter(|role| role.name.0 == "ClusterRole").collect();
    let candidates: Vec<Candidate<'_>> = cluster.iter().map(|role| role.as_candidate()).collect();
    let mut rules: HashMap<RoleName, Arc<[Rule]>> =
        roles.iter().map(|role| (role.name.clone(), role.rules.clone())).collect();
    for (role, parts) in cluster.iter().zip(aggregation::resolve(&candidates)) {
        if role.selectors.is_none() {
            continue;
        }
        let mut seen = HashSet::new();
        let parts = parts.into_iter().filter_map(|part| cluster.get(part));
        let all = parts.flat_map(|part| part.rules.iter()).filter(|rule| seen.insert(*rule)).cloned().collect();
        rules.insert(role.name.clone(), all);
    }
    rules
}

fn role(value: &Value, source: usize) -> Role {
    let kind = if source == CLUSTER_ROLES { "ClusterRole" } else { "Role" };
    let text = |field: &str| metadata::text(value, field).to_owned();
    // A selector that cannot be read chooses nothing.
    let selectors = value.array_at(&["aggregationRule", "clusterRoleSelectors"]);
    let selectors = selectors.filter(|it| kind == "ClusterRole" && !it.is_empty());
    Role {
        name: (kind.to_owned(), text("namespace"), text("name")),
        labels: metadata::labels(value).cloned().unwrap_or_default(),
        rules: Rule::of_role(value).into(),
        selectors: selectors.map(|it| it.iter().filter_map(selector).collect()),
    }
}

fn selector(value: &Value) -> Option<Selector> {
    let selector: api::meta::v1::LabelSelector = api::json::from_value(value).ok()?;
    selector.to_selector().ok()
}

fn binding(value: &Value) -> Binding {
    let namespace = metadata::namespace(value).to_owned();
    let kind = value.text_at(&["roleRef", "kind"]).to_owned();
    let name = value.text_at(&["roleRef", "name"]).to_owned();
    let role_namespace = if kind == "ClusterRole" { String::new() } else { namespace.clone() };
    let subjects = value.get("subjects").and_then(Value::as_array).unwrap_or_default().iter();
    let subjects = subjects.filter_map(|subject| {
        // An unreadable subject is ignored.
        let name = subject.str_at(&["name"])?.to_owned();
        match subject.str_at(&["kind"])? {
            "User" => Some(Subject { kind: "User", who: name.clone(), shown: name }),
            "Group" => Some(Subject { kind: "Group", who: name.clone(), shown: name }),
            "ServiceAccount" => {
                // Without a namespace it is an account of the binding's own.
                let given = subject.text("namespace");
                let account_namespace = if given.is_empty() { namespace.as_str() } else { given };
                let who = format!("system:serviceaccount:{account_namespace}:{name}");
                let shown = format!("{name}/{account_namespace}");
                (!account_namespace.is_empty()).then_some(Subject { kind: "ServiceAccount", who, shown })
            }
            _ => None,
        }
    });
    let subjects = subjects.collect();
    let own = metadata::name(value).to_owned();
    Binding { name: own, namespace, role: (kind, role_namespace, name), subjects }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(prefix: &str, count: usize) -> Vec<String> {
        (0..count).map(|index| format!("{prefix}{index}")).collect()
    }

    /// A user who is bound to a role with these rules in the namespace `n`, twice.
    fn roles(rules: Vec<Rule>) -> (Roles, User) {
        let name = ("Role".to_owned(), "n".to_owned(), "r".to_owned());
        let mut roles = Roles { rules: HashMap::from([(name, rules.into())]), ..Roles::default() };
        let subject = r#"{"kind": "User", "name": "u", "apiGroup": "rbac.authorization.k8s.io"}"#;
        let text = |own: &str| {
            format!(
                r#"{{"metadata": {{"name": "{own}", "namespace": "n"}}, "roleRef": {{"kind": "Role", "name": "r"}}, "subjects": [{subject}]}}"#
            )
        };
        let read = |own: &str| Arc::new(binding(&api::json::parse(text(own).as_bytes()).unwrap()));
        roles.bind(&[read("a"), read("b")]);
        (roles, User { name: "u".to_owned(), ..User::default() })
    }

    fn rule(count: usize) -> Rule {
        let (verbs, groups, resources) = (texts("v", count), texts("g", count), texts("r", count));
        Rule { verbs, groups, resources, ..Rule::default() }
    }

    #[test]
    fn roles_bound_twice_are_listed_once() {
        let (roles, user) = roles(vec![rule(2)]);
        assert_eq!(roles.rules_of(&user, "n"), (vec![rule(2)], false));
    }

    #[test]
    fn listed_rules_are_bounded() {
        let (roles, user) = roles(vec![rule(100); 1_000]);
        let (listed, is_cut) = roles.rules_of(&user, "n");
        assert!(is_cut && !listed.is_empty() && listed.len() < 1_000, "{}", listed.len());
    }

    #[test]
    fn escalation_check_is_bounded() {
        let (roles, user) = roles(vec![rule(3), rule(600)]);
        // One rule covers it, whatever it stands for.
        assert!(roles.missing(&user, "n", &[rule(600)]).is_empty());
        let few = Rule { names: vec!["x".to_owned()], ..rule(3) };
        assert!(roles.missing(&user, "n", &[few]).is_empty());
        // 343,000,000 permissions are not compared one by one.
        assert_eq!(roles.missing(&user, "n", &[rule(700)]), [rule(700)]);
        let one = Rule { verbs: texts("w", 1), ..rule(1) };
        assert_eq!(roles.missing(&user, "n", std::slice::from_ref(&one)), [one]);
        let paths = Rule { verbs: texts("v", 1), paths: vec!["/a".to_owned()], ..Rule::default() };
        assert_eq!(roles.missing(&user, "n", std::slice::from_ref(&paths)), [paths]);
    }
}
