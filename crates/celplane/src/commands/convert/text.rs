//! YAML in block style, edited by lines.

use std::collections::HashSet;

use anyhow::{Context as _, Result, anyhow, bail};
use api::json::{Document, Spans, Value};

/// Bytes that are read for all edits of a text, which is read again after each of them.
const READ_BYTES_MAX: usize = 1 << 30;

/// A text, and its documents.
pub(super) struct Text {
    lines: Vec<String>,
    /// The offset of each line in the text that was read last.
    line_offsets: Vec<usize>,
    pub(super) documents: Vec<Document>,
    ends_with_line: bool,
    read_bytes: usize,
}

/// A path with one more step.
pub(super) fn child(path: &[String], name: &str) -> Vec<String> {
    [path, &[name.to_owned()]].concat()
}

fn indent(line: &str) -> usize {
    line.len().saturating_sub(line.trim_start_matches(' ').len())
}

fn is_blank_or_comment(line: &str) -> bool {
    let text = line.trim_start();
    text.is_empty() || text.starts_with('#')
}

fn is_marker(line: &str) -> bool {
    line.starts_with("---") || line.starts_with("...")
}

/// Lines with this many more spaces; blank ones stay blank.
fn indented(lines: &[String], by: usize) -> Vec<String> {
    let pad = " ".repeat(by);
    lines.iter().map(|line| if line.trim().is_empty() { String::new() } else { format!("{pad}{line}") }).collect()
}

/// Lines with this many spaces less, as far as they have them.
fn dedented(lines: &[String], by: usize) -> Vec<String> {
    lines.iter().map(|line| line.get(by.min(indent(line))..).unwrap_or_default().to_owned()).collect()
}

impl Text {
    pub(super) fn new(source: &str) -> Result<Self> {
        if source.contains('\t') || source.contains('\r') {
            bail!("tabs and carriage returns are not supported");
        }
        let mut text = Self {
            lines: source.lines().map(ToOwned::to_owned).collect(),
            line_offsets: Vec::new(),
            documents: Vec::new(),
            ends_with_line: source.is_empty() || source.ends_with('\n'),
            read_bytes: 0,
        };
        text.parse()?;
        Ok(text)
    }

    pub(super) fn into_source(self) -> String {
        let mut source = self.lines.join("\n");
        if self.ends_with_line && !self.lines.is_empty() {
            source.push('\n');
        }
        source
    }

    fn parse(&mut self) -> Result<()> {
        let source = self.lines.join("\n");
        self.read_bytes = self.read_bytes.saturating_add(source.len());
        if self.read_bytes > READ_BYTES_MAX {
            bail!("too many changes for a text of this length: write the objects into separate documents");
        }
        let ends = self.lines.iter().scan(0_usize, |start, line| {
            let offset = *start;
            *start = start.saturating_add(line.len()).saturating_add(1);
            Some(offset)
        });
        self.line_offsets = ends.collect();
        let (documents, error) = api::yaml::parse_documents(&source);
        if let Some(error) = error {
            bail!("{}", error.message);
        }
        self.documents = documents;
        Ok(())
    }

    fn find(&self, document: usize, path: &[String]) -> Option<(&Value, &Spans)> {
        let document = self.documents.get(document)?;
        let (mut value, mut spans) = (&document.value, &document.spans);
        for step in path {
            let index = match (value, step.strip_prefix('[').and_then(|it| it.strip_suffix(']'))) {
                (Value::Array(_), Some(index)) => index.parse().ok()?,
                (Value::Object(fields), _) => fields.position(step)?,
                _ => return None,
            };
            value = match value {
                Value::Array(items) => items.get(index)?,
                Value::Object(fields) => fields.entry_at(index)?.1,
                _ => return None,
            };
            spans = spans.children.get(index)?;
        }
        Some((value, spans))
    }

    pub(super) fn value(&self, document: usize, path: &[String]) -> Option<&Value> {
        self.find(document, path).map(|(value, _)| value)
    }

