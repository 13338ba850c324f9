//! Prevention of privilege escalation: roles and bindings are checked against the permissions of their author.
//!
//! Checked before everything else about the object. A role may be written by users who hold its rules, or may
//! `escalate` it; a binding by users who hold the rules of its role, or may `bind` that role. Follows
//! Kubernetes' `pkg/registry/rbac/*/policybased` and `escalation_check.go`.

use std::sync::Arc;

use api::go_text::quote;
use api::json::Value;
use api::well_known::GROUP_MASTERS;

use super::{Attributes, Cluster, Operation, Plugin, Verdict, done};
use crate::authorization::{Request, Rule, rules};
use crate::wire::request::Target;
use crate::wire::status::{Failure, Result};
use api::metadata;

const GROUP: &str = "rbac.authorization.k8s.io";

/// The check. Kubernetes has it in the storage of roles and bindings, where nothing can change the object anymore.
pub(super) struct RoleEscalation(pub(super) Arc<dyn Cluster>);

impl Plugin for RoleEscalation {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        let writes = matches!(attributes.operation, Operation::Create | Operation::Update);
        writes && attributes.resource.group == GROUP && !attributes.user.is_in(GROUP_MASTERS)
    }

    fn mutate<'a>(&'a self, attributes: &'a Attributes<'a>, object: &'a mut Value) -> Verdict<'a> {
        done(Attempt { cluster: &*self.0, attributes }.confirm(object, attributes.old))
    }
}

/// A request to write a role or binding.
struct Attempt<'a> {
    cluster: &'a dyn Cluster,
    attributes: &'a Attributes<'a>,
}

impl Attempt<'_> {
    /// Checks a role or binding that is to be written, in the stored version.
    ///
    /// # Errors
    /// 403 with what the user does not hold, 404 if the role of a binding does not exist.
    fn confirm(&self, object: &Value, old: Option<&Value>) -> Result<()> {
        // Kubernetes: garbage collection must be able to do its work.
        if old.is_some_and(|old| changes_only_owners(object, old)) {
            return Ok(());
        }
        if self.attributes.resource.plural.ends_with("bindings") {
            self.confirm_binding(object)
        } else {
            self.confirm_role(object, old)
        }
    }

    fn confirm_role(&self, role: &Value, old: Option<&Value>) -> Result<()> {
        if self.may("escalate", GROUP, self.attributes.resource.plural, self.attributes.path_name) {
            return Ok(());
        }
        let written = |role: &Value| role.get("rules").and_then(Value::as_array).unwrap_or_default().to_vec();
        let given: Option<Vec<Rule>> = written(role).iter().map(Rule::from_value).collect();
        let given = given.ok_or_else(|| Failure::bad_request("a rule of the role cannot be read"))?;
        self.confirm_rules(role, &given)?;
        let (namespace, authorizer) = (self.attributes.namespace, self.cluster.authorizer());
        // What an aggregated role holds may not be written in it yet.
        if let Some(old) = old.filter(|old| is_aggregated(old) && same_rules(role, old)) {
            let held = authorizer.role_rules("ClusterRole", "", metadata::name(old));
            self.confirm_rules(role, &held.unwrap_or_default())?;
        }
        // Its future rules are unknown.
        let is_aggregated = is_aggregated(role) || old.is_some_and(is_aggregated);
        if is_aggregated && !authorizer.missing(self.attributes.user, namespace, &Rule::everything()).is_empty() {
            return Err(self.forbidden(role, "must have cluster-admin privileges to use the aggregationRule"));
        }
        Ok(())
    }

    fn confirm_binding(&self, binding: &Value) -> Result<()> {
        let at = |field: &str| binding.text_at(&["roleRef", field]);
        let (kind, name, namespace) = (at("kind"), at("name"), self.attributes.namespace);
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
        let granted = self.cluster.authorizer().role_rules(kind, namespace, name);
        let granted = granted.ok_or_else(|| Failure::not_found(self.attributes.resource, name))?;
        self.confirm_rules(binding, &granted)
    }

    fn confirm_rules(&self, object: &Value, granted: &[Rule]) -> Result<()> {
        let (authorizer, namespace, user) =
            (self.cluster.authorizer(), self.attributes.namespace, self.attributes.user);
        let missing = authorizer.missing(user, namespace, granted);
        if missing.is_empty() {
            return Ok(());
        }
        let groups: Vec<String> = user.groups.iter().map(|group| quote(group)).collect();
        let mut why = format!(
            "user {} (groups=[{}]) is attempting to grant RBAC permissions not currently held:\n{}",
            quote(&user.name),
            groups.join(" "),
            rules::show_all(missing).join("\n")
        );
        if let Some(lost) = authorizer.lost_roles(user, namespace, self.attributes.resource.plural) {
            why = format!("{why}; resolution errors: [{lost}]");
        }
        Err(self.forbidden(object, &why))
    }

    fn forbidden(&self, object: &Value, why: &str) -> Box<Failure> {
        let (group, plural) = self.attributes.resource_name();
        Failure::forbidden(group, plural, metadata::name(object), why)
    }

    fn may(&self, verb: &str, group: &str, plural: &str, name: &str) -> bool {
        let target = Target::of_check(group, plural, self.attributes.namespace, name);
        self.cluster.authorizer().allows(self.attributes.user, Request::Resource { verb, target: &target })
    }
}

/// Whether the rules are left as they were; writing down that there are none is a change if nothing was written before.
fn same_rules(role: &Value, old: &Value) -> bool {
    let rules = |role: &Value| role.get("rules").filter(|it| !it.is_null()).cloned();
    rules(role) == rules(old)
}

fn is_aggregated(role: &Value) -> bool {
    let selectors = role.array_at(&["aggregationRule", "clusterRoleSelectors"]);
    selectors.is_some_and(|it| !it.is_empty())
}

/// Whether two documents are equal except for changes by the garbage collector.
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
    fn only_garbage_collector_writes_are_exempt() {
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
