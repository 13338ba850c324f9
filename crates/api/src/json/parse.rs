//! Reading JSON.
//!
//! Syntax errors have the texts of Go's `encoding/json`; bytes that are not UTF-8 become U+FFFD, as there. What is
//! written twice is kept once, with the last value, and reported by [`parse_strict`] with the texts of strict decoding.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write as _;

use super::scan::{plain_length, value_length};
use super::spans::Spans;
use super::{Float, NameFilter, Object, Text, Value};
use crate::go_text::push_quoted;

/// Maximum nesting depth of values; Go stops at 10,000, which no object needs and which would need a large
/// stack.
pub const MAX_DEPTH: usize = 400;

/// Objects with more fields than this are checked for duplicate keys through a hash table.
const SMALL_OBJECT: usize = 24;

/// A syntax error in JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SyntaxError {
    /// Go's text.
    pub message: String,
    /// The byte at which reading stopped.
    pub offset: usize,
}

/// A key that an object holds twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Duplicate {
    /// The field, as `spec.containers[0].name`.
    pub path: String,
    /// Offset of the second key.
    pub offset: usize,
}

/// Number of duplicate or unknown fields that are reported for a document, as in Kubernetes.
pub(crate) const COMPLAINTS_MAX: usize = 100;

/// Bytes of paths that are reported for a document; the first path is reported whatever its length.
///
/// Without this limit, a few long keys around many short duplicates yield a report that is many times the text.
pub(crate) const COMPLAINT_BYTES_MAX: usize = 64 << 10;

impl Duplicate {
    /// Adds a duplicate to a list unless the list is full; renders its path only then.
    pub(crate) fn note(list: &mut Vec<Duplicate>, offset: usize, path: impl FnOnce() -> String) {
        let bytes: usize = list.iter().map(|it| it.path.len()).sum();
        if list.len() < COMPLAINTS_MAX && bytes < COMPLAINT_BYTES_MAX {
            list.push(Duplicate { path: path(), offset });
        }
    }
}

/// A value with information about its text.
#[derive(Debug, Clone, Default)]
pub struct Document {
    /// The parsed value.
    pub value: Value,
    /// Duplicate keys, in the order of the text.
    pub duplicates: Vec<Duplicate>,
    /// Positions of all values.
    pub spans: Spans,
}

/// Reads one value; only spaces may follow it. The last of duplicate keys counts.
///
/// # Errors
/// The first syntax error.
pub fn parse(text: &[u8]) -> Result<Value, SyntaxError> {
    Ok(Parser::new(text).document()?)
}

/// Like [`parse`], and also reports duplicate keys.
///
/// # Errors
/// The first syntax error.
pub fn parse_strict(text: &[u8]) -> Result<(Value, Vec<Duplicate>), SyntaxError> {
    let mut parser = Parser { report_duplicates: true, ..Parser::new(text) };
    let value = parser.document()?;
    Ok((value, parser.duplicates))
}

/// Like [`parse_strict`], and also records the position of every value.
///
/// # Errors
/// The first syntax error.
pub fn parse_document(text: &[u8]) -> Result<Document, SyntaxError> {
    let mut parser = Parser { report_duplicates: true, record_spans: true, ..Parser::new(text) };
    let value = parser.document()?;
    let spans = parser.spans.pop().unwrap_or_default();
    Ok(Document { value, duplicates: parser.duplicates, spans })
}

/// Reads one value from a stream of values; returns its length in bytes, too.
///
/// # Errors
/// The first syntax error.
pub fn parse_prefix(text: &[u8]) -> Result<(Value, usize), SyntaxError> {
    let mut parser = Parser::new(text);
    parser.skip_spaces();
    let value = parser.value()?;
    Ok((value, parser.offset))
}

/// Like [`parse`], without the fields of these names at any depth. Skipped text is not checked: this is for our
/// own text, without spaces.
///
/// # Errors
/// The first syntax error in the text that is read.
pub fn parse_without(text: &[u8], unread: &NameFilter) -> Result<Value, SyntaxError> {
    Ok(Parser { unread: Some(unread), ..Parser::new(text) }.document()?)
}

struct Parser<'a> {
    text: &'a [u8],
    /// The text again, if all of it is UTF-8.
    utf8: Option<&'a str>,
    /// Names of fields to pass over.
    unread: Option<&'a NameFilter>,
    /// INVARIANT: at most `text.len()`.
    offset: usize,
    depth: usize,
    report_duplicates: bool,
    record_spans: bool,
    /// The keys and indexes around the current value, kept only to report duplicates.
    path: Vec<Step>,
    duplicates: Vec<Duplicate>,
    /// Items and fields of open containers: each list and object takes its own from the end when it is closed.
    items: Vec<Value>,
    entries: Vec<(Text, Value)>,
    /// Positions of values that are not yet part of a container, if they are recorded.
    spans: Vec<Spans>,
}

