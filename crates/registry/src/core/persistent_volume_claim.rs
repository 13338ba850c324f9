//! PersistentVolumeClaims.

use std::cmp::Ordering;

use api::Quantity;
use api::field::{Errors, Path};
use api::json::Value;
use api::names;
use api::quantity::Format;
use api::well_known::ANNOTATION_STORAGE_CLASS_BETA;

use super::resource_names::{self, amounts, is_native};
use super::volume_claim::{Lenience, validate_spec};
use crate::document::same;
use crate::meta::{self, IMMUTABLE, invalid};
use crate::strategy::{Context, PLAIN, Part, Strategy};

pub(crate) const STRATEGY: Strategy = Strategy {
    prepare_create: |claim, _| {
        claim.set("status", Value::object());
        normalize_sources(claim.make("spec"), None);
    },
    validate_create: |claim, _, errors| {
        meta::validate(claim, true, names::dns1123_subdomain, errors);
        validate_spec(claim.field("spec"), Lenience::default(), &Path::new("spec"), errors);
    },
    prepare_update: |claim, old, _| {
        claim.set("status", old.field("status").clone());
        normalize_sources(claim.make("spec"), Some(old.field("spec")));
    },
    validate_update,
    warn: |claim, _, _| warnings(claim),
    subresources: &[(
        "status",
        Part {
            prepare: |claim, old, _| {
                claim.set("spec", old.field("spec").clone());
                // An upstream gate that is off.
                if !old.field("status").has("healthStatus") {
                    claim.make("status").unset("healthStatus");
                }
            },
            validate: validate_status,
        },
    )],
    ..PLAIN
};

/// Synchronizes `dataSource` and `dataSourceRef`.
fn normalize_sources(spec: &mut Value, old: Option<&Value>) {
    // Sources in other namespaces are behind an upstream gate that is off.
    let is_elsewhere = !spec.field("dataSourceRef").text("namespace").is_empty();
    if is_elsewhere && !old.is_some_and(|old| old.has("dataSourceRef")) {
        spec.unset("dataSourceRef");
    }
    let old_uses = old.is_some_and(|old| old.has("dataSource") || old.has("dataSourceRef"));
    let source = spec.field("dataSource");
    let is_known = matches!(
        (source.text("apiGroup"), source.text("kind")),
        ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
    );
    if !old_uses && !spec.has("dataSourceRef") && !is_known {
        spec.unset("dataSource");
    }
    let copy = |from: &Value| {
        let mut to = Value::object();
        for name in ["apiGroup", "kind", "name"] {
            if from.has(name) {
                to.set(name, from.field(name).clone());
            }
        }
        to
    };
    match (spec.optional("dataSource"), spec.optional("dataSourceRef")) {
        (Some(source), None) => {
            let reference = copy(source);
            spec.set("dataSourceRef", reference);
        }
        (None, Some(reference)) if reference.text("namespace").is_empty() => {
            let source = copy(reference);
            spec.set("dataSource", source);
        }
        _ => {}
    }
}

fn validate_update(claim: &Value, old: &Value, _: &Context<'_>, errors: &mut Errors) {
    let (spec, mut old_spec) = (claim.field("spec"), old.field("spec").clone());
    normalize_sources(&mut old_spec, Some(old.field("spec")));
    let mut selector_errors = Errors::new();
    meta::validate_selector(old_spec.field("selector"), false, &Path::NIL, &mut selector_errors);
    let has_group = |name: &str| old_spec.field(name).has("apiGroup");
    let lenience = Lenience {
        bad_selector: !selector_errors.is_empty(),
        bad_source_group: has_group("dataSource") || has_group("dataSourceRef"),
    };
    meta::validate_update(claim, old, errors);
    meta::validate(claim, true, names::dns1123_subdomain, errors);
    validate_spec(spec, lenience, &Path::new("spec"), errors);
    let mut masked = spec.clone();
    let mut expected = old_spec.clone();
    if old_spec.text("volumeName").is_empty() {
        expected.set("volumeName", spec.field("volumeName").clone());
    }
    mask_class(&mut masked, claim, old, errors);
    let is_bound = claim.field("status").text("phase") == "Bound";
    let storage = |spec: &Value| spec.field("resources").field("requests").field("storage").clone();
    if is_bound {
        if masked.field("resources").has("requests") {
            masked.make("resources").make("requests").set("storage", storage(&old_spec));
        }
        masked.set("volumeAttributesClassName", old_spec.field("volumeAttributesClassName").clone());
    }
    if !same(&masked, &expected) {
        let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n";
        errors.forbidden(Path::new("spec"), detail);
    }
    validate_size(claim, old, errors);
    let name = "volumeMode";
    meta::immutable(spec.field(name), old_spec.field(name), Path::new(name), errors);
    validate_attributes_class(spec, &old_spec, old.field("status"), errors);
}

