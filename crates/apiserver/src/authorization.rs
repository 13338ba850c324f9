//! Authorization: RBAC roles and bindings, and nodes.
//!
//! Rules are read from the watch cache and kept, decoded, until roles or bindings change. Members of
//! `system:masters` may do everything. A request is allowed if one of the two authorizers allows it.

mod aggregation;
pub(crate) mod impersonation;
pub(crate) mod node;
mod roles;
pub(crate) mod rules;

use locks::{Mutex, RwLock};
use std::sync::Arc;

use api::go_text::quote;
use api::well_known::GROUP_MASTERS;

use self::node::Nodes;
use self::roles::{Roles, Sources};
pub use self::rules::Rule;
use crate::identity::User;
use crate::wire::request::Target;
use crate::wire::status::{Failure, Result};
use cache::Cache;

/// Decides about requests.
pub struct Authorizer {
    nodes: Nodes,
    sources: Sources,
    roles: RwLock<Arc<Roles>>,
    /// Held while roles are reloaded, so that one request does it for all.
    reading: Mutex<()>,
}

/// A request to authorize.
#[derive(Debug, Clone, Copy)]
pub enum Request<'a> {
    /// An action on a resource.
    Resource {
        /// The verb.
        verb: &'a str,
        /// The resource.
        target: &'a Target,
    },
    /// A path that is not a resource.
    Path {
        /// The method in small letters.
        verb: &'a str,
        /// The path.
        path: &'a str,
    },
}

impl<'a> Request<'a> {
    fn namespace(&self) -> &'a str {
        match self {
            Request::Resource { target, .. } => &target.namespace,
            Request::Path { .. } => "",
        }
    }
}

/// Result of a review.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Whether it would pass.
    pub allowed: bool,
    /// Reason of the decision; may be empty.
    pub reason: String,
}

impl Authorizer {
    /// Reads roles and bindings from a cache.
    #[must_use]
    pub fn new(cache: &Arc<Cache>) -> Self {
        let sources = Sources::of(cache);
        let roles = Roles::read(&sources, sources.versions(), &Roles::default());
        Self { nodes: Nodes::new(cache), sources, roles: RwLock::new(Arc::new(roles)), reading: Mutex::default() }
    }

    /// Lets a request pass.
    ///
    /// # Errors
    /// 403 if it may not.
    pub fn authorize(&self, user: &User, request: Request<'_>) -> Result<()> {
        if self.allows(user, request) {
            return Ok(());
        }
        Err(refusal(user, &request, &self.why_not(user, &request)))
    }

    /// Whether a request would pass.
    #[must_use]
    pub fn allows(&self, user: &User, request: Request<'_>) -> bool {
        user.is_in(GROUP_MASTERS) || self.node_allows(user, &request) || self.roles().allow(user, &request)
    }

    /// Decides about a request, with a reason for reviews.
    #[must_use]
    pub fn decide(&self, user: &User, request: Request<'_>) -> Decision {
        if user.is_in(GROUP_MASTERS) {
            return Decision { allowed: true, reason: String::new() };
        }
        if self.node_allows(user, &request) {
            return Decision { allowed: true, reason: String::new() };
        }
        match self.roles().reason(user, &request) {
            Some(reason) => Decision { allowed: true, reason },
            None => Decision { allowed: false, reason: self.why_not(user, &request) },
        }
    }

    /// Returns the rules of a user in a namespace, and an error if they are incomplete.
    #[must_use]
    pub fn rules_of(&self, user: &User, namespace: &str) -> (Vec<Rule>, Option<String>) {
        let roles = self.roles();
        let is_node = node::node_of(user).is_some();
        let unknown = is_node.then(|| "node authorizer does not support user rule resolution".to_owned());
        let lost = lost(&roles, user, namespace, |kind| kind.to_lowercase());
        let (rules, is_cut) = roles.rules_of(user, namespace);
        let cut = is_cut.then(|| "the user has more rules than are listed".to_owned());
        let errors: Vec<String> = unknown.into_iter().chain(lost).chain(cut).collect();
        let error = match errors.as_slice() {
            [] => None,
            [one] => Some(one.clone()),
            all => Some(format!("[{}]", all.join(", "))),
        };
        (rules, error)
    }

