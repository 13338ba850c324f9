//! Rows of tables, written straight from the text of the objects: only what their cells need is read.

use api::age::human_duration;
use api::json::{self, Value};
use api::time::Timestamp;
use registry::printers::{LastingCells, Printer, row_conditions};

use crate::custom::rows::Row;
use crate::resources::{self, Resource};
use crate::verbs::{Call, partial_metadata};
use cache::Entry;
use cache::encodings::Row as KeptRow;
use cache::stored::ServedObject;

/// Writer of the rows of a list.
pub(crate) struct Rows {
    printer: Printer,
    row: Row,
    include: IncludeObjectPolicy,
    version: &'static str,
    /// The class that claims get which name none.
    default_class: Option<String>,
    now: Timestamp,
    /// Whether not all metadata is shown.
    is_partly_hidden: bool,
    /// Whether rows are kept with their objects.
    keeps: bool,
}

/// The part of its object that a row contains.
enum IncludeObjectPolicy {
    Nothing,
    Metadata,
    Object,
}

impl Rows {
    /// Creates the writer of a request.
    pub(crate) fn of(call: &Call<'_>) -> Self {
        let include = match call.query.get("includeObject") {
            "None" => IncludeObjectPolicy::Nothing,
            "Object" => IncludeObjectPolicy::Object,
            _ => IncludeObjectPolicy::Metadata,
        };
        let printer = call.resource.printer;
        let is_class = call.resource.is(resources::STORAGE_CLASSES);
        let default_class = is_class.then(|| default_class(call)).flatten();
        Self {
            printer,
            row: call.row.clone(),
            include,
            version: call.accepted.version,
            default_class,
            now: call.now(),
            is_partly_hidden: call.resource.kind == "DaemonSet",
            // A row of a class depends on other classes.
            keeps: !is_class,
        }
    }

    /// Whether the rows of an empty list are `null`.
    pub(crate) fn are_null_if_empty(&self) -> bool {
        self.printer.has_null_rows()
    }

    /// Appends a row.
    pub(crate) fn write(&self, text: &mut Vec<u8>, served: &ServedObject) {
        match served.row().filter(|_| self.keeps) {
            Some(row) => self.write_kept(text, row),
            None => self.write_cells(text, served),
        }
        self.write_object(text, served);
        text.push(b'}');
    }

    /// Appends a row that was kept, up to its object.
    fn write_kept(&self, text: &mut Vec<u8>, row: &KeptRow) {
        text.extend_from_slice(row.start.as_bytes());
        if let Some(created) = row.created {
            let mut age = String::with_capacity(16);
            json::write_string(&mut age, &human_duration(self.now.seconds.saturating_sub(created)));
            text.extend_from_slice(age.as_bytes());
        }
        text.extend_from_slice(row.end.as_bytes());
    }

    /// Appends a row up to its object, and keeps it if it does not change with time.
    fn write_cells(&self, text: &mut Vec<u8>, served: &ServedObject) {
        // No cell shows managed fields, which are often half of the object.
        let (before, after) = served.around_managed_fields();
        // What was encoded here can be read again.
        let read = [before, after].concat();
        let object = json::parse_without(&read, &self.printer.unread).unwrap_or_default();
        let conditions = row_conditions(&self.row.resource(), &object);
        if self.keeps
            && let Some(cells) = self.printer.lasting_cells(&object)
        {
            let row = kept(&cells, conditions.as_ref());
            self.write_kept(text, &row);
            served.keep_row(row);
            return;
        }
        let mut row = String::with_capacity(512);
        row.push_str("{\"cells\":");
        let mut cells = (self.printer.cells)(&object, self.now);
        if let (Some(default), Some(Value::String(name))) = (&self.default_class, cells.first_mut())
            && name.as_str() == default
        {
            *name = format!("{default} (default)").into();
        }
        json::write_value(&mut row, &Value::Array(cells));
        end(&mut row, conditions.as_ref());
        text.extend_from_slice(row.as_bytes());
    }

    fn write_object(&self, text: &mut Vec<u8>, served: &ServedObject) {
        match self.include {
            IncludeObjectPolicy::Nothing => text.extend_from_slice(b"null"),
            IncludeObjectPolicy::Object => text.extend_from_slice(&served.json),
            IncludeObjectPolicy::Metadata => match served.metadata().filter(|_| !self.is_partly_hidden) {
                Some(metadata) => {
                    text.extend_from_slice(b"{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/");
                    text.extend_from_slice(self.version.as_bytes());
                    text.extend_from_slice(b"\",\"metadata\":");
                    text.extend_from_slice(metadata);
                    text.push(b'}');
                }
                None => {
                    let metadata = partial_metadata(&served.decode(), self.version);
                    text.extend_from_slice(json::to_string(&metadata).as_bytes());
                }
            },
        }
    }
}

/// The row to keep.
fn kept(cells: &LastingCells, conditions: Option<&Value>) -> KeptRow {
    let (mut start, mut rest) = (String::from("{\"cells\":["), String::new());
    let (age_at, created) = cells.age.unzip();
    for (index, cell) in cells.cells.iter().enumerate() {
        let text = if age_at.is_none_or(|at| index <= at) { &mut start } else { &mut rest };
        if index > 0 {
            text.push(',');
        }
        if age_at != Some(index) {
            json::write_value(text, cell);
        }
    }
    rest.push(']');
    end(&mut rest, conditions);
    KeptRow { start: start.into(), created, end: rest.into() }
}

/// Appends what follows the cells, up to the object.
fn end(row: &mut String, conditions: Option<&Value>) {
    if let Some(conditions) = conditions {
        row.push_str(",\"conditions\":");
        json::write_value(row, conditions);
    }
    row.push_str(",\"object\":");
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
