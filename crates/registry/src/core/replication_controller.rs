//! Replication controllers, and templates of pods that stand alone.
//!
//! Follows `ValidateReplicationController` and `ValidatePodTemplate` of `pkg/apis/core/validation`.

use api::field::{BadValue, Errors, Path};
use api::json::Value;
use api::names;

use crate::apps::{validate_long_running, validate_replica_status};
use crate::core::pod::options::Options;
use crate::core::pod::prepare::drop_disabled_fields;
use crate::core::pod::{spec as pod_spec, warnings};
use crate::document::same;
use crate::meta::{self, non_negative};
use crate::strategy::{Context, PLAIN, Part, Strategy};
use crate::workload::{self, template_options};

pub(crate) const CONTROLLER: Strategy = Strategy {
    prepare_create: |controller, context| {
        let has_template = controller.field("spec").has("template");
        workload::prepare_create(controller, context);
        keep_missing(controller, has_template);
    },
    validate_create: |controller, context, errors| {
        meta::validate(controller, true, names::long_name, errors);
        validate_controller(controller, None, context, errors);
    },
    prepare_update: |controller, old, context| {
        let has_template = controller.field("spec").has("template");
        workload::prepare_update(controller, old, context);
        keep_missing(controller, has_template);
    },
    validate_update: |controller, old, context, errors| {
        meta::validate_update(controller, old, errors);
        validate_controller(controller, Some(old), context, errors);
    },
    warn: workload::warn_with_name,
    subresources: &[(
        "status",
        Part {
            prepare: |it, old, _| workload::keep_spec(it, old),
            validate: |it, old, _, errors| {
                validate_replica_status(it, old, "cannot be greater than readyReplicas", errors);
            },
        },
    )],
    ..PLAIN
};

pub(crate) const TEMPLATE: Strategy = Strategy {
    prepare_create: |template, _| {
        template.make("metadata").set("generation", 1_i64);
        drop_fields(template, None);
    },
    validate_create: |template, context, errors| {
        meta::validate(template, true, names::dns1123_subdomain, errors);
        validate_template(template, None, context, errors);
    },
    prepare_update: |template, old, _| {
        drop_fields(template, Some(old));
        if !same(template.field("template"), old.field("template")) {
            let generation = old.field("metadata").int("generation").saturating_add(1);
            template.make("metadata").set("generation", generation);
        }
    },
    validate_update: |template, old, context, errors| {
        meta::validate_update(template, old, errors);
        validate_template(template, Some(old), context, errors);
    },
    warn: |template, old, _| match old {
        Some(old) if same(template.field("template"), old.field("template")) => Vec::new(),
        _ => warnings::template(template.field("template"), &Path::new("template")),
    },
    ..PLAIN
};

/// A template is not made where none was given, as other workloads make it.
fn keep_missing(controller: &mut Value, has_template: bool) {
    if !has_template {
        controller.make("spec").unset("template");
    }
}

fn validate_controller(controller: &Value, old: Option<&Value>, context: &Context<'_>, errors: &mut Errors) {
    let (spec, at) = (controller.field("spec"), Path::new("spec"));
    let selector = spec.map("selector");
    if selector.is_empty() {
        errors.required(at.child("selector"), "");
    }
    let here = at.child("template");
    match spec.optional("template") {
        None => errors.required(here, ""),
        Some(template) => {
            let labels = template.field("metadata").map("labels");
            if selector.iter().any(|(key, value)| labels.get(key) != Some(value)) {
                let shown = match template.field("metadata").field("labels") {
                    Value::Null => BadValue::Rendered("null".to_owned()),
                    labels => labels.clone().into(),
                };
                let here = here.child("metadata");
                errors.invalid(here.child("labels"), shown, "`selector` does not match template `labels`");
            }
            pod_spec::validate_template(template, &template_options(old, context), &here, errors);
            validate_long_running(template, "ReplicationController", &here, errors);
        }
    }
    for name in ["replicas", "minReadySeconds"] {
        non_negative(spec.int(name), at.child(name), errors);
    }
}

fn validate_template(template: &Value, old: Option<&Value>, context: &Context<'_>, errors: &mut Errors) {
    let old = old.map(|old| old.field("template"));
    let options = Options::new(old.map(|it| it.field("spec")), old.map(|it| it.field("metadata")), false, context);
    pod_spec::validate_template(template.field("template"), &options, &Path::new("template"), errors);
}

fn drop_fields(template: &mut Value, old: Option<&Value>) {
    let old = old.map(|old| old.field("template").field("spec"));
    if let Some(spec) = template.make("template").get_mut("spec") {
        drop_disabled_fields(spec, old);
    }
}