    /// Line and column of a byte of the text that was read last.
    fn position(&self, offset: usize) -> (usize, usize) {
        let line = self.line_offsets.partition_point(|start| *start <= offset).saturating_sub(1);
        let start = self.line_offsets.get(line).copied().unwrap_or_default();
        (line, offset.saturating_sub(start))
    }

    fn key_position(&self, document: usize, path: &[String]) -> Result<(usize, usize)> {
        let (_, spans) = self.find(document, path).with_context(|| format!("{} is missing", path.join(".")))?;
        Ok(self.position(spans.offset))
    }

    /// Whether a value is written between brackets or braces.
    pub(super) fn is_flow(&self, document: usize, path: &[String]) -> bool {
        let Some((value, spans)) = self.find(document, path) else { return false };
        let (line, column) = self.position(spans.value_offset);
        let rest = self.lines.get(line).and_then(|line| line.get(column..)).unwrap_or_default();
        matches!(value, Value::Array(_)) && rest.starts_with('[')
            || matches!(value, Value::Object(_)) && rest.starts_with('{')
    }

    /// Brings everything on a path into block style.
    pub(super) fn make_block(&mut self, document: usize, path: &[String]) -> Result<()> {
        for length in 1..=path.len() {
            let part = path.get(..length).unwrap_or_default();
            if !self.is_flow(document, part) {
                continue;
            }
            let value = self.value(document, part).cloned().unwrap_or_default();
            let (line, column) = self.key_position(document, part)?;
            let (start, end) = self.extent(line, column, false);
            let lines = self.lines.get(start..end).unwrap_or_default();
            if lines.iter().any(|line| line.contains(" #")) {
                bail!("line {}: a comment stands in or behind brackets; write the value in block style", start.saturating_add(1));
            }
            let last = part.last().map(String::as_str).unwrap_or_default();
            if last.starts_with('[') {
                // An entry of a list: the dash stays.
                let first = self.lines.get(start).and_then(|it| it.get(..column)).unwrap_or_default().to_owned();
                let mut new = Vec::new();
                for (index, text) in api::yaml::to_string(&value).lines().enumerate() {
                    let pad = if index == 0 { first.clone() } else { " ".repeat(column) };
                    new.push(format!("{pad}{text}"));
                }
                self.lines.splice(start..end, new);
            } else {
                let first = self.lines.get(start).cloned().unwrap_or_default();
                let colon = first.get(column..).and_then(|rest| rest.find(':')).context("a key has no colon")?;
                let key = first.get(..column.saturating_add(colon).saturating_add(1)).unwrap_or_default().to_owned();
                let mut new = vec![key];
                let by = if matches!(value, Value::Array(_)) { column } else { column.saturating_add(2) };
                let body: Vec<String> = api::yaml::to_string(&value).lines().map(ToOwned::to_owned).collect();
                new.extend(indented(&body, by));
                self.lines.splice(start..end, new);
            }
            self.parse()?;
        }
        Ok(())
    }

    /// The lines of a key at a column, or of an entry whose dash is at that column.
    fn extent(&self, line: usize, column: usize, is_entry: bool) -> (usize, usize) {
        let key = self.lines.get(line).and_then(|it| it.get(column..)).unwrap_or_default();
        let opens = key.trim_end().ends_with(':') || key.contains(": #") || key.contains(":  #");
        let keeps = key.trim_end().ends_with("|+");
        let mut end = line.saturating_add(1);
        let mut last = end;
        while let Some(text) = self.lines.get(end) {
            let depth = indent(text);
            let is_sequence = !is_entry && opens && depth == column && text.trim_start().starts_with('-');
            if is_marker(text) || !is_blank_or_comment(text) && depth <= column && !is_sequence {
                break;
            }
            end = end.saturating_add(1);
            // Comments that are not deeper, and blank lines, belong to what follows.
            if keeps || !is_blank_or_comment(text) || !text.trim().is_empty() && depth > column {
                last = end;
            }
        }
        (line, last)
    }

