//! Source text, positions in it, and the issues found there.
//!
//! Positions are byte offsets; lines and columns are computed only when an issue is shown.
//! The picture with the caret, the order of issues and their number follow cel-go's `common.Errors`.

use std::fmt;
use std::sync::Arc;

/// An expression's text and the name it is shown under.
#[derive(Clone, Debug)]
pub struct Source {
    text: Arc<str>,
    description: Arc<str>,
}

/// A byte range in a [`Source`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// The first byte.
    pub start: u32,
    /// The byte behind the last one.
    pub end: u32,
}

/// Position of an issue: one-based line, zero-based column in code points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// One-based; -1 when the issue concerns the expression as a whole.
    pub line: i32,
    /// Zero-based, in code points; -1 when the issue concerns the expression as a whole.
    pub column: i32,
}

impl Location {
    /// The place of an issue that concerns the expression as a whole.
    pub const NONE: Location = Location { line: -1, column: -1 };
}

impl Source {
    /// A source shown as `<input>`, as most tools show it.
    pub fn new(text: &str) -> Self {
        Source { text: text.into(), description: "<input>".into() }
    }

    /// A source shown under the given name in issues.
    pub fn named(text: &str, description: &str) -> Self {
        Source { text: text.into(), description: description.into() }
    }

    /// The whole text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The name the source is shown under.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The text of a span; empty if the span is not in this source.
    pub fn snippet(&self, span: Span) -> &str {
        self.text.get(span.start as usize..span.end as usize).unwrap_or("")
    }

    /// Line and column of a byte offset.
    pub fn location(&self, offset: u32) -> Location {
        let before = self.text.get(..offset as usize).unwrap_or(&self.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline.saturating_add(1));
        let line = before.bytes().filter(|byte| *byte == b'\n').count().saturating_add(1);
        let column = before.get(line_start..).map_or(0, |text| text.chars().count());
        Location { line: clamp(line), column: clamp(column) }
    }

    /// The text of a one-based line, without its line feed.
    pub fn line(&self, line: i32) -> Option<&str> {
        let index = usize::try_from(line).ok()?.checked_sub(1)?;
        self.text.split('\n').nth(index)
    }
}

fn clamp(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// One thing that is wrong with an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// Position of the issue.
    pub location: Location,
    /// Text of the issue.
    pub message: String,
}

/// The longest line that is shown with a caret under it.
const SNIPPET_LENGTH_MAX: usize = 16384;

/// Maximum number of issues that are kept; further ones are only counted.
const ISSUES_MAX: usize = 100;

/// All that is wrong with an expression, at most 100 issues in full.
///
/// `Display` gives the picture that cel-go prints: each issue with its line and a caret, in the order of positions.
#[derive(Clone, Debug)]
pub struct Issues {
    source: Source,
    kept: Vec<Issue>,
    count: usize,
}

impl Issues {
    /// No issues yet.
    pub fn new(source: &Source) -> Self {
        Issues { source: source.clone(), kept: Vec::new(), count: 0 }
    }

    /// Records an issue at a byte offset.
    pub fn report(&mut self, offset: u32, message: impl Into<String>) {
        self.report_at(self.source.location(offset), message);
    }

    /// Records an issue at a place that is already a line and a column.
    pub fn report_at(&mut self, location: Location, message: impl Into<String>) {
        self.count = self.count.saturating_add(1);
        if self.kept.len() < ISSUES_MAX {
            self.kept.push(Issue { location, message: message.into() });
        }
    }

    /// Whether no issue was reported.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Number of reported issues, including those beyond the first 100.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The source that the issues are about.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// The issues that were kept, by position.
    pub fn sorted(&self) -> Vec<&Issue> {
        let mut sorted: Vec<&Issue> = self.kept.iter().collect();
        sorted.sort_by_key(|issue| issue.location);
        sorted
    }
}

impl std::error::Error for Issues {}

impl fmt::Display for Issues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, issue) in self.sorted().into_iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write_picture(f, &self.source, issue)?;
        }
        let truncated = self.count.saturating_sub(self.kept.len());
        if truncated > 0 {
            write!(f, "\n{truncated} more errors were truncated")?;
        }
        Ok(())
    }
}

fn write_picture(f: &mut fmt::Formatter<'_>, source: &Source, issue: &Issue) -> fmt::Result {
    let Location { line, column } = issue.location;
    write!(f, "ERROR: {}:{}:{}: {}", source.description, line, column.saturating_add(1), issue.message)?;
    // cel-go has no snippet for an empty source.
    let Some(text) = source.line(line).filter(|text| text.len() <= SNIPPET_LENGTH_MAX && !source.text.is_empty())
    else {
        return Ok(());
    };
    let text = text.replace('\t', " ");
    write!(f, "\n | {text}\n | ")?;
    let mut rest = text.chars();
    for character in rest.by_ref().take(usize::try_from(column).unwrap_or(0)) {
        f.write_str(if character.is_ascii() { "." } else { "\u{ff0e}" })?;
    }
    let pointed_is_wide = rest.next().is_some_and(|character| !character.is_ascii());
    f.write_str(if pointed_is_wide { "\u{ff3e}" } else { "^" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picture_points_at_the_code_point() {
        let source = Source::new("a\n\té + x");
        let mut issues = Issues::new(&source);
        issues.report(7, "second");
        issues.report(0, "first");
        assert_eq!(
            issues.to_string(),
            "ERROR: <input>:1:1: first\n | a\n | ^\nERROR: <input>:2:5: second\n |  é + x\n | .．..^"
        );
    }

    #[test]
    fn issues_beyond_the_hundredth_are_counted() {
        let source = Source::new("x");
        let mut issues = Issues::new(&source);
        for _ in 0..103 {
            issues.report_at(Location::NONE, "again");
        }
        assert!(issues.to_string().ends_with("\n3 more errors were truncated"));
    }
}