enum Step {
    /// Offset of a key.
    Key(usize),
    Index(usize),
}

/// A boxed syntax error, which is small compared with the result.
type ParseResult<T> = Result<T, Box<SyntaxError>>;

impl From<Box<SyntaxError>> for SyntaxError {
    fn from(error: Box<SyntaxError>) -> Self {
        *error
    }
}

impl<'a> Parser<'a> {
    fn new(text: &'a [u8]) -> Self {
        Self::over(text, std::str::from_utf8(text).ok())
    }

    /// A parser of a text whose encoding has been checked.
    fn over(text: &'a [u8], utf8: Option<&'a str>) -> Self {
        Self {
            text,
            utf8,
            unread: None,
            offset: 0,
            depth: 0,
            report_duplicates: false,
            record_spans: false,
            path: Vec::new(),
            duplicates: Vec::new(),
            items: Vec::new(),
            entries: Vec::new(),
            spans: Vec::new(),
        }
    }

    fn document(&mut self) -> ParseResult<Value> {
        self.skip_spaces();
        let value = self.value()?;
        self.skip_spaces();
        match self.peek() {
            None => Ok(value),
            Some(_) => Err(self.unexpected("after top-level value")),
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.offset).copied()
    }

    fn advance(&mut self) {
        self.offset = self.offset.saturating_add(1);
    }

    fn skip_spaces(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.peek() {
            self.advance();
        }
    }

    /// The error at the current byte, or that there is none.
    fn unexpected(&self, context: &str) -> Box<SyntaxError> {
        let message = match self.peek() {
            None => "unexpected end of JSON input".to_owned(),
            Some(byte) => {
                let mut message = "invalid character ".to_owned();
                match byte {
                    b'\'' => message.push_str("'\\''"),
                    b'"' => message.push_str("'\"'"),
                    _ => {
                        let mut quoted = String::new();
                        push_quoted(&mut quoted, char::from(byte).encode_utf8(&mut [0; 4]));
                        let inner = quoted.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
                        // Writing to a String cannot fail.
                        let _ = write!(message, "'{}'", inner.unwrap_or_default());
                    }
                }
                message.push(' ');
                message.push_str(context);
                message
            }
        };
        Box::new(SyntaxError { message, offset: self.offset })
    }

