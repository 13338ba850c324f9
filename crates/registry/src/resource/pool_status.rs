//! `ResourcePoolStatusRequest`: a question about pools of devices, which is answered once.

use api::field::{Errors, Path};
use api::json::Value;
use api::names;

use super::validate_driver_form;
use crate::conditions;
use crate::document::same;
use crate::generic;
use crate::meta::{self, IMMUTABLE, invalid, non_negative};
use crate::render;
use crate::strategy::{Part, Strategy};

const LIMIT_MAX: i64 = 1000;
const POOLS_MAX: usize = 1000;
const CONDITIONS_MAX: usize = 10;
const PARTITION_TYPE: &str = "defaultPartitionTypeAttribute";

pub(crate) const POOL_STATUS_REQUEST: Strategy = Strategy {
    prepare_create: |request, _| {
        request.unset("status");
        request.make("spec").unset(PARTITION_TYPE);
    },
    validate_create: |request, _, errors| {
        meta::validate(request, false, names::dns1123_subdomain, errors);
        validate_spec(request.field("spec"), errors);
    },
    prepare_update: |request, old, _| {
        request.set("status", old.field("status").clone());
        // Types of partitions are off here; what is there may stay.
        if !old.field("spec").has(PARTITION_TYPE) {
            request.make("spec").unset(PARTITION_TYPE);
        }
    },
    validate_update: |request, old, _, errors| {
        meta::validate_update(request, old, errors);
        if !same(request.field("spec"), old.field("spec")) {
            // Kubernetes shows no value here.
            errors.invalid(Path::new("spec"), Value::Null, IMMUTABLE);
        }
    },
    subresources: &[(
        "status",
        Part {
            prepare: generic::prepare_status_alone,
            validate: |request, old, _, errors| {
                meta::validate_update(request, old, errors);
                let (status, at) = (request.field("status"), Path::new("status"));
                if old.has("status") {
                    let shown =
                        || render::internal("k8s.io/api/resource/v1alpha3", "ResourcePoolStatusRequestStatus", status);
                    meta::immutable_shown(status, old.field("status"), at, shown, errors);
                } else if request.has("status") {
                    conditions::validate(status.list("conditions"), &at.child("conditions"), errors);
                    validate_status(status, errors);
                }
            },
        },
    )],
    ..generic::WITH_STATUS_ALONE
};

fn validate_spec(spec: &Value, errors: &mut Errors) {
    let at = Path::new("spec");
    match spec.text("driver") {
        "" => errors.required(at.child("driver"), ""),
        driver => validate_driver_form(driver, at.child("driver"), errors),
    }
    if let Some(pool) = spec.optional_text("poolName") {
        validate_pool(pool, at.child("poolName"), errors);
    }
    match spec.int("limit") {
        ..1 => errors.invalid(at.child("limit"), spec.int("limit"), "must be greater than or equal to 1"),
        1..=LIMIT_MAX => {}
        over => errors.invalid(at.child("limit"), over, format!("must be less than or equal to {LIMIT_MAX}")),
    }
}

fn validate_pool(name: &str, at: Path<'_>, errors: &mut Errors) {
    if name.len() > 253 {
        errors.too_long(at, 253);
    }
    for (index, part) in name.split('/').enumerate() {
        if part.is_empty() {
            errors.invalid(at, name, format!("segment {index}: must not be empty"));
            continue;
        }
        for complaint in names::long_name(part) {
            errors.invalid(at, part, format!("segment {index}: {complaint}"));
        }
    }
}

/// Declared rules.
fn validate_status(status: &Value, errors: &mut Errors) {
    let at = Path::new("status");
    match status.optional_int("poolCount") {
        None => errors.required(at.child("poolCount"), ""),
        Some(count) => non_negative(count, at.child("poolCount"), errors),
    }
    let (pools, list) = (status.list("pools"), at.child("pools"));
    if pools.len() > POOLS_MAX {
        errors.too_many(list, Some(pools.len()), POOLS_MAX);
    } else {
        for (index, pool) in pools.iter().enumerate() {
            validate_pool_status(pool, &list.index(index), errors);
        }
    }
    let conditions = status.list("conditions").len();
    if conditions > CONDITIONS_MAX {
        errors.too_many(at.child("conditions"), Some(conditions), CONDITIONS_MAX);
    }
}

fn validate_pool_status(pool: &Value, at: &Path<'_>, errors: &mut Errors) {
    match pool.text("driver") {
        "" => errors.required(at.child("driver"), ""),
        driver => validate_driver_form(driver, at.child("driver"), errors),
    }
    match pool.text("poolName") {
        "" => errors.required(at.child("poolName"), ""),
        name => validate_pool(name, at.child("poolName"), errors),
    }
    match pool.int("generation") {
        0 => errors.required(at.child("generation"), ""),
        generation => non_negative(generation, at.child("generation"), errors),
    }
    if let Some(slices) = pool.optional_int("resourceSliceCount").filter(|it| *it < 1) {
        errors.invalid(at.child("resourceSliceCount"), slices, "must be greater than or equal to 1");
    }
    for name in ["totalDevices", "allocatedDevices", "availableDevices", "unavailableDevices"] {
        non_negative(pool.int(name), at.child(name), errors);
    }
    if let Some(node) = pool.optional_text("nodeName") {
        invalid(names::long_name(node), node, at.child("nodeName"), errors);
    }
    if pool.text("validationError").len() > 256 {
        errors.too_long(at.child("validationError"), 256);
    }
}
