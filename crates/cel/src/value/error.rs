//! Evaluation errors.

use std::fmt;
use std::sync::Arc;

/// Kind of an [`EvalError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A map without the key, an object without the field.
    NoSuchKey,
    /// A list without the index.
    NoSuchIndex,
    /// A variable without a value.
    NoSuchAttribute,
    /// No overload for the arguments' types.
    NoSuchOverload,
    /// A number or time beyond its type's range.
    Overflow,
    /// Division or remainder by zero.
    DivideByZero,
    /// A conversion that the value does not allow.
    Conversion,
    /// Another error, described by its message.
    Other,
    /// The answer depends on something unknown inside an argument. Becomes an unknown value, never an error for users.
    Undetermined,
    /// The reference implementation gives up here, whatever stands around it. Nothing absorbs it.
    Aborted,
    /// A call would make a value that takes too much memory, or a comparison too much time. Nothing absorbs it.
    TooLarge,
    /// The cost limit was exceeded. Nothing absorbs it.
    CostLimit,
    /// The evaluation was interrupted. Nothing absorbs it.
    Interrupted,
}

/// Error of an evaluation: a kind and the text of the reference implementation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvalError(Arc<(ErrorKind, Box<str>)>);

impl EvalError {
    /// An error with the given text.
    pub fn new(kind: ErrorKind, message: impl Into<Box<str>>) -> Self {
        EvalError(Arc::new((kind, message.into())))
    }

    /// An error of no special kind.
    pub fn other(message: impl Into<Box<str>>) -> Self {
        Self::new(ErrorKind::Other, message)
    }

    /// `no such overload`
    pub fn no_such_overload() -> Self {
        Self::new(ErrorKind::NoSuchOverload, "no such overload")
    }

    /// `no such key: …`
    pub fn no_such_key(key: impl fmt::Display) -> Self {
        Self::new(ErrorKind::NoSuchKey, format!("no such key: {key}"))
    }

    /// `integer overflow`
    pub fn int_overflow() -> Self {
        Self::new(ErrorKind::Overflow, "integer overflow")
    }

    /// `unsigned integer overflow`
    pub fn uint_overflow() -> Self {
        Self::new(ErrorKind::Overflow, "unsigned integer overflow")
    }

    /// `type conversion error from 'FROM' to 'TO'`
    pub fn conversion(from: &str, to: &str) -> Self {
        Self::new(ErrorKind::Conversion, format!("type conversion error from '{from}' to '{to}'"))
    }

    /// The answer depends on something unknown inside an argument.
    pub fn undetermined() -> Self {
        Self::new(ErrorKind::Undetermined, "undetermined")
    }

    /// Kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.0
    }

    /// The text.
    pub fn message(&self) -> &str {
        &self.0.1
    }

    /// Whether `&&`, `||`, `?:` and comprehensions never absorb the error: the evaluation ends.
    pub fn is_fatal(&self) -> bool {
        matches!(self.kind(), ErrorKind::CostLimit | ErrorKind::Interrupted | ErrorKind::TooLarge | ErrorKind::Aborted)
    }
}

impl fmt::Display for EvalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for EvalError {}