    fn value(&mut self) -> ParseResult<Value> {
        let start = self.offset;
        let inner = self.spans.len();
        let value = match self.peek() {
            Some(b'"') => Value::String(self.string()?),
            Some(b'{') => self.nested(Self::object)?,
            Some(b'[') => self.nested(Self::array)?,
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b't') => self.literal("true", Value::Bool(true))?,
            Some(b'f') => self.literal("false", Value::Bool(false))?,
            Some(b'n') => self.literal("null", Value::Null)?,
            _ => return Err(self.unexpected("looking for beginning of value")),
        };
        if self.record_spans {
            let children = self.spans.split_off(inner);
            self.spans.push(Spans { offset: start, value_offset: start, children });
        }
        Ok(value)
    }

    fn nested(&mut self, read: fn(&mut Self) -> ParseResult<Value>) -> ParseResult<Value> {
        if self.depth >= MAX_DEPTH {
            return Err(Box::new(SyntaxError { message: "exceeded max depth".into(), offset: self.offset }));
        }
        self.depth = self.depth.saturating_add(1);
        self.advance();
        let value = read(self);
        self.depth = self.depth.saturating_sub(1);
        value
    }

    fn literal(&mut self, text: &str, value: Value) -> ParseResult<Value> {
        for expected in text.bytes() {
            if self.peek() != Some(expected) {
                return Err(self.unexpected(&format!("in literal {text} (expecting '{}')", char::from(expected))));
            }
            self.advance();
        }
        Ok(value)
    }

    fn array(&mut self) -> ParseResult<Value> {
        let first = self.items.len();
        self.skip_spaces();
        if self.peek() == Some(b']') {
            self.advance();
            return Ok(Value::Array(Vec::new()));
        }
        loop {
            if self.report_duplicates {
                self.path.push(Step::Index(self.items.len().saturating_sub(first)));
            }
            let item = self.value()?;
            self.path.pop();
            self.items.push(item);
            if self.is_last(b']', "after array element")? {
                return Ok(Value::Array(self.items.split_off(first)));
            }
        }
    }

    fn object(&mut self) -> ParseResult<Value> {
        let first = self.entries.len();
        let first_span = self.spans.len();
        self.skip_spaces();
        if self.peek() == Some(b'}') {
            self.advance();
            return Ok(Value::Object(Object::new()));
        }
        let mut keys = Keys::default();
        loop {
            let key_offset = self.offset;
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("looking for beginning of object key string"));
            }
            if let Some(length) = self.unread.and_then(|unread| self.unread_length(unread)) {
                self.offset = self.offset.saturating_add(length);
            } else {
                let key = self.string()?;
                self.skip_spaces();
                if self.peek() != Some(b':') {
                    return Err(self.unexpected("after object key"));
                }
                self.advance();
                self.skip_spaces();
                let known = keys.find(self.entries.get(first..).unwrap_or_default(), &key);
                self.field(key, key_offset, first, first_span, known)?;
            }
            if self.is_last(b'}', "after object key:value pair")? {
                return Ok(Value::Object(Object::from_distinct(self.entries.split_off(first))));
            }
        }
    }

    /// Returns the length of the field whose key starts here, if the field is to be skipped.
    fn unread_length(&self, unread: &NameFilter) -> Option<usize> {
        let rest = self.text.get(self.offset..)?.strip_prefix(b"\"")?;
        let (key, rest) = rest.split_at_checked(plain_length(rest))?;
        let value = rest.strip_prefix(b"\":").filter(|_| unread.contains(key))?;
        Some(key.len().saturating_add(3).saturating_add(value_length(value)))
    }

    /// Reads the value of a field, whose key already exists in its object at `known`.
    fn field(
        &mut self,
        key: Text,
        key_offset: usize,
        first: usize,
        first_span: usize,
        known: Option<usize>,
    ) -> ParseResult<()> {
        if self.report_duplicates {
            self.path.push(Step::Key(key_offset));
            if known.is_some() {
                Duplicate::note(&mut self.duplicates, key_offset, || render_path(self.text, self.utf8, &self.path));
            }
        }
        let value = self.value()?;
        self.path.pop();
        if let Some(span) = self.spans.last_mut() {
            span.offset = key_offset;
        }
        let Some(known) = known else {
            self.entries.push((key, value));
            return Ok(());
        };
        if let Some(entry) = self.entries.get_mut(first.saturating_add(known)) {
            entry.1 = value;
        }
        if self.record_spans
            && let Some(span) = self.spans.pop()
            && let Some(slot) = self.spans.get_mut(first_span.saturating_add(known))
        {
            *slot = span;
        }
        Ok(())
    }

    /// Skips the separator behind an item; returns whether it was the end.
    fn is_last(&mut self, end: u8, context: &str) -> ParseResult<bool> {
        self.skip_spaces();
        match self.peek() {
            Some(b',') => {
                self.advance();
                self.skip_spaces();
                Ok(false)
            }
            Some(byte) if byte == end => {
                self.advance();
                Ok(true)
            }
            _ => Err(self.unexpected(context)),
        }
    }

    fn number(&mut self) -> ParseResult<Value> {
        let start = self.offset;
        let negative = self.peek() == Some(b'-');
        if negative {
            self.advance();
        }
        let mut whole = true;
        let mut magnitude: Option<u64> = Some(0);
        match self.peek() {
            Some(b'0') => self.advance(),
            Some(b'1'..=b'9') => {
                while let Some(digit @ b'0'..=b'9') = self.peek() {
                    let digit = u64::from(digit.wrapping_sub(b'0'));
                    magnitude = magnitude.and_then(|it| it.checked_mul(10)?.checked_add(digit));
                    self.advance();
                }
            }
            _ => return Err(self.unexpected("in numeric literal")),
        }
        if self.peek() == Some(b'.') {
            whole = false;
            self.advance();
            self.digits("after decimal point in numeric literal")?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            whole = false;
            self.advance();
            if let Some(b'+' | b'-') = self.peek() {
                self.advance();
            }
            self.digits("in exponent of numeric literal")?;
        }
        if let Some(magnitude) = magnitude.filter(|_| whole) {
            let value = if negative { 0_i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() };
            if let Some(value) = value {
                return Ok(Value::Int(value));
            }
        }
        let text = self.text.get(start..self.offset).and_then(|text| std::str::from_utf8(text).ok());
        let text = text.unwrap_or_default();
        Float::parse(text).map(Value::Float).ok_or_else(|| {
            let message = format!("json: cannot unmarshal number {text} into Go value of type float64");
            Box::new(SyntaxError { message, offset: start })
        })
    }

    fn digits(&mut self, context: &str) -> ParseResult<()> {
        if !matches!(self.peek(), Some(b'0'..=b'9')) {
            return Err(self.unexpected(context));
        }
        while let Some(b'0'..=b'9') = self.peek() {
            self.advance();
        }
        Ok(())
    }

    /// Reads a string; the current byte is its first quote.
    fn string(&mut self) -> ParseResult<Text> {
        self.advance();
        let run = self.plain_run();
        if self.peek() == Some(b'"') {
            self.advance();
            return Ok(Text::new(run));
        }
        let mut owned = Text::new(run);
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.advance();
                    return Ok(owned);
                }
                Some(b'\\') => {
                    self.advance();
                    owned.push(self.escape()?);
                    owned.push_str(&self.plain_run());
                }
                _ => return Err(self.unexpected("in string literal")),
            }
        }
    }

    /// The text up to the next quote, escape or control character.
    fn plain_run(&mut self) -> Cow<'a, str> {
        let start = self.offset;
        self.offset = start.saturating_add(plain_length(self.text.get(start..).unwrap_or_default()));
        match self.utf8 {
            Some(text) => Cow::Borrowed(text.get(start..self.offset).unwrap_or_default()),
            None => String::from_utf8_lossy(self.text.get(start..self.offset).unwrap_or_default()),
        }
    }

    /// Reads the text after a backslash.
    fn escape(&mut self) -> ParseResult<char> {
        let c = match self.peek() {
            Some(c @ (b'"' | b'\\' | b'/')) => char::from(c),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.advance();
                return self.unicode_escape();
            }
            _ => return Err(self.unexpected("in string escape code")),
        };
        self.advance();
        Ok(c)
    }

    fn unicode_escape(&mut self) -> ParseResult<char> {
        let first = self.four_hex_digits()?;
        if let Some(c) = char::from_u32(first) {
            return Ok(c);
        }
        // Half of a surrogate pair: the other half must follow, else it counts as U+FFFD.
        let is_pair = first < 0xDC00 && self.text.get(self.offset..).is_some_and(|rest| rest.starts_with(b"\\u"));
        if is_pair {
            let before = self.offset;
            self.offset = self.offset.saturating_add(2);
            let second = self.four_hex_digits()?;
            if (0xDC00..0xE000).contains(&second) {
                let high = (first & 0x3FF) << 10;
                let code = (high | (second & 0x3FF)).saturating_add(0x1_0000);
                return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.offset = before;
        }
        Ok(char::REPLACEMENT_CHARACTER)
    }

    fn four_hex_digits(&mut self) -> ParseResult<u32> {
        let mut code = 0_u32;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            let Some(digit) = digit else {
                return Err(self.unexpected("in \\u hexadecimal character escape"));
            };
            code = (code << 4) | digit;
            self.advance();
        }
        Ok(code)
    }
}

