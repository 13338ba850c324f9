//! All roles and bindings in decoded form, as of some change.
//!
//! What has not changed since the last reading is kept, so that one changed role among thousands costs one decoding.

use std::collections::HashMap;
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
        for binding in bindings {
            let place = all.bindings.len();
            for subject in &binding.subjects {
                let index = if subject.kind == "Group" { &mut all.of_groups } else { &mut all.of_users };
                let places = index.entry(subject.who.clone()).or_default();
                if places.last() != Some(&place) {
                    places.push(place);
                }
            }
            let rules = all.rules.get(&binding.role).cloned();
            all.bindings.push((binding, rules));
        }
        all
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

    /// The rules that a user has in a namespace.
    pub(super) fn rules_of(&self, user: &User, namespace: &str) -> Vec<Rule> {
        let rules = self.of_user(user, namespace).into_iter().filter_map(|(_, rules)| rules.as_ref());
        rules.flat_map(|rules| rules.iter().cloned()).collect()
    }

    /// Kind and name of the roles that do not exist although a user is bound to them.
    pub(super) fn lost_roles(&self, user: &User, namespace: &str) -> Vec<(String, String)> {
        let bindings = self.of_user(user, namespace).into_iter().filter(|(_, rules)| rules.is_none());
        bindings.map(|(binding, _)| (binding.role.0.clone(), binding.role.2.clone())).collect()
    }

    /// Returns the permissions of `granted` that a user lacks in a namespace, as simple rules.
    pub(super) fn missing(&self, user: &User, namespace: &str, granted: &[Rule]) -> Vec<Rule> {
        let held = self.of_user(user, namespace).into_iter().filter_map(|(_, rules)| rules.as_ref());
        let held: Vec<&Rule> = held.flat_map(|rules| rules.iter()).collect();
        let simple = granted.iter().flat_map(Rule::split);
        simple.filter(|one| !held.iter().any(|rule| rule.covers(one))).collect()
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
        let mut seen = std::collections::HashSet::new();
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
