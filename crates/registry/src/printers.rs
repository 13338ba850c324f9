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

use api::age::human_duration;
use api::json::{Unread, Value};
use api::time::Timestamp;

use crate::document::Read;

/// A column.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// What stands above it.
    pub name: &'static str,
    /// `string` or `integer`.
    pub kind: &'static str,
    /// What it shows.
    pub description: &'static str,
    /// 0 is always shown, 1 in the wide form.
    pub priority: u8,
}

/// How a kind is shown.
#[derive(Debug, Clone, Copy)]
pub struct Printer {
    /// The columns.
    pub columns: &'static [Column],
    /// The cells of an object, one per column.
    pub cells: fn(&Value, Timestamp) -> Vec<Value>,
    /// Names of fields that no cell and no condition of a row comes from, wherever they stand.
    pub unread: Unread,
}

impl Printer {
    /// Whether it shows what every object has.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        matches!(self.columns, [_, Column { name: "Created At", .. }])
    }
}

const fn text(name: &'static str, description: &'static str) -> Column {
    Column { name, kind: "string", description, priority: 0 }
}

const fn number(name: &'static str, description: &'static str) -> Column {
    Column { name, kind: "integer", description, priority: 0 }
}

const fn wide(name: &'static str, description: &'static str) -> Column {
    Column { name, kind: "string", description, priority: 1 }
}

const NAME: Column = text("Name", "Name must be unique within a namespace.");
const AGE: Column = text("Age", "Time since the object was created.");

/// Name and age, for kinds that have nothing else to show.
pub(crate) const PLAIN: Printer =
    Printer { columns: &[NAME, AGE], cells: |object, now| vec![name(object), age(object, now)], unread: UNREAD };

/// What hardly any printer reads.
const UNREAD: Unread = Unread::new(&["managedFields"]);

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

/// The number at a path, 0 if there is none.
fn int(object: &Value, path: &[&str]) -> i64 {
    object.at(path).and_then(Value::as_i64).unwrap_or_default()
}

/// The items at a path.
fn list<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
    object.at(path).and_then(Value::as_array).unwrap_or_default()
}

/// The status of a condition.
fn condition<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    let conditions = list(object, &["status", "conditions"]);
    conditions.iter().find(|it| it.str_at(&["type"]) == Some(name))?.str_at(&["status"])
}

/// The texts of a field of all items, with commas.
fn joined(items: &[Value], field: &str) -> String {
    items.iter().map(|item| item.str_at(&[field]).unwrap_or_default()).collect::<Vec<_>>().join(",")
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

/// A label selector as text, or `<none>`.
fn selector_text(selector: Option<&Value>) -> String {
    let selector = selector.and_then(|it| api::json::from_value::<api::meta::v1::LabelSelector>(it).ok());
    match selector.and_then(|it| it.to_selector().ok()) {
        Some(selector) if !selector.is_empty() => selector.to_string(),
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

    /// Cases that differ: in a list, only the class that counts is shown as the default one; and definitions have a
    /// table of their own, which those who recorded the printers did not ask.
    const KNOWN_GAPS: &[&str] = &["storageclass/list/001", "storageclass/list/002", "crd/001"];

    /// The recorded tables were made at this time.
    const NOW: &str = "2000-01-01T00:00:00Z";

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
            let printer = found.unwrap().printer;
            let objects = if one.is_some() { list(object, &["items"]) } else { std::slice::from_ref(object) };
            // Tables are made of objects as they are stored.
            let stored = |object: &Value| {
                let of = api::types::by_api_version(api_version, one.unwrap_or(kind)).unwrap();
                let mut object = api::types::decode(of, object).unwrap().value;
                crate::defaults::apply(of, &mut object, NOW);
                // Cells do not miss what is not read.
                let text = api::json::to_string(&object);
                api::json::parse_without(text.as_bytes(), &printer.unread).unwrap()
            };
            let rows: Vec<Value> =
                objects.iter().map(|object| Value::Array((printer.cells)(&stored(object), now))).collect();
            let expected = list(&case, &["expected", "rows"]);
            let expected: Vec<Value> = expected.iter().map(|row| row.get("cells").cloned().unwrap()).collect();
            let names: Vec<&str> = printer.columns.iter().map(|column| column.name).collect();
            let columns = list(&case, &["expected", "columns"]);
            let wanted: Vec<&str> = columns.iter().map(|column| column.str_at(&["name"]).unwrap()).collect();
            let agrees = rows == expected && names == wanted;
            count += 1;
            if agrees == KNOWN_GAPS.contains(&id) {
                wrong.push(format!("{id}: {} instead of {}", Value::Array(rows), Value::Array(expected)));
            }
        }
        assert!(count > 100);
        assert!(wrong.is_empty(), "{} of {count} differ:\n{}", wrong.len(), wrong.join("\n"));
    }
}
