//! `ControllerRevision`: a state of a workload, which does not change.

use api::field::{BadValue, Errors, Path};
use api::json::Value;
use api::names;

use crate::meta::{self, IMMUTABLE, non_negative};
use crate::strategy::{PLAIN, Strategy};

pub(crate) const CONTROLLER_REVISION: Strategy = Strategy {
    validate_create: |revision, _, errors| {
        validate(revision, errors);
        match revision.field("data") {
            Value::Null => errors.required(Path::new("data"), "data is mandatory"),
            Value::Object(_) => {}
            _ => errors.required(Path::new("data"), "data must be a valid JSON object"),
        }
    },
    validate_update: |revision, old, _, errors| {
        meta::validate_update(revision, old, errors);
        validate(revision, errors);
        // Kubernetes compares the bytes: another order of keys is a change.
        let data = api::json::to_string(revision.field("data"));
        if data != api::json::to_string(old.field("data")) {
            errors.invalid(Path::new("data"), BadValue::Rendered(data), IMMUTABLE);
        }
    },
    ..PLAIN
};

fn validate(revision: &Value, errors: &mut Errors) {
    meta::validate(revision, true, names::dns1123_subdomain, errors);
    non_negative(revision.int("revision"), Path::new("revision"), errors);
}
