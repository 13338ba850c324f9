//! Tables of custom resources: the columns of their definition behind the name.

use std::time::{Duration, Instant};

use api::json::{Object, Value};
use registry::custom_resource::printer_columns::{Columns, Request as Cells};

use super::put_object;
use crate::custom::serving::ServedVersion;
use crate::state::Server;
use crate::wire::heavy;
use crate::wire::request::Query;
use api::metadata;

/// Warning for a table with cells that were not evaluated.
pub(crate) const BUDGET_EXCEEDED: &str = "the CEL expressions of printer columns exceeded the cost budget of this request: some cells are empty; ask for fewer objects, or simplify the columns of the CustomResourceDefinition";

/// The warning for a table with cells that were left out because all together are too long.
pub(crate) const TOO_LONG: &str =
    "the cells of this table exceeded 16 MiB: some cells are empty; ask for fewer objects";

/// A table.
pub(crate) struct Table {
    /// The document.
    pub(crate) value: Value,
    /// Warnings for the client.
    pub(crate) warnings: Vec<String>,
}

/// Renders custom resources as a `Table`; column definitions are included only on request.
pub(crate) fn of(
    server: &Server,
    serving: &ServedVersion,
    query: &Query,
    version: &str,
    objects: impl Iterator<Item = Value>,
    list_metadata: Object,
    with_columns: bool,
) -> Table {
    let columns = serving.columns();
    let started = Instant::now();
    let clock = || -> Duration { started.elapsed() };
    let mut cells = Cells::new(server.clock().now_seconds(), server.options.table_cost_max, &clock);
    let rows: Vec<Value> = objects
        // A table whose client has disconnected is not finished.
        .take_while(|_| heavy::is_wanted())
        .map(|object| {
            let mut row = Object::with_capacity(2);
            let mut values = Vec::with_capacity(columns.columns().len().saturating_add(1));
            values.push(Value::from(metadata::name(&object)));
            values.extend(columns.cells(&object, &mut cells));
            row.insert("cells", values);
            put_object(&mut row, query, version, object);
            Value::Object(row)
        })
        .collect();
    server.metrics.columns.count(serving, columns, &cells.tallies);
    let is_cut = [(cells.budget.is_exceeded(), BUDGET_EXCEEDED), (cells.budget.is_too_long(), TOO_LONG)];
    let warnings = is_cut.into_iter().filter(|(is_cut, _)| *is_cut).map(|(_, warning)| warning.to_owned()).collect();
    Table { value: table(version, list_metadata, with_columns.then_some(columns), rows), warnings }
}

/// The table that a bookmark holds.
pub(crate) fn bookmark(
    serving: &ServedVersion,
    version: &str,
    list_metadata: Object,
    row: Value,
    first: bool,
) -> Value {
    table(version, list_metadata, first.then(|| serving.columns()), vec![row])
}

fn table(version: &str, list_metadata: Object, columns: Option<&Columns>, rows: Vec<Value>) -> Value {
    let definitions = columns.map_or(Value::Null, |columns| {
        let name = api::json!({
            "name": "Name", "type": "string", "format": "name", "description": NAME, "priority": 0
        });
        let others = columns.columns().iter().map(|column| {
            api::json!({
                "name": (column.name.as_str()), "type": (column.column_type.as_str()),
                "format": (column.format.as_str()), "description": (column.description.as_str()),
                "priority": (column.priority)
            })
        });
        Value::Array(std::iter::once(name).chain(others).collect())
    });
    let api_version = format!("meta.k8s.io/{version}");
    api::json!({
        "kind": "Table", "apiVersion": api_version, "metadata": list_metadata, "columnDefinitions": definitions,
        "rows": rows
    })
}

/// Kubernetes' description of names.
const NAME: &str = "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
