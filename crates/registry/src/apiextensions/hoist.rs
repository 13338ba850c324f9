//! The internal form of a definition's spec: what all versions have in common stands at the top.

use api::json::Value;

use crate::document::same;

const COLUMNS: &str = "additionalPrinterColumns";

/// Whether a field is the same in all versions, so that it is hoisted.
fn is_common(versions: &[Value], field: &str) -> bool {
    let Some(first) = versions.first() else { return false };
    versions.iter().all(|it| it.has(field) == first.has(field) && same(it.field(field), first.field(field)))
}

/// Path of a printer column in errors and warnings about a definition.
///
/// As in Kubernetes, columns that all versions have in common are those of the spec.
#[must_use]
pub fn column_path(definition: &Value, version: usize, column: usize) -> String {
    let versions = definition.list_at(&["spec", "versions"]);
    match is_common(versions, COLUMNS) {
        true => format!("spec.{COLUMNS}[{column}]"),
        false => format!("spec.versions[{version}].{COLUMNS}[{column}]"),
    }
}

/// Moves schema, subresources, columns and selectable fields to the top, each if it is the same in all versions.
pub(super) fn hoist(spec: &Value) -> Value {
    let mut spec = spec.clone();
    let Some(first) = spec.list("versions").first().cloned() else { return spec };
    let name = first.text("name").to_owned();
    spec.set("version", name);
    let parts = [
        ("schema", "validation"),
        ("subresources", "subresources"),
        (COLUMNS, COLUMNS),
        ("selectableFields", "selectableFields"),
    ];
    for (from, to) in parts {
        if !is_common(spec.list("versions"), from) {
            continue;
        }
        if first.has(from) {
            spec.set(to, first.field(from).clone());
        }
        for version in spec.list_mut("versions") {
            version.unset(from);
        }
    }
    spec
}
