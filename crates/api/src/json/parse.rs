//! Reading JSON.
//!
//! Syntax errors have the texts of Go's `encoding/json`; bytes that are not UTF-8 become U+FFFD, as there. What is
//! written twice is kept once, with the last value, and reported by [`parse_strict`] with the texts of strict decoding.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write as _;

use super::spans::Spans;
use super::{Float, Object, Text, Value};
use crate::go_text::push_quoted;

/// How deep values may be nested; Go stops at 10,000, which no object needs and no stack should have to hold.
pub const MAX_DEPTH: usize = 400;

/// Objects with more fields than this are checked for duplicate keys through a hash table.
const SMALL_OBJECT: usize = 24;

/// Why a text is not JSON.
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
    /// Where the second key starts.
    pub offset: usize,
}

/// A value with what is known about its text.
#[derive(Debug, Clone, Default)]
pub struct Document {
    /// What was read.
    pub value: Value,
    /// Keys that stand twice in one object, in the order of the text.
    pub duplicates: Vec<Duplicate>,
    /// Where everything stands.
    pub spans: Spans,
}

/// Reads one value; only spaces may follow it. Of keys that stand twice, the last counts.
///
/// # Errors
/// The first syntax error.
pub fn parse(text: &[u8]) -> Result<Value, SyntaxError> {
    let mut parser = Parser::new(text);
    let (value, _) = parser.document()?;
    Ok(value)
}

/// As [`parse`], and tells which keys stand twice.
///
/// # Errors
/// The first syntax error.
pub fn parse_strict(text: &[u8]) -> Result<(Value, Vec<Duplicate>), SyntaxError> {
    let mut parser = Parser { report_duplicates: true, ..Parser::new(text) };
    let (value, _) = parser.document()?;
    Ok((value, parser.duplicates))
}

/// As [`parse_strict`], and remembers where everything stands.
///
/// # Errors
/// The first syntax error.
pub fn parse_document(text: &[u8]) -> Result<Document, SyntaxError> {
    let mut parser = Parser { report_duplicates: true, record_spans: true, ..Parser::new(text) };
    let (value, spans) = parser.document()?;
    Ok(Document { value, duplicates: parser.duplicates, spans })
}

/// Reads one value from a stream of them; tells how many bytes it took.
///
/// # Errors
/// The first syntax error.
pub fn parse_prefix(text: &[u8]) -> Result<(Value, usize), SyntaxError> {
    let mut parser = Parser::new(text);
    parser.skip_spaces();
    let (value, _) = parser.value()?;
    Ok((value, parser.offset))
}

/// As [`parse`], without the fields of these names, wherever they stand. What is passed over is not checked: this is for
/// text that was written by us.
///
/// # Errors
/// The first syntax error in what is read.
pub fn parse_without(text: &[u8], unread: &[&str]) -> Result<Value, SyntaxError> {
    let mut parser = Parser { unread, ..Parser::new(text) };
    let (value, _) = parser.document()?;
    Ok(value)
}

/// How many bytes the value takes that the text begins with. The text must be JSON; of other texts it is some number.
#[must_use]
pub fn value_length(text: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut bytes = text.iter().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => {
                while let Some((_, byte)) = bytes.next() {
                    match byte {
                        b'"' => break,
                        // Whatever is escaped is no end.
                        b'\\' => drop(bytes.next()),
                        _ => {}
                    }
                }
                if depth == 0 {
                    return bytes.next().map_or(text.len(), |(next, _)| next);
                }
            }
            b'{' | b'[' => depth = depth.saturating_add(1),
            b'}' | b']' => {
                // The end of what is around a number or a word.
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
    }
    text.len()
}

struct Parser<'a> {
    text: &'a [u8],
    /// Names of fields to pass over.
    unread: &'a [&'a str],
    /// INVARIANT: at most `text.len()`.
    offset: usize,
    depth: usize,
    report_duplicates: bool,
    record_spans: bool,
    /// The keys and indexes around the current value, kept only to report duplicates.
    path: Vec<Step>,
    duplicates: Vec<Duplicate>,
}