    /// Cuts a key with its value; a parent without keys keeps its place as `{}`, or as `null` where an API server accepts no
    /// empty map: the node affinity of a volume.
    pub(super) fn cut_key(&mut self, document: usize, path: &[String]) -> Result<Vec<String>> {
        let (parent, _) = path.split_at(path.len().saturating_sub(1));
        let lines = self.key_lines(document, path)?;
        let (line, column) = self.key_position(document, path)?;
        let (start, end) = self.with_comments(self.extent(line, column, false), column);
        let siblings = self.value(document, parent).and_then(Value::as_object).map_or(0, |it| it.len());
        let parent_key = self.key_position(document, parent).ok();
        self.lines.drain(start..end);
        if siblings <= 1
            && let Some((line, column)) = parent_key
        {
            let mark = if path.last().is_some_and(|key| key == "required") { " null" } else { " {}" };
            self.put_behind_colon(line, column, mark)?;
        }
        self.parse()?;
        Ok(lines)
    }

    /// The lines of a key with its value, as if they stood at the beginning.
    pub(super) fn key_lines(&self, document: usize, path: &[String]) -> Result<Vec<String>> {
        let (line, column) = self.key_position(document, path)?;
        let is_first = self.lines.get(line).and_then(|it| it.get(..column)).is_some_and(|it| it.trim().is_empty());
        if !is_first {
            bail!("line {}: the key stands behind a dash", line.saturating_add(1));
        }
        let (start, end) = self.with_comments(self.extent(line, column, false), column);
        Ok(dedented(self.lines.get(start..end).unwrap_or_default(), column))
    }

    /// An extent with the comments right above it, at the same column.
    fn with_comments(&self, (start, end): (usize, usize), column: usize) -> (usize, usize) {
        let is_own = |line: &String| line.trim_start().starts_with('#') && indent(line) == column;
        let above = self.lines.iter().take(start).rev().take_while(|line| is_own(line)).count();
        (start.saturating_sub(above), end)
    }

    fn put_behind_colon(&mut self, line: usize, column: usize, text: &str) -> Result<()> {
        let line = self.lines.get_mut(line).context("the line is missing")?;
        let colon = line.get(column..).and_then(|rest| rest.find(':')).context("a key has no colon")?;
        line.insert_str(column.saturating_add(colon).saturating_add(1), text);
        Ok(())
    }

    /// The lines of the entries of a list in block style, with the column of their dashes.
    fn entries(&self, document: usize, path: &[String]) -> Result<(usize, Vec<(usize, usize)>)> {
        let (value, spans) = self.find(document, path).with_context(|| format!("{} is missing", path.join(".")))?;
        let count = value.as_array().unwrap_or_default().len();
        let mut dashes = Vec::with_capacity(count);
        for item in &spans.children {
            let (line, column) = self.position(item.offset);
            let before = self.lines.get(line).and_then(|it| it.get(..column)).unwrap_or_default();
            let dash = before.rfind('-').filter(|dash| {
                before.get(dash.saturating_add(1)..).is_some_and(|rest| rest.trim().is_empty())
            });
            dashes.push((line, dash.ok_or_else(|| anyhow!("line {}: not a list in block style", line.saturating_add(1)))?));
        }
        let column = dashes.first().map_or(0, |(_, column)| *column);
        let mut extents: Vec<(usize, usize)> = Vec::new();
        for (index, (line, dash)) in dashes.iter().enumerate() {
            let is_alone = self.lines.get(*line).and_then(|it| it.get(..*dash)).is_some_and(|it| it.trim().is_empty());
            if *dash != column || !is_alone {
                bail!("line {}: not a list in block style", line.saturating_add(1));
            }
            let (start, end) = self.with_comments(self.extent(*line, *dash, true), column);
            // Blank lines between two entries belong to the first of them.
            if let Some((_, before)) = index.checked_sub(1).and_then(|last| extents.get_mut(last)) {
                *before = start;
            }
            extents.push((start, end));
        }
        Ok((column, extents))
    }

