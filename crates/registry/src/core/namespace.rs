//! Namespaces.

use api::field::{Errors, Path};
use api::json::Value;
use api::names;
use api::well_known::LABEL_METADATA_NAME;

use crate::meta::{self, invalid, validate_finalizer_kind};
use crate::strategy::{Context, PLAIN, Part, Strategy};

pub(crate) const STRATEGY: Strategy = Strategy {
    prepare_create: |namespace, _| {
        namespace.set("status", api::json!({"phase": "Active"}));
        let spec = namespace.make("spec");
        let mut finalizers = spec.list("finalizers").to_vec();
        if !finalizers.iter().any(|it| it.as_str() == Some("kubernetes")) {
            finalizers.push("kubernetes".into());
            spec.set("finalizers", finalizers);
        }
    },
    validate_create: |namespace, _, errors| {
        meta::validate(namespace, false, names::dns1123_label, errors);
        let at = Path::new("spec.finalizers");
        for finalizer in namespace.field("spec").texts("finalizers") {
            invalid(names::qualified_name(finalizer), finalizer, at, errors);
            validate_finalizer_kind(finalizer, at, errors);
        }
    },
    prepare_update: |namespace, old, _| {
        let finalizers = old.field("spec").field("finalizers").clone();
        namespace.make("spec").set("finalizers", finalizers);
        namespace.set("status", old.field("status").clone());
    },
    validate_update: |namespace, old, _, errors| meta::validate_update(namespace, old, errors),
    canonicalize: |namespace| {
        let name = namespace.field("metadata").text("name").to_owned();
        namespace.make("metadata").make("labels").set(LABEL_METADATA_NAME, name);
    },
    subresources: &[
        (
            "status",
            Part {
                prepare: |namespace, old, _| namespace.set("spec", old.field("spec").clone()),
                validate: validate_status,
            },
        ),
        (
            "finalize",
            Part {
                prepare: |namespace, old, _| namespace.set("status", old.field("status").clone()),
                validate: validate_finalize,
            },
        ),
    ],
    ..PLAIN
};

fn validate_status(namespace: &Value, old: &Value, _: &Context<'_>, errors: &mut Errors) {
    meta::validate_update(namespace, old, errors);
    let phase = namespace.field("status").text("phase");
    let at = Path::new("status.Phase");
    if !namespace.field("metadata").has("deletionTimestamp") {
        if phase != "Active" {
            errors.invalid(at, phase, "may only be 'Active' if `deletionTimestamp` is empty");
        }
    } else if phase != "Terminating" {
        errors.invalid(at, phase, "may only be 'Terminating' if `deletionTimestamp` is not empty");
    }
}

fn validate_finalize(namespace: &Value, old: &Value, _: &Context<'_>, errors: &mut Errors) {
    meta::validate_update(namespace, old, errors);
    let list = Path::new("spec.finalizers");
    for (index, finalizer) in namespace.field("spec").texts("finalizers").enumerate() {
        invalid(names::qualified_name(finalizer), finalizer, list.index(index), errors);
        validate_finalizer_kind(finalizer, list.index(index), errors);
    }
}
