//! `DeviceTaintRule`: which devices are tainted, and how.

use api::field::{Errors, Path};
use api::json::Value;
use api::names;

use super::{TAINT_EFFECTS, validate_pool_name};
use crate::conditions;
use crate::core::volume_sources::validate_driver_name;
use crate::generic;
use crate::meta::{self, invalid, validate_label_name};
use crate::strategy::{Part, Strategy};

const CONDITIONS_MAX: usize = 8;

pub(crate) const TAINT_RULE: Strategy = Strategy {
    validate_create: |rule, _, errors| {
        meta::validate(rule, false, names::dns1123_subdomain, errors);
        validate(rule, None, errors);
    },
    validate_update: |rule, old, _, errors| {
        meta::validate_update(rule, old, errors);
        validate(rule, Some(old), errors);
    },
    subresources: &[(
        "status",
        Part {
            prepare: |rule, old, _| {
                rule.set("spec", old.field("spec").clone());
                crate::core::pod::prepare::reset_metadata(rule, old);
            },
            validate: |rule, old, _, errors| {
                meta::validate_update(rule, old, errors);
                let status = Path::new("status");
                let (list, at) = (rule.field("status").list("conditions"), status.child("conditions"));
                conditions::validate(list, &at, errors);
                if list.len() > CONDITIONS_MAX {
                    errors.too_many(at, Some(list.len()), CONDITIONS_MAX);
                }
            },
        },
    )],
    ..generic::WITH_GENERATION_AND_STATUS_ALONE
};

fn validate(rule: &Value, old: Option<&Value>, errors: &mut Errors) {
    let (spec, at) = (rule.field("spec"), Path::new("spec"));
    let (selector, here) = (spec.field("deviceSelector"), at.child("deviceSelector"));
    if let Some(driver) = selector.optional_text("driver") {
        validate_driver_name(driver, here.child("driver"), errors);
    }
    if let Some(pool) = selector.optional_text("pool") {
        validate_pool_name(pool, here.child("pool"), errors);
    }
    if let Some(device) = selector.optional_text("device") {
        invalid(names::dns1123_label(device), device, here.child("device"), errors);
    }
    let (taint, here) = (spec.field("taint"), at.child("taint"));
    validate_label_name(taint.text("key"), here.child("key"), errors);
    let (value, effect) = (taint.text("value"), taint.text("effect"));
    if !value.is_empty() {
        invalid(names::label_value(value), value, here.child("value"), errors);
    }
    // A declared rule: it comes last, and lets stay what was accepted once.
    if old.is_some_and(|old| old.field("spec").field("taint").text("effect") == effect) {
        return;
    }
    if effect.is_empty() {
        errors.required(here.child("effect"), "");
    } else if !TAINT_EFFECTS.contains(&effect) {
        errors.not_supported(here.child("effect"), effect, TAINT_EFFECTS);
    }
}
