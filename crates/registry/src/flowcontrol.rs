//! Kinds of `flowcontrol.apiserver.k8s.io`: FlowSchemas, and the PriorityLevelConfigurations that they lead to.
//!
//! Follows `pkg/apis/flowcontrol/validation`. What is done with them is the server's.

mod flow_schema;
mod priority_level;

use api::field::{Errors, Path};
use api::json::Value;

use crate::core::pod::prepare::reset_metadata;
use crate::generic;
use crate::seen::SeenKeys;
use crate::strategy::{Part, Strategy};

const PACKAGE: &str = "k8s.io/api/flowcontrol/v1";

pub(crate) const FLOW_SCHEMA: Strategy = Strategy {
    validate_create: |schema, _, errors| flow_schema::validate(schema, errors),
    validate_update: |schema, old, _, errors| {
        crate::meta::validate_update(schema, old, errors);
        flow_schema::validate(schema, errors);
    },
    subresources: STATUS,
    ..generic::WITH_GENERATION
};

pub(crate) const PRIORITY_LEVEL: Strategy = Strategy {
    validate_create: |level, _, errors| priority_level::validate(level, errors),
    validate_update: |level, old, _, errors| {
        crate::meta::validate_update(level, old, errors);
        priority_level::validate(level, errors);
    },
    subresources: STATUS,
    ..generic::WITH_GENERATION
};

/// Parts that a status update may change.
const STATUS: &[(&str, Part)] = &[(
    "status",
    Part {
        prepare: |object, old, _| {
            object.set("spec", old.field("spec").clone());
            reset_metadata(object, old);
        },
        validate: |object, old, _, errors| {
            crate::meta::validate_update(object, old, errors);
            validate_status(object, errors);
        },
    },
)];

fn validate_status(object: &Value, errors: &mut Errors) {
    let at = Path::new("status.conditions");
    let mut seen = SeenKeys::default();
    for (index, condition) in object.field("status").list("conditions").iter().enumerate() {
        let at = at.index(index);
        let kind = condition.text("type");
        if seen.contains(&kind) {
            errors.duplicate(at.child("type"), kind);
        }
        seen.insert(kind);
        if kind.is_empty() {
            errors.required(at.child("type"), "");
        }
    }
}