    /// The lines of each entry, as if they stood at the beginning.
    pub(super) fn items(&self, document: usize, path: &[String]) -> Result<Vec<Vec<String>>> {
        let (column, mut extents) = self.entries(document, path)?;
        // A text that is nothing but the list: blank lines at its end were kept on purpose.
        if let (true, Some((_, end))) = (path.is_empty(), extents.last_mut()) {
            *end = self.lines.len();
        }
        let lines = |(start, end): &(usize, usize)| self.lines.get(*start..*end).unwrap_or_default();
        Ok(extents.iter().map(|extent| dedented(lines(extent), column)).collect())
    }

    /// Cuts entries of a list; a list without entries keeps its place as `[]`.
    pub(super) fn cut_items(&mut self, document: usize, path: &[String], which: &[usize]) -> Result<Vec<Vec<String>>> {
        let items = self.items(document, path)?;
        let (_, extents) = self.entries(document, path)?;
        let (line, column) = self.key_position(document, path)?;
        let mut kept = Vec::with_capacity(self.lines.len());
        let mut next = 0;
        // Entries are in the order of their lines.
        for (start, end) in which.iter().filter_map(|index| extents.get(*index)) {
            kept.extend_from_slice(self.lines.get(next..*start).unwrap_or_default());
            next = *end;
        }
        kept.extend_from_slice(self.lines.get(next..).unwrap_or_default());
        self.lines = kept;
        if which.len() == extents.len() {
            self.put_behind_colon(line, column, " []")?;
        }
        self.parse()?;
        let which: HashSet<&usize> = which.iter().collect();
        Ok(items.into_iter().enumerate().filter(|(index, _)| which.contains(index)).map(|(_, item)| item).collect())
    }

    /// The indentation of lists relative to their keys, as in the text.
    fn list_indent(&self) -> usize {
        let pairs = self.lines.iter().zip(self.lines.iter().skip(1));
        let mut found = pairs.filter(|(key, entry)| {
            key.trim_end().ends_with(':') && entry.trim_start().starts_with("- ") && !key.trim_start().starts_with("- ")
        });
        found.next().map_or(0, |(key, entry)| indent(entry).saturating_sub(indent(key)))
    }

    /// Puts entries into a list, each at its position or behind the others.
    pub(super) fn insert_items(
        &mut self,
        document: usize,
        path: &[String],
        items: Vec<Vec<String>>,
        positions: &[usize],
    ) -> Result<()> {
        let is_missing = !matches!(self.value(document, path), Some(Value::Array(list)) if !list.is_empty());
        if is_missing {
            let name = path.last().cloned().unwrap_or_default();
            let by = self.list_indent();
            let mut lines = vec![format!("{name}:")];
            lines.extend(indented(&items.into_iter().flatten().collect::<Vec<_>>(), by));
            return self.insert_key(document, path, lines);
        }
        self.make_block(document, path)?;
        for (index, item) in items.into_iter().enumerate() {
            let (column, extents) = self.entries(document, path)?;
            let at = positions.get(index).and_then(|position| extents.get(*position)).map(|(start, _)| *start);
            let at = at.or_else(|| extents.last().map(|(_, end)| *end)).context("the list is empty")?;
            self.lines.splice(at..at, indented(&item, column));
            self.parse()?;
        }
        Ok(())
    }