/// The class may move from the old annotation to the field, or be set once.
fn mask_class(masked: &mut Value, claim: &Value, old: &Value, errors: &mut Errors) {
    let annotation = |object: &Value| {
        object
            .field("metadata")
            .map("annotations")
            .get(ANNOTATION_STORAGE_CLASS_BETA)
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let (new_annotation, old_annotation) = (annotation(claim), annotation(old));
    let class = claim.field("spec").optional_text("storageClassName");
    let old_class = old.field("spec").optional_text("storageClassName");
    let moves = old_annotation.is_some()
        && old_class.is_none()
        && class == old_annotation.as_deref()
        && (new_annotation.is_none() || new_annotation == old_annotation);
    if moves {
        masked.unset("storageClassName");
        return;
    }
    if new_annotation.as_deref().unwrap_or_default() != old_annotation.as_deref().unwrap_or_default() {
        let metadata = Path::new("metadata");
        let at = metadata.child("annotations");
        errors.invalid(at.child(ANNOTATION_STORAGE_CLASS_BETA), new_annotation.unwrap_or_default(), IMMUTABLE);
    }
    if class.is_some() && old_class.is_none() && (old_annotation.is_none() || class == old_annotation.as_deref()) {
        masked.unset("storageClassName");
    }
}

/// A claim may grow; it may shrink only while growing has not happened yet.
fn validate_size(claim: &Value, old: &Value, errors: &mut Errors) {
    let zero = || Quantity::new(0, Format::DecimalSi);
    let size = |it: &Value| it.field("resources").field("requests").quantity("storage").unwrap_or_else(zero);
    let (new_size, old_size) = (size(claim.field("spec")), size(old.field("spec")));
    let actual = old.field("status").field("capacity").quantity("storage").unwrap_or_else(zero);
    if new_size.cmp(&old_size) == Ordering::Less && new_size.cmp(&actual) != Ordering::Greater {
        let at = Path::new("spec.resources.requests.storage");
        errors.forbidden(at, "field can not be less than status.capacity");
    }
}

fn validate_attributes_class(spec: &Value, old_spec: &Value, old_status: &Value, errors: &mut Errors) {
    let name = "volumeAttributesClassName";
    let (class, old_class) = (spec.optional_text(name), old_spec.optional_text(name));
    if class == old_class || !old_status.has("currentVolumeAttributesClassName") {
        return;
    }
    let what = match class {
        None => "nil",
        Some("") => "empty string",
        Some(_) => return,
    };
    let detail = format!("update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil");
    errors.forbidden(Path::new("spec").child(name), detail);
}

fn validate_status(claim: &Value, old: &Value, _: &Context<'_>, errors: &mut Errors) {
    const STATUSES: &[&str] = &[
        "ControllerResizeInProgress",
        "ControllerResizeInfeasible",
        "NodeResizeInProgress",
        "NodeResizeInfeasible",
        "NodeResizePending",
    ];
    meta::validate_update(claim, old, errors);
    if claim.field("metadata").text("resourceVersion").is_empty() {
        errors.required(Path::new("resourceVersion"), "");
    }
    if claim.field("spec").list("accessModes").is_empty() {
        errors.required(Path::new("Spec.accessModes"), "");
    }
    let (status, at) = (claim.field("status"), Path::new("status"));
    let basic = |amount: &Quantity, at: Path<'_>, errors: &mut Errors| {
        let is_negative = amount.value() < 0;
        if is_negative {
            errors.invalid(at, amount.value(), "must be a valid resource quantity");
        }
        !is_negative
    };
    let here = at.child("capacity");
    for (name, amount) in amounts(status.map("capacity")) {
        basic(&amount, here.key(name), errors);
    }
    let here = at.child("allocatedResourceStatuses");
    for (name, value) in status.map("allocatedResourceStatuses").iter() {
        validate_key(name, here, errors);
        if !value.as_str().is_some_and(|it| STATUSES.contains(&it)) {
            errors.not_supported(here, name, STATUSES);
        }
    }
    let here = at.child("allocatedResources");
    for (name, amount) in amounts(status.map("allocatedResources")) {
        if validate_key(name, here, errors) && basic(&amount, here.key(name), errors) {
            resource_names::validate_amount("storage", &amount, here.key(name), errors);
        }
    }
}

fn validate_key(name: &str, at: Path<'_>, errors: &mut Errors) -> bool {
    let before = errors.len();
    invalid(names::qualified_name(name), name, at, errors);
    if errors.len() == before && is_native(name) && name != "storage" {
        errors.not_supported(at, name, &["storage"]);
    }
    errors.len() == before
}

fn warnings(claim: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    if claim.field("metadata").map("annotations").contains_key(ANNOTATION_STORAGE_CLASS_BETA) {
        warnings.push(format!(
            "metadata.annotations[{ANNOTATION_STORAGE_CLASS_BETA}]: deprecated since v1.8; use \"storageClassName\" attribute instead"
        ));
    }
    for kind in ["requests", "limits"] {
        if let Some(amount) = claim.field("spec").field("resources").field(kind).quantity("storage")
            && amount.milli_value() % 1000 != 0
        {
            let text = api::go_text::quote(&amount.to_string());
            warnings.push(format!(
                "spec.resources.{kind}[storage]: fractional byte value {text} is invalid, must be an integer"
            ));
        }
    }
    warnings
}
