//! Kinds of which only the metadata and the schema are checked: a name, perhaps a generation, perhaps a status.
//!
//! Decoding sees to the schema. What else Kubernetes validates of these kinds is not known here.

use api::field::Errors;
use api::json::Value;
use api::names;

use crate::core::pod::prepare::{count_generation, reset_metadata};
use crate::document::same;
use crate::meta::{self, NameRule};
use crate::strategy::{Context, PLAIN, Part, Strategy};

/// The strategy of objects of which only the name is validated.
pub(crate) const NAMED: Strategy = of(validate_subdomain, None, STATUS);

/// The strategy of objects without a status, whose generation increases with each change outside the metadata.
pub(crate) const COUNTED: Strategy = Strategy {
    prepare_create: |object, _| object.make("metadata").set("generation", 1_i64),
    prepare_update: |object, old, _| count_changes(object, old, false),
    ..NAMED
};

/// The same, and changes of labels count as well.
pub(crate) const COUNTED_WITH_LABELS: Strategy =
    Strategy { prepare_update: |object, old, _| count_changes(object, old, true), ..COUNTED };

/// Objects with a status that users do not write.
pub(crate) const WITH_STATUS: Strategy = of(validate_subdomain, Some(false), STATUS);

/// The same, and status updates do not change metadata.
pub(crate) const WITH_STATUS_ALONE: Strategy = of(validate_subdomain, Some(false), STATUS_ALONE);

/// Objects with a status, and a generation that counts changes of the spec.
pub(crate) const WITH_GENERATION: Strategy = of(validate_subdomain, Some(true), STATUS);

/// The same, and status updates do not change metadata.
pub(crate) const WITH_GENERATION_AND_STATUS_ALONE: Strategy = of(validate_subdomain, Some(true), STATUS_ALONE);

type Parts = &'static [(&'static str, Part)];

/// Kubernetes: most kinds take metadata that is sent with a status.
const STATUS: Parts = &[(
    "status",
    Part {
        prepare: |object, old, _| object.set("spec", old.field("spec").clone()),
        validate: |object, old, _, errors| meta::validate_update(object, old, errors),
    },
)];

const STATUS_ALONE: Parts = &[(
    "status",
    Part {
        prepare: prepare_status_alone,
        validate: |object, old, _, errors| meta::validate_update(object, old, errors),
    },
)];

/// Keeps all but the status.
pub(crate) fn prepare_status_alone(object: &mut Value, old: &Value, _: &Context<'_>) {
    object.set("spec", old.field("spec").clone());
    reset_metadata(object, old);
}

/// `has_generation` is none for objects without a status.
const fn of(
    validate_create: fn(&Value, &Context<'_>, &mut Errors),
    has_generation: Option<bool>,
    parts: Parts,
) -> Strategy {
    let plain = Strategy {
        validate_create,
        validate_update: |object, old, _, errors| meta::validate_update(object, old, errors),
        ..PLAIN
    };
    match has_generation {
        None => plain,
        Some(false) => Strategy {
            prepare_create: |object, _| object.unset("status"),
            prepare_update: |object, old, _| object.set("status", old.field("status").clone()),
            subresources: parts,
            ..plain
        },
        Some(true) => Strategy {
            prepare_create: |object, _| {
                object.unset("status");
                object.make("metadata").set("generation", 1_i64);
            },
            prepare_update: |object, old, _| {
                object.set("status", old.field("status").clone());
                count_generation(object, old);
            },
            subresources: parts,
            ..plain
        },
    }
}

fn count_changes(object: &mut Value, old: &Value, with_labels: bool) {
    let content = |object: &Value| {
        let mut content = object.clone();
        ["kind", "apiVersion", "metadata"].into_iter().for_each(|name| content.unset(name));
        content
    };
    let labels = |object: &Value| object.field("metadata").field("labels").clone();
    if !same(&content(object), &content(old)) || with_labels && !same(&labels(object), &labels(old)) {
        let generation = old.field("metadata").int("generation").saturating_add(1);
        object.make("metadata").set("generation", generation);
    }
}

fn validate_subdomain(object: &Value, context: &Context<'_>, errors: &mut Errors) {
    validate(object, names::dns1123_subdomain, context, errors);
}

/// The scope of a kind shows in its objects: those without a namespace have been made so.
fn validate(object: &Value, rule: NameRule, _: &Context<'_>, errors: &mut Errors) {
    let is_namespaced = object.field("metadata").has("namespace");
    meta::validate(object, is_namespaced, rule, errors);
}
