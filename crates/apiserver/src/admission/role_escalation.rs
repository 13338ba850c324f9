//! Nobody grants what they do not hold: roles and bindings are checked against the rights of who writes them.

use std::sync::Arc;

use api::go_text::quote;
use api::json::Value;

use crate::authorization::{Request, Rule};
use crate::http::request::Target;
use crate::http::status::{Failure, Result};
use crate::identity::User;
use crate::objects::metadata;
use crate::resources::Resource;
use crate::server::Server;

/// Checks a role or binding.
///
/// # Errors
/// 403 with the rules that the user does not hold.
pub(super) fn validate(
    server: &Arc<Server>,
    resource: &Resource,
    object: &Value,
    old: Option<&Value>,
    user: &User,
) -> Result<()> {
    if resource.group != "rbac.authorization.k8s.io" || user.is_in("system:masters") {
        return Ok(());
    }
    let namespace = metadata::text(object, "namespace");
    let (granted, verb) = if resource.plural.ends_with("bindings") {
        if old.is_some_and(|old| {
            old.get("roleRef") == object.get("roleRef") && old.get("subjects") == object.get("subjects")
        }) {
            return Ok(());
        }
        let kind = object.str_at(&["roleRef", "kind"]).unwrap_or_default();
        let name = object.str_at(&["roleRef", "name"]).unwrap_or_default();
        (server.authorizer.role_rules(kind, namespace, name).unwrap_or_default(), "bind")
    } else {
        if old.is_some_and(|old| old.get("rules") == object.get("rules")) {
            return Ok(());
        }
        let rules = object.get("rules").and_then(Value::as_array).unwrap_or_default();
        (rules.iter().map(Rule::from_value).collect(), "escalate")
    };
    let target = Target {
        verb: None,
        group: resource.group.to_owned(),
        version: "v1".to_owned(),
        resource: resource.plural.to_owned(),
        namespace: namespace.to_owned(),
        name: metadata::text(object, "name").to_owned(),
        subresource: String::new(),
    };
    if server.authorizer.allows(user, Request::Resource { verb, target: &target }) {
        return Ok(());
    }
    let missing = server.authorizer.missing(user, namespace, &granted);
    if missing.is_empty() {
        return Ok(());
    }
    let groups: Vec<String> = user.groups.iter().map(|group| quote(group)).collect();
    let mut lines: Vec<String> = missing.iter().map(show).collect();
    lines.sort();
    let why = format!(
        "user {} (groups=[{}]) is attempting to grant RBAC permissions not currently held:\n{}",
        quote(&user.name),
        groups.join(" "),
        lines.join("\n")
    );
    Err(Failure::forbidden(resource.group, resource.plural, &target.name, &why))
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
