//! Kinds of `coordination.k8s.io`: Leases.

use api::field::{Errors, Path};
use api::json::Value;
use api::names;

use crate::meta;
use crate::strategy::{Context, PLAIN, Strategy};

pub(crate) const LEASE: Strategy = Strategy {
    prepare_create: |lease, _| drop_election(lease, None),
    validate_create: |lease, _, errors| {
        let at = Path::new("metadata");
        meta::validate_common(lease.field("metadata"), true, names::dns1123_subdomain, &at, errors);
        validate_spec(lease, errors);
    },
    prepare_update: |lease, old, _: &Context<'_>| drop_election(lease, Some(old)),
    validate_update: |lease, old, _, errors| {
        let at = Path::new("metadata");
        meta::validate_update_common(lease.field("metadata"), old.field("metadata"), &at, errors);
        validate_spec(lease, errors);
    },
    ..PLAIN
};

/// Coordinated leader election is off here.
fn drop_election(lease: &mut Value, old: Option<&Value>) {
    let spec = lease.make("spec");
    for name in ["strategy", "preferredHolder"] {
        if !old.is_some_and(|old| old.field("spec").has(name)) {
            spec.unset(name);
        }
    }
}

fn validate_spec(lease: &Value, errors: &mut Errors) {
    let (spec, at) = (lease.field("spec"), Path::new("spec"));
    if let Some(seconds) = spec.optional_int("leaseDurationSeconds").filter(|it| *it <= 0) {
        errors.invalid(at.child("leaseDurationSeconds"), seconds, "must be greater than 0");
    }
    if let Some(count) = spec.optional_int("leaseTransitions").filter(|it| *it < 0) {
        errors.invalid(at.child("leaseTransitions"), count, meta::NEGATIVE);
    }
    if let Some(strategy) = spec.optional_text("strategy") {
        let here = at.child("strategy");
        if strategy.contains('/') {
            meta::invalid(names::qualified_name(strategy), strategy, here.child("strategy"), errors);
        } else if strategy != "OldestEmulationVersion" {
            errors.not_supported(here.child("strategy"), strategy, &["OldestEmulationVersion"]);
        }
    }
    if !spec.text("preferredHolder").is_empty() && spec.text("strategy").is_empty() {
        errors.forbidden(at.child("preferredHolder"), "may only be specified if `strategy` is defined");
    }
}
