//! Rows of tables, written straight from the text of the objects: only what their cells need is read.

use api::json::{self, Value};
use api::time::Timestamp;
use registry::printers::Printer;

use super::conditions;
use crate::custom::rows::Row;
use crate::resources::Resource;
use crate::verbs::{Call, partial_metadata};
use cache::Entry;
use cache::stored::Served;

/// Writer of the rows of a list.
pub(crate) struct Rows {
    printer: Printer,
    row: Row,
    include: Include,
    version: &'static str,
    /// The class that claims get which name none.
    default_class: Option<String>,
    now: Timestamp,
}

/// The part of its object that a row contains.
enum Include {
    Nothing,
    Metadata,
    Object,
}

impl Rows {
    /// Creates the writer of a request.
    pub(crate) fn of(call: &Call<'_>) -> Self {
        let include = match call.query.get("includeObject") {
            "None" => Include::Nothing,
            "Object" => Include::Object,
            _ => Include::Metadata,
        };
        let printer = call.resource.printer;
        let is_class = (call.resource.group, call.resource.plural) == ("storage.k8s.io", "storageclasses");
        let default_class = is_class.then(|| default_class(call)).flatten();
        Self { printer, row: call.row.clone(), include, version: call.accepted.version, default_class, now: call.now() }
    }

    /// Whether the rows of an empty list are `null`.
    pub(crate) fn are_null_if_empty(&self) -> bool {
        self.printer.has_null_rows()
    }

    /// Appends a row.
    pub(crate) fn write(&self, text: &mut Vec<u8>, served: &Served) {
        // No cell shows managed fields, which are often half of the object.
        let (before, after) = served.around_managed_fields();
        // What was encoded here can be read again.
        let read = [before, after].concat();
        let object = json::parse_without(&read, &self.printer.unread).unwrap_or_default();
        let mut row = String::with_capacity(512);
        row.push_str("{\"cells\":");
        let mut cells = (self.printer.cells)(&object, self.now);
        if let (Some(default), Some(Value::String(name))) = (&self.default_class, cells.first_mut())
            && name.as_str() == default
        {
            *name = format!("{default} (default)").into();
        }
        json::write_value(&mut row, &Value::Array(cells));
        if let Some(conditions) = conditions(&self.row.resource(), &object) {
            row.push_str(",\"conditions\":");
            json::write_value(&mut row, &conditions);
        }
        row.push_str(",\"object\":");
        match self.include {
            Include::Nothing => row.push_str("null"),
            Include::Object => row.push_str(&String::from_utf8_lossy(&served.json)),
            // For these, not all metadata is shown.
            Include::Metadata if self.row.resource().kind == "DaemonSet" => {
                json::write_value(&mut row, &partial_metadata(&served.decode(), self.version));
            }
            Include::Metadata => match served.metadata().and_then(|metadata| std::str::from_utf8(metadata).ok()) {
                Some(metadata) => {
                    row.push_str("{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/");
                    row.push_str(self.version);
                    row.push_str("\",\"metadata\":");
                    row.push_str(metadata);
                    row.push('}');
                }
                None => json::write_value(&mut row, &partial_metadata(&served.decode(), self.version)),
            },
        }
        row.push('}');
        text.extend_from_slice(row.as_bytes());
    }
}

/// The class that claims get which name none, if there is one.
fn default_class(call: &Call<'_>) -> Option<String> {
    let prefix = call.resource.prefix();
    let classes = call.server.cache.resource(&prefix).list(&prefix, None, 0, |_, _| true).objects;
    registry::printers::default_class(classes.iter().map(|(_, class)| class.decode()))
}

/// Kubernetes: of schemas that match, the first one of the table counts.
pub(crate) fn is_sorted(resource: &Resource<'_>) -> bool {
    resource.plural == "flowschemas"
}

/// Sorts the objects of a table, where that is done.
pub(crate) fn sort(resource: &Resource<'_>, objects: &mut [Entry]) {
    if is_sorted(resource) {
        let precedence = |(_, object): &Entry| {
            let schema = object.decode();
            schema.int_at(&["spec", "matchingPrecedence"])
        };
        objects.sort_by_cached_key(precedence);
    }
}
