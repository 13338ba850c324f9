//! Kinds of `resource.k8s.io`: ResourceClaims, their templates, DeviceClasses, ResourceSlices, DeviceTaintRules and ResourcePoolStatusRequests.
//!
//! Kubernetes has handwritten and declarative rules for these kinds: errors that are covered by declarative
//! rules are reported by them, after the other errors of the handwritten ones. [`Findings`] keeps the two
//! apart. `constraints[].cel` follows KEP-5254.

mod claim;
mod class;
mod config;
mod pool_status;
mod slice;
mod status;
mod taint_rule;

use api::field::{BadValue, Errors, Path};
use api::json::Value;
use api::names;
use api::well_known::{EFFECT_NO_EXECUTE, EFFECT_NO_SCHEDULE};

use crate::document::without_empty;
use crate::meta::invalid;
use crate::seen::SeenKeys;

pub(crate) use self::claim::{CLAIM, CLAIM_TEMPLATE, validate_added_constraints};
pub(crate) use self::class::DEVICE_CLASS;
pub(crate) use self::pool_status::POOL_STATUS_REQUEST;
pub(crate) use self::slice::RESOURCE_SLICE;
pub(crate) use self::taint_rule::TAINT_RULE;

const TAINT_EFFECTS: &[&str] = &[EFFECT_NO_EXECUTE, EFFECT_NO_SCHEDULE, "None"];

/// Errors of written rules, and those of declared rules, which come behind them.
#[derive(Default)]
struct Findings {
    written: Errors,
    declared: Errors,
}

impl Findings {
    fn finish(self, errors: &mut Errors) {
        errors.append(self.written);
        errors.append(self.declared);
    }

    /// Whether a list has at most `max` items; declared.
    fn fits(&mut self, list: &[Value], max: usize, at: Path<'_>) -> bool {
        if list.len() > max {
            self.declared.too_many(at, Some(list.len()), max);
        }
        list.len() <= max
    }

    /// Items that occur twice by `key`; declared.
    fn unique<'a>(&mut self, list: &'a [Value], at: &Path<'_>, key: impl Fn(&'a Value) -> &'a str) {
        let mut seen = SeenKeys::default();
        for (index, item) in list.iter().enumerate() {
            let key = key(item);
            if seen.contains(&key) {
                self.declared.duplicate(at.index(index), without_empty(item));
            } else {
                seen.insert(key);
            }
        }
    }
}

/// Validates the name of a driver, with the texts of declarative rules.
pub(crate) fn validate_driver(name: &str, at: Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        errors.required(at, "");
        return;
    }
    validate_driver_form(name, at, errors);
    if name.len() > 63 {
        errors.too_long_characters(at, 63);
    }
}

/// Validates the form of a driver's name, with the texts of declarative rules.
fn validate_driver_form(name: &str, at: Path<'_>, errors: &mut Errors) {
    let is_caseless = names::is_dns_subdomain(&name.to_ascii_lowercase());
    if name.len() > 253 {
        errors.invalid(at, name, "must be no more than 253 bytes");
    }
    if !is_caseless {
        errors.invalid(at, name, "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'Example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')");
    }
}

/// A domain and a name; declared rules and written ones differ in their words.
fn validate_qualified_name(name: &str, is_declared: bool, at: Path<'_>, errors: &mut Errors) {
    let identifier = |id: &str, errors: &mut Errors| {
        if id.len() > 32 {
            errors.too_long(at, 32);
        }
        for complaint in names::c_identifier(id) {
            errors.invalid(at, id, complaint);
        }
    };
    let Some((domain, id)) = name.split_once('/') else {
        return identifier(name, errors);
    };
    if id.contains('/') {
        return;
    }
    if domain.is_empty() {
        errors.invalid(at, "", if is_declared { "prefix must not be empty" } else { "the domain must not be empty" });
    } else if is_declared {
        if domain.len() > 63 {
            errors.too_long(at, 63);
        }
        for complaint in names::long_name(domain) {
            errors.invalid(at, domain, format!("prefix: {complaint}"));
        }
    } else {
        crate::core::volume_sources::validate_driver_name(domain, at, errors);
    }
    if id.is_empty() {
        errors.invalid(at, "", if is_declared { "name must not be empty" } else { "the name must not be empty" });
    } else {
        identifier(id, errors);
    }
}

/// A name that must have a domain; declared.
fn validate_full_name(name: &str, at: Path<'_>, errors: &mut Errors) {
    validate_qualified_name(name, true, at, errors);
    if !name.contains('/') {
        errors.invalid(at, name, "a fully qualified name must be a domain and a name separated by a slash");
    }
}

/// A toleration of device taints.
fn validate_toleration(toleration: &Value, at: &Path<'_>, findings: &mut Findings) {
    let value = toleration.text("value");
    match toleration.text("operator") {
        "Exists" if !value.is_empty() => {
            findings.written.invalid(at.child("value"), value, "must be empty for operator `Exists`");
        }
        "Equal" => invalid(names::label_value(value), value, at.child("value"), &mut findings.written),
        _ => {}
    }
    let key = toleration.text("key");
    if !key.is_empty() {
        invalid(names::qualified_name(key), key, at.child("key"), &mut findings.declared);
    }
    match toleration.text("operator") {
        "Exists" | "Equal" => {}
        "" => findings.declared.required(at.child("operator"), ""),
        other => findings.declared.not_supported(at.child("operator"), other, &["Equal", "Exists"]),
    }
    let effect = toleration.text("effect");
    if !effect.is_empty() && !TAINT_EFFECTS.contains(&effect) {
        findings.declared.not_supported(at.child("effect"), effect, TAINT_EFFECTS);
    }
}

/// The name of a pool.
fn validate_pool_name(name: &str, at: Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        errors.required(at, "");
        return;
    }
    if name.len() > 253 {
        errors.too_long(at, 253);
    }
    for part in name.split('/') {
        invalid(names::dns1123_subdomain(part), part, at, errors);
    }
}

/// Conditions that must be met, or must not, before a pod is bound.
fn validate_binding_conditions(device: &Value, at: &Path<'_>, findings: &mut Findings) {
    let lists = ["bindingConditions", "bindingFailureConditions"];
    let required: SeenKeys<&str> = device.texts("bindingConditions").collect();
    for name in lists {
        let here = at.child(name);
        if findings.fits(device.list(name), 4, here) {
            for (index, condition) in device.texts(name).enumerate() {
                invalid(names::qualified_name(condition), condition, here.index(index), &mut findings.written);
            }
        }
    }
    for name in lists {
        let here = at.child(name);
        let mut seen = SeenKeys::default();
        for (index, condition) in device.texts(name).enumerate() {
            if !seen.insert(condition) {
                findings.written.duplicate(here.index(index), condition);
            }
            if name == "bindingFailureConditions" && required.contains(&condition) {
                let detail = "bindingFailureConditions must not overlap with bindingConditions";
                findings.written.invalid(here.index(index), condition, detail);
            }
        }
    }
    let is_empty = |name: &str| device.list(name).is_empty();
    let null = || BadValue::Rendered("null".to_owned());
    if is_empty("bindingConditions") && !is_empty("bindingFailureConditions") {
        let detail = "bindingConditions are required to use bindingFailureConditions";
        findings.written.invalid(at.child("bindingConditions"), null(), detail);
    }
    if is_empty("bindingFailureConditions") && !is_empty("bindingConditions") {
        let detail = "bindingFailureConditions are required to use bindingConditions";
        findings.written.invalid(at.child("bindingFailureConditions"), null(), detail);
    }
}