enum Step {
    Key(Text),
    Index(usize),
}

impl<'a> Parser<'a> {
    fn new(text: &'a [u8]) -> Self {
        Self {
            text,
            unread: &[],
            offset: 0,
            depth: 0,
            report_duplicates: false,
            record_spans: false,
            path: Vec::new(),
            duplicates: Vec::new(),
        }
    }

    fn document(&mut self) -> Result<(Value, Spans), SyntaxError> {
        self.skip_spaces();
        let result = self.value()?;
        self.skip_spaces();
        match self.peek() {
            None => Ok(result),
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
    fn unexpected(&self, context: &str) -> SyntaxError {
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
        SyntaxError { message, offset: self.offset }
    }

    fn value(&mut self) -> Result<(Value, Spans), SyntaxError> {
        let start = self.offset;
        let mut spans = Spans { offset: start, value_offset: start, children: Vec::new() };
        let value = match self.peek() {
            Some(b'"') => Value::String(self.string()?.into()),
            Some(b'{') => self.nested(Self::object, &mut spans)?,
            Some(b'[') => self.nested(Self::array, &mut spans)?,
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b't') => self.literal("true", Value::Bool(true))?,
            Some(b'f') => self.literal("false", Value::Bool(false))?,
            Some(b'n') => self.literal("null", Value::Null)?,
            _ => return Err(self.unexpected("looking for beginning of value")),
        };
        Ok((value, spans))
    }

    fn nested(
        &mut self,
        read: fn(&mut Self, &mut Spans) -> Result<Value, SyntaxError>,
        spans: &mut Spans,
    ) -> Result<Value, SyntaxError> {
        if self.depth >= MAX_DEPTH {
            return Err(SyntaxError { message: "exceeded max depth".into(), offset: self.offset });
        }
        self.depth = self.depth.saturating_add(1);
        self.advance();
        let value = read(self, spans);
        self.depth = self.depth.saturating_sub(1);
        value
    }

    fn literal(&mut self, text: &str, value: Value) -> Result<Value, SyntaxError> {
        for expected in text.bytes() {
            if self.peek() != Some(expected) {
                return Err(self.unexpected(&format!("in literal {text} (expecting '{}')", char::from(expected))));
            }
            self.advance();
        }
        Ok(value)
    }

    fn array(&mut self, spans: &mut Spans) -> Result<Value, SyntaxError> {
        let mut items = Vec::new();
        self.skip_spaces();
        if self.peek() == Some(b']') {
            self.advance();
            return Ok(Value::Array(items));
        }
        loop {
            if self.report_duplicates {
                self.path.push(Step::Index(items.len()));
            }
            let (item, span) = self.value()?;
            self.path.pop();
            items.push(item);
            if self.record_spans {
                spans.children.push(span);
            }
            self.skip_spaces();
            match self.peek() {
                Some(b',') => self.advance(),
                Some(b']') => {
                    self.advance();
                    return Ok(Value::Array(items));
                }
                _ => return Err(self.unexpected("after array element")),
            }
            self.skip_spaces();
        }
    }

    fn object(&mut self, spans: &mut Spans) -> Result<Value, SyntaxError> {
        let mut entries: Vec<(Text, Value)> = Vec::new();
        let mut index: HashMap<Text, usize> = HashMap::new();
        self.skip_spaces();
        if self.peek() == Some(b'}') {
            self.advance();
            return Ok(Value::Object(Object::new()));
        }
        loop {
            let key_offset = self.offset;
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("looking for beginning of object key string"));
            }
            let key: Text = self.string()?.into();
            let known = find_key(&entries, &mut index, &key);
            self.skip_spaces();
            if self.peek() != Some(b':') {
                return Err(self.unexpected("after object key"));
            }
            self.advance();
            self.skip_spaces();
            if self.unread.contains(&key.as_str()) {
                let rest = self.text.get(self.offset..).unwrap_or_default();
                self.offset = self.offset.saturating_add(value_length(rest));
                self.skip_spaces();
                match self.peek() {
                    Some(b',') => self.advance(),
                    Some(b'}') => {
                        self.advance();
                        return Ok(Value::Object(Object::from_distinct(entries)));
                    }
                    _ => return Err(self.unexpected("after object key:value pair")),
                }
                self.skip_spaces();
                continue;
            }
            if self.report_duplicates {
                self.path.push(Step::Key(key.clone()));
                if known.is_some() {
                    let path = render_path(&self.path);
                    self.duplicates.push(Duplicate { path, offset: key_offset });
                }
            }
            let (value, mut span) = self.value()?;
            span.offset = key_offset;
            self.path.pop();
            match known.and_then(|at| entries.get_mut(at).map(|entry| (at, entry))) {
                Some((at, entry)) => {
                    entry.1 = value;
                    if let Some(slot) = spans.children.get_mut(at) {
                        *slot = span;
                    }
                }
                None => {
                    entries.push((key, value));
                    if self.record_spans {
                        spans.children.push(span);
                    }
                }
            }
            self.skip_spaces();
            match self.peek() {
                Some(b',') => self.advance(),
                Some(b'}') => {
                    self.advance();
                    return Ok(Value::Object(Object::from_distinct(entries)));
                }
                _ => return Err(self.unexpected("after object key:value pair")),
            }
            self.skip_spaces();
        }
    }

    fn number(&mut self) -> Result<Value, SyntaxError> {
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
        Float::parse(text).map(Value::Float).ok_or_else(|| SyntaxError {
            message: format!("json: cannot unmarshal number {text} into Go value of type float64"),
            offset: start,
        })
    }

    fn digits(&mut self, context: &str) -> Result<(), SyntaxError> {
        if !matches!(self.peek(), Some(b'0'..=b'9')) {
            return Err(self.unexpected(context));
        }
        while let Some(b'0'..=b'9') = self.peek() {
            self.advance();
        }
        Ok(())
    }

    /// Reads a string; the current byte is its first quote.
    fn string(&mut self) -> Result<Cow<'a, str>, SyntaxError> {
        self.advance();
        let mut start = self.offset;
        let mut owned = String::new();
        loop {
            let rest = self.text.get(self.offset..).unwrap_or_default();
            let plain = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20));
            self.offset = self.offset.saturating_add(plain.unwrap_or(rest.len()));
            let run = self.text.get(start..self.offset).unwrap_or_default();
            // Twice as fast as the other way, which is for what is no text.
            let run = std::str::from_utf8(run).map_or_else(|_| String::from_utf8_lossy(run), Cow::Borrowed);
            match self.peek() {
                Some(b'"') => {
                    self.advance();
                    if owned.is_empty() {
                        return Ok(run);
                    }
                    owned.push_str(&run);
                    return Ok(Cow::Owned(owned));
                }
                Some(b'\\') => {
                    owned.push_str(&run);
                    self.advance();
                    owned.push(self.escape()?);
                    start = self.offset;
                }
                _ => return Err(self.unexpected("in string literal")),
            }
        }
    }

    /// Reads what follows a backslash.
    fn escape(&mut self) -> Result<char, SyntaxError> {
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

    fn unicode_escape(&mut self) -> Result<char, SyntaxError> {
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

    fn four_hex_digits(&mut self) -> Result<u32, SyntaxError> {
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

/// Where `key` already stands. The index is filled once scanning would take too long.
fn find_key(entries: &[(Text, Value)], index: &mut HashMap<Text, usize>, key: &Text) -> Option<usize> {
    if entries.len() <= SMALL_OBJECT {
        return entries.iter().position(|(it, _)| it == key);
    }
    for (position, (known, _)) in entries.iter().enumerate().skip(index.len()) {
        index.insert(known.clone(), position);
    }
    index.get(key).copied()
}

fn render_path(path: &[Step]) -> String {
    let mut out = String::new();
    for step in path {
        match step {
            Step::Key(key) => {
                if !out.is_empty() {
                    out.push('.');
                }
                out.push_str(key);
            }
            Step::Index(index) => {
                // Writing to a String cannot fail.
                let _ = write!(out, "[{index}]");
            }
        }
    }
    out
}
