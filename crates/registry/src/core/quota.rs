//! Quotas of namespaces and ranges of limits: which resources they name, and how their amounts fit together.
//!
//! Follows `ValidateResourceQuota` and `ValidateLimitRange` of `pkg/apis/core/validation`.

use std::collections::BTreeSet;

use api::Quantity;
use api::field::{Errors, Path};
use api::json::{Lookup, Object, Value};
use api::names;

use super::resource_names::{
    amounts, is_countable, is_overcommit_allowed, validate_amount, validate_container_name, validate_name,
};
use crate::meta::{self, IMMUTABLE, invalid};
use crate::render;
use crate::strategy::{PLAIN, Part, Strategy};

pub(crate) const QUOTA: Strategy = Strategy {
    prepare_create: |quota, _| quota.set("status", Value::object()),
    validate_create: |quota, _, errors| {
        meta::validate(quota, true, names::dns1123_subdomain, errors);
        validate_quota(quota.field("spec"), errors);
    },
    prepare_update: |quota, old, _| quota.set("status", old.field("status").clone()),
    validate_update: |quota, old, _, errors| {
        meta::validate_update(quota, old, errors);
        let (spec, at) = (quota.field("spec"), Path::new("spec"));
        validate_quota(spec, errors);
        let scopes = |spec: &Value| spec.texts("scopes").map(str::to_owned).collect::<BTreeSet<_>>();
        if scopes(spec) != scopes(old.field("spec")) {
            errors.invalid(at.child("scopes"), spec.field("scopes").clone(), IMMUTABLE);
        }
    },
    subresources: &[(
        "status",
        Part {
            prepare: |quota, old, _| quota.set("spec", old.field("spec").clone()),
            validate: |quota, old, _, errors| {
                meta::validate_update(quota, old, errors);
                let (status, at) = (quota.field("status"), Path::new("status"));
                validate_amounts(status.map("hard"), at.child("hard"), errors);
                validate_amounts(status.map("used"), at.child("used"), errors);
            },
        },
    )],
    ..PLAIN
};

pub(crate) const LIMIT_RANGE: Strategy = Strategy {
    validate_create: |range, _, errors| {
        meta::validate(range, true, names::dns1123_subdomain, errors);
        validate_range(range, errors);
    },
    validate_update: |range, _, _, errors| {
        meta::validate(range, true, names::dns1123_subdomain, errors);
        validate_range(range, errors);
    },
    ..PLAIN
};

const SCOPES: &[&str] = &[
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "VolumeAttributesClass",
    "CrossNamespacePodAffinity",
];

const CONFLICTS: [[&str; 2]; 2] = [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]];

fn is_standard(name: &str) -> bool {
    is_countable(name) || name.starts_with("hugepages-") || name.starts_with("requests.hugepages-")
}

/// Whether objects of a scope use a resource.
fn fits(scope: &str, resource: &str) -> bool {
    let of_pods =
        ["cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"].contains(&resource);
    match scope {
        "Terminating" | "NotTerminating" | "NotBestEffort" | "PriorityClass" | "CrossNamespacePodAffinity" => {
            resource == "pods" || of_pods
        }
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => matches!(resource, "persistentvolumeclaims" | "requests.storage"),
        _ => true,
    }
}

fn validate_amounts(list: &Object, at: Path<'_>, errors: &mut Errors) {
    for (name, amount) in amounts(list) {
        let here = at.key(name);
        validate_name(name, here, errors);
        if !name.contains('/') && !is_standard(name) {
            errors.invalid(here, name, "must be a standard resource for quota");
        }
        validate_amount(name, &amount, here, errors);
    }
}

fn validate_quota(spec: &Value, errors: &mut Errors) {
    let at = Path::new("spec");
    validate_amounts(spec.map("hard"), at.child("hard"), errors);
    let shown = || spec.field("scopes").clone();
    let here = at.child("scopes");
    for scope in spec.texts("scopes") {
        if !SCOPES.contains(&scope) {
            errors.invalid(here, shown(), "unsupported scope");
        }
        for _ in misfits(spec, scope) {
            errors.invalid(here, shown(), "unsupported scope applied to resource");
        }
    }
    validate_conflicts(&spec.texts("scopes").collect::<Vec<_>>(), spec, here, errors);
    if let Some(selector) = spec.optional("scopeSelector") {
        let at = at.child("scopeSelector");
        validate_scope_selector(spec, selector, at.child("matchExpressions"), errors);
    }
}

/// The limited resources to which a scope does not apply.
fn misfits<'a>(spec: &'a Value, scope: &'a str) -> impl Iterator<Item = &'a str> {
    let names = spec.map("hard").iter().map(|(name, _)| name);
    names.filter(move |name| is_standard(name) && !fits(scope, name))
}

fn validate_conflicts(scopes: &[&str], spec: &Value, at: Path<'_>, errors: &mut Errors) {
    for _ in CONFLICTS.iter().filter(|pair| pair.iter().all(|scope| scopes.contains(scope))) {
        errors.invalid(at, spec.field("scopes").clone(), "conflicting scopes");
    }
}

