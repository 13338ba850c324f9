//! The internal form of a definition's spec: what all versions have in common stands at the top.

use api::json::Value;

use crate::document::same;

/// Moves schema, subresources, columns and selectable fields to the top, each if it is the same in all versions.
pub(super) fn hoist(spec: &Value) -> Value {
    let mut spec = spec.clone();
    let Some(first) = spec.list("versions").first().cloned() else { return spec };
    let name = first.text("name").to_owned();
    spec.set("version", name);
    let parts = [
        ("schema", "validation"),
        ("subresources", "subresources"),
        ("additionalPrinterColumns", "additionalPrinterColumns"),
        ("selectableFields", "selectableFields"),
    ];
    for (from, to) in parts {
        let is_common = spec
            .list("versions")
            .iter()
            .all(|it| it.has(from) == first.has(from) && same(it.field(from), first.field(from)));
        if !is_common {
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
