//! Nobody grants what they do not hold: roles and bindings are checked against the rights of who writes them.
//!
//! Asked before anything else is said about the object. A role may be written by who holds its rules, or may `escalate`
//! it; a binding by who holds the rules of its role, or may `bind` that role. Follows Kubernetes'
//! `pkg/registry/rbac/*/policybased` and `escalation_check.go`.

use std::sync::Arc;

use api::go_text::quote;
use api::json::Value;

use crate::authorization::{Request, Rule, rules};
use crate::http::request::Target;
use crate::http::status::{Failure, Result};
use crate::identity::User;
use crate::objects::metadata;
use crate::resources::Resource;
use crate::server::Server;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Who writes which object: `target` is what the request is about.
pub(crate) struct Attempt<'a> {
    pub(crate) server: &'a Arc<Server>,
    pub(crate) resource: &'a Resource<'a>,
    pub(crate) target: &'a Target,
    pub(crate) user: &'a User,
}

/// Whether objects of a resource grant something.
pub(crate) fn concerns(resource: &Resource<'_>) -> bool {
    resource.group == GROUP
}

impl Attempt<'_> {
    /// Checks a role or binding that is to be written, in the stored version.
    ///
    /// # Errors
    /// 403 with what the user does not hold, 404 if the role of a binding does not exist.
    pub(crate) fn confirm(&self, object: &Value, old: Option<&Value>) -> Result<()> {
        if !concerns(self.resource) || self.user.is_in("system:masters") {
            return Ok(());
        }
        let mut object = object.clone();
        self.server.meaning.default(self.resource, &mut object);
        // Kubernetes: garbage collection must be able to do its work.
        if old.is_some_and(|old| changes_only_owners(&object, old)) {
            return Ok(());
        }
        if self.resource.plural.ends_with("bindings") {
            self.confirm_binding(&object)
        } else {
            self.confirm_role(&object, old)
        }
    }

    fn confirm_role(&self, role: &Value, old: Option<&Value>) -> Result<()> {
        if self.may("escalate", GROUP, self.resource.plural, &self.target.name) {
            return Ok(());
        }
        let written = |role: &Value| role.get("rules").and_then(Value::as_array).unwrap_or_default().to_vec();
        let given: Option<Vec<Rule>> = written(role).iter().map(Rule::from_value).collect();
        let given = given.ok_or_else(|| Failure::bad_request("a rule of the role cannot be read"))?;
        self.confirm_rules(role, &given)?;
        let namespace = &self.target.namespace;
        // What an aggregated role holds may not be written in it yet.
        if let Some(old) = old.filter(|old| is_aggregated(old) && same_rules(role, old)) {
            let held = self.server.authorizer.role_rules("ClusterRole", "", metadata::text(old, "name"));
            self.confirm_rules(role, &held.unwrap_or_default())?;
        }
        // What it will hold nobody knows.
        let is_aggregated = is_aggregated(role) || old.is_some_and(is_aggregated);
        if is_aggregated && !self.server.authorizer.missing(self.user, namespace, &Rule::everything()).is_empty() {
            return Err(self.forbidden(role, "must have cluster-admin privileges to use the aggregationRule"));
        }
        Ok(())
    }

    fn confirm_binding(&self, binding: &Value) -> Result<()> {
        let at = |field: &str| binding.str_at(&["roleRef", field]).unwrap_or_default();
        let (kind, name, namespace) = (at("kind"), at("name"), self.target.namespace.as_str());
        let plural = match kind {
            "ClusterRole" => "clusterroles",
            "Role" => "roles",
            _ => return Err(Failure::unclassified(format!("unsupported role reference kind: {}", quote(kind)))),
        };
        if self.may("bind", at("apiGroup"), plural, name) {
            return Ok(());
        }
        if kind == "Role" && namespace.is_empty() {
            return Err(Failure::bad_request("Namespace parameter required."));
        }
        Failure::check_name_parameter(name)?;
        // Kubernetes names the resource of the request here, not that of the role.
        let granted = self.server.authorizer.role_rules(kind, namespace, name);
        let granted = granted.ok_or_else(|| Failure::not_found(self.resource, name))?;
        self.confirm_rules(binding, &granted)
    }

    fn confirm_rules(&self, object: &Value, granted: &[Rule]) -> Result<()> {
        let (authorizer, namespace) = (&self.server.authorizer, &self.target.namespace);
        let missing = authorizer.missing(self.user, namespace, granted);
        if missing.is_empty() {
            return Ok(());
        }
        let groups: Vec<String> = self.user.groups.iter().map(|group| quote(group)).collect();
        let mut why = format!(
            "user {} (groups=[{}]) is attempting to grant RBAC permissions not currently held:\n{}",
            quote(&self.user.name),
            groups.join(" "),
            rules::show_all(missing).join("\n")
        );
        if let Some(lost) = authorizer.lost_roles(self.user, namespace, self.resource.plural) {
            why = format!("{why}; resolution errors: [{lost}]");
        }
        Err(self.forbidden(object, &why))
    }

    fn forbidden(&self, object: &Value, why: &str) -> Box<Failure> {
        Failure::forbidden(self.resource.group, self.resource.plural, metadata::text(object, "name"), why)
    }

    fn may(&self, verb: &str, group: &str, plural: &str, name: &str) -> bool {
        let target = Target::of_check(group, plural, &self.target.namespace, name);
        self.server.authorizer.allows(self.user, Request::Resource { verb, target: &target })
    }
}

