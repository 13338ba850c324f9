//! Looking over text quickly: where strings and values end, and whether anything in them is special.
//!
//! Processes eight bytes at a time as one number; follows "Determine if a word has a byte less than n" of the
//! "Bit Twiddling Hacks".

/// Returns the length in bytes of the value at the start of the text. The text must be JSON; for other texts
/// the result is arbitrary.
#[must_use]
pub fn value_length(text: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0_usize;
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => {
                at = string_end(text, at);
                if depth == 0 {
                    return at;
                }
                continue;
            }
            b'{' | b'[' => depth = depth.saturating_add(1),
            b'}' | b']' => {
                // The end of the container around a number or a word.
                if depth == 0 {
                    return at;
                }
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at.saturating_add(1);
                }
            }
            b',' | b' ' | b'\n' | b'\r' | b'\t' if depth == 0 => return at,
            _ => {}
        }
        at = at.saturating_add(1);
    }
    text.len()
}

/// The text of the value at a path of fields, without decoding the rest.
///
/// The text must be JSON without white space, its keys without escapes, as [`to_string`](super::to_string) writes them; of
/// other texts it is none or some part.
#[must_use]
pub fn value_at<'t>(text: &'t [u8], path: &[&str]) -> Option<&'t [u8]> {
    let Some((field, rest)) = path.split_first() else { return text.get(..value_length(text)) };
    let mut text = text.strip_prefix(b"{")?;
    loop {
        let length = value_length(text);
        let (key, value) = text.split_at_checked(length)?;
        let value = value.strip_prefix(b":")?;
        if key.strip_prefix(b"\"").and_then(|key| key.strip_suffix(b"\"")) == Some(field.as_bytes()) {
            return value_at(value, rest);
        }
        text = value.get(value_length(value)..)?.strip_prefix(b",")?;
    }
}

/// Whether a JSON text has more values than this. It costs no memory, and a value in memory takes up to thirty times
/// its text: the length of a text alone does not bound what it takes.
#[must_use]
pub fn has_more_values(text: &[u8], max: usize) -> bool {
    // The shortest value has one byte, and another one around it.
    if text.len() <= max.saturating_mul(2) {
        return false;
    }
    let (mut at, mut count) = (0_usize, 1_usize);
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => {
                at = string_end(text, at);
                continue;
            }
            // The first value of a container, and each further one.
            b'{' | b'[' | b',' => count = count.saturating_add(1),
            _ => {}
        }
        if count > max {
            return true;
        }
        at = at.saturating_add(1);
    }
    false
}

/// The byte behind the string whose first quote is at `start`.
fn string_end(text: &[u8], start: usize) -> usize {
    let mut at = start.saturating_add(1);
    loop {
        let rest = text.get(at..).unwrap_or_default();
        let length = plain_length(rest);
        at = at.saturating_add(length).saturating_add(1);
        match rest.get(length) {
            Some(b'"') => return at,
            // Whatever is escaped is not an end.
            Some(b'\\') => at = at.saturating_add(1),
            Some(_) => {}
            None => return text.len(),
        }
    }
}

/// Returns the number of bytes before the first one that a string must escape: a quote, a backslash, a control
/// character.
pub(crate) fn plain_length(text: &[u8]) -> usize {
    let (words, rest) = text.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let found = special_bytes(u64::from_le_bytes(*word));
        if found != 0 {
            let within = usize::try_from(found.trailing_zeros() >> 3).unwrap_or_default();
            return index.saturating_mul(8).saturating_add(within);
        }
    }
    let last = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20));
    words.len().saturating_mul(8).saturating_add(last.unwrap_or(rest.len()))
}

/// Marks bytes that end a plain run by their highest bit. The lowest mark is true, those above it may be false.
fn special_bytes(word: u64) -> u64 {
    (below(word, 0x20) | equal(word, b'"') | equal(word, b'\\')) & HIGHEST
}

/// Whether no byte needs an escape. Tests eight bytes at once; non-ASCII bytes count as needing one.
pub(super) fn is_plain(text: &[u8]) -> bool {
    let is_plain = |word: &[u8; 8]| {
        let word = u64::from_le_bytes(*word);
        // `<` and `>` differ in one bit only.
        let angle = equal(word | ONES.wrapping_mul(2), b'>');
        let escaped = below(word, 0x20) | equal(word, b'"') | equal(word, b'&') | equal(word, b'\\') | angle;
        (word | escaped) & HIGHEST == 0
    };
    let Some(last) = text.last_chunk::<8>() else {
        return is_plain(&short_word(text));
    };
    let (words, _) = text.as_chunks::<8>();
    words.iter().chain([last]).all(is_plain)
}

