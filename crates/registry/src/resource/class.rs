//! DeviceClasses.

use api::field::{Errors, Path};
use api::json::Value;
use api::names;

use super::claim::validate_selectors;
use super::{Findings, config};
use crate::document::same;
use crate::meta::{self, invalid};
use crate::strategy::{Context, PLAIN, Strategy};

pub(crate) const DEVICE_CLASS: Strategy = Strategy {
    prepare_create: |class, _| class.make("metadata").set("generation", 1_i64),
    validate_create: |class, context, errors| validate(class, None, context, errors),
    prepare_update: |class, old, _| crate::core::pod::prepare::count_generation(class, old),
    validate_update: |class, old, context, errors| {
        validate(class, Some(old), context, errors);
    },
    ..PLAIN
};

fn validate(class: &Value, old: Option<&Value>, context: &Context<'_>, errors: &mut Errors) {
    let mut findings = Findings::default();
    validate_name(class, &mut findings);
    if let Some(old) = old {
        meta::validate_update(class, old, &mut findings.written);
    }
    let (spec, at) = (class.field("spec"), Path::new("spec"));
    let is_stored = |name: &str| old.is_some_and(|old| same(spec.field(name), old.field("spec").field(name)));
    let selectors = at.child("selectors");
    validate_selectors(spec.list("selectors"), is_stored("selectors"), context, selectors, &mut findings);
    let list = at.child("config");
    if findings.fits(spec.list("config"), 32, list) {
        for (index, config) in spec.list("config").iter().enumerate() {
            config::validate(config, is_stored("config"), &list.index(index), &mut findings);
        }
    }
    if let Some(name) = spec.optional_text("extendedResourceName") {
        validate_extended_name(name, at.child("extendedResourceName"), &mut findings.declared);
    }
    findings.finish(errors);
}

/// The form of a class's name is a declarative rule; `generateName` is not validated.
fn validate_name(class: &Value, findings: &mut Findings) {
    let metadata = class.field("metadata");
    let at = Path::new("metadata");
    let mut common = metadata.clone();
    common.unset("generateName");
    meta::validate_common(&common, false, |_| Vec::new(), &at, &mut findings.written);
    let list = at.child("finalizers");
    for (index, finalizer) in metadata.texts("finalizers").enumerate() {
        meta::validate_finalizer_kind(finalizer, list.index(index), &mut findings.written);
    }
    let name = metadata.text("name");
    if !name.is_empty() {
        invalid(names::long_name(name), name, at.child("name"), &mut findings.declared);
    }
}

fn validate_extended_name(name: &str, at: Path<'_>, errors: &mut Errors) {
    if !name.contains('/') {
        errors.invalid(at, name, "a name must be a domain-prefixed path, such as 'example.com/my-prop'");
    } else if name.contains("kubernetes.io/") {
        errors.invalid(at, name, "must not have \"kubernetes.io/\" domain");
    }
    if name.starts_with("requests.") {
        errors.invalid(at, name, "must not have \"requests.\" prefix");
    }
    for complaint in names::qualified_name(&format!("requests.{name}")) {
        errors.invalid(at, name, complaint);
    }
}
