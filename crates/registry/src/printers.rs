//! Columns and cells of kinds: one file per family.
//!
//! Follows Kubernetes' `pkg/printers/internalversion`; what is not shown is `<none>`, what is not known `<unknown>`.

pub(crate) mod core;
pub(crate) mod flow;
pub(crate) mod network;
pub(crate) mod nodes;
pub(crate) mod others;
pub(crate) mod pods;
pub(crate) mod policy;
pub(crate) mod storage;
pub(crate) mod workloads;

pub use self::others::SCALES;
pub use self::storage::default_class;

use std::borrow::Cow;

use api::age::human_duration;
use api::json::{NameFilter, Value};
use api::time::Timestamp;

use crate::resources::Resource;

/// A column.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// Header of the column.
    pub name: &'static str,
    /// `string` or `integer`.
    pub kind: &'static str,
    /// Description of the column.
    pub description: Description,
    /// 0 is always shown, 1 in the wide form.
    pub priority: u8,
}

impl Column {
    /// The form of its values: `name` for names of objects, nothing for all others.
    #[must_use]
    pub fn format(&self) -> &'static str {
        if matches!(self.name, "Name" | "Attacher") { "name" } else { "" }
    }
}

/// Description of a column, in Kubernetes' words.
#[derive(Debug, Clone, Copy)]
pub enum Description {
    /// A text that only the column has.
    Text(&'static str),
    /// The description of a field: the type's name in OpenAPI, and the name of the field.
    Field(&'static str, &'static str),
}

impl Description {
    /// Returns the text; an empty one if the field has none.
    #[must_use]
    pub fn text(self) -> Cow<'static, str> {
        match self {
            Self::Text(text) => Cow::Borrowed(text),
            Self::Field(schema, field) => api::types::describe_field(schema, field).unwrap_or_default(),
        }
    }
}

/// Table columns of a kind.
#[derive(Debug, Clone, Copy)]
pub struct Printer {
    /// The columns.
    pub columns: &'static [Column],
    /// The cells of an object, one per column.
    pub cells: fn(&Value, Timestamp) -> Vec<Value>,
    /// Names of fields that no cell and no condition of a row comes from, wherever they stand.
    pub unread: NameFilter,
}

impl Printer {
    /// Whether the rows of an empty list are `null`: so Kubernetes writes them for kinds that show the time of creation
    /// instead of an age.
    #[must_use]
    pub fn has_null_rows(&self) -> bool {
        self.columns.iter().any(|column| column.name == "Created At")
    }

    /// The cells of an object that stay as they are while time passes; none if others than its age change.
    #[must_use]
    pub fn lasting_cells(&self, object: &Value) -> Option<LastingCells> {
        // Every cell that depends on the time differs between these two moments.
        let [early, late] = [i64::MIN / 4, i64::MAX / 4].map(|seconds| Timestamp { seconds, ..Timestamp::ZERO });
        let (cells, others) = ((self.cells)(object, early), (self.cells)(object, late));
        let mut differing = cells.iter().zip(&others).enumerate().filter(|(_, (cell, other))| cell != other);
        let changing = differing.next().map(|(index, _)| index);
        if differing.next().is_some() || cells.len() != others.len() {
            return None;
        }
        let Some(index) = changing else { return Some(LastingCells { cells, age: None }) };
        let created = Timestamp::parse(object.str_at(&["metadata", "creationTimestamp"])?).ok()?;
        // Ages are exact in their first seconds: one that counts from another time differs here.
        let soon = Timestamp { seconds: created.seconds.saturating_add(1), ..Timestamp::ZERO };
        let is_age = (self.cells)(object, soon).get(index) == Some(&age(object, soon));
        is_age.then_some(LastingCells { cells, age: Some((index, created.seconds)) })
    }
}