/// A word with all bytes of a text of fewer than eight, some of them twice, and otherwise bytes that need no escape.
fn short_word(text: &[u8]) -> [u8; 8] {
    if let (Some([a, b, c, d]), Some([e, f, g, h])) = (text.first_chunk(), text.last_chunk()) {
        return [*a, *b, *c, *d, *e, *f, *g, *h];
    }
    match text {
        [a] => [*a, b' ', b' ', b' ', b' ', b' ', b' ', b' '],
        [a, b] => [*a, *b, b' ', b' ', b' ', b' ', b' ', b' '],
        [a, b, c] => [*a, *b, *c, b' ', b' ', b' ', b' ', b' '],
        _ => [b' '; 8],
    }
}

const ONES: u64 = u64::from_ne_bytes([1; 8]);
const HIGHEST: u64 = ONES << 7;

/// Marks bytes below `least` by their highest bit; of the marks only the lowest is certain.
fn below(word: u64, least: u8) -> u64 {
    word.wrapping_sub(ONES.wrapping_mul(u64::from(least))) & !word
}

/// Marks bytes that equal this one, in the same way.
fn equal(word: u64, byte: u8) -> u64 {
    below(word ^ ONES.wrapping_mul(u64::from(byte)), 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_outside_of_strings() {
        let list = |count: usize| format!("[{}1]", "1,".repeat(count - 1));
        // The list itself is a value.
        assert!(!has_more_values(list(9).as_bytes(), 10));
        assert!(has_more_values(list(10).as_bytes(), 10));
        assert!(has_more_values(format!("[{}{{}}]", "{},".repeat(10)).as_bytes(), 10));
        assert!(has_more_values(b"{\"a\":[],\"b\":[],\"c\":[],\"d\":[]}", 5));
        assert!(!has_more_values(format!("[\"{}\"]", ",{[\\\"".repeat(100)).as_bytes(), 10));
    }

    #[test]
    fn values_are_found_where_they_stand_and_nowhere_else() {
        let text = br#"{"metadata":{"labels":{"nodeName":"no"}},"spec":{"nodeSelector":{"nodeName":"no"},"n":[1,{"nodeName":2}],"nodeName":"a\"b","x":7}}"#;
        let at = |path: &[&str]| value_at(text, path).map(|found| std::str::from_utf8(found).unwrap());
        assert_eq!(at(&["spec", "nodeName"]), Some(r#""a\"b""#));
        assert_eq!(at(&["spec", "x"]), Some("7"));
        assert_eq!(at(&["spec", "n"]), Some(r#"[1,{"nodeName":2}]"#));
        assert_eq!(at(&["spec", "none"]), None);
        assert_eq!(at(&["spec", "x", "y"]), None);
        assert_eq!(at(&["status"]), None);
        for cut in 0..text.len() {
            // For a truncated document the result is arbitrary, but there is no panic.
            let _ = value_at(&text[..cut], &["spec", "nodeName"]);
        }
        assert_eq!(value_at(b"", &["a"]), None);
        assert_eq!(value_at(b"{}", &["a"]), None);
    }

    #[test]
    fn word_scan_agrees_with_byte_scan() {
        for byte in 0..=u8::MAX {
            for (length, at) in [
                (1, 0),
                (2, 1),
                (3, 1),
                (3, 2),
                (4, 3),
                (5, 4),
                (6, 2),
                (7, 3),
                (7, 0),
                (7, 6),
                (8, 0),
                (8, 7),
                (9, 8),
                (20, 13),
                (24, 15),
            ] {
                let mut text = vec![b'a'; length];
                text[at] = byte;
                let ends = matches!(byte, b'"' | b'\\' | 0..0x20);
                assert_eq!(plain_length(&text), if ends { at } else { length }, "{byte} {length}");
                let escaped = ends || matches!(byte, b'<' | b'>' | b'&' | 0x80..);
                assert_eq!(is_plain(&text), !escaped, "{byte} {length}");
            }
        }
    }
}
