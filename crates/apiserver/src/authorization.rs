//! Who may do what: roles and bindings, as RBAC has them.
//!
//! Rules are read from the watch cache and kept, decoded, until roles or bindings change. Aggregated roles hold the rules
//! of all roles that their selectors choose. Members of `system:masters` may do everything.

mod rules;

use std::sync::{Arc, PoisonError, RwLock};

use api::json::Value;

pub use self::rules::Rule;
use self::rules::{Rules, Sources};
use crate::http::request::Target;
use crate::http::status::{Failure, Result};
use crate::identity::User;
use crate::storage::cache::Cache;

/// Decides about requests.
pub struct Authorizer {
    cache: Arc<Cache>,
    sources: Sources,
    rules: RwLock<Option<Arc<Rules>>>,
}

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub enum Request<'a> {
    /// Something done with a resource.
    Resource {
        /// The verb.
        verb: &'a str,
        /// What it is done with.
        target: &'a Target,
    },
    /// A path that is no resource.
    Path {
        /// The method in small letters.
        verb: &'a str,
        /// The path.
        path: &'a str,
    },
}

impl Authorizer {
    /// Reads roles and bindings from a cache.
    #[must_use]
    pub fn new(cache: Arc<Cache>) -> Self {
        Self { sources: Sources::of(&cache), cache, rules: RwLock::default() }
    }

    /// Lets a request pass.
    ///
    /// # Errors
    /// 403 if it may not.
    pub fn authorize(&self, user: &User, request: Request<'_>) -> Result<()> {
        if user.is_in("system:masters") || self.rules().allow(user, &request) {
            return Ok(());
        }
        Err(refusal(user, &request))
    }

    /// Whether a request would pass.
    #[must_use]
    pub fn allows(&self, user: &User, request: Request<'_>) -> bool {
        user.is_in("system:masters") || self.rules().allow(user, &request)
    }

    /// Why a request would pass, as reviews say it: empty for those who may do everything; `None` if it would not.
    #[must_use]
    pub fn reason(&self, user: &User, request: Request<'_>) -> Option<String> {
        if user.is_in("system:masters") {
            return Some(String::new());
        }
        self.rules().reason(user, &request)
    }

    /// Everything that a user may do in a namespace.
    #[must_use]
    pub fn rules_of(&self, user: &User, namespace: &str) -> Vec<Rule> {
        self.rules().of_user(user, namespace)
    }

    /// Whether a user holds everything that rules would grant in a namespace; those that they do not hold.
    #[must_use]
    pub fn missing(&self, user: &User, namespace: &str, granted: &[Rule]) -> Vec<Rule> {
        if user.is_in("system:masters") {
            return Vec::new();
        }
        self.rules().missing(user, namespace, granted)
    }

    /// The rules of a role that a binding names.
    #[must_use]
    pub fn role_rules(&self, kind: &str, namespace: &str, name: &str) -> Option<Vec<Rule>> {
        self.rules().of_role(kind, namespace, name)
    }

    fn rules(&self) -> Arc<Rules> {
        let versions = self.sources.versions();
        let current = self.rules.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(rules) = current.filter(|rules| rules.is_at(versions)) {
            return rules;
        }
        let rules = Arc::new(Rules::read(&self.cache, versions));
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = Some(rules.clone());
        rules
    }
}

pub(crate) fn refusal(user: &User, request: &Request<'_>) -> Box<Failure> {
    let name = &user.name;
    match request {
        Request::Path { verb, path } => {
            Failure::forbidden("", "", "", &format!("User \"{name}\" cannot {verb} path \"{path}\""))
        }
        Request::Resource { verb, target } => {
            let resource = resource_of(target);
            let scope = if target.namespace.is_empty() {
                "at the cluster scope".to_owned()
            } else {
                format!("in the namespace \"{}\"", target.namespace)
            };
            let group = &target.group;
            let why = format!("User \"{name}\" cannot {verb} resource \"{resource}\" in API group \"{group}\" {scope}");
            // The part behind a slash is one that a check names like a part of the resource.
            let plain = target.resource.split('/').next().unwrap_or_default();
            Failure::forbidden(group, plain, &target.name, &why)
        }
    }
}

/// The resource as rules name it: `pods/status`.
fn resource_of(target: &Target) -> String {
    match target.subresource.split('/').next() {
        None | Some("") => target.resource.clone(),
        Some(subresource) => format!("{}/{subresource}", target.resource),
    }
}

/// The texts of a list in a document.
fn texts(value: &Value, field: &str) -> Vec<String> {
    let list = value.get(field).and_then(Value::as_array).unwrap_or_default();
    list.iter().filter_map(Value::as_str).map(ToOwned::to_owned).collect()
}
