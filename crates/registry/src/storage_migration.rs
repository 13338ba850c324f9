//! `StorageVersionMigration`: the resource to rewrite, and the progress.
//!
//! Follows `pkg/apis/storagemigration/validation`.

use api::field::{Errors, Path};
use api::json::Value;
use api::names;

use crate::conditions;
use crate::core::pod::prepare::reset_metadata;
use crate::meta;
use crate::render;
use crate::strategy::{PLAIN, Part, Strategy};

pub(crate) const MIGRATION: Strategy = Strategy {
    prepare_create: |migration, _| migration.unset("status"),
    validate_create: |migration, _, errors| validate(migration, errors),
    prepare_update: |migration, old, _| migration.set("status", old.field("status").clone()),
    validate_update: |migration, old, _, errors| {
        validate(migration, errors);
        meta::validate_update(migration, old, errors);
        let (spec, before) = (migration.field("spec"), old.field("spec"));
        let shown = || render::internal("k8s.io/api/storagemigration/v1", "StorageVersionMigrationSpec", spec);
        meta::immutable_shown(spec, before, Path::new("spec"), shown, errors);
    },
    subresources: &[(
        "status",
        Part {
            prepare: |migration, old, _| {
                migration.set("spec", old.field("spec").clone());
                reset_metadata(migration, old);
            },
            validate: |migration, old, _, errors| validate_status(migration, old, errors),
        },
    )],
    ..PLAIN
};

fn validate(migration: &Value, errors: &mut Errors) {
    meta::validate(migration, false, names::dns1123_subdomain, errors);
    let at = Path::new("spec");
    let at = at.child("resource");
    let target = migration.field("spec").field("resource");
    let (resource, group) = (target.text("resource"), target.text("group"));
    if resource.is_empty() {
        errors.required(at.child("resource"), "resource is required to be set");
    } else {
        judge(names::dns1035_label(resource), resource, at.child("resource"), errors);
    }
    if !group.is_empty() {
        judge(names::dns1123_subdomain(group), group, at.child("group"), errors);
    }
}

/// All complaints about a name are one.
fn judge(complaints: Vec<String>, name: &str, at: Path<'_>, errors: &mut Errors) {
    if !complaints.is_empty() {
        errors.invalid(at, name, complaints.join(","));
    }
}

fn validate_status(migration: &Value, old: &Value, errors: &mut Errors) {
    meta::validate_update(migration, old, errors);
    let at = Path::new("status");
    let (status, before) = (migration.field("status"), old.field("status"));
    let (version, version_before) = (status.text("resourceVersion"), before.text("resourceVersion"));
    if !version.is_empty() && !version.bytes().all(|it| it.is_ascii_digit()) {
        let why = format!("resource version is not well formed: {version}");
        errors.invalid(at.child("resourceVersion"), version, why);
    }
    conditions::validate(status.list("conditions"), &at.child("conditions"), errors);
    if !version_before.is_empty() && version_before != version {
        errors.invalid(at.child("resourceVersion"), version, "field is immutable");
    }
    let is = |status: &Value, kind: &str| {
        status.list("conditions").iter().any(|it| it.text("type") == kind && it.text("status") == "True")
    };
    let mut refuse = |why: &str| errors.invalid(at.child("conditions"), status.field("conditions").clone(), why);
    if is(status, "Succeeded") && is(status, "Failed") {
        refuse("Both success and failed conditions cannot be true at the same time");
    }
    for (kind, name) in [("Succeeded", "Success"), ("Failed", "Failed")] {
        if is(before, kind) && !is(status, kind) {
            refuse(&format!("{name} condition cannot be set to false once it is true"));
        }
    }
}