/// Whether the rules are left as they were; writing down that there are none is a change if nothing was written before.
fn same_rules(role: &Value, old: &Value) -> bool {
    let rules = |role: &Value| role.get("rules").filter(|it| !it.is_null()).cloned();
    rules(role) == rules(old)
}

fn is_aggregated(role: &Value) -> bool {
    let selectors = role.at(&["aggregationRule", "clusterRoleSelectors"]).and_then(Value::as_array);
    selectors.is_some_and(|it| !it.is_empty())
}

/// Whether two documents are the same but for what the garbage collector writes.
pub(super) fn changes_only_owners(new: &Value, old: &Value) -> bool {
    let rest = |object: &Value| {
        let mut object = object.clone();
        for field in ["ownerReferences", "finalizers", "managedFields", "selfLink"] {
            metadata::remove(&mut object, field);
        }
        without_empty(object)
    };
    rest(new) == rest(old)
}

/// The document without members that hold nothing: for Kubernetes they are the same as missing ones. Elements of lists
/// count even if they are empty, and so do empty texts, which labels may have.
pub(super) fn without_empty(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let holds = |value: &Value| match value {
                Value::Null => false,
                Value::Array(items) => !items.is_empty(),
                Value::Object(fields) => !fields.is_empty(),
                _ => true,
            };
            let fields = fields.into_iter().map(|(key, value)| (key, without_empty(value)));
            Value::Object(fields.filter(|(_, value)| holds(value)).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_empty).collect()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(new: &str, old: &str, same: bool) {
        let parse = |text: &str| api::json::parse(text.as_bytes()).unwrap();
        assert_eq!(changes_only_owners(&parse(new), &parse(old)), same);
    }

    #[test]
    fn only_what_garbage_collection_writes_is_exempt() {
        check(r#"{"metadata": {"finalizers": ["a"]}, "rules": null}"#, r#"{"metadata": {}, "rules": []}"#, true);
        check(r#"{"metadata": {"ownerReferences": [{"uid": "a"}]}}"#, "{}", true);
        check(r#"{"metadata": {"labels": {"a": "b"}}}"#, r#"{"metadata": {}}"#, false);
        // A label without a value can be selected, too.
        check(r#"{"metadata": {"labels": {"a": ""}}}"#, r#"{"metadata": {}}"#, false);
        // A selector without requirements selects everything.
        check(r#"{"aggregationRule": {"clusterRoleSelectors": [{}]}}"#, "{}", false);
        check(r#"{"rules": [{}]}"#, r#"{"rules": []}"#, false);
    }
}
