//! Field paths, and lists of errors at them, printed exactly as Kubernetes prints them.
//!
//! Validators get a path and a list, and add to the list: `errors.invalid(at.child("value"), value, "must be …")`. A path
//! is a chain of borrowed steps, so that only errors pay for its text. Follows `apimachinery/pkg/util/validation/field`.

mod path;

use std::collections::HashSet;
use std::fmt;

pub use path::Path;

use crate::go_text::{format_float, quote};
use crate::json::{self, Object, Value};

/// Kind of an error in a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are Kubernetes'")]
pub enum ErrorType {
    NotFound,
    Required,
    Duplicate,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
    TooFew,
    Internal,
    TypeInvalid,
    TooShort,
}

impl ErrorType {
    /// The machine-readable name, which is the `reason` of a cause.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            ErrorType::NotFound => "FieldValueNotFound",
            ErrorType::Required => "FieldValueRequired",
            ErrorType::Duplicate => "FieldValueDuplicate",
            ErrorType::Invalid => "FieldValueInvalid",
            ErrorType::NotSupported => "FieldValueNotSupported",
            ErrorType::Forbidden => "FieldValueForbidden",
            ErrorType::TooLong => "FieldValueTooLong",
            ErrorType::TooMany => "FieldValueTooMany",
            ErrorType::TooFew => "FieldValueTooFew",
            ErrorType::Internal => "InternalError",
            ErrorType::TypeInvalid => "FieldValueTypeInvalid",
            ErrorType::TooShort => "FieldValueTooShort",
        }
    }

    /// Prefix of the message.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            ErrorType::NotFound => "Not found",
            ErrorType::Required => "Required value",
            ErrorType::Duplicate => "Duplicate value",
            ErrorType::Invalid | ErrorType::TypeInvalid => "Invalid value",
            ErrorType::NotSupported => "Unsupported value",
            ErrorType::Forbidden => "Forbidden",
            ErrorType::TooLong => "Too long",
            ErrorType::TooMany => "Too many",
            ErrorType::TooFew => "Too few",
            ErrorType::Internal => "Internal error",
            ErrorType::TooShort => "Too short",
        }
    }

    /// The type that a `reason` names; CRD rules name some of them.
    #[must_use]
    pub fn from_reason(reason: &str) -> Option<Self> {
        use ErrorType as E;
        let all = [
            E::NotFound,
            E::Required,
            E::Duplicate,
            E::Invalid,
            E::NotSupported,
            E::Forbidden,
            E::TooLong,
            E::TooMany,
            E::TooFew,
            E::Internal,
            E::TypeInvalid,
            E::TooShort,
        ];
        all.into_iter().find(|it| it.reason() == reason)
    }

    fn shows_value(self) -> bool {
        !matches!(
            self,
            ErrorType::Required | ErrorType::Forbidden | ErrorType::TooLong | ErrorType::TooShort | ErrorType::Internal
        )
    }
}

/// The value that an error complains about.
#[derive(Debug, Clone, PartialEq)]
pub enum BadValue {
    /// Not shown.
    Omitted,
    /// Strings are quoted, numbers and booleans printed, all else is shown as JSON.
    Value(Value),
    /// A text that is shown as it is, such as the JSON of one of Kubernetes' internal structs.
    Rendered(String),
}

impl<T: Into<Value>> From<T> for BadValue {
    fn from(value: T) -> Self {
        BadValue::Value(value.into())
    }
}

impl BadValue {
    /// Bytes that the value takes, about.
    fn size(&self) -> usize {
        match self {
            BadValue::Omitted => 0,
            BadValue::Value(value) => value_size(value),
            BadValue::Rendered(text) => text.len(),
        }
    }
}

impl fmt::Display for BadValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadValue::Omitted => Ok(()),
            BadValue::Rendered(text) => f.write_str(text),
            BadValue::Value(Value::String(text)) => f.write_str(&quote(text)),
            BadValue::Value(Value::Float(value)) => f.write_str(&format_float(value.get())),
            BadValue::Value(value) => f.write_str(&json::to_string(value)),
        }
    }
}

/// One error at one field. It prints as `FIELD: WORDS: VALUE: DETAIL`.
#[derive(Debug, Clone, PartialEq)]
pub struct Error {
    /// Kind of the error.
    pub error_type: ErrorType,
    /// The path of the field.
    pub field: String,
    /// The value there.
    pub bad_value: BadValue,
    /// The rule that the value breaks.
    pub detail: String,
}

