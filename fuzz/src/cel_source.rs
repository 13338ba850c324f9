//! Positions in CEL source text and the pictures that point at them.

use crate::bytes::{take_u32, text};
use cel::source::{Issues, Source};

/// Any offset into any text has a line and column inside the text, and its picture shows that line
/// with one caret under that column.
pub fn cel_source_picture(data: &[u8]) {
    let (offset, rest) = take_u32(data);
    let text = text(rest);
    // Mostly inside the text, sometimes far outside.
    let offset = if offset % 8 == 0 { offset } else { offset % u32::try_from(text.len() + 2).unwrap_or(u32::MAX) };
    let source = Source::new(&text);

    let location = source.location(offset);
    let line = source.line(location.line).expect("the line of a location exists");
    let column = usize::try_from(location.column).expect("a column is not negative");
    assert!(column <= line.chars().count(), "column {column} lies behind {line:?}");

    let mut issues = Issues::new(&source);
    issues.report(offset, "message");
    let picture = issues.to_string();
    assert!(picture.starts_with("ERROR: <input>:"), "{picture:?}");
    let mut lines = picture.split('\n').skip(1);
    if let (Some(shown), Some(caret)) = (lines.next(), lines.next()) {
        assert_eq!(shown, format!(" | {}", line.replace('\t', " ")));
        assert_eq!(caret.chars().count(), " | ".len() + column + 1, "{picture:?}");
        assert!(caret.ends_with(['^', '\u{ff3e}']), "{picture:?}");
    } else {
        assert!(text.is_empty() || line.len() > 16_384, "{picture:?} lacks its snippet");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_at_the_edges() {
        for text in ["", "\n", "\t", "a\n", "é", "\r\n", "a\n\tb\u{0}c"] {
            for offset in 0..12_u32 {
                let mut data = offset.to_le_bytes().to_vec();
                data.extend(text.as_bytes());
                cel_source_picture(&data);
            }
        }
    }
}