/// The conditions of an object's row: pods that have ended have one.
#[must_use]
pub fn row_conditions(resource: &Resource<'_>, object: &Value) -> Option<Value> {
    if (resource.group, resource.plural) != ("", "pods") {
        return None;
    }
    let (reason, message) = match object.str_at(&["status", "phase"])? {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(api::json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
}

/// The cells of an object without its age.
#[derive(Debug, Clone, PartialEq)]
pub struct LastingCells {
    /// The cells; that of the age is to be replaced.
    pub cells: Vec<Value>,
    /// Index of the cell that shows the age, and the time of creation in seconds since 1970; none if there is no age.
    pub age: Option<(usize, i64)>,
}

const fn text(name: &'static str, description: Description) -> Column {
    Column { name, kind: "string", description, priority: 0 }
}

const fn number(name: &'static str, description: Description) -> Column {
    Column { name, kind: "integer", description, priority: 0 }
}

const fn wide(name: &'static str, description: Description) -> Column {
    Column { name, kind: "string", description, priority: 1 }
}

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const NAME: Column = text("Name", Description::Field(OBJECT_META, "name"));
const AGE: Column = text("Age", Description::Field(OBJECT_META, "creationTimestamp"));

/// Name and age, for kinds that have nothing else to show.
pub(crate) const PLAIN: Printer =
    Printer { columns: &[NAME, AGE], cells: |object, now| vec![name(object), age(object, now)], unread: UNREAD };

/// Fields that hardly any printer reads.
const UNREAD: NameFilter = NameFilter::new(&["managedFields"]);

fn is_deleting(object: &Value) -> bool {
    object.at(&["metadata", "deletionTimestamp"]).is_some_and(|it| !it.is_null())
}

fn name(object: &Value) -> Value {
    object.field("metadata").text("name").into()
}

fn age(object: &Value, now: Timestamp) -> Value {
    since(object.str_at(&["metadata", "creationTimestamp"]), now).into()
}

/// The text at a path, or `<none>`.
fn or_none(object: &Value, path: &[&str]) -> Value {
    or(object, path, "<none>")
}

/// The text at a path, or another.
fn or(object: &Value, path: &[&str], other: &str) -> Value {
    match object.str_at(path) {
        Some(text) if !text.is_empty() => text.into(),
        _ => other.into(),
    }
}

/// The status of a condition.
fn condition<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    let conditions = object.list_at(&["status", "conditions"]);
    conditions.iter().find(|it| it.str_at(&["type"]) == Some(name))?.str_at(&["status"])
}

/// The texts of a field of all items, with commas.
fn joined(items: &[Value], field: &str) -> String {
    items.iter().map(|item| item.text(field)).collect::<Vec<_>>().join(",")
}

/// Labels as `a=b,c=d`, or `<none>`.
fn label_text(labels: Option<&Value>) -> String {
    let labels = labels.and_then(Value::as_object);
    let entries: Vec<String> = labels
        .into_iter()
        .flat_map(|labels| labels.iter())
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    if entries.is_empty() { "<none>".to_owned() } else { entries.join(",") }
}

/// A label selector as text, `<none>` if it is empty, `<error>` if it is invalid.
fn selector_text(selector: Option<&Value>) -> String {
    let selector = selector.and_then(|it| api::json::from_value::<api::meta::v1::LabelSelector>(it).ok());
    match selector.map(|it| it.to_selector()) {
        Some(Ok(selector)) if !selector.is_empty() => selector.to_string(),
        Some(Err(_)) => "<error>".to_owned(),
        _ => "<none>".to_owned(),
    }
}

/// The time since a timestamp, in the short form of ages.
fn since(time: Option<&str>, now: Timestamp) -> String {
    match time.and_then(|time| Timestamp::parse(time).ok()) {
        Some(time) if !time.is_zero() => human_duration(now.seconds.saturating_sub(time.seconds)),
        _ => "<unknown>".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources;

    /// Cases that differ: in a list, only the effective default class is marked as default; and definitions
    /// have a separate table, which the recorded printers do not use.
    const KNOWN_GAPS: &[&str] = &["storageclass/list/001", "storageclass/list/002", "crd/001"];

    /// The recorded tables were made at this time.
    const NOW: &str = "2000-01-01T00:00:00Z";

    #[test]
    fn recorded_selectors_and_ages_agree() {
        let cases = |text: &'static str| text.lines().map(|line| (api::json::parse(line.as_bytes()).unwrap(), line));
        let mut selectors = 0;
        for (case, line) in cases(include_str!("../../matching/tests/data/matching.jsonl")) {
            if let Some(formatted) = case.str_at(&["expected", "formatted"]) {
                let selector = case.at(&["input", "selector"]).filter(|it| !it.is_null());
                assert_eq!(selector_text(selector), formatted, "{line}");
                selectors += 1;
            }
        }
        let now = Timestamp::parse(NOW).unwrap();
        let mut ages = 0;
        for (case, line) in cases(include_str!("../../api/tests/data/scalars.jsonl")) {
            if case.str_at(&["input", "fn"]) == Some("dateCell") {
                let text = case.list_at(&["input", "args"])[0].as_str().unwrap();
                let nanos = text.parse::<i64>().ok();
                // Objects show whole seconds; the age is counted from them, toward zero.
                let time = nanos.map(|nanos| Timestamp { seconds: now.seconds - nanos / 1_000_000_000, nanos: 0 });
                let time = time.map(|time| time.to_string());
                assert_eq!(Some(since(time.as_deref(), now).as_str()), case.str_at(&["expected", "cell"]), "{line}");
                ages += 1;
            }
        }
        assert_eq!((selectors, ages), (61, 8));
    }

    #[test]
    fn every_column_has_a_description() {
        let mut fields = 0;
        for row in resources::all().iter() {
            for column in row.printer.columns {
                fields += usize::from(matches!(column.description, Description::Field(..)));
                // Kubernetes: the column of a RuntimeClass's handler refers to a field that does not exist.
                let is_empty = (row.kind, column.name) == ("RuntimeClass", "Handler");
                assert_eq!(column.description.text().is_empty(), is_empty, "{} {}", row.kind, column.name);
            }
        }
        assert!(fields > 200, "{fields}");
        assert!(NAME.description.text().starts_with("Name must be unique within a namespace. Is required when"));
        let quoted = Description::Field("io.k8s.api.core.v1.ServiceSpec", "type").text();
        assert!(quoted.contains("\"ClusterIP\" allocates a cluster-internal IP address"), "{quoted}");
    }

    #[test]
    fn lasting_cells_are_the_cells_at_any_time() {
        let (mut lasting, mut passing) = (0, 0);
        for line in include_str!("../tests/data/printers.jsonl").lines() {
            let case = api::json::parse(line.as_bytes()).unwrap();
            let mut object = case.at(&["input", "object"]).unwrap().clone();
            let (api_version, kind) = (object.str_at(&["apiVersion"]).unwrap(), object.str_at(&["kind"]).unwrap());
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            let mut all = resources::all().iter();
            let found = all.find(|it| it.group == group && it.versions.contains(&version) && it.kind == kind);
            let Some(printer) = found.map(|found| found.printer) else { continue };
            for created in ["1999-12-31T23:50:00Z", "2000-01-01T00:10:00Z"] {
                api::metadata::set(&mut object, "creationTimestamp", created);
                let Some(kept) = printer.lasting_cells(&object) else {
                    passing += 1;
                    continue;
                };
                lasting += 1;
                for now in [NOW, "2000-01-01T00:00:07Z", "2012-03-04T05:06:07Z"] {
                    let now = Timestamp::parse(now).unwrap();
                    let mut cells = kept.cells.clone();
                    if let Some((index, seconds)) = kept.age {
                        cells[index] = human_duration(now.seconds - seconds).into();
                    }
                    assert_eq!(cells, (printer.cells)(&object, now), "{line}");
                }
            }
        }
        assert!(lasting > 100 && passing > 0, "{lasting} {passing}");
    }

    #[test]
    fn recorded_tables_agree() {
        let now = Timestamp::parse(NOW).unwrap();
        let (mut count, mut wrong) = (0, Vec::new());
        for line in include_str!("../tests/data/printers.jsonl").lines() {
            let case = api::json::parse(line.as_bytes()).unwrap();
            let (id, object) = (case.str_at(&["id"]).unwrap(), case.at(&["input", "object"]).unwrap());
            let (api_version, kind) = (object.str_at(&["apiVersion"]).unwrap(), object.str_at(&["kind"]).unwrap());
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            let one = kind.strip_suffix("List").filter(|_| object.get("items").is_some());
            let found = resources::all()
                .iter()
                .find(|it| it.group == group && it.versions.contains(&version) && it.kind == one.unwrap_or(kind));
            let resource = found.unwrap();
            let printer = resource.printer;
            let objects = if one.is_some() { object.list("items") } else { std::slice::from_ref(object) };
            // Tables are printed from stored objects.
            let stored = |object: &Value| {
                let of = api::types::by_api_version(api_version, one.unwrap_or(kind)).unwrap();
                let mut object = api::types::decode(of, object).unwrap().value;
                crate::defaults::apply(of, &mut object, NOW);
                // Cells do not miss what is not read.
                let text = api::json::to_string(&object);
                api::json::parse_without(text.as_bytes(), &printer.unread).unwrap()
            };
            let row = |object: &Value| {
                let object = stored(object);
                let conditions = row_conditions(resource, &object).unwrap_or_default();
                let cells = (printer.cells)(&object, now);
                api::json!({"cells": cells, "conditions": conditions})
            };
            let rows: Vec<Value> = objects.iter().map(row).collect();
            let recorded = |row: &Value| {
                let field = |name: &str| row.get(name).cloned().unwrap_or_default();
                api::json!({"cells": (field("cells")), "conditions": (field("conditions"))})
            };
            let expected: Vec<Value> = case.list_at(&["expected", "rows"]).iter().map(recorded).collect();
            let shown = |column: &Column| (column.name, column.kind, column.format(), i64::from(column.priority));
            let found: Vec<(&str, &str, &str, i64)> = printer.columns.iter().map(shown).collect();
            let columns = case.list_at(&["expected", "columns"]);
            let recorded = |column| {
                let text = |field| Value::str_at(column, &[field]).unwrap();
                (text("name"), text("type"), text("format"), column.get("priority").and_then(Value::as_i64).unwrap())
            };
            let wanted: Vec<(&str, &str, &str, i64)> = columns.iter().map(recorded).collect();
            let agrees = rows == expected && found == wanted;
            count += 1;
            if agrees == KNOWN_GAPS.contains(&id) {
                let (rows, expected) = (Value::Array(rows), Value::Array(expected));
                wrong.push(format!("{id}: {rows} instead of {expected}; columns {found:?} instead of {wanted:?}"));
            }
        }
        assert!(count > 100);
        assert!(wrong.is_empty(), "{} of {count} differ:\n{}", wrong.len(), wrong.join("\n"));
    }
}
