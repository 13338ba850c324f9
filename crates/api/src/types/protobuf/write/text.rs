//! From the text of an object straight to its message, without a document in between.
//!
//! For text that was written by us: JSON without white space, in normal form, maps sorted. Each field is written where it
//! stands in the text; then all are put into the order of their numbers. Half of many objects is managed fields, whose
//! text is copied as it is. Text of another form is refused, and the caller takes the way through the document.

use std::borrow::Cow;

use super::{Part, Writer, frame, nest, put_bytes, put_number};
use crate::json;
use crate::types::protobuf::read::{is_named_list, is_raw};
use crate::types::{Field, Kind, Type};

/// Deeper text is converted through the document, which has its own limit.
const DEPTH_MAX: usize = 256;

impl Writer {
    /// Appends the message of an object whose text is given; none, and nothing is appended, if the text is not as it
    /// would be written by us.
    #[must_use]
    pub fn text(&mut self, object_type: &'static Type, text: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let start = out.len();
        let mut cursor = Cursor(std::str::from_utf8(text).ok()?);
        let body = self.text_message(object_type, &mut cursor, 0, out);
        let whole = self.finish(&cursor, start, body.is_some(), out);
        if let (Some(()), Some(body)) = (whole, body) {
            out.drain(start..body);
        }
        whole
    }

    /// Like [`Writer::text`], as a part of another message, such as an item of a list.
    #[must_use]
    pub fn nested_text(
        &mut self,
        number: u16,
        object_type: &'static Type,
        text: &[u8],
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let start = out.len();
        let mut cursor = Cursor(std::str::from_utf8(text).ok()?);
        let framed = self.framed(number, object_type, &mut cursor, 0, out);
        self.finish(&cursor, start, framed.is_some(), out)
    }

    fn finish(&mut self, cursor: &Cursor<'_>, start: usize, is_written: bool, out: &mut Vec<u8>) -> Option<()> {
        if is_written && cursor.0.is_empty() {
            return Some(());
        }
        out.truncate(start);
        self.spans.clear();
        None
    }

    fn framed(
        &mut self,
        number: u16,
        object_type: &'static Type,
        cursor: &mut Cursor<'_>,
        depth: usize,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let start = out.len();
        let body = self.text_message(object_type, cursor, depth, out)?;
        frame(out, number, start, body);
        Some(())
    }

    /// Appends the fields in the order of the text, and behind them the message; where that begins.
    fn text_message(
        &mut self,
        object_type: &'static Type,
        cursor: &mut Cursor<'_>,
        depth: usize,
        out: &mut Vec<u8>,
    ) -> Option<usize> {
        if depth > DEPTH_MAX {
            return None;
        }
        let parts = self.plan(object_type);
        let first_span = self.spans.len();
        self.spans.resize(first_span.saturating_add(object_type.fields.len()), (0, 0));
        let mut next = 0;
        cursor.take(b'{')?;
        let mut is_over = cursor.take(b'}').is_some();
        while !is_over {
            let key = cursor.key()?;
            match object_type.find_from(next, key) {
                Some((index, field)) => {
                    next = index.saturating_add(1);
                    if field.number == 0 || cursor.is_null() {
                        cursor.value()?;
                    } else {
                        let start = out.len();
                        self.text_field(field, cursor, depth, out)?;
                        *self.spans.get_mut(first_span.saturating_add(index))? = (start, out.len());
                    }
                }
                None => drop(cursor.value()?),
            }
            is_over = cursor.is_last(b'}')?;
        }
        let body = out.len();
        self.put_in_order(&parts, first_span, out);
        self.spans.truncate(first_span);
        Some(body)
    }

    fn put_in_order(&self, parts: &[Part], first_span: usize, out: &mut Vec<u8>) {
        for part in parts {
            match part {
                Part::Field { index, zero, .. } => match self.spans.get(first_span.saturating_add(*index)) {
                    Some((start, end)) if end > start => out.extend_from_within(*start..*end),
                    _ => out.extend_from_slice(zero),
                },
                Part::Embedded(number, inner) => nest(out, *number, |out| self.put_in_order(inner, first_span, out)),
            }
        }
    }

