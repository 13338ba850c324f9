//! Tables: what `kubectl get` shows.
//!
//! Which columns a kind has, and what stands in them, is in `registry::printers`; here they become Table objects.

mod custom;
mod rows;

use api::json::{Object, Value};
use api::time::Timestamp;
use registry::printers::{Column, Printer, SCALES, row_conditions};

pub(crate) use self::rows::{Rows, is_sorted, sort};
use crate::custom::serving::ServedVersion;
use crate::resources::Resource;
use crate::state::Server;
use crate::verbs::{Call, partial_metadata};
use crate::wire::answer::Answer;
use crate::wire::request::Query;
use crate::wire::status::Result;

/// Renders one object as a `Table` with one row.
pub(crate) fn of_one(call: &Call<'_>, code: u16, object: Value) -> Result<Answer> {
    let mut metadata = Object::new();
    metadata.insert("resourceVersion", api::metadata::text(&object, "resourceVersion"));
    of_list(call, code, std::iter::once(object), metadata)
}

/// The table of a list.
pub(crate) fn of_list(
    call: &Call<'_>,
    code: u16,
    objects: impl Iterator<Item = Value>,
    metadata: Object,
) -> Result<Answer> {
    if let Some(custom) = call.custom() {
        let version = call.accepted.version;
        let table = custom::of(call.server, custom, call.query, version, objects, metadata, true);
        return Ok(Answer::json(code, &table.value).with_warnings(table.warnings));
    }
    let printer = call.resource.printer;
    let rows: Vec<Value> = objects
        .map(|object| row(&printer, call.resource, call.query, call.accepted.version, object, call.now()))
        .collect();
    Ok(Answer::json(code, &table(call.accepted.version, metadata, Some(&printer), rows)))
}

/// The table of no objects.
pub(crate) fn empty(resource: &Resource<'_>, version: &str, metadata: Object) -> Value {
    table(version, metadata, Some(&resource.printer), Vec::new())
}

/// The table of a Scale.
pub(crate) fn of_scale(call: &Call<'_>, scale: Value) -> Value {
    let mut metadata = Object::new();
    metadata.insert("resourceVersion", api::metadata::text(&scale, "resourceVersion"));
    let row = row(&SCALES, call.resource, call.query, call.accepted.version, scale, call.now());
    let mut table = table(call.accepted.version, metadata, Some(&SCALES), vec![row]);
    // Kubernetes: the name of a scale is any text.
    let columns = table.get_mut("columnDefinitions").and_then(Value::as_array_mut);
    if let Some(name) = columns.and_then(|columns| columns.first_mut()).and_then(Value::as_object_mut) {
        name.insert("format", "");
    }
    table
}

/// The table that a watch event holds: one row, columns only in the first.
pub(crate) fn event(
    server: &Server,
    resource: &Resource<'_>,
    query: &Query,
    version: &str,
    object: Value,
    first: bool,
) -> Value {
    let printer = resource.printer;
    let mut metadata = Object::new();
    metadata.insert("resourceVersion", api::metadata::text(&object, "resourceVersion"));
    let row = row(&printer, resource, query, version, object, server.clock().now_seconds());
    table(version, metadata, first.then_some(&printer), vec![row])
}

/// As [`event`], for a custom resource.
pub(crate) fn custom_event(
    server: &Server,
    custom: &ServedVersion,
    query: &Query,
    version: &str,
    object: Value,
    first: bool,
) -> Value {
    let mut metadata = Object::new();
    metadata.insert("resourceVersion", api::metadata::text(&object, "resourceVersion"));
    custom::of(server, custom, query, version, std::iter::once(object), metadata, first).value
}

/// The table that a bookmark holds: one empty row.
pub(crate) fn bookmark(
    resource: &Resource<'_>,
    custom: Option<&ServedVersion>,
    version: &str,
    metadata: Object,
    first: bool,
) -> Value {
    let printer = resource.printer;
    let object = partial_metadata(&api::json!({"metadata": (metadata.clone())}), version);
    // Kubernetes: an object that has nothing is printed.
    let cells = match custom {
        Some(_) => Vec::new(),
        None => (printer.cells)(&api::json!({"metadata": {}}), Timestamp::ZERO),
    };
    let row = api::json!({"cells": cells, "object": object});
    let metadata: Object = metadata.into_iter().filter(|(key, _)| key == "resourceVersion").collect();
    if let Some(custom) = custom {
        return custom::bookmark(custom, version, metadata, row, first);
    }
    table(version, metadata, first.then_some(&printer), vec![row])
}

fn table(version: &str, metadata: Object, printer: Option<&Printer>, rows: Vec<Value>) -> Value {
    let columns = printer.map_or(Value::Null, |printer| Value::Array(printer.columns.iter().map(column).collect()));
    let api_version = format!("meta.k8s.io/{version}");
    api::json!({
        "kind": "Table", "apiVersion": api_version, "metadata": metadata, "columnDefinitions": columns, "rows": rows
    })
}

fn column(column: &Column) -> Value {
    api::json!({
        "name": (column.name), "type": (column.kind), "format": (column.format()),
        "description": (&*column.description.text()), "priority": (i64::from(column.priority))
    })
}

fn row(
    printer: &Printer,
    resource: &Resource<'_>,
    query: &Query,
    version: &str,
    object: Value,
    now: Timestamp,
) -> Value {
    let cells = (printer.cells)(&object, now);
    let mut row = Object::new();
    row.insert("cells", cells);
    if let Some(conditions) = row_conditions(resource, &object) {
        row.insert("conditions", conditions);
    }
    put_object(&mut row, query, version, object);
    Value::Object(row)
}

/// Adds the requested part of an object to its row.
pub(crate) fn put_object(row: &mut Object, query: &Query, version: &str, object: Value) {
    let shown = match query.get("includeObject") {
        "None" => Value::Null,
        "Object" => object,
        _ => partial_metadata(&object, version),
    };
    row.insert("object", shown);
}
