//! Kinds of `rbac.authorization.k8s.io`: roles and what grants them.
//!
//! Follows `pkg/apis/rbac/validation`. Whether someone may grant what a role allows is decided in admission.

use api::field::{BadValue, Errors, Path};
use api::json::Value;
use api::names;

use crate::meta;
use crate::selectors::Selection;
use crate::strategy::{PLAIN, Strategy};

const GROUP: &str = "rbac.authorization.k8s.io";

pub(crate) const ROLE: Strategy = Strategy {
    validate_create: |role, _, errors| validate_role(role, true, errors),
    validate_update: |role, old, _, errors| {
        validate_role(role, true, errors);
        meta::validate_update(role, old, errors);
    },
    ..PLAIN
};

pub(crate) const CLUSTER_ROLE: Strategy = Strategy {
    validate_create: |role, _, errors| validate_role(role, false, errors),
    validate_update: |role, old, _, errors| {
        validate_role(role, false, errors);
        meta::validate_update(role, old, errors);
    },
    ..PLAIN
};

pub(crate) const ROLE_BINDING: Strategy = Strategy {
    validate_create: |binding, _, errors| {
        validate_binding(binding, true, errors);
        validate_names(binding, errors);
    },
    validate_update: |binding, old, _, errors| validate_binding_update(binding, old, true, errors),
    ..PLAIN
};

pub(crate) const CLUSTER_ROLE_BINDING: Strategy = Strategy {
    validate_create: |binding, _, errors| {
        validate_binding(binding, false, errors);
        validate_names(binding, errors);
    },
    validate_update: |binding, old, _, errors| validate_binding_update(binding, old, false, errors),
    ..PLAIN
};

fn validate_role(role: &Value, is_namespaced: bool, errors: &mut Errors) {
    meta::validate(role, is_namespaced, names::path_segment, errors);
    let rules = Path::new("rules");
    for (index, rule) in role.list("rules").iter().enumerate() {
        validate_rule(rule, is_namespaced, &rules.index(index), errors);
    }
    if let Some(aggregation) = role.optional("aggregationRule").filter(|_| !is_namespaced) {
        let at = Path::new("aggregationRule");
        let at = at.child("clusterRoleSelectors");
        let selectors = aggregation.list("clusterRoleSelectors");
        if selectors.is_empty() {
            errors.required(at, "at least one clusterRoleSelector required if aggregationRule is non-nil");
        }
        for (index, selector) in selectors.iter().enumerate() {
            meta::validate_selector(selector, false, &at.index(index), errors);
            if matches!(Selection::new(selector), Selection::Bad) {
                errors.invalid(at.index(index), Value::Null, "invalid label selector.");
            }
        }
    }
    // Declared rules come behind the written ones.
    for (index, _) in role.list("rules").iter().enumerate().filter(|(_, rule)| rule.list("verbs").is_empty()) {
        errors.required(rules.index(index).child("verbs"), "");
    }
}

fn validate_rule(rule: &Value, is_namespaced: bool, at: &Path<'_>, errors: &mut Errors) {
    if !rule.list("nonResourceURLs").is_empty() {
        let urls = rule.field("nonResourceURLs").clone();
        let at = at.child("nonResourceURLs");
        if is_namespaced {
            errors.invalid(at, urls.clone(), "namespaced rules cannot apply to non-resource URLs");
        }
        if ["apiGroups", "resources", "resourceNames"].iter().any(|field| !rule.list(field).is_empty()) {
            errors.invalid(at, urls, "rules cannot apply to both regular resources and non-resource URLs");
        }
        return;
    }
    if rule.list("apiGroups").is_empty() {
        errors.required(at.child("apiGroups"), "resource rules must supply at least one api group");
    }
    if rule.list("resources").is_empty() {
        errors.required(at.child("resources"), "resource rules must supply at least one resource");
    }
}

fn validate_binding(binding: &Value, is_namespaced: bool, errors: &mut Errors) {
    meta::validate(binding, is_namespaced, names::path_segment, errors);
    let (role, at) = (binding.field("roleRef"), Path::new("roleRef"));
    if role.text("apiGroup") != GROUP {
        errors.not_supported(at.child("apiGroup"), role.text("apiGroup"), &[GROUP]);
    }
    let kinds: &[&str] = if is_namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    if !kinds.contains(&role.text("kind")) {
        errors.not_supported(at.child("kind"), role.text("kind"), kinds);
    }
    let name = role.text("name");
    if !name.is_empty() {
        meta::invalid(names::path_segment(name), name, at.child("name"), errors);
    }
    let subjects = Path::new("subjects");
    for (index, subject) in binding.list("subjects").iter().enumerate() {
        validate_subject(subject, is_namespaced, &subjects.index(index), errors);
    }
}

/// Declared rules come behind the written ones.
fn validate_names(binding: &Value, errors: &mut Errors) {
    let subjects = Path::new("subjects");
    for (index, _) in binding.list("subjects").iter().enumerate().filter(|(_, it)| it.text("name").is_empty()) {
        errors.required(subjects.index(index).child("name"), "");
    }
    if binding.field("roleRef").text("name").is_empty() {
        errors.required(Path::new("roleRef.name"), "");
    }
}

fn validate_binding_update(binding: &Value, old: &Value, is_namespaced: bool, errors: &mut Errors) {
    validate_binding(binding, is_namespaced, errors);
    meta::validate_update(binding, old, errors);
    let role = binding.field("roleRef");
    // Kubernetes shows the names of its struct here.
    let shown = || {
        let [group, kind, name] = ["apiGroup", "kind", "name"].map(|field| role.text(field));
        BadValue::Value(api::json!({"APIGroup": group, "Kind": kind, "Name": name}))
    };
    meta::immutable_shown(role, old.field("roleRef"), Path::new("roleRef"), shown, errors);
    validate_names(binding, errors);
}

fn validate_subject(subject: &Value, is_namespaced: bool, at: &Path<'_>, errors: &mut Errors) {
    let (name, group) = (subject.text("name"), subject.text("apiGroup"));
    match subject.text("kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                meta::invalid(names::dns1123_subdomain(name), name, at.child("name"), errors);
            }
            if !group.is_empty() {
                errors.not_supported(at.child("apiGroup"), group, &[""]);
            }
            if !is_namespaced && subject.text("namespace").is_empty() {
                errors.required(at.child("namespace"), "");
            }
        }
        "User" | "Group" => {
            if group != GROUP {
                errors.not_supported(at.child("apiGroup"), group, &[GROUP]);
            }
        }
        other => errors.not_supported(at.child("kind"), other, &["ServiceAccount", "User", "Group"]),
    }
}