    fn text_field(
        &mut self,
        field: &'static Field,
        cursor: &mut Cursor<'_>,
        depth: usize,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        match field.kind {
            Kind::List(inner) if !is_named_list(field.go_type) => {
                cursor.take(b'[')?;
                let mut is_over = cursor.take(b']').is_some();
                while !is_over {
                    self.text_value(field, *inner, field.number, cursor, depth, out)?;
                    is_over = cursor.is_last(b']')?;
                }
            }
            Kind::Map(inner) => {
                cursor.take(b'{')?;
                let mut is_over = cursor.take(b'}').is_some();
                let mut before = None;
                while !is_over {
                    let key = cursor.key()?;
                    if before.replace(key).is_some_and(|before| before >= key) {
                        return None;
                    }
                    let start = out.len();
                    put_bytes(out, 1, key.as_bytes());
                    self.text_value(field, *inner, 2, cursor, depth, out)?;
                    frame(out, field.number, start, start);
                    is_over = cursor.is_last(b'}')?;
                }
            }
            kind => self.text_value(field, kind, field.number, cursor, depth, out)?,
        }
        Some(())
    }

    fn text_value(
        &mut self,
        field: &'static Field,
        kind: Kind,
        number: u16,
        cursor: &mut Cursor<'_>,
        depth: usize,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        if cursor.is_null() {
            cursor.value()?;
            self.value(field, kind, number, None, out);
            return Some(());
        }
        match kind {
            Kind::String => put_bytes(out, number, cursor.string()?.as_bytes()),
            Kind::Quantity => {
                let amount = cursor.string()?;
                nest(out, number, |out| {
                    put_bytes(out, 1, if amount.is_empty() { b"0" } else { amount.as_bytes() });
                });
            }
            Kind::Bool => {
                let is_true = match cursor.value()? {
                    "true" => true,
                    "false" => false,
                    _ => return None,
                };
                put_number(out, number, u64::from(is_true));
            }
            Kind::Int32 | Kind::Int64 => {
                let whole: i64 = cursor.value()?.parse().ok()?;
                put_number(out, number, whole.cast_unsigned());
            }
            Kind::Struct(it) => self.framed(number, it, cursor, depth.saturating_add(1), out)?,
            Kind::Any if is_raw(field.go_type) => {
                let raw = cursor.value()?;
                nest(out, number, |out| put_bytes(out, 1, raw.as_bytes()));
            }
            kind => {
                let value = json::parse(cursor.value()?.as_bytes()).ok()?;
                self.value(field, kind, number, Some(&value), out);
            }
        }
        Some(())
    }
}

/// The text that is not read yet.
struct Cursor<'t>(&'t str);

impl<'t> Cursor<'t> {
    fn take(&mut self, byte: u8) -> Option<()> {
        let first = *self.0.as_bytes().first()?;
        (first == byte).then(|| self.advance(1)).flatten().map(drop)
    }

    /// Passes over bytes, and gives them.
    fn advance(&mut self, length: usize) -> Option<&'t str> {
        let (passed, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(passed)
    }

    fn is_null(&self) -> bool {
        self.0.starts_with("null")
    }

    /// Whether the end comes next, and not a comma.
    fn is_last(&mut self, end: u8) -> Option<bool> {
        let first = *self.0.as_bytes().first()?;
        self.advance(1)?;
        match first {
            b',' => Some(false),
            byte if byte == end => Some(true),
            _ => None,
        }
    }

    /// The text of a value.
    fn value(&mut self) -> Option<&'t str> {
        let length = json::value_length(self.0.as_bytes());
        self.advance(length).filter(|value| !value.is_empty())
    }

    /// A string without escapes; none, and nothing is passed over, if it has any.
    fn plain(&mut self) -> Option<&'t str> {
        let text = self.0.strip_prefix('"')?;
        let (plain, rest) = text.split_at_checked(json::plain_length(text.as_bytes()))?;
        self.0 = rest.strip_prefix('"')?;
        Some(plain)
    }

    /// A key without escapes, with the colon behind it.
    fn key(&mut self) -> Option<&'t str> {
        let key = self.plain()?;
        self.take(b':')?;
        Some(key)
    }

    fn string(&mut self) -> Option<Cow<'t, str>> {
        if let Some(plain) = self.plain() {
            return Some(Cow::Borrowed(plain));
        }
        json::parse(self.value()?.as_bytes()).ok()?.as_str().map(|text| Cow::Owned(text.to_owned()))
    }
}
