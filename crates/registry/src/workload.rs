//! Common parts of workloads: a pod template, a generation, a status that only controllers write.

use api::field::Path;
use api::json::Value;
use api::names;

use crate::core::pod::options::Options;
use crate::core::pod::prepare::{count_generation, drop_disabled_fields};
use crate::core::pod::warnings;
use crate::strategy::Context;

/// A new workload has no status and is the first generation of itself.
pub(crate) fn prepare_create(object: &mut Value, _: &Context<'_>) {
    object.set("status", Value::object());
    object.make("metadata").set("generation", 1_i64);
    drop_template_fields(object, None);
}

/// A changed workload keeps its status and counts its generation.
pub(crate) fn prepare_update(object: &mut Value, old: &Value, _: &Context<'_>) {
    object.set("status", old.field("status").clone());
    drop_template_fields(object, Some(old));
    count_generation(object, old);
}

/// Drops fields of the template whose gate is off.
pub(crate) fn drop_template_fields(object: &mut Value, old: Option<&Value>) {
    let old = old.map(|old| old.field("spec").field("template").field("spec"));
    if let Some(spec) = object.make("spec").make("template").get_mut("spec") {
        drop_disabled_fields(spec, old);
    }
}

/// The status changes, the spec does not.
pub(crate) fn keep_spec(object: &mut Value, old: &Value) {
    object.set("spec", old.field("spec").clone());
}

/// Options for the validation of a template.
pub(crate) fn template_options<'a>(old: Option<&'a Value>, context: &'a Context<'a>) -> Options<'a> {
    let template = old.map(|old| old.field("spec").field("template"));
    Options::new(template.map(|it| it.field("spec")), template.map(|it| it.field("metadata")), false, context)
}

/// Warnings about the template, if it is new or the workload changed.
pub(crate) fn warn_template(object: &Value, old: Option<&Value>, _: &Context<'_>) -> Vec<String> {
    let generation = |it: &Value| it.field("metadata").int("generation");
    if old.is_some_and(|old| generation(old) == generation(object)) {
        return Vec::new();
    }
    warnings::template(object.field("spec").field("template"), &Path::new("spec.template"))
}

/// As [`warn_template`], and about names that pods cannot take over.
pub(crate) fn warn_with_name(object: &Value, old: Option<&Value>, context: &Context<'_>) -> Vec<String> {
    let mut warnings = warn_name(object, old);
    warnings.extend(warn_template(object, old, context));
    warnings
}

/// Warnings about the name of a new workload, if pods cannot take it over.
pub(crate) fn warn_name(object: &Value, old: Option<&Value>) -> Vec<String> {
    let complaints = names::dns1123_label(object.field("metadata").text("name"));
    if old.is_some() || complaints.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [{}]",
        complaints.join(" ")
    )]
}