/// Finds duplicate keys.
#[derive(Default)]
struct Keys {
    /// A bit for each combination of length, first and last letter among the keys so far: detects most new keys
    /// at once.
    met: u64,
    /// Index of keys, built once scanning would take too long.
    #[expect(
        clippy::box_collection,
        reason = "few objects have an index, and each one in progress takes space on the stack"
    )]
    index: Option<Box<HashMap<Text, usize>>>,
}

impl Keys {
    /// Returns the position of `key` among the earlier ones.
    fn find(&mut self, entries: &[(Text, Value)], key: &Text) -> Option<usize> {
        let bytes = key.as_bytes();
        let edge = |byte: Option<&u8>| usize::from(byte.copied().unwrap_or_default());
        let mark = bytes.len() ^ edge(bytes.first()).wrapping_mul(7) ^ edge(bytes.last()).wrapping_mul(29);
        let bit = 1_u64 << (mark & 63);
        let is_new = self.met & bit == 0;
        self.met |= bit;
        if is_new {
            return None;
        }
        if entries.len() <= SMALL_OBJECT {
            return entries.iter().position(|(it, _)| it == key);
        }
        let index = self.index.get_or_insert_default();
        for (position, (known, _)) in entries.iter().enumerate().skip(index.len()) {
            index.insert(known.clone(), position);
        }
        index.get(key).copied()
    }
}

fn render_path(text: &[u8], utf8: Option<&str>, path: &[Step]) -> String {
    let mut out = String::new();
    for step in path {
        match step {
            Step::Key(offset) => {
                if !out.is_empty() {
                    out.push('.');
                }
                let mut parser = Parser { offset: *offset, ..Parser::over(text, utf8) };
                // The key has been read before.
                out.push_str(&parser.string().unwrap_or_default());
            }
            Step::Index(index) => {
                // Writing to a String cannot fail.
                let _ = write!(out, "[{index}]");
            }
        }
    }
    out
}