impl Error {
    /// An error of any type.
    #[must_use]
    pub fn new(
        error_type: ErrorType,
        at: &Path<'_>,
        bad_value: impl Into<BadValue>,
        detail: impl Into<String>,
    ) -> Self {
        let mut bad_value = bad_value.into();
        if bad_value.size() > VALUE_BYTES_MAX {
            bad_value = BadValue::Rendered("<value omitted>".to_owned());
        }
        Self { error_type, field: at.to_string(), bad_value, detail: detail.into() }
    }

    /// Bytes that the error takes, about.
    fn size(&self) -> usize {
        let lengths = [self.field.len(), self.detail.len(), self.bad_value.size()];
        lengths.into_iter().fold(ERROR_BYTES, usize::saturating_add)
    }

    /// The message without the field.
    #[must_use]
    pub fn body(&self) -> String {
        let mut body = self.error_type.words().to_owned();
        if self.error_type.shows_value() && self.bad_value != BadValue::Omitted {
            body = format!("{body}: {}", self.bad_value);
        }
        if !self.detail.is_empty() {
            body = format!("{body}: {}", self.detail);
        }
        body
    }

    /// The cause that the details of a `Status` list for this error.
    #[must_use]
    pub fn cause(&self) -> Value {
        let mut cause = Object::with_capacity(3);
        cause.insert("reason", self.error_type.reason());
        cause.insert("message", self.body());
        if !self.field.is_empty() {
            cause.insert("field", self.field.as_str());
        }
        Value::Object(cause)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

impl std::error::Error for Error {}

/// Bytes of errors that a list holds; the first error is held whatever its length, further ones are dropped.
///
/// Without this limit, a long path or value that many errors repeat yields a message that is many times the object.
const ERROR_BYTES_MAX: usize = 256 << 10;

/// Bytes of a value that an error shows. A message has each value twice, and quoted once more, and a list of empty
/// objects is twenty times as long there as in the request.
const VALUE_BYTES_MAX: usize = 64 << 10;

/// Bytes that an error takes besides its texts.
const ERROR_BYTES: usize = 64;

/// Errors in the order in which they were found, as many as fit.
#[derive(Debug, Clone, Default)]
pub struct Errors {
    list: Vec<Error>,
    /// Bytes of the list, counted when errors are added.
    bytes: usize,
}

impl PartialEq for Errors {
    fn eq(&self, other: &Self) -> bool {
        self.list == other.list
    }
}

impl Errors {
    /// No errors yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { list: Vec::new(), bytes: 0 }
    }

    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Number of errors.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// The errors in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Error> {
        self.list.iter()
    }

    /// The errors in order, to be changed.
    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, Error> {
        self.list.iter_mut()
    }

