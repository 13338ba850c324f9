//! Long lists in other forms than the one they are written in, part by part: CBOR, YAML, and JSON with line breaks.
//!
//! What is given is a list in JSON: a head that ends where the items begin, then items behind commas.

use api::json::{self, Object, Value};
use api::{cbor, yaml};
use bytes::Bytes;

use super::listing::{Measure, Parts, ResponsePart, Work};

/// The form that a list is turned into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Cbor,
    Yaml,
    Pretty,
}

/// A list in another form.
pub(super) struct TranscodedList {
    list: Box<dyn Parts>,
    into: Form,
    /// Text before the items, once it is known.
    head: Option<Head>,
    is_head_sent: bool,
}

#[derive(Debug, Default)]
struct Head {
    text: Vec<u8>,
    tail: Vec<u8>,
}

impl TranscodedList {
    pub(super) fn new(list: Box<dyn Parts>, into: Form) -> Self {
        Self { list, into, head: None, is_head_sent: false }
    }

    /// Turns the head of the list, which ends with the name of its last field.
    fn head(&self, text: &[u8]) -> Option<Head> {
        let mut fields = json::parse(&[text, b"null}"].concat()).ok()?;
        let name = fields.as_object()?.iter().next_back()?.0.to_owned();
        let fields = fields.as_object_mut()?;
        fields.remove(&name);
        Some(match self.into {
            Form::Cbor => Head { text: cbor::start_of_list(fields, &name), tail: Vec::new() },
            Form::Yaml => {
                let mut whole = Value::Object(std::mem::take(fields));
                whole.sort_keys();
                let fields = whole.as_object()?.iter();
                let (before, after): (Vec<_>, Vec<_>) = fields.partition(|(key, _)| **key < *name);
                let write = |fields: Vec<(&str, &Value)>| {
                    let fields: Object = fields.into_iter().map(|(key, value)| (key, value.clone())).collect();
                    if fields.is_empty() { String::new() } else { yaml::to_string(&Value::Object(fields)) }
                };
                Head { text: format!("{}{name}:", write(before)).into(), tail: write(after).into() }
            }
            Form::Pretty => {
                fields.insert(name, Value::Null);
                let text = json::to_pretty_string(&Value::Object(std::mem::take(fields)), "  ");
                let text = text.strip_suffix("null\n}").unwrap_or(&text).to_owned();
                Head { text: text.into(), tail: b"\n}".to_vec() }
            }
        })
    }
}

/// The values in a text of values, each behind a comma.
fn values(mut text: &[u8]) -> Option<Vec<Value>> {
    let mut values = Vec::new();
    while let Some(rest) = text.strip_prefix(b",") {
        let (value, after) = rest.split_at_checked(json::value_length(rest))?;
        values.push(json::parse(value).ok()?);
        text = after;
    }
    text.is_empty().then_some(values)
}

/// Separator of items.
fn separator(into: Form) -> &'static str {
    match into {
        Form::Cbor | Form::Yaml => "",
        Form::Pretty => ",\n    ",
    }
}

fn write(into: Form, mut item: Value, out: &mut Vec<u8>) {
    match into {
        Form::Cbor => cbor::append(out, &item),
        Form::Yaml => {
            item.sort_keys();
            out.extend_from_slice(yaml::to_string(&Value::Array(vec![item])).as_bytes());
        }
        // JSON strings contain no line breaks.
        Form::Pretty => {
            out.extend_from_slice(json::to_pretty_string(&item, "  ").replace('\n', "\n    ").as_bytes());
        }
    }
}

impl Parts for TranscodedList {
    fn measure(&mut self) -> Option<Measure> {
        self.list.measure()
    }

    fn next(&mut self) -> Option<Work> {
        if self.head.is_none() {
            // The first part is the head: it is short, and there is one.
            let head = self.list.next().and_then(|work| work()).and_then(|made| self.head(&made.bytes));
            let Some(head) = head else { return Some(Box::new(|| None)) };
            self.head = Some(head);
        }
        if !std::mem::replace(&mut self.is_head_sent, true) {
            let text = self.head.as_mut().map(|head| std::mem::take(&mut head.text)).unwrap_or_default();
            return Some(Box::new(move || Some(ResponsePart::plain(text))));
        }
        let (work, into) = (self.list.next()?, self.into);
        Some(Box::new(move || {
            let made = work()?;
            if made.items.is_none() {
                return Some(ResponsePart::plain(""));
            }
            let mut out = Vec::with_capacity(made.bytes.len());
            for item in values(&made.bytes)? {
                out.extend_from_slice(separator(into).as_bytes());
                write(into, item, &mut out);
            }
            Some(ResponsePart { bytes: out.into(), items: Some(separator(into).len()) })
        }))
    }

    fn ahead(&self) -> usize {
        self.list.ahead()
    }

    fn brackets(&self) -> [&'static [u8]; 3] {
        let is_null = self.list.brackets().last() == Some(&b"null".as_slice());
        match (self.into, is_null) {
            (Form::Cbor, true) => [cbor::LIST_START, cbor::LIST_END, cbor::NULL],
            (Form::Cbor, false) => [cbor::LIST_START, cbor::LIST_END, cbor::NO_ITEMS],
            (Form::Yaml, true) => [b"\n", b"", b" null\n"],
            (Form::Yaml, false) => [b"\n", b"", b" []\n"],
            (Form::Pretty, true) => [b"[\n    ", b"\n  ]", b"null"],
            (Form::Pretty, false) => [b"[\n    ", b"\n  ]", b"[]"],
        }
    }

    fn tail(&self) -> Bytes {
        self.head.as_ref().map(|head| head.tail.clone()).unwrap_or_default().into()
    }
}
