//! `CSIStorageCapacity`: how much storage of a class there is at a place.

use api::field::{Errors, Path};
use api::json::Value;
use api::names;

use crate::core::pod::warnings::{deprecated_label, node_selector_term};
use crate::meta::{self, NEGATIVE, immutable, invalid};
use crate::strategy::{PLAIN, Strategy};

pub(crate) const CAPACITY: Strategy = Strategy {
    validate_create: |capacity, _, errors| validate(capacity, false, errors),
    validate_update: |capacity, old, _, errors| {
        let place = old.field("nodeTopology");
        let mut wrong = Errors::new();
        meta::validate_selector(place, false, &Path::new("nodeTopology"), &mut wrong);
        validate(capacity, !wrong.is_empty(), errors);
        meta::validate_update(capacity, old, errors);
        immutable(capacity.field("nodeTopology"), place, Path::new("nodeTopology"), errors);
        let class = |it: &Value| Value::from(it.text("storageClassName"));
        immutable(&class(capacity), &class(old), Path::new("storageClassName"), errors);
    },
    warn: |capacity, _, _| {
        let (place, at) = (capacity.field("nodeTopology"), Path::new("nodeTopology"));
        let mut warnings = node_selector_term(place, false, &at);
        let labels = at.child("matchLabels");
        for key in place.map("matchLabels").keys() {
            warnings.extend(deprecated_label(key).map(|message| format!("{}: {message}", labels.child(key))));
        }
        warnings
    },
    ..PLAIN
};

fn validate(capacity: &Value, allow_bad_values: bool, errors: &mut Errors) {
    meta::validate(capacity, true, names::dns1123_subdomain, errors);
    meta::validate_selector(capacity.field("nodeTopology"), allow_bad_values, &Path::new("nodeTopology"), errors);
    let class = capacity.text("storageClassName");
    invalid(names::dns1123_subdomain(class), class, Path::new("storageClassName"), errors);
    if let Some(amount) = capacity.quantity("capacity").filter(|it| it.sign() < 0) {
        errors.invalid(Path::new("capacity"), amount.to_string(), NEGATIVE);
    }
}