    /// Puts a key with its value into a map; maps on the way are made. An empty value of the key is replaced in its place.
    pub(super) fn insert_key(&mut self, document: usize, path: &[String], lines: Vec<String>) -> Result<()> {
        if self.value(document, path).is_some() {
            let (line, column) = self.key_position(document, path)?;
            let first = self.lines.get(line).cloned().unwrap_or_default();
            let rest = first.get(column..).unwrap_or_default();
            let comment = rest.find(" #").and_then(|at| rest.get(at..)).unwrap_or_default();
            let (start, end) = self.extent(line, column, false);
            let mut new = indented(&lines, column);
            if let Some(key) = new.first_mut() {
                let before = first.get(..column).unwrap_or_default();
                *key = format!("{before}{}{comment}", key.trim_start());
            }
            self.lines.splice(start..end, new);
            return self.parse();
        }
        let mut lines = lines;
        let mut known = path.len().saturating_sub(1);
        while known > 0 && self.value(document, path.get(..known).unwrap_or_default()).is_none() {
            lines = indented(&lines, 2);
            lines.insert(0, format!("{}:", path.get(known.saturating_sub(1)).map(String::as_str).unwrap_or_default()));
            known = known.saturating_sub(1);
        }
        let parent = path.get(..known).unwrap_or_default().to_vec();
        let value = self.value(document, &parent).cloned().unwrap_or_default();
        let is_empty = value.is_null() || value.as_object().is_some_and(|fields| fields.is_empty());
        if is_empty && !parent.is_empty() {
            let (line, column) = self.key_position(document, &parent)?;
            let text = self.lines.get_mut(line).context("the line is missing")?;
            *text = text.replacen(": {}", ":", 1).replacen(": null", ":", 1);
            let at = line.saturating_add(1);
            self.lines.splice(at..at, indented(&lines, column.saturating_add(2)));
            return self.parse();
        }
        self.make_block(document, &parent)?;
        let fields = value.as_object().context("the parent is not a map")?;
        let first = fields.keys().next().map(|name| child(&parent, name)).context("the parent is empty")?;
        let last = fields.keys().last().map(|name| child(&parent, name)).context("the parent is empty")?;
        let (first_line, column) = self.key_position(document, &first)?;
        let is_dash = self.lines.get(first_line).and_then(|it| it.get(..column)).is_some_and(|it| it.contains('-'));
        // Required terms stand before preferred ones.
        let goes_first = path.last().is_some_and(|name| name.starts_with("requiredDuring")) && !is_dash;
        let at = if goes_first && known.saturating_add(1) == path.len() {
            first_line
        } else {
            let (line, column) = self.key_position(document, &last)?;
            self.extent(line, column, false).1
        };
        self.lines.splice(at..at, indented(&lines, column));
        self.parse()
    }

    /// Adds an annotation whose value is a text of several lines.
    pub(super) fn add_annotation(
        &mut self,
        document: usize,
        owner: &[String],
        name: &str,
        content: &[String],
    ) -> Result<()> {
        let keep = if content.last().is_some_and(|line| line.trim().is_empty()) { "+" } else { "" };
        let mut lines = vec![format!("{name}: |{keep}")];
        lines.extend(indented(content, 2));
        self.annotate(document, owner, name, lines)
    }

    /// Adds an annotation with a short value.
    pub(super) fn add_annotation_line(
        &mut self,
        document: usize,
        owner: &[String],
        name: &str,
        value: &str,
    ) -> Result<()> {
        self.annotate(document, owner, name, vec![format!("{name}: \"{value}\"")])
    }

    fn annotate(&mut self, document: usize, owner: &[String], name: &str, lines: Vec<String>) -> Result<()> {
        let path = child(&child(&child(owner, "metadata"), "annotations"), name);
        self.insert_key(document, &path, lines)
    }

    /// Cuts an annotation, and what is empty without it.
    pub(super) fn cut_annotation(&mut self, document: usize, owner: &[String], path: &[String]) -> Result<()> {
        self.cut_key(document, path)?;
        let metadata = child(owner, "metadata");
        for path in [child(&metadata, "annotations"), metadata] {
            let is_empty = self.value(document, &path).and_then(Value::as_object).is_some_and(|it| it.is_empty());
            if is_empty {
                let (line, column) = self.key_position(document, &path)?;
                let siblings = self.value(document, path.get(..path.len().saturating_sub(1)).unwrap_or_default());
                let is_only = siblings.and_then(Value::as_object).is_some_and(|it| it.len() == 1);
                if is_only {
                    self.cut_key(document, &path)?;
                } else {
                    let (start, end) = self.extent(line, column, false);
                    self.lines.drain(start..end);
                    self.parse()?;
                }
            }
        }
        Ok(())
    }
}
