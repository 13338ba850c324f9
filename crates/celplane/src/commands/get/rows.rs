//! The rows of a table, as kubectl prints them.

use std::cmp::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use api::Quantity;
use api::json::Value;
use api::json_path::JsonPath;
use api::time::Timestamp;
use registry::custom_resource::printer_columns::{Column, REQUEST_COST_DEFAULT, Request};

use super::columns::PrintedResource;

/// Spaces behind a cell, and the least width of a column, as in kubectl.
const PADDING: usize = 3;
const WIDTH_MIN: usize = 6;

/// Writes tables of one resource; the widths of earlier tables are kept.
pub(super) struct Rows<'s> {
    shown: &'s PrintedResource,
    is_wide: bool,
    with_namespace: bool,
    headers: bool,
    widths: Vec<usize>,
    warnings: Vec<&'static str>,
}

impl<'s> Rows<'s> {
    pub(super) fn new(shown: &'s PrintedResource, is_wide: bool, with_namespace: bool, no_headers: bool) -> Self {
        Self { shown, is_wide, with_namespace, headers: !no_headers, widths: Vec::new(), warnings: Vec::new() }
    }

    /// Returns warnings about cells that are empty because of a limit.
    pub(super) fn warnings(&self) -> &[&'static str] {
        &self.warnings
    }

    /// The text of a table; the headers stand in the first one only.
    pub(super) fn render(&mut self, objects: &[Value]) -> String {
        let mut lines: Vec<Vec<String>> = Vec::new();
        if std::mem::take(&mut self.headers) {
            let columns = self.columns().map(|(_, column)| column.name.to_uppercase());
            lines.push(self.namespace("NAMESPACE").chain(["NAME".to_owned()]).chain(columns).collect());
        }
        let started = Instant::now();
        let clock = || -> Duration { started.elapsed() };
        let mut request = Request::new(now(), REQUEST_COST_DEFAULT, &clock);
        for object in objects {
            let text = |field| object.text_at(&["metadata", field]);
            let cells = self.shown.columns.cells(object, &mut request);
            let cells = self.columns().map(|(index, _)| cells.get(index).map(cell).unwrap_or_default());
            lines.push(self.namespace(text("namespace")).chain([text("name").to_owned()]).chain(cells).collect());
        }
        let limits = [
            (request.budget.is_exceeded(), "the expressions exceeded their cost budget: some cells are empty"),
            (request.budget.is_too_long(), "the cells exceeded 16 MiB: some cells are empty"),
        ];
        self.warnings.extend(limits.into_iter().filter(|(is_cut, _)| *is_cut).map(|(_, warning)| warning));
        self.align(&lines)
    }

    fn namespace(&self, text: &str) -> std::option::IntoIter<String> {
        self.with_namespace.then(|| text.to_owned()).into_iter()
    }

    /// The columns that are printed, with their indexes.
    fn columns(&self) -> impl Iterator<Item = (usize, &'s Column)> + use<'s> {
        let is_wide = self.is_wide;
        self.shown.columns.columns().iter().enumerate().filter(move |(_, column)| is_wide || column.priority == 0)
    }

    fn align(&mut self, lines: &[Vec<String>]) -> String {
        let mut text = String::new();
        for line in lines {
            self.widths.resize(line.len(), WIDTH_MIN);
            for (width, cell) in self.widths.iter_mut().zip(line) {
                *width = (*width).max(cell.chars().count().saturating_add(PADDING));
            }
        }
        for line in lines {
            let last = line.len().saturating_sub(1);
            for (index, (cell, width)) in line.iter().zip(&self.widths).enumerate() {
                text.push_str(cell);
                if index < last {
                    let missing = width.saturating_sub(cell.chars().count());
                    text.extend(std::iter::repeat_n(' ', missing));
                }
            }
            text.push('\n');
        }
        text
    }
}

/// A cell as kubectl prints it: up to its first line break, without control characters.
fn cell(value: &Value) -> String {
    let text = match value {
        Value::Null => return String::new(),
        Value::String(text) => text.as_str(),
        other => return other.to_string(),
    };
    let line = text.split(['\n', '\r', '\x0c']).next().unwrap_or_default();
    let clean: String = line.chars().map(|it| if it == '\x1b' { '^' } else { it }).collect();
    if line.len() < text.len() { format!("{clean}...") } else { clean }
}

/// Sorts objects by the value at a path: numbers and quantities by size, everything else as text.
pub(super) fn sort(objects: &mut [Value], path: &str) -> Result<()> {
    let inner = path.trim().trim_start_matches('{').trim_end_matches('}');
    let inner = if inner.starts_with('.') { inner.to_owned() } else { format!(".{inner}") };
    let path = JsonPath::parse_template(&format!("{{{inner}}}"))?.allow_missing_keys(true);
    let key = |object: &Value| {
        let mut text = String::new();
        if let Some(item) = path.find_first(object) {
            item.print(&mut text);
        }
        text
    };
    if !objects.is_empty() && objects.iter().all(|object| key(object).is_empty()) {
        bail!("couldn't find any field with path \"{{{inner}}}\" in the list of objects");
    }
    objects.sort_by_cached_key(|object| SortKey(key(object)));
    Ok(())
}

/// A text that is compared as a quantity where both are.
#[derive(PartialEq, Eq)]
struct SortKey(String);

impl Ord for SortKey {
    fn cmp(&self, other: &Self) -> Ordering {
        match (Quantity::parse(&self.0), Quantity::parse(&other.0)) {
            (Ok(left), Ok(right)) => left.cmp(&right),
            // A total order: quantities stand before other texts.
            (Ok(_), Err(_)) => Ordering::Less,
            (Err(_), Ok(_)) => Ordering::Greater,
            _ => self.0.cmp(&other.0),
        }
    }
}

impl PartialOrd for SortKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nanos: since.subsec_nanos() }
}