fn validate_scope_selector(spec: &Value, selector: &Value, at: Path<'_>, errors: &mut Errors) {
    let mut scopes = Vec::new();
    for requirement in selector.list("matchExpressions") {
        let (scope, operator) = (requirement.text("scopeName"), requirement.text("operator"));
        if !SCOPES.contains(&scope) {
            errors.invalid(at.child("scopeName"), scope, "unsupported scope");
        }
        for _ in misfits(spec, scope) {
            let shown = render::internal("k8s.io/api/core/v1", "ScopeSelector", selector);
            errors.invalid(at, shown, "unsupported scope applied to resource");
        }
        let only_exists = SCOPES.contains(&scope) && !matches!(scope, "PriorityClass" | "VolumeAttributesClass");
        if only_exists && operator != "Exists" {
            let detail = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            errors.invalid(at.child("operator"), operator, detail);
        }
        let has_values = !requirement.list("values").is_empty();
        match operator {
            "In" | "NotIn" if !has_values => {
                let detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                errors.required(at.child("values"), detail);
            }
            "Exists" | "DoesNotExist" if has_values => {
                let detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                errors.invalid(at.child("values"), requirement.field("values").clone(), detail);
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => errors.invalid(at.child("operator"), operator, "not a valid selector operator"),
        }
        scopes.push(scope);
    }
    validate_conflicts(&scopes, spec, at, errors);
}

fn validate_range(range: &Value, errors: &mut Errors) {
    let at = Path::new("spec");
    let at = at.child("limits");
    let mut seen = BTreeSet::new();
    for (index, limit) in range.field("spec").list("limits").iter().enumerate() {
        let here = at.index(index);
        let of = limit.text("type");
        let complaints = names::qualified_name(of);
        if complaints.is_empty() && !of.contains('/') && !matches!(of, "Pod" | "Container" | "PersistentVolumeClaim") {
            errors.invalid(here.child("type"), of, "must be a standard limit type or fully qualified");
        }
        invalid(complaints, of, here.child("type"), errors);
        if !seen.insert(of) {
            errors.duplicate(here.child("type"), of);
        }
        validate_limit(limit, of, &here, errors);
    }
}

/// Fields of a limit.
const LIMITS: [&str; 5] = ["min", "max", "default", "defaultRequest", "maxLimitRequestRatio"];

fn validate_limit(limit: &Value, of: &str, at: &Path<'_>, errors: &mut Errors) {
    let mut keys = BTreeSet::new();
    let mut names_of = |field: &'static str, errors: &mut Errors| {
        let here = at.child(field);
        for (name, _) in limit.map(field).iter() {
            if matches!(of, "Pod" | "Container") {
                validate_container_name(name, here.key(name), errors);
            } else {
                validate_name(name, here.key(name), errors);
            }
            keys.insert(name.to_owned());
        }
    };
    names_of("max", errors);
    names_of("min", errors);
    for field in ["default", "defaultRequest"] {
        if of != "Pod" {
            names_of(field, errors);
        } else if !limit.map(field).is_empty() {
            errors.forbidden(at.child(field), "may not be specified when `type` is 'Pod'");
        }
    }
    let has_storage = |field: &str| limit.map(field).get("storage").is_some();
    if of == "PersistentVolumeClaim" && !has_storage("min") && !has_storage("max") {
        let detail = "either minimum or maximum storage value is required, but neither was provided";
        errors.required(at.child("limits"), detail);
    }
    names_of("maxLimitRequestRatio", errors);
    let fields = LIMITS.map(|field| (field, Lookup::new(limit.map(field))));
    let amount = |field: &str, key: &str| {
        let (_, amounts) = fields.iter().find(|(name, _)| *name == field)?;
        amounts.get(key).and_then(Value::as_quantity)
    };
    for key in &keys {
        validate_limited(&|field| amount(field, key), of, key, at, errors);
    }
}

/// Validates the consistency of one resource's limits.
fn validate_limited(
    amount: &dyn Fn(&str) -> Option<Quantity>,
    of: &str,
    key: &str,
    at: &Path<'_>,
    errors: &mut Errors,
) {
    let default_of = |field: &str| if of == "Pod" { None } else { amount(field) };
    let (min, max) = (amount("min"), amount("max"));
    let (default, request) = (default_of("default"), default_of("defaultRequest"));
    // Where, what is shown, and the smaller and the larger amount with their names.
    let orders = [
        ("min", &min, ("min", &min), ("max", &max)),
        ("defaultRequest", &request, ("min", &min), ("default request", &request)),
        ("defaultRequest", &request, ("default request", &request), ("max", &max)),
        ("defaultRequest", &request, ("default request", &request), ("default limit", &default)),
        ("default", &min, ("min", &min), ("default", &default)),
        ("default", &max, ("default", &default), ("max", &max)),
    ];
    for (field, shown, (small, smaller), (large, larger)) in orders {
        if let (Some(shown), Some(smaller), Some(larger)) = (shown, smaller, larger)
            && smaller > larger
        {
            let detail = format!("{small} value {smaller} is greater than {large} value {larger}");
            errors.invalid(at.child(field).key(key), shown.to_string(), detail);
        }
    }
    if let Some(ratio) = amount("maxLimitRequestRatio") {
        let here = at.child("maxLimitRequestRatio");
        if ratio.milli_value() < 1000 {
            errors.invalid(here.key(key), ratio.to_string(), format!("ratio {ratio} is less than 1"));
        }
        if let (Some(min), Some(max)) = (&min, &max) {
            let largest = max.as_approximate_f64() / min.as_approximate_f64();
            if ratio.as_approximate_f64() > largest {
                let detail = format!("ratio {ratio} is greater than max/min = {largest:.6}");
                errors.invalid(here.key(key), ratio.to_string(), detail);
            }
        }
    }
    if let (false, Some(default), Some(request)) = (is_overcommit_allowed(key), &default, &request)
        && Quantity::cmp(default, request).is_ne()
    {
        let detail = format!("default value {default} must equal to defaultRequest value {request} in {key}");
        errors.invalid(at.child("defaultRequest").key(key), request.to_string(), detail);
    }
}
