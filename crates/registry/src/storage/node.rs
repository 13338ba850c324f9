//! `CSINode`: the drivers of storage on a node, and what they call it.

use api::field::{Errors, Path};
use api::json::Value;
use api::names;

use crate::conditions;
use crate::core::pod::prepare::reset_metadata;
use crate::core::volume_claim::{ACCESS_MODES, VOLUME_MODES};
use crate::core::volume_sources::validate_driver_name;
use crate::document::same;
use crate::meta::{self, IMMUTABLE, non_negative, validate_label_name};
use crate::render;
use crate::seen::SeenKeys;
use crate::strategy::{PLAIN, Part, Strategy};

const NODE_ID_MAX: usize = 256;
const HEALTH_CONDITIONS_MAX: usize = 16;
const HEALTH_STATUSES: &[&str] = &["StorageDegraded", "StorageUnreachable"];

pub(crate) const NODE: Strategy = Strategy {
    prepare_create: |node, _| node.unset("status"),
    validate_create: |node, _, errors| validate(node, errors),
    prepare_update: |node, old, _| node.set("status", old.field("status").clone()),
    validate_update: |node, old, _, errors| {
        validate(node, errors);
        let drivers = Path::new("spec.drivers");
        for before in old.field("spec").list("drivers") {
            let name = before.text("name");
            for driver in node.field("spec").list("drivers").iter().filter(|it| it.text("name") == name) {
                let (driver, before) = (without_count(driver), without_count(before));
                if !same(&driver, &before) {
                    let shown = render::internal("k8s.io/api/storage/v1", "CSINodeDriver", &driver);
                    errors.invalid(drivers, shown, IMMUTABLE);
                }
            }
        }
    },
    subresources: &[(
        "status",
        Part {
            prepare: |node, old, _| {
                node.set("spec", old.field("spec").clone());
                reset_metadata(node, old);
                // The health of volumes is off here; what is there may stay.
                if old.field("status").list("storageHealth").is_empty() {
                    node.make("status").unset("storageHealth");
                }
            },
            validate: |node, old, _, errors| {
                meta::validate_update(node, old, errors);
                validate_health(node.field("status").list("storageHealth"), errors);
            },
        },
    )],
    ..PLAIN
};

/// The maximum number of volumes is mutable.
fn without_count(driver: &Value) -> Value {
    let mut driver = driver.clone();
    driver.unset("allocatable");
    driver
}

fn validate(node: &Value, errors: &mut Errors) {
    meta::validate(node, false, names::dns1123_subdomain, errors);
    let at = Path::new("spec.drivers");
    let drivers = node.field("spec").list("drivers");
    let mut seen = SeenKeys::default();
    for (index, driver) in drivers.iter().enumerate() {
        let here = at.index(index);
        let (name, id) = (driver.text("name"), driver.text("nodeID"));
        validate_driver_name(name, here.child("name"), errors);
        if id.is_empty() {
            errors.required(here.child("nodeID"), "");
        } else if id.len() > NODE_ID_MAX {
            errors.invalid(here.child("nodeID"), id, format!("must be {NODE_ID_MAX} characters or less"));
        }
        let count = here.child("allocatable");
        non_negative(driver.field("allocatable").int("count"), count.child("count"), errors);
        if !seen.insert(name) {
            errors.duplicate(here.child("name"), name);
        }
        validate_topology_keys(driver, here, errors);
    }
}

fn validate_topology_keys(driver: &Value, at: Path<'_>, errors: &mut Errors) {
    let mut seen = SeenKeys::default();
    for key in driver.texts("topologyKeys") {
        if key.is_empty() {
            errors.required(at, "");
        }
        if !seen.insert(key) {
            errors.duplicate(at, key);
        }
        validate_label_name(key, at, errors);
    }
}

fn validate_health(reports: &[Value], errors: &mut Errors) {
    let at = Path::new("status.storageHealth");
    let mut seen = SeenKeys::default();
    for (index, report) in reports.iter().enumerate() {
        let here = at.index(index);
        let name = report.text("name");
        if !seen.insert(name) {
            errors.duplicate(here, name);
        }
        validate_driver_name(name, here.child("name"), errors);
        let (list, found) = (here.child("healthConditions"), report.list("healthConditions"));
        if found.len() > HEALTH_CONDITIONS_MAX {
            errors.too_many(list, Some(found.len()), HEALTH_CONDITIONS_MAX);
            continue;
        }
        for (index, condition) in found.iter().enumerate() {
            validate_health_condition(condition, &list.index(index), errors);
        }
    }
}

fn validate_health_condition(condition: &Value, at: &Path<'_>, errors: &mut Errors) {
    let status = condition.text("status");
    if !HEALTH_STATUSES.contains(&status) {
        errors.not_supported(at.child("status"), status, HEALTH_STATUSES);
    }
    conditions::validate_reason(condition.text("reason"), 256, at.child("reason"), errors);
    if condition.text("message").len() > 1024 {
        errors.too_long(at.child("message"), 1024);
    }
    if let Some(mode) = condition.optional_text("accessMode").filter(|it| !ACCESS_MODES.contains(it)) {
        errors.not_supported(at.child("accessMode"), mode, ACCESS_MODES);
    }
    if let Some(mode) = condition.optional_text("volumeMode").filter(|it| !VOLUME_MODES.contains(it)) {
        errors.not_supported(at.child("volumeMode"), mode, &["Filesystem", "Block"]);
    }
}
