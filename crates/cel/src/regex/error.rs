//! Errors in patterns, in the words of Go's `regexp/syntax`.

use std::fmt;

/// A pattern that is not a regular expression, or one too large to use.
///
/// Displays as Go does: ``error parsing regexp: missing closing ): `(a` ``.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("error parsing regexp: {kind}: `{fragment}`")]
pub struct Error {
    kind: ErrorKind,
    fragment: Box<str>,
}

impl Error {
    pub(super) fn new(kind: ErrorKind, fragment: &str) -> Self {
        Self { kind, fragment: fragment.into() }
    }

    /// Kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The part of the pattern that is wrong.
    pub fn fragment(&self) -> &str {
        &self.fragment
    }
}

/// Kinds of errors in a pattern.
///
/// Go's `invalid UTF-8` is missing: a pattern is a `str` here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A class such as `[z-a]`, `[[:foo:]]` or `\p{Foo}`.
    InvalidCharacterRange,
    /// An escape without meaning, such as `\y`.
    InvalidEscape,
    /// A group name that is empty, unclosed, or not made of word characters.
    InvalidNamedCapture,
    /// `(?` followed by something that is neither a flag nor a name.
    InvalidPerlOperator,
    /// A repetition of a repetition, such as `a**`.
    InvalidRepeatOperator,
    /// A count above 1000, alone or multiplied with the counts inside, or a minimum above the maximum.
    InvalidRepeatSize,
    /// `[` without `]`.
    MissingBracket,
    /// `(` without `)`.
    MissingParenthesis,
    /// A repetition of nothing, such as `*a`.
    MissingRepeatArgument,
    /// `\` at the end.
    TrailingBackslash,
    /// `)` without `(`.
    UnexpectedParenthesis,
    /// More than 1000 levels of nesting.
    NestingDepth,
    /// Larger than the limits of Go, or than an automaton may become.
    TooLarge,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InvalidCharacterRange => "invalid character class range",
            Self::InvalidEscape => "invalid escape sequence",
            Self::InvalidNamedCapture => "invalid named capture",
            Self::InvalidPerlOperator => "invalid or unsupported Perl syntax",
            Self::InvalidRepeatOperator => "invalid nested repetition operator",
            Self::InvalidRepeatSize => "invalid repeat count",
            Self::MissingBracket => "missing closing ]",
            Self::MissingParenthesis => "missing closing )",
            Self::MissingRepeatArgument => "missing argument to repetition operator",
            Self::TrailingBackslash => "trailing backslash at end of expression",
            Self::UnexpectedParenthesis => "unexpected )",
            Self::NestingDepth => "expression nests too deeply",
            Self::TooLarge => "expression too large",
        })
    }
}
