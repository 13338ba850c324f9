//! Positions of the parts of a document in its text.

use super::Value;

/// Offsets of a value and, in order, of its contents.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spans {
    /// Start of the value, or of its key if it is a field.
    pub offset: usize,
    /// Start of the value itself.
    pub value_offset: usize,
    /// One for each item or field.
    pub children: Vec<Spans>,
}

/// A place in a text, counted from one; columns count characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The character in the line.
    pub column: usize,
}

impl Position {
    /// The place of byte `offset` in `text`.
    #[must_use]
    pub fn of(text: &[u8], offset: usize) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line = before.iter().filter(|byte| **byte == b'\n').count().saturating_add(1);
        let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |index| index.saturating_add(1));
        let in_line = before.get(start..).unwrap_or_default();
        // Continuation bytes do not count.
        let column = in_line.iter().filter(|byte| **byte & 0xC0 != 0x80).count().saturating_add(1);
        Self { line, column }
    }
}

/// Start positions of lines, for several lookups in one text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lines {
    /// The offsets of line ends, in order.
    ends: Vec<usize>,
}

impl Lines {
    /// Finds the lines of a text.
    #[must_use]
    pub fn of(text: &[u8]) -> Self {
        Self { ends: text.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at).collect() }
    }

    /// The place of byte `offset` in the text: the same as [`Position::of`].
    #[must_use]
    pub fn position(&self, text: &[u8], offset: usize) -> Position {
        let before = self.ends.partition_point(|end| *end < offset.min(text.len()));
        let start = before.checked_sub(1).and_then(|last| self.ends.get(last)).map_or(0, |end| end.saturating_add(1));
        let line = text.get(start..).unwrap_or_default();
        let Position { column, .. } = Position::of(line, offset.saturating_sub(start));
        Position { line: before.saturating_add(1), column }
    }
}

impl Spans {
    /// The part that a field path as Kubernetes prints it names (`spec.containers[0].name`, `metadata.labels[a.b/c]`),
    /// or the innermost part around it that exists.
    #[must_use]
    pub fn locate<'a>(&'a self, value: &Value, path: &str) -> &'a Spans {
        let mut here = self;
        let mut value = value;
        let mut rest = path;
        while let Some((index, child, after)) = next_step(value, rest) {
            let Some(span) = here.children.get(index) else {
                break;
            };
            (here, value, rest) = (span, child, after);
        }
        here
    }
}

/// Returns the child that the path leads to, and the rest of the path.
fn next_step<'v, 'p>(value: &'v Value, path: &'p str) -> Option<(usize, &'v Value, &'p str)> {
    match value {
        Value::Array(items) => {
            let (index, rest) = path.strip_prefix('[')?.split_once(']')?;
            let index: usize = index.parse().ok()?;
            Some((index, items.get(index)?, rest))
        }
        Value::Object(fields) => {
            let (bracket, path) = match path.strip_prefix('[') {
                Some(path) => (true, path),
                None => (false, path.strip_prefix('.').unwrap_or(path)),
            };
            // Keys may hold dots: the longest one that fits wins.
            let candidates = fields.iter().enumerate().filter_map(|(index, (key, value))| {
                let rest = path.strip_prefix(key)?;
                let rest = if bracket { rest.strip_prefix(']')? } else { rest };
                (rest.is_empty() || rest.starts_with(['.', '['])).then_some((index, value, rest))
            });
            candidates.min_by_key(|(_, _, rest)| rest.len())
        }
        _ => None,
    }
}
