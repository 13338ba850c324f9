//! `RuntimeClass`: by what containers are run, what that takes for itself, and where there is such a thing.
//!
//! Follows `pkg/apis/node/validation`.

use std::collections::HashSet;

use std::collections::BTreeSet;

use api::field::{Errors, Path};
use api::json::Value;
use api::names;

use crate::core::expression_totals::{self, Group};
use crate::core::pod::options::Options;
use crate::core::pod::placement::validate_tolerations;
use crate::core::pod::resources::validate_container;
use crate::generic;
use crate::meta;
use crate::render;
use crate::strategy::{Context, Strategy};

pub(crate) const RUNTIME_CLASS: Strategy = Strategy {
    // Declared rules come behind the written ones.
    validate_create: |class, context, errors| {
        validate(class, None, context, errors);
        match class.text("handler") {
            "" => errors.required(Path::new("handler"), ""),
            handler => meta::invalid(names::short_name(handler), handler, Path::new("handler"), errors),
        }
    },
    validate_update: |class, old, context, errors| {
        if !class.text("handler").is_empty() {
            validate_handler(class, errors);
        }
        validate(class, Some(old), context, errors);
        meta::validate_update(class, old, errors);
        if class.text("handler") != old.text("handler") {
            // Kubernetes shows no value here.
            errors.invalid(Path::new("handler"), Value::Null, meta::IMMUTABLE);
            if class.text("handler").is_empty() {
                errors.required(Path::new("handler"), "");
            }
        }
    },
    ..generic::NAMED
};

fn validate_handler(class: &Value, errors: &mut Errors) {
    let handler = class.text("handler");
    meta::invalid(names::dns1123_label(handler), handler, Path::new("handler"), errors);
}

fn validate(class: &Value, old: Option<&Value>, context: &Context<'_>, errors: &mut Errors) {
    meta::validate(class, false, names::dns1123_subdomain, errors);
    let options = Options::new(None, None, true, context);
    if let Some(overhead) = class.optional("overhead") {
        let requirements = api::json!({"limits": (overhead.field("podFixed").clone())});
        validate_container(&requirements, &BTreeSet::new(), &options, &Path::new("overhead"), errors);
    }
    let (scheduling, at) = (class.field("scheduling"), Path::new("scheduling"));
    meta::validate_labels(scheduling.map("nodeSelector"), &at.child("nodeSelector"), errors);
    let (tolerations, list) = (scheduling.list("tolerations"), at.child("tolerations"));
    let group =
        |tolerations| if options.allow_toleration_cel { vec![Group::of_tolerations(tolerations)] } else { Vec::new() };
    let expressions = group(tolerations);
    let old_expressions = old.map(|old| group(old.field("scheduling").list("tolerations"))).unwrap_or_default();
    let compiles_tolerations = !expression_totals::are_too_many(&expressions, &old_expressions);
    validate_tolerations(tolerations, &Options { compiles_tolerations, ..options }, &list, errors);
    expression_totals::validate(&expressions, &old_expressions, &[list], context.expressions, errors);
    let key = |it: &Value| ["key", "operator", "value", "effect", "expression"].map(|field| it.text(field).to_owned());
    let mut seen = HashSet::new();
    for (index, toleration) in tolerations.iter().enumerate() {
        if !seen.insert(key(toleration)) {
            errors.duplicate(list.index(index), render::core("Toleration", toleration));
        }
    }
}
