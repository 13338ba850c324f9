//! Printer columns as the server fills them: each as an expression and as a path, over the same objects.

use std::time::Duration;

use api::json::{self, Value};
use api::time::Timestamp;
use registry::custom_resource::printer_columns::{Columns, Request};
use registry::expressions::Languages;

use crate::engine::{Batch, batch};

/// One column, both ways.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// Name in the table.
    pub name: &'static str,
    /// The type of its cells.
    pub column_type: &'static str,
    /// As an expression.
    pub expression: &'static str,
    /// As a path.
    pub path: &'static str,
}

/// Columns that print the same by an expression and by a path: an element of a list, a deep nested element, a condition, and two
/// plain fields. Then the proposal's pair and a deep nested list, of which a path prints the first result and an expression all.
pub const ALL: [Column; 7] = [
    Column {
        name: "host",
        column_type: "string",
        expression: r#"self.spec.servers[0].hosts.filter(h, h == "prod.example.com")[0]"#,
        path: r#".spec.servers[*].hosts[?(@ == "prod.example.com")]"#,
    },
    Column {
        name: "node",
        column_type: "string",
        expression: "self.spec.regions[0].zones[0].racks[0].nodes[0].name",
        path: ".spec.regions[*].zones[*].racks[*].nodes[*].name",
    },
    Column {
        name: "ready",
        column_type: "string",
        expression: r#"self.status.conditions.filter(c, c.type == "Ready")[0].status"#,
        path: r#".status.conditions[?(@.type=="Ready")].status"#,
    },
    Column { name: "size", column_type: "integer", expression: "self.spec.size", path: ".spec.size" },
    Column { name: "color", column_type: "string", expression: "self.spec.color", path: ".spec.color" },
    Column {
        name: "all hosts",
        column_type: "string",
        expression: r#"self.spec.servers.map(s, s.hosts.filter(h, h == "prod.example.com"))"#,
        path: r#".spec.servers[*].hosts[?(@ == "prod.example.com")]"#,
    },
    Column {
        name: "all nodes",
        column_type: "string",
        expression: "self.spec.regions.map(r, r.zones.map(z, z.racks.map(k, k.nodes.map(n, n.name))))",
        path: ".spec.regions[*].zones[*].racks[*].nodes[*].name",
    },
];

/// Number of columns that print the same both ways; they come first.
pub const EQUAL: usize = 5;

/// The two ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// By an expression.
    Expression,
    /// By a path.
    Path,
}

impl Column {
    /// As it stands in a definition.
    #[must_use]
    pub fn definition(&self, way: Way) -> Value {
        let (field, text) = match way {
            Way::Expression => ("expression", self.expression),
            Way::Path => ("jsonPath", self.path),
        };
        api::json!({"name": (self.name), "type": (self.column_type), field: text})
    }
}

/// The schema of the objects.
#[must_use]
pub fn schema() -> Value {
    let text = || api::json!({"type": "string"});
    let list = |items: Value| api::json!({"type": "array", "items": items});
    let object = |name: &str, inner: Value| api::json!({"type": "object", "properties": {name: inner}});
    let nodes = list(object("name", text()));
    let regions = list(object("zones", list(object("racks", list(object("nodes", nodes))))));
    let servers = list(object("hosts", list(text())));
    let condition = api::json!({"type": "object", "properties": {"type": (text()), "status": (text())}});
    api::json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "servers": servers, "regions": regions, "size": {"type": "integer"}, "color": (text())
        }},
        "status": {"type": "object", "properties": {"conditions": (list(condition))}}
    }})
}

/// An object of a kind.
#[must_use]
pub fn object(kind: &str, name: &str) -> Value {
    let node = |name: &str| api::json!({"name": name});
    let rack = |first: &str, second: &str| api::json!({"nodes": [(node(first)), (node(second))]});
    let zone = || api::json!({"racks": [(rack("n1", "n2")), (rack("n3", "n4"))]});
    let region = || api::json!({"zones": [(zone()), (zone())]});
    api::json!({
        "apiVersion": "bench.example.com/v1", "kind": kind, "metadata": {"name": name},
        "spec": {
            "servers": [
                {"hosts": ["prod.example.com", "www.example.com"]}, {"hosts": ["test.example.com", "prod.example.com"]}
            ],
            "regions": [(region()), (region())], "size": 3, "color": "green"
        },
        "status": {"conditions": [
            {"type": "Synced", "status": "True"}, {"type": "Healthy", "status": "True"}, {"type": "Ready", "status": "True"}
        ]}
    })
}

/// From the text of a column to what fills cells; for an expression, the environment of the schema included.
#[must_use]
pub fn compile(column: Column, way: Way) -> Batch {
    let (definition, schema) = (column.definition(way), schema());
    let languages = Languages::default();
    batch(move || Columns::new(&[&definition], Some(&schema), &languages))
}

/// One cell of a table with many rows: evaluated and printed.
#[must_use]
pub fn cell(column: Column, way: Way) -> Batch {
    let definition = column.definition(way);
    let (columns, _) = Columns::new(&[&definition], Some(&schema()), &Languages::default());
    let object = object("Thing", "a");
    let now = Timestamp { seconds: 1_700_000_000, nanos: 0 };
    let mut request = Request::new(now, u64::MAX, &|| Duration::ZERO);
    batch(move || columns.cells(&object, &mut request))
}

/// Returns the cells of a column as JSON.
#[must_use]
pub fn shown(column: Column, way: Way) -> String {
    let definition = column.definition(way);
    let (columns, _) = Columns::new(&[&definition], Some(&schema()), &Languages::default());
    let clock = || Duration::ZERO;
    let mut request = Request::new(Timestamp { seconds: 1_700_000_000, nanos: 0 }, u64::MAX, &clock);
    json::to_string(&Value::Array(columns.cells(&object("Thing", "a"), &mut request)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparable_columns_print_the_same_both_ways() {
        let expressions = ALL.map(|column| shown(column, Way::Expression));
        let paths = ALL.map(|column| shown(column, Way::Path));
        assert_eq!(paths[..EQUAL], [r#"["prod.example.com"]"#, r#"["n1"]"#, r#"["True"]"#, "[3]", r#"["green"]"#]);
        assert_eq!(expressions[..EQUAL], paths[..EQUAL]);
        // A path prints the first result only.
        assert_eq!(expressions[EQUAL], r#"["[[prod.example.com], [prod.example.com]]"]"#);
        assert_eq!(paths[EQUAL..], paths[..2]);
    }
}
