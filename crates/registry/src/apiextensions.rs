//! Kinds of `apiextensions.k8s.io`: CustomResourceDefinitions.
//!
//! Follows `apiextensions-apiserver/pkg/apis/apiextensions/validation`. Errors name the internal form, in which what all
//! versions have in common stands at the top: see [`hoist`]. Columns with `expression` follow KEP-4595.

mod columns;
pub mod conversion_review;
pub mod custom_resource;
mod field_path;
mod hoist;
mod lists;
mod rules;
mod schema;
mod spec;
pub mod status;
mod structural;

use api::field::{BadValue, Errors, Path};
use api::json::Value;
use api::names;

pub use self::hoist::column_path;
use self::hoist::hoist;
use crate::core::pod::prepare::count_generation;
use crate::meta::{self, immutable};
use crate::strategy::{Context, PLAIN, Part, Strategy};

pub(crate) use self::columns::validate_added as validate_added_columns;
pub use self::rules::CompiledRule;
pub(crate) use self::rules::compile as compile_rules;

const APPROVAL: &str = "api-approved.kubernetes.io";

pub(crate) const DEFINITION: Strategy = Strategy {
    prepare_create: |definition, _| {
        definition.set("status", Value::object());
        definition.make("metadata").set("generation", 1_i64);
        add_stored_version(definition);
    },
    validate_create: |definition, context, errors| {
        let spec = hoist(definition.field("spec"));
        validate_metadata(definition, errors);
        spec::validate(&spec, None, context, errors);
        validate_status(definition, &spec, errors);
        validate_approval(definition, None, errors);
        validate_preservation(&spec, None, errors);
    },
    prepare_update: |definition, old, _| {
        definition.set("status", old.field("status").clone());
        count_generation(definition, old);
        add_stored_version(definition);
    },
    validate_update,
    warn: |definition, old, _| {
        let known = old.map(|old| schema::warnings(&hoist(old.field("spec")))).unwrap_or_default();
        let found = schema::warnings(&hoist(definition.field("spec")));
        found.into_iter().filter(|warning| !known.contains(warning)).collect()
    },
    subresources: &[(
        "status",
        Part {
            prepare: |definition, old, _| definition.set("spec", old.field("spec").clone()),
            validate: |definition, old, _, errors| {
                let at = Path::new("metadata");
                meta::validate_update_common(definition.field("metadata"), old.field("metadata"), &at, errors);
                let accepted = definition.field("status").field("acceptedNames");
                spec::validate_names(accepted, &Path::new("status.acceptedNames"), errors);
            },
        },
    )],
    ..PLAIN
};

/// The version that is stored now is among those that were ever stored.
fn add_stored_version(definition: &mut Value) {
    let versions = definition.field("spec").list("versions").iter();
    let Some(name) = versions.filter(|it| it.flag("storage")).map(|it| it.text("name").to_owned()).next() else {
        return;
    };
    let status = definition.make("status");
    if !status.texts("storedVersions").any(|it| it == name) {
        let mut stored = status.list("storedVersions").to_vec();
        stored.push(Value::from(name));
        status.set("storedVersions", stored);
    }
}

fn validate_metadata(definition: &Value, errors: &mut Errors) {
    let metadata = definition.field("metadata");
    let at = Path::new("metadata");
    let mut without_name = metadata.clone();
    // The name is checked below, where the group is known.
    without_name.set("name", "x");
    without_name.unset("generateName");
    let name = metadata.text("name");
    let spec = definition.field("spec");
    let expected = format!("{}.{}", spec.field("names").text("plural"), spec.text("group"));
    let mismatch = "must be spec.names.plural+\".\"+spec.group";
    let generate_name = metadata.text("generateName");
    if !generate_name.is_empty() {
        meta::invalid(
            names::as_prefix(names::dns1123_subdomain, generate_name),
            generate_name,
            at.child("generateName"),
            errors,
        );
        if generate_name != expected {
            errors.invalid(at.child("generateName"), generate_name, mismatch);
        }
    }
    if name.is_empty() {
        errors.required(at.child("name"), "name or generateName is required");
    } else {
        meta::invalid(names::dns1123_subdomain(name), name, at.child("name"), errors);
        if name != expected {
            errors.invalid(at.child("name"), name, mismatch);
        }
    }
    meta::validate_common(&without_name, false, |_| Vec::new(), &at, errors);
}

