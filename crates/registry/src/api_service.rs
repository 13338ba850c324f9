//! `APIService`: the server of a group and version, and the order in which clients see them.
//!
//! Follows `kube-aggregator/pkg/apis/apiregistration/validation` and the strategy of the kind.

use api::field::{Errors, Path};
use api::json::Value;
use api::{base64, names};

use crate::generic;
use crate::meta::{self, invalid};
use crate::strategy::{Part, Strategy};

const GROUP_PRIORITY_MAX: i64 = 20_000;
const VERSION_PRIORITY_MAX: i64 = 1000;
const STATUSES: &[&str] = &["True", "False", "Unknown"];

pub(crate) const API_SERVICE: Strategy = Strategy {
    prepare_create: |service, context| {
        service.unset("status");
        if !service.field("spec").has("service") {
            let condition = api::json!({
                "type": "Available", "status": "True", "lastTransitionTime": (context.now),
                "reason": "Local", "message": "Local APIServices are always available"
            });
            service.make("status").set("conditions", vec![condition]);
        }
    },
    validate_create: |service, _, errors| validate(service, errors),
    validate_update: |service, old, _, errors| {
        validate_metadata_update(service, old, errors);
        validate(service, errors);
    },
    subresources: &[(
        "status",
        Part {
            prepare: generic::prepare_status_alone,
            validate: |service, old, _, errors| {
                validate_metadata_update(service, old, errors);
                validate_status(service.field("status"), errors);
            },
        },
    )],
    ..generic::WITH_STATUS_ALONE
};

fn validate_metadata_update(service: &Value, old: &Value, errors: &mut Errors) {
    let at = Path::new("metadata");
    meta::validate_update_common(service.field("metadata"), old.field("metadata"), &at, errors);
}

fn validate(service: &Value, errors: &mut Errors) {
    let at = Path::new("metadata");
    let metadata = service.field("metadata");
    let (spec, here) = (service.field("spec"), Path::new("spec"));
    let (group, version) = (spec.text("group"), spec.text("version"));
    let expected = format!("{version}.{group}");
    for field in ["generateName", "name"] {
        let name = metadata.text(field);
        if !name.is_empty() && names::path_segment(name).is_empty() && name != expected {
            let detail = format!("must be `spec.version+\".\"+spec.group`: {}", api::go_text::quote(&expected));
            errors.invalid(at.child(field), name, detail);
        }
    }
    meta::validate_common(metadata, false, names::path_segment, &at, errors);
    if group.is_empty() && version != "v1" {
        errors.required(here.child("group"), "only v1 may have an empty group and it better be legacy kube");
    }
    if !group.is_empty() {
        invalid(names::dns1123_subdomain(group), group, here.child("group"), errors);
    }
    invalid(names::dns1035_label(version), version, here.child("version"), errors);
    for (name, max) in [("groupPriorityMinimum", GROUP_PRIORITY_MAX), ("versionPriority", VERSION_PRIORITY_MAX)] {
        let priority = spec.int(name);
        if !(1..=max).contains(&priority) {
            errors.invalid(here.child(name), priority, format!("must be positive and less than {max}"));
        }
    }
    validate_connection(spec, &here, errors);
}

/// Validates the service reference and CA bundle of an aggregated API; APIs that this server serves have neither.
fn validate_connection(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    let trust = spec.text("caBundle");
    let skips_verification = spec.flag("insecureSkipTLSVerify");
    let Some(service) = spec.optional("service") else {
        if !trust.is_empty() {
            let size = base64::decode(trust).map_or(0, |bytes| bytes.len());
            errors.invalid(at.child("caBundle"), format!("{size} bytes"), "local APIServices may not have a caBundle");
        }
        if skips_verification {
            let detail = "local APIServices may not have insecureSkipTLSVerify";
            errors.invalid(at.child("insecureSkipTLSVerify"), true, detail);
        }
        return;
    };
    let here = at.child("service");
    for name in ["namespace", "name"] {
        if service.text(name).is_empty() {
            errors.required(here.child(name), "");
        }
    }
    let port = service.int("port");
    if !(1..=65_535).contains(&port) {
        errors.invalid(here.child("port"), port, "port is not valid: must be between 1 and 65535, inclusive");
    }
    if skips_verification && !trust.is_empty() {
        errors.invalid(at.child("insecureSkipTLSVerify"), true, "may not be true if caBundle is present");
    }
}

fn validate_status(status: &Value, errors: &mut Errors) {
    let at = Path::new("status.conditions");
    for (index, condition) in status.list("conditions").iter().enumerate() {
        let status = condition.text("status");
        if !STATUSES.contains(&status) {
            errors.not_supported(at.index(index).child("status"), status, STATUSES);
        }
    }
}
