//! Kinds of `scheduling.k8s.io`: PriorityClasses.

use api::field::Path;
use api::names;

use crate::meta;
use crate::strategy::{PLAIN, Strategy};

const HIGHEST_USER_PRIORITY: i64 = 1_000_000_000;

pub(crate) const PRIORITY_CLASS: Strategy = Strategy {
    prepare_create: |class, _| class.make("metadata").set("generation", 1_i64),
    validate_create: |class, _, errors| {
        meta::validate(class, false, names::dns1123_subdomain, errors);
        let name = class.field("metadata").text("name");
        if name.starts_with("system-") {
            if let Some(complaint) = system_complaint(name, class.int("value"), class.flag("globalDefault")) {
                let detail = format!(
                    "priority class names with 'system-' prefix are reserved for system use only. error: {complaint}"
                );
                errors.forbidden(Path::new("metadata.name"), detail);
            }
        } else if class.int("value") > HIGHEST_USER_PRIORITY {
            let detail = format!("maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}");
            errors.forbidden(Path::new("value"), detail);
        }
        match class.optional_text("preemptionPolicy") {
            None | Some("PreemptLowerPriority" | "Never") => {}
            Some("") => errors.required(Path::new("preemptionPolicy"), ""),
            Some(other) => {
                let policies = &["PreemptLowerPriority", "Never"];
                errors.not_supported(Path::new("preemptionPolicy"), other, policies);
            }
        }
    },
    validate_update: |class, old, _, errors| {
        meta::validate_update(class, old, errors);
        if class.int("value") != old.int("value") {
            errors.forbidden(Path::new("value"), "may not be changed in an update.");
        }
        let name = "preemptionPolicy";
        meta::immutable(class.field(name), old.field(name), Path::new(name), errors);
    },
    ..PLAIN
};

/// Returns the error of a class with a system name and other values than the system's.
fn system_complaint(name: &str, value: i64, is_default: bool) -> Option<String> {
    let expected = match name {
        "system-node-critical" => 2_000_001_000,
        "system-cluster-critical" => 2_000_000_000,
        _ => return Some(format!("{name} is not a known system priority class")),
    };
    if value != expected {
        return Some(format!("value of {name} PriorityClass must be {expected}"));
    }
    is_default.then(|| format!("globalDefault of {name} PriorityClass must be false"))
}