    /// Returns the permissions of `granted` that a user lacks in a namespace, as simple rules.
    #[must_use]
    pub fn missing(&self, user: &User, namespace: &str, granted: &[Rule]) -> Vec<Rule> {
        if user.is_in(GROUP_MASTERS) {
            return Vec::new();
        }
        self.roles().missing(user, namespace, granted)
    }

    /// Describes missing roles that a user is bound to, for a request about `resource`.
    #[must_use]
    pub(crate) fn lost_roles(&self, user: &User, namespace: &str, resource: &str) -> Option<String> {
        lost(&self.roles(), user, namespace, |_| resource.to_owned())
    }

    /// The rules of a role that a binding names; none if there is no such role.
    #[must_use]
    pub fn role_rules(&self, kind: &str, namespace: &str, name: &str) -> Option<Arc<[Rule]>> {
        self.roles().of_role(kind, namespace, name)
    }

    fn node_allows(&self, user: &User, request: &Request<'_>) -> bool {
        node::node_of(user).is_some_and(|node| self.nodes.authorize(node, request).is_ok())
    }

    fn why_not(&self, user: &User, request: &Request<'_>) -> String {
        let by_node = node::node_of(user).and_then(|node| self.nodes.authorize(node, request).err());
        let by_node = by_node.filter(|why| !why.is_empty()).map(|why| format!("node: {why}"));
        let lost = lost(&self.roles(), user, request.namespace(), |kind| kind.to_lowercase());
        let by_role = lost.map(|lost| format!("rbac: RBAC: {lost}"));
        by_node.into_iter().chain(by_role).collect::<Vec<_>>().join("\n")
    }

    fn roles(&self) -> Arc<Roles> {
        let current = || self.roles.read().clone();
        let known = current();
        if known.is_at(self.sources.versions()) {
            return known;
        }
        let _reading = self.reading.lock();
        let (known, versions) = (current(), self.sources.versions());
        if known.is_at(versions) {
            return known;
        }
        let roles = Arc::new(Roles::read(&self.sources, versions, &known));
        *self.roles.write() = roles.clone();
        roles
    }
}

/// Describes missing roles that a user is bound to.
fn lost(roles: &Roles, user: &User, namespace: &str, resource: impl Fn(&str) -> String) -> Option<String> {
    let mut texts: Vec<String> = Vec::new();
    for (kind, name) in roles.lost_roles(user, namespace) {
        let text = format!("{}.rbac.authorization.k8s.io \"{name}\" not found", resource(&kind));
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    match texts.len() {
        0 => None,
        1 => texts.pop(),
        _ => Some(format!("[{}]", texts.join(", "))),
    }
}

pub(crate) fn refusal(user: &User, request: &Request<'_>, reason: &str) -> Box<Failure> {
    let name = quote(&user.name);
    let why = |text: String| {
        // Kubernetes: a refusal shall not look like a page.
        let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        if reason.is_empty() { text } else { format!("{text}: {reason}") }
    };
    match request {
        Request::Path { verb, path } => {
            Failure::forbidden("", "", "", &why(format!("User {name} cannot {verb} path {}", quote(path))))
        }
        Request::Resource { verb, target } => {
            let resource = match target.first_subresource() {
                "" => quote(&target.resource),
                subresource => quote(&format!("{}/{subresource}", target.resource)),
            };
            let scope = if target.namespace.is_empty() {
                "at the cluster scope".to_owned()
            } else {
                format!("in the namespace {}", quote(&target.namespace))
            };
            let group = quote(&target.group);
            let text = format!("User {name} cannot {verb} resource {resource} in API group {group} {scope}");
            Failure::forbidden(&target.group, &target.resource, target.asked_name(), &why(text))
        }
    }
}
