//! Field selectors: `metadata.name=x,status.phase!=Running`.
//!
//! Which fields a kind can be selected by is the registry's matter. Follows Kubernetes' `apimachinery/pkg/fields`.

use std::fmt;

/// Terms that must all hold. Without any, everything is selected.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSelector {
    terms: Vec<Term>,
}

/// A required or excluded value of one field. A missing field counts as empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    /// The field's name.
    pub field: String,
    /// Whether it must differ.
    pub negated: bool,
    /// The value.
    pub value: String,
}

/// A reason why a text is not a field selector; the texts are Kubernetes'.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FieldSelectorError {
    /// A term without operator.
    #[error("invalid selector: '{selector}'; can't understand '{term}'")]
    Term {
        /// The whole text.
        selector: String,
        /// The part.
        term: String,
    },
    /// A backslash before a character that needs none.
    #[error("invalid field selector: invalid escape sequence: {0}")]
    Escape(String),
    /// A character that needs a backslash.
    #[error("invalid field selector: unescaped character in value: {0}")]
    Unescaped(u32),
}

impl FieldSelector {
    /// Reads a selector as queries write it.
    ///
    /// # Errors
    /// The first term that is not understood, in alphabetical order.
    pub fn parse(text: &str) -> Result<Self, FieldSelectorError> {
        let mut parts = split_terms(text);
        parts.sort_unstable();
        let mut terms = Vec::new();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let split = part.char_indices().find_map(|(at, _)| split_operator(part, at));
            let Some((field, negated, value)) = split else {
                return Err(FieldSelectorError::Term { selector: text.into(), term: part.into() });
            };
            let value = unescape(value)?;
            // Kubernetes takes a term without field and value to require nothing.
            if !field.is_empty() || !value.is_empty() {
                terms.push(Term { field: field.into(), negated, value });
            }
        }
        Ok(Self { terms })
    }

    /// Whether nothing is required.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// The terms, sorted by their text.
    #[must_use]
    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// Whether all terms hold for an object whose fields `lookup` gives.
    #[must_use]
    pub fn matches<'a>(&self, lookup: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.terms.iter().all(|term| (lookup(&term.field).unwrap_or_default() == term.value) != term.negated)
    }
}

/// Splits at commas that have no backslash before them.
fn split_terms(text: &str) -> Vec<&str> {
    let mut escaped = false;
    text.split(|c| {
        let separates = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        separates
    })
    .collect()
}

fn split_operator(term: &str, at: usize) -> Option<(&str, bool, &str)> {
    let (field, rest) = term.split_at_checked(at)?;
    let operators = [("!=", true), ("==", false), ("=", false)];
    operators.into_iter().find_map(|(text, negated)| Some((field, negated, rest.strip_prefix(text)?)))
}

fn unescape(value: &str) -> Result<String, FieldSelectorError> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                Some(c) => return Err(FieldSelectorError::Escape(format!("\\{c}"))),
                None => return Err(FieldSelectorError::Escape("\\".into())),
            },
            ',' | '=' => return Err(FieldSelectorError::Unescaped(u32::from(c))),
            _ => out.push(c),
        }
    }
    Ok(out)
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, term) in self.terms.iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            let operator = if term.negated { "!=" } else { "=" };
            let value = term.value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
            write!(f, "{separator}{}{operator}{value}", term.field)?;
        }
        Ok(())
    }
}
