//! Field names as identifiers: how a name that CEL cannot write is written.
//!
//! `my-field` becomes `my__dash__field`, a keyword `in` becomes `__in__`. Follows Kubernetes' `apiserver/pkg/cel/escaping.go`.

use std::borrow::Cow;

const KEYWORDS: [&str; 21] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "null",
    "package",
    "return",
    "true",
    "var",
    "void",
    "while",
];

/// Whether the word is reserved in CEL.
pub fn is_keyword(word: &str) -> bool {
    KEYWORDS.binary_search(&word).is_ok()
}

/// The name as an identifier; nothing where it has characters that cannot be escaped.
pub fn escape(name: &str) -> Option<Cow<'_, str>> {
    let first = name.bytes().next()?;
    if first.is_ascii_digit() {
        return None;
    }
    if is_keyword(name) {
        return Some(format!("__{name}__").into());
    }
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') && !name.contains("__");
    if is_plain {
        return Some(name.into());
    }
    let mut escaped = String::with_capacity(name.len().saturating_add(16));
    let mut rest = name.chars().peekable();
    while let Some(character) = rest.next() {
        match character {
            '_' if rest.peek() == Some(&'_') => {
                rest.next();
                escaped.push_str("__underscores__");
            }
            '.' => escaped.push_str("__dot__"),
            '-' => escaped.push_str("__dash__"),
            '/' => escaped.push_str("__slash__"),
            _ if character.is_ascii_alphanumeric() || character == '_' => escaped.push(character),
            _ => return None,
        }
    }
    Some(escaped.into())
}

/// The name that an identifier denotes; `None` for an invalid escape.
pub fn unescape(identifier: &str) -> Option<Cow<'_, str>> {
    if !identifier.contains("__") {
        return Some(identifier.into());
    }
    let mut name = String::with_capacity(identifier.len());
    let mut rest = identifier;
    while let Some(open) = rest.find("__") {
        let (before, after) = rest.split_at_checked(open)?;
        let after = after.strip_prefix("__")?;
        // An escape is two underscores, anything but underscores, two underscores.
        let end = after.find('_').unwrap_or(after.len());
        let (word, behind) = after.split_at_checked(end)?;
        let (true, Some(behind)) = (!word.is_empty(), behind.strip_prefix("__")) else {
            name.push_str(before);
            name.push('_');
            rest = rest.get(open.saturating_add(1)..)?;
            continue;
        };
        name.push_str(before);
        match word {
            "underscores" => name.push_str("__"),
            "dot" => name.push('.'),
            "dash" => name.push('-'),
            "slash" => name.push('/'),
            _ if is_keyword(word) && before.is_empty() && behind.is_empty() && name.is_empty() => name.push_str(word),
            _ => return None,
        }
        rest = behind;
    }
    name.push_str(rest);
    Some(name.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_being_escaped() {
        for (name, escaped) in [
            ("plain", "plain"),
            ("my-field", "my__dash__field"),
            ("a.b/c", "a__dot__b__slash__c"),
            ("in", "__in__"),
            ("a__b", "a__underscores__b"),
            ("a___b", "a__underscores___b"),
            ("_x", "_x"),
        ] {
            assert_eq!(escape(name).as_deref(), Some(escaped), "{name}");
            assert_eq!(unescape(escaped).as_deref(), Some(name), "{escaped}");
        }
        assert_eq!(escape("1a"), None);
        assert_eq!(escape("a b"), None);
        assert_eq!(escape(""), None);
        assert_eq!(unescape("a__what__b"), None);
        assert_eq!(unescape("x__in__"), None);
    }

    #[test]
    fn keywords_are_sorted_for_the_search() {
        assert!(KEYWORDS.is_sorted());
    }
}
