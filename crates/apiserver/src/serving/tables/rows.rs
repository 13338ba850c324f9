//! Tables of lists, written straight from the text of the objects: only what their cells need is read.
//!
//! Long lists are shared out to all cores: a table takes more work than sending it does.

use std::collections::VecDeque;

use api::json::{self, Object, Value};
use bytes::Bytes;
use registry::printers::Printer;

use super::{conditions, table};
use crate::clock;
use crate::http::body::Body;
use crate::http::request::Query;
use crate::resources::Resource;

use crate::storage::stored::Served;
use crate::verbs::{Call, partial_metadata};

/// So many rows become one piece of the answer.
const PIECE: usize = 256;
/// Fewer rows are not worth another thread.
const ROWS_PER_THREAD: usize = 1000;
/// At most this many threads make one table.
const THREADS_MAX: usize = 4;

/// The table of a list.
pub(crate) fn of_stored(call: &Call<'_>, objects: &[&Served], metadata: Object) -> Body {
    let printer = call.resource.printer;
    let version = call.accepted.version.as_str();
    if objects.is_empty() && printer.is_plain() {
        // Kubernetes: what has no columns of its own has no rows either, not even none.
        let mut empty = table(version, metadata, Some(&printer), Vec::new());
        if let Some(fields) = empty.as_object_mut() {
            fields.insert("rows", Value::Null);
        }
        return format!("{}\n", json::to_string(&empty)).into();
    }
    let is_class = (call.resource.group, call.resource.plural) == ("storage.k8s.io", "storageclasses");
    let classes = objects.iter().filter(|_| is_class).map(|class| class.decode());
    let default_class = registry::printers::default_class(classes);
    let rows = Rows { printer: &printer, resource: call.resource, query: call.query, version, default_class };
    let head = json::to_string(&table(version, metadata, Some(&printer), Vec::new()));
    let head = head.strip_suffix("]}").map(ToOwned::to_owned).unwrap_or(head);
    let mut pieces: VecDeque<Bytes> = VecDeque::from([head.into()]);
    let cores = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    let threads = objects.len().checked_div(ROWS_PER_THREAD).unwrap_or(0).clamp(1, cores);
    if threads == 1 {
        pieces.extend(rows.pieces(objects));
    } else {
        let part = objects.len().div_ceil(threads);
        let parts = std::thread::scope(|scope| {
            let parts: Vec<_> = objects.chunks(part).map(|part| scope.spawn(|| rows.pieces(part))).collect();
            // A panic of a part is ours.
            let join = |part: std::thread::ScopedJoinHandle<'_, Vec<Bytes>>| {
                part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            parts.into_iter().map(join).collect::<Vec<_>>()
        });
        for (number, part) in parts.into_iter().enumerate() {
            if number > 0 {
                pieces.push_back(Bytes::from_static(b","));
            }
            pieces.extend(part);
        }
    }
    pieces.push_back(Bytes::from_static(b"]}\n"));
    Body::Pieces(pieces)
}

struct Rows<'a> {
    printer: &'a Printer,
    resource: &'a Resource,
    query: &'a Query,
    version: &'a str,
    /// The class among the rows that claims get which name none.
    default_class: Option<String>,
}

impl Rows<'_> {
    /// The rows of some objects, with commas between them.
    fn pieces(&self, objects: &[&Served]) -> Vec<Bytes> {
        let mut pieces = Vec::with_capacity(objects.len().div_ceil(PIECE));
        for (number, part) in objects.chunks(PIECE).enumerate() {
            let mut text = String::with_capacity(part.len().saturating_mul(700));
            let mut read = Vec::new();
            for (index, object) in part.iter().enumerate() {
                if number > 0 || index > 0 {
                    text.push(',');
                }
                self.row(&mut text, object, &mut read);
            }
            pieces.push(text.into());
        }
        pieces
    }

    /// Appends a row to `text`; `read` is room for what is read of the object.
    fn row(&self, text: &mut String, served: &Served, read: &mut Vec<u8>) {
        let unread = self.printer.unread;
        // No cell shows managed fields, which are often half of the object.
        let (before, after) = served.around_managed_fields();
        read.clear();
        read.extend_from_slice(before);
        read.extend_from_slice(after);
        // What was encoded here can be read again.
        let object = json::parse_without(read, unread).unwrap_or_default();
        text.push_str("{\"cells\":");
        let mut cells = (self.printer.cells)(&object, clock::now());
        if let (Some(default), Some(Value::String(name))) = (&self.default_class, cells.first_mut())
            && name.as_str() == default
        {
            *name = format!("{default} (default)").into();
        }
        json::write_value(text, &Value::Array(cells));
        if let Some(conditions) = conditions(self.resource, &object) {
            text.push_str(",\"conditions\":");
            json::write_value(text, &conditions);
        }
        text.push_str(",\"object\":");
        match self.query.get("includeObject") {
            "None" => text.push_str("null"),
            "Object" => text.push_str(&String::from_utf8_lossy(&served.json)),
            // Of these not all metadata is shown.
            _ if self.resource.kind == "DaemonSet" => {
                json::write_value(text, &partial_metadata(&served.decode(), self.version));
            }
            _ => match served.metadata().and_then(|metadata| std::str::from_utf8(metadata).ok()) {
                Some(metadata) => {
                    text.push_str("{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/");
                    text.push_str(self.version);
                    text.push_str("\",\"metadata\":");
                    text.push_str(metadata);
                    text.push('}');
                }
                None => json::write_value(text, &partial_metadata(&served.decode(), self.version)),
            },
        }
        text.push('}');
    }
}
