//! Rows of custom resources: a version of a definition in the form of the table of built-in resources.
//!
//! Rows are borrowed, and dropped with their definition. Work that continues after the request holds a [`Row`].

use std::sync::Arc;

use api::json::Value;

use super::serving::ServedVersion;
use crate::resources::{CustomRow, Resource, Subresource};

/// Verbs of custom resources, in the order of discovery.
const VERBS: &[&str] = &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
/// Verbs while their definition is being deleted.
const VERBS_WHILE_TERMINATING: &[&str] = &["delete", "deletecollection", "get", "list", "watch"];
const PARTS: &[&str] = &["get", "patch", "update"];

const STATUS: Subresource = Subresource { name: "status", kind: ("", "", ""), verbs: PARTS };
const SCALE: Subresource = Subresource { name: "scale", kind: ("autoscaling", "v1", "Scale"), verbs: PARTS };

/// Parts of a custom resource's row.
pub(super) struct Names {
    group: String,
    version: String,
    plural: String,
    singular: String,
    kind: String,
    list_kind: String,
    storage_version: String,
    short_names: Vec<String>,
    categories: Vec<String>,
    fields: Vec<String>,
    namespaced: bool,
    verbs: &'static [&'static str],
    subresources: &'static [Subresource],
}

impl Names {
    /// Names of a version of a definition whose names are accepted.
    pub(super) fn of_version(definition: &Value, version: &Value, storage_version: &str) -> Self {
        let names = definition.at(&["status", "acceptedNames"]);
        let name = |field: &str| names.and_then(|names| names.str_at(&[field])).unwrap_or_default().to_owned();
        let list = |field: &str| -> Vec<String> {
            let items = names.and_then(|names| names.get(field)).and_then(Value::as_array).unwrap_or_default();
            items.iter().filter_map(Value::as_str).map(ToOwned::to_owned).collect()
        };
        let is_terminating = registry::definition_status::is_true(definition, "Terminating");
        let has = |part: &str| version.at(&["subresources", part]).is_some_and(|it| !it.is_null());
        let fields = version.get("selectableFields").and_then(Value::as_array).unwrap_or_default();
        let fields = fields.iter().filter_map(|field| field.str_at(&["jsonPath"]));
        Self {
            group: definition.text_at(&["spec", "group"]).to_owned(),
            version: version.text("name").to_owned(),
            plural: name("plural"),
            singular: name("singular"),
            kind: name("kind"),
            list_kind: name("listKind"),
            storage_version: storage_version.to_owned(),
            short_names: list("shortNames"),
            categories: list("categories"),
            fields: fields.map(|path| path.strip_prefix('.').unwrap_or(path).to_owned()).collect(),
            namespaced: definition.str_at(&["spec", "scope"]) == Some("Namespaced"),
            verbs: if is_terminating { VERBS_WHILE_TERMINATING } else { VERBS },
            subresources: match (has("scale"), has("status")) {
                (false, false) => &[],
                (false, true) => &[STATUS],
                (true, false) => &[SCALE],
                (true, true) => &[SCALE, STATUS],
            },
        }
    }

    /// The row.
    pub(super) fn row(&self) -> Resource<'_> {
        let custom = CustomRow {
            version: &self.version,
            list_kind: &self.list_kind,
            storage_version: &self.storage_version,
            short_names: &self.short_names,
            categories: &self.categories,
            fields: &self.fields,
        };
        let mut row = Resource::custom(custom);
        (row.group, row.plural, row.singular, row.kind) = (&self.group, &self.plural, &self.singular, &self.kind);
        (row.namespaced, row.verbs, row.subresources) = (self.namespaced, self.verbs, self.subresources);
        row
    }
}

/// A row of the table, or what holds a custom one.
#[derive(Clone)]
pub(crate) enum Row {
    BuiltIn(&'static Resource<'static>),
    Custom(Arc<ServedVersion>),
}

impl Row {
    /// The resource.
    pub(crate) fn resource(&self) -> Resource<'_> {
        match self {
            Row::BuiltIn(row) => **row,
            Row::Custom(serving) => serving.row(),
        }
    }

    /// The row of the table, if it is one.
    pub(crate) fn built_in(&self) -> Option<&'static Resource<'static>> {
        match self {
            Row::BuiltIn(row) => Some(row),
            Row::Custom(_) => None,
        }
    }

    /// The version of a definition that it stands for, if users defined the resource.
    pub(crate) fn custom(&self) -> Option<&Arc<ServedVersion>> {
        match self {
            Row::BuiltIn(_) => None,
            Row::Custom(serving) => Some(serving),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_matches_its_definition() {
        let definition = api::json!({
            "spec": {"group": "rows.example.com", "scope": "Namespaced"},
            "status": {"acceptedNames": {"plural": "as", "singular": "a", "kind": "A", "listKind": "AList", "shortNames": ["x"]}}
        });
        let version =
            api::json!({"name": "v1", "subresources": {"status": {}}, "selectableFields": [{"jsonPath": ".spec.x"}]});
        let names = Names::of_version(&definition, &version, "v2");
        let row = names.row();
        assert_eq!((row.group, row.plural, row.singular, row.kind), ("rows.example.com", "as", "a", "A"));
        assert_eq!((row.list_kind().as_str(), row.storage_version()), ("AList", "v2"));
        assert_eq!((row.short_names(), row.categories()), (vec!["x"], vec![]));
        assert!(row.is_served_in("v1") && !row.is_served_in("v2"));
        assert!(row.offers("spec.x") && !row.offers("spec.y"));
        assert!(row.subresource("status").is_some() && row.subresource("scale").is_none());
    }
}
