//! Rows of custom resources, made to last.
//!
//! The verbs refer to a resource by a row that lives as long as the process. Definitions come and go, and so each
//! distinct row and name is kept for good: as many as there have been distinct definitions, a few hundred bytes each.

use std::collections::HashSet;
use std::sync::{Mutex, OnceLock, PoisonError};

use api::json::Value;

use crate::resources::{Custom, Resource, Subresource};

static TEXTS: OnceLock<Mutex<HashSet<&'static str>>> = OnceLock::new();
static ROWS: OnceLock<Mutex<Vec<&'static Resource>>> = OnceLock::new();

/// What can be done with custom resources, in the order of discovery.
const VERBS: &[&str] = &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
/// What can be done while their definition goes.
const VERBS_WHILE_TERMINATING: &[&str] = &["delete", "deletecollection", "get", "list", "watch"];
const PARTS: &[&str] = &["get", "patch", "update"];

/// The text, kept for good.
fn keep(text: &str) -> &'static str {
    let texts = TEXTS.get_or_init(Mutex::default);
    let mut texts = texts.lock().unwrap_or_else(PoisonError::into_inner);
    match texts.get(text) {
        Some(found) => found,
        None => {
            let kept: &'static str = Box::leak(text.into());
            texts.insert(kept);
            kept
        }
    }
}

fn keep_all<'t>(texts: impl Iterator<Item = &'t str>) -> &'static [&'static str] {
    let kept: Vec<&'static str> = texts.map(keep).collect();
    if kept.is_empty() { &[] } else { Box::leak(kept.into_boxed_slice()) }
}

/// The row, kept for good.
fn keep_row(row: Resource) -> &'static Resource {
    let kept: &'static Resource = Box::leak(Box::new(row));
    ROWS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner).push(kept);
    kept
}

/// The row of a version of a definition whose names are accepted.
pub(super) fn of_version(definition: &Value, version: &Value, storage_version: &str) -> &'static Resource {
    let spec = definition.get("spec");
    let names = definition.at(&["status", "acceptedNames"]);
    let name = |field: &str| names.and_then(|names| names.str_at(&[field])).unwrap_or_default();
    let list = |value: Option<&Value>, field: &str| -> Vec<String> {
        let items = value.and_then(|value| value.get(field)).and_then(Value::as_array).unwrap_or_default();
        items.iter().filter_map(Value::as_str).map(ToOwned::to_owned).collect()
    };
    let is_terminating = registry::definition_status::is_true(definition, "Terminating");
    let has = |part: &str| version.at(&["subresources", part]).is_some_and(|it| !it.is_null());
    let subresources: &'static [Subresource] = match (has("scale"), has("status")) {
        (false, false) => &[],
        (false, true) => &[STATUS],
        (true, false) => &[SCALE],
        (true, true) => &[SCALE, STATUS],
    };
    let fields = version.get("selectableFields").and_then(Value::as_array).unwrap_or_default();
    let fields = fields.iter().filter_map(|field| field.str_at(&["jsonPath"]));
    let fields: Vec<&str> = fields.map(|path| path.strip_prefix('.').unwrap_or(path)).collect();
    let version_name = keep(version.str_at(&["name"]).unwrap_or_default());
    let custom = Custom { list_kind: keep(name("listKind")), storage_version: keep(storage_version) };
    let mut row = Resource::custom(custom);
    row.group = keep(spec.and_then(|spec| spec.str_at(&["group"])).unwrap_or_default());
    row.plural = keep(name("plural"));
    row.singular = keep(name("singular"));
    row.kind = keep(name("kind"));
    row.namespaced = spec.and_then(|spec| spec.str_at(&["scope"])) == Some("Namespaced");
    row.verbs = if is_terminating { VERBS_WHILE_TERMINATING } else { VERBS };
    row.subresources = subresources;
    let lists = (list(names, "shortNames"), list(names, "categories"));
    if let Some(found) = known(&row, version_name, &lists.0, &lists.1, &fields) {
        return found;
    }
    row.versions = keep_all(std::iter::once(version_name));
    row.short_names = keep_all(lists.0.iter().map(String::as_str));
    row.categories = keep_all(lists.1.iter().map(String::as_str));
    row.fields = keep_all(fields.into_iter());
    keep_row(row)
}

/// The row that says the same, if there is one: then its lists need not be kept a second time.
fn known(
    row: &Resource,
    version: &str,
    short_names: &[String],
    categories: &[String],
    fields: &[&str],
) -> Option<&'static Resource> {
    let rows = ROWS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    let custom = row.custom?;
    rows.iter().copied().find(|it| {
        it.group == row.group
            && it.plural == row.plural
            && it.versions == [version]
            && it.short_names == short_names
            && it.categories == categories
            && it.custom == Some(custom)
            && it.fields == fields
            && (it.singular, it.kind, it.namespaced) == (row.singular, row.kind, row.namespaced)
            && (it.verbs, it.subresources) == (row.verbs, row.subresources)
    })
}

const STATUS: Subresource = Subresource { name: "status", kind: ("", "", ""), verbs: PARTS };
const SCALE: Subresource = Subresource { name: "scale", kind: ("autoscaling", "v1", "Scale"), verbs: PARTS };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_definition_gives_the_same_row() {
        let definition = |short: &str| {
            api::json!({
                "spec": {"group": "rows.example.com", "scope": "Namespaced"},
                "status": {"acceptedNames": {"plural": "as", "singular": "a", "kind": "A", "listKind": "AList", "shortNames": [short]}}
            })
        };
        let version =
            api::json!({"name": "v1", "subresources": {"status": {}}, "selectableFields": [{"jsonPath": ".spec.x"}]});
        let first = of_version(&definition("x"), &version, "v1");
        assert!(std::ptr::eq(first, of_version(&definition("x"), &version, "v1")));
        assert!(!std::ptr::eq(first, of_version(&definition("y"), &version, "v1")));
        assert_eq!((first.versions, first.short_names), (["v1"].as_slice(), ["x"].as_slice()));
        assert_eq!(first.fields, ["spec.x"]);
        assert!(first.subresource("status").is_some() && first.subresource("scale").is_none());
    }
}