    /// Whether further errors are dropped. Loops whose errors have no effect any more can end.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.bytes >= ERROR_BYTES_MAX
    }

    /// Adds an error, unless the list is full.
    pub fn push(&mut self, error: Error) {
        if !self.is_full() {
            self.bytes = self.bytes.saturating_add(error.size());
            self.list.push(error);
        }
    }

    /// Adds an error, which is put together only if it fits.
    fn add(&mut self, error_type: ErrorType, at: Path<'_>, value: impl Into<BadValue>, detail: impl Into<String>) {
        if !self.is_full() {
            self.push(Error::new(error_type, &at, value, detail));
        }
    }

    /// Adds the errors of another list behind these, as far as they fit.
    pub fn append(&mut self, other: Errors) {
        other.into_iter().for_each(|error| self.push(error));
    }

    /// Keeps the errors for which `keep` holds.
    pub fn retain(&mut self, keep: impl FnMut(&Error) -> bool) {
        self.list.retain(keep);
    }

    /// A malformed value.
    pub fn invalid(&mut self, at: Path<'_>, value: impl Into<BadValue>, detail: impl Into<String>) {
        self.add(ErrorType::Invalid, at, value, detail);
    }

    /// A missing value.
    pub fn required(&mut self, at: Path<'_>, detail: impl Into<String>) {
        self.add(ErrorType::Required, at, "", detail);
    }

    /// A value that is not allowed here and now.
    pub fn forbidden(&mut self, at: Path<'_>, detail: impl Into<String>) {
        self.add(ErrorType::Forbidden, at, "", detail);
    }

    /// A value that occurs twice.
    pub fn duplicate(&mut self, at: Path<'_>, value: impl Into<BadValue>) {
        self.add(ErrorType::Duplicate, at, value, "");
    }

    /// A value that names nothing.
    pub fn not_found(&mut self, at: Path<'_>, value: impl Into<BadValue>) {
        self.add(ErrorType::NotFound, at, value, "");
    }

    /// A value that is none of the known ones.
    pub fn not_supported(&mut self, at: Path<'_>, value: impl Into<BadValue>, supported: &[&str]) {
        let quoted: Vec<_> = supported.iter().map(|it| quote(it)).collect();
        let detail = if quoted.is_empty() { String::new() } else { format!("supported values: {}", quoted.join(", ")) };
        self.add(ErrorType::NotSupported, at, value, detail);
    }

    /// A text of more than `max` bytes.
    pub fn too_long(&mut self, at: Path<'_>, max: usize) {
        let detail = format!("may not be more than {max} {}", plural(max, "byte"));
        self.add(ErrorType::TooLong, at, "<value omitted>", detail);
    }

    /// A text of more than `max` characters.
    pub fn too_long_characters(&mut self, at: Path<'_>, max: usize) {
        let detail = format!("may not be more than {max} {}", plural(max, "character"));
        self.add(ErrorType::TooLong, at, "<value omitted>", detail);
    }

    /// A text of fewer than `min` characters.
    pub fn too_short(&mut self, at: Path<'_>, value: impl Into<BadValue>, min: usize) {
        let detail = format!("must be at least {min} {}", plural(min, "character"));
        self.add(ErrorType::TooShort, at, value, detail);
    }

    /// A list of `actual` items, where `max` are allowed. Without `actual`, no number is shown.
    pub fn too_many(&mut self, at: Path<'_>, actual: Option<usize>, max: usize) {
        let detail = format!("must have at most {max} {}", plural(max, "item"));
        let actual = actual.map_or(BadValue::Omitted, |actual| i64::try_from(actual).unwrap_or(i64::MAX).into());
        self.add(ErrorType::TooMany, at, actual, detail);
    }

    /// A value of the wrong type.
    pub fn type_invalid(&mut self, at: Path<'_>, value: impl Into<BadValue>, detail: impl Into<String>) {
        self.add(ErrorType::TypeInvalid, at, value, detail);
    }

    /// A failure that is not the user's.
    pub fn internal(&mut self, at: Path<'_>, detail: impl Into<String>) {
        self.add(ErrorType::Internal, at, BadValue::Omitted, detail);
    }

    /// All messages: one as it is, several distinct ones in brackets.
    #[must_use]
    pub fn message(&self) -> String {
        let mut seen = HashSet::new();
        let distinct: Vec<String> =
            self.list.iter().map(ToString::to_string).filter(|text| seen.insert(text.clone())).collect();
        match distinct.as_slice() {
            [one] => one.clone(),
            _ => format!("[{}]", distinct.join(", ")),
        }
    }

    /// The message of the `Status` that refuses an object; `qualified_kind` is the kind, with `.GROUP` if it has one.
    #[must_use]
    pub fn invalid_message(&self, qualified_kind: &str, name: &str) -> String {
        let start = format!("{qualified_kind} {} is invalid", quote(name));
        if self.is_empty() { start } else { format!("{start}: {}", self.message()) }
    }

    /// The causes that the details of a `Status` list.
    #[must_use]
    pub fn causes(&self) -> Vec<Value> {
        self.list.iter().map(Error::cause).collect()
    }
}

/// Bytes that a value takes, about.
fn value_size(value: &Value) -> usize {
    /// Bytes of a value besides its text.
    const VALUE_BYTES: usize = 8;
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(value_size).fold(VALUE_BYTES, usize::saturating_add),
        Value::Object(fields) => {
            let sizes = fields.iter().map(|(key, value)| key.len().saturating_add(value_size(value)));
            sizes.fold(VALUE_BYTES, usize::saturating_add)
        }
        _ => VALUE_BYTES,
    }
}

fn plural(count: usize, word: &str) -> String {
    if count == 1 { word.to_owned() } else { format!("{word}s") }
}

impl IntoIterator for Errors {
    type Item = Error;
    type IntoIter = std::vec::IntoIter<Error>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter()
    }
}

impl<'a> IntoIterator for &'a Errors {
    type Item = &'a Error;
    type IntoIter = std::slice::Iter<'a, Error>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl FromIterator<Error> for Errors {
    fn from_iter<I: IntoIterator<Item = Error>>(errors: I) -> Self {
        let mut list = Self::new();
        errors.into_iter().for_each(|error| list.push(error));
        list
    }
}