fn validate_status(definition: &Value, spec: &Value, errors: &mut Errors) {
    let status = definition.field("status");
    let at = Path::new("status");
    spec::validate_names(status.field("acceptedNames"), &at.child("acceptedNames"), errors);
    let here = at.child("storedVersions");
    let stored: Vec<&str> = status.texts("storedVersions").collect();
    let shown = || match status.field("storedVersions") {
        Value::Null => BadValue::Rendered("null".to_owned()),
        value => value.clone().into(),
    };
    if stored.is_empty() {
        errors.invalid(here, shown(), "must have at least one stored version");
        return;
    }
    // Each version accounts for its name once.
    let mut open = stored.clone();
    for version in spec.list("versions") {
        let name = version.text("name");
        if open.contains(&name) {
            open.retain(|it| *it != name);
        } else if version.flag("storage") {
            errors.invalid(here, shown(), format!("must have the storage version {name}"));
        }
    }
    for (index, name) in stored.iter().enumerate() {
        if open.contains(name) && !stored.iter().skip(index.saturating_add(1)).any(|it| it == name) {
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            errors.invalid(here.index(index), *name, detail);
        }
    }
}

/// Groups of Kubernetes need the community's approval.
fn validate_approval(definition: &Value, old: Option<&Value>, errors: &mut Errors) {
    let group = definition.field("spec").text("group");
    let is_protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|it| group.strip_suffix(it).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')));
    if !is_protected {
        return;
    }
    let text = |object: &Value| {
        let annotations = object.field("metadata").map("annotations");
        annotations.get(APPROVAL).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    // 0 is missing, 1 bypassed, 2 approved, 3 invalid.
    let state = |annotation: &str| match annotation.split_once("://") {
        _ if annotation.is_empty() => 0,
        _ if annotation.starts_with("unapproved") => 1,
        Some((scheme, rest)) if !scheme.is_empty() && !rest.is_empty() && !rest.starts_with('/') => 2,
        _ => 3,
    };
    let annotation = text(definition);
    let found = state(&annotation);
    if old.is_some_and(|old| state(&text(old)) == found) {
        return;
    }
    let metadata = Path::new("metadata");
    let annotations = metadata.child("annotations");
    let at = annotations.key(APPROVAL);
    let link = "see https://github.com/kubernetes/enhancements/pull/1111";
    match found {
        0 => errors.required(at, format!("protected groups must have approval annotation \"{APPROVAL}\", {link}")),
        3 => errors.invalid(at, annotation, format!("protected groups must have approval annotation \"{APPROVAL}\" with either a URL or a reason starting with \"unapproved\", {link}")),
        _ => {}
    }
}

fn validate_preservation(spec: &Value, old: Option<&Value>, errors: &mut Errors) {
    if old.is_some_and(|old| old.flag("preserveUnknownFields")) || !spec.flag("preserveUnknownFields") {
        return;
    }
    let detail =
        "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
    errors.invalid(Path::new("spec.preserveUnknownFields"), true, detail);
}

fn validate_update(definition: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
    let (spec, old_spec) = (hoist(definition.field("spec")), hoist(old.field("spec")));
    let at = Path::new("metadata");
    meta::validate_update_common(definition.field("metadata"), old.field("metadata"), &at, errors);
    spec::validate(&spec, Some(&old_spec), context, errors);
    let at = Path::new("spec");
    let mut conditions = old.field("status").list("conditions").iter();
    if conditions.any(|it| it.text("type") == "Established" && it.text("status") == "True") {
        immutable(spec.field("scope"), old_spec.field("scope"), at.child("scope"), errors);
        let kind = |spec: &Value| spec.field("names").field("kind").clone();
        immutable(&kind(&spec), &kind(&old_spec), at.child("names").child("kind"), errors);
    }
    immutable(spec.field("group"), old_spec.field("group"), at.child("group"), errors);
    let plural = |spec: &Value| spec.field("names").field("plural").clone();
    immutable(&plural(&spec), &plural(&old_spec), at.child("names").child("plural"), errors);
    validate_status(definition, &spec, errors);
    validate_approval(definition, Some(old), errors);
    validate_preservation(&spec, Some(&old_spec), errors);
}
