//! Kinds of `storage.k8s.io`: classes of storage and of attributes, drivers, what nodes have of them, attachments and capacities.
//!
//! Follows `pkg/apis/storage/validation` and the strategies of these kinds.

mod attachment;
mod capacity;
mod driver;
mod node;

use std::collections::{BTreeMap, BTreeSet};

use api::field::{BadValue, Errors, Path};
use api::json::Value;
use api::names;

use crate::core::pod::warnings::deprecated_label;
use crate::document::same;
use crate::meta::{self, IMMUTABLE, invalid, validate_label_name};
use crate::strategy::{Context, PLAIN, Strategy};

pub(crate) use self::attachment::ATTACHMENT;
pub(crate) use self::capacity::CAPACITY;
pub(crate) use self::driver::DRIVER;
pub(crate) use self::node::NODE;

pub(crate) const STORAGE_CLASS: Strategy = Strategy {
    validate_create: |class, context, errors| {
        validate_written(class, context, errors);
        validate_declared(class, errors);
    },
    validate_update: |class, old, context, errors| {
        validate_written(class, context, errors);
        meta::validate_update(class, old, errors);
        for name in ["provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"] {
            if !same(class.field(name), old.field(name)) {
                if name == "provisioner" {
                    validate_declared(class, errors);
                }
                // Kubernetes shows no value here.
                errors.invalid(Path::new(name), BadValue::Value(Value::Null), IMMUTABLE);
            }
        }
    },
    warn: |class, _, _| {
        let mut warnings = Vec::new();
        let list = Path::new("allowedTopologies");
        for (index, term) in class.list("allowedTopologies").iter().enumerate() {
            let here = list.index(index);
            let list = here.child("matchLabelExpressions");
            for (index, requirement) in term.list("matchLabelExpressions").iter().enumerate() {
                if let Some(message) = deprecated_label(requirement.text("key")) {
                    warnings.push(format!("{}: {message}", list.index(index).child("key")));
                }
            }
        }
        warnings
    },
    ..PLAIN
};

pub(crate) const ATTRIBUTES_CLASS: Strategy = Strategy {
    validate_create: |class, _, errors| validate_attributes(class, errors),
    validate_update: |class, old, _, errors| {
        meta::validate_update(class, old, errors);
        for name in ["driverName", "parameters"] {
            if !same(class.field(name), old.field(name)) {
                errors.forbidden(Path::new(name), format!("updates to {name} are forbidden."));
            }
        }
        validate_attributes(class, errors);
    },
    ..PLAIN
};

fn validate_attributes(class: &Value, errors: &mut Errors) {
    meta::validate(class, false, names::dns1123_subdomain, errors);
    match class.text("driverName") {
        "" => errors.required(Path::new("driverName"), ""),
        driver => validate_provisioner(driver, Path::new("driverName"), errors),
    }
    validate_parameters(class, errors);
    if class.map("parameters").is_empty() {
        errors.required(Path::new("parameters"), "must contain at least one key/value pair");
    }
}

/// Declared rules come behind the written ones.
fn validate_declared(class: &Value, errors: &mut Errors) {
    if class.text("provisioner").is_empty() {
        errors.required(Path::new("provisioner"), "");
    }
}

fn validate_written(class: &Value, _: &Context<'_>, errors: &mut Errors) {
    meta::validate(class, false, names::dns1123_subdomain, errors);
    let provisioner = class.text("provisioner");
    if !provisioner.is_empty() {
        validate_provisioner(provisioner, Path::new("provisioner"), errors);
    }
    validate_parameters(class, errors);
    let policy = class.text("reclaimPolicy");
    if !policy.is_empty() && !matches!(policy, "Delete" | "Retain") {
        errors.not_supported(Path::new("reclaimPolicy"), policy, &["Delete", "Retain"]);
    }
    match class.optional_text("volumeBindingMode") {
        None => errors.required(Path::new("volumeBindingMode"), ""),
        Some("Immediate" | "WaitForFirstConsumer") => {}
        Some(other) => {
            let modes = &["Immediate", "WaitForFirstConsumer"];
            errors.not_supported(Path::new("volumeBindingMode"), other, modes);
        }
    }
    validate_topologies(class.list("allowedTopologies"), errors);
}

fn validate_provisioner(name: &str, at: Path<'_>, errors: &mut Errors) {
    let lower = name.to_lowercase();
    invalid(names::qualified_name(&lower), &lower, at, errors);
}

fn validate_parameters(class: &Value, errors: &mut Errors) {
    let (parameters, at) = (class.map("parameters"), Path::new("parameters"));
    if parameters.len() > 512 {
        errors.too_long(at, 512);
        return;
    }
    let mut size = 0_usize;
    for (key, value) in parameters.iter() {
        if key.is_empty() {
            errors.invalid(at, key, "field can not be empty.");
        }
        size = size.saturating_add(key.len()).saturating_add(value.as_str().unwrap_or_default().len());
    }
    if size > 256 * 1024 {
        errors.too_long(at, 256 * 1024);
    }
}

fn validate_topologies(terms: &[Value], errors: &mut Errors) {
    let at = Path::new("allowedTopologies");
    // Requirements as sets; Kubernetes compares with as many empty ones as there are terms, too.
    let mut seen: BTreeMap<BTreeMap<&str, BTreeSet<&str>>, usize> = BTreeMap::from([(BTreeMap::new(), terms.len())]);
    for (index, term) in terms.iter().enumerate() {
        let here = at.index(index);
        let list = here.child("matchLabelExpressions");
        let mut sets: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (index, requirement) in term.list("matchLabelExpressions").iter().enumerate() {
            let here = list.index(index);
            let values = here.child("values");
            if requirement.list("values").is_empty() {
                errors.required(values, "");
            }
            let mut set = BTreeSet::new();
            for (index, value) in requirement.texts("values").enumerate() {
                if !set.insert(value) {
                    errors.duplicate(values.index(index), value);
                }
            }
            let key = requirement.text("key");
            validate_label_name(key, here.child("key"), errors);
            if sets.insert(key, set).is_some() {
                errors.duplicate(here.child("key"), key);
            }
        }
        let before = seen.entry(sets).or_default();
        for _ in 0..*before {
            if errors.is_full() {
                break;
            }
            errors.duplicate(list, "");
        }
        *before = before.saturating_add(1);
    }
}
