//! Answers in protobuf, for clients that prefer it.
//!
//! Objects are kept as JSON. Those of a list are turned into messages one by one, on all processors if there are many, so that
//! no document of the whole list is made.

use std::cell::RefCell;
use std::collections::VecDeque;

use api::json::{self, NameFilter};
use api::types::protobuf::{Writer, envelope_around, write_event};
use api::types::{self, Kind, Type};
use bytes::Bytes;

use super::body::Body;
use super::status::Failure;

/// A longer text is worth more threads.
const PARALLEL_MIN: usize = 256 << 10;

/// The field whose items are read one by one.
const ITEMS: NameFilter = NameFilter::new(&["items"]);

/// The message of a JSON document; none if its type has no such form.
pub(super) fn from_json(text: &[u8]) -> Option<Body> {
    let is_list = json::value_at(text, &["kind"]).is_some_and(|kind| kind.ends_with(b"List\""));
    if !is_list {
        return object(text).map(|message| Body::Full(message.into()));
    }
    let document = json::parse_without(text, &ITEMS).ok()?;
    let api_version = document.text("apiVersion");
    let kind = document.text("kind");
    let of = type_of(api_version, kind)?;
    let mut head = Vec::new();
    let mut pieces = Vec::new();
    match item_type(of) {
        Some((number, item)) => {
            Writer::default().message(of, &document, &mut head);
            pieces = messages(number, item, &items(json::value_at(text, &["items"]).unwrap_or_default()))?;
        }
        None => Writer::default().message(of, &json::parse(text).ok()?, &mut head),
    }
    let length = pieces.iter().map(Vec::len).fold(head.len(), usize::saturating_add);
    let (mut start, end) = envelope_around(api_version, kind, length);
    start.append(&mut head);
    let all = [start].into_iter().chain(pieces).chain([end]);
    Some(Body::Pieces(all.filter(|piece| !piece.is_empty()).map(Bytes::from).collect::<VecDeque<_>>()))
}

thread_local! {
    /// Caches the order in which the fields of types are written.
    static WRITER: RefCell<Writer> = RefCell::default();
}

/// The frame of a watch event about an object, whose text is given, in protobuf.
#[must_use]
pub(crate) fn event_frame(event_type: &str, object: &[u8]) -> Bytes {
    match self::object(object) {
        Some(object) => event(event_type, &object),
        // Built-in types have such a form, so this is not reached; a client would receive an error.
        None => {
            let status = Failure::internal("the object has no form in protobuf").to_value();
            let status = self::object(json::to_string(&status).as_bytes()).unwrap_or_default();
            event("ERROR", &status)
        }
    }
}

/// The type of a document with this kind.
fn type_of(api_version: &str, kind: &str) -> Option<&'static Type> {
    let built_in = || types::by_api_version(api_version, kind);
    built_in().or_else(|| types::partial(api_version, kind)).or_else(|| types::by_kind("meta.k8s.io", "v1", kind))
}

/// The message of the text of one object, in its envelope; none if its type has no such form.
pub(crate) fn object(text: &[u8]) -> Option<Vec<u8>> {
    let text = text.trim_ascii();
    let field = |name: &str| match json::parse(json::value_at(text, &[name])?).ok()? {
        json::Value::String(text) => Some(text),
        _ => None,
    };
    let (api_version, kind) = (field("apiVersion").unwrap_or_default(), field("kind")?);
    let of = type_of(&api_version, &kind)?;
    let mut message = Vec::with_capacity(text.len());
    WRITER.with_borrow_mut(|writer| {
        if writer.text(of, text, &mut message).is_none() {
            writer.message(of, &json::parse(text).ok()?, &mut message);
        }
        Some(())
    })?;
    let (mut start, mut end) = envelope_around(&api_version, &kind, message.len());
    start.append(&mut message);
    start.append(&mut end);
    Some(start)
}

/// The frame of a watch event about an object, whose message is given in its envelope.
pub(crate) fn event(event_type: &str, object: &[u8]) -> Bytes {
    let event = write_event(event_type, object);
    let length = u32::try_from(event.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes()[..], &event].concat().into()
}

/// The number and the type of a list's items, if they are messages that stand behind everything else.
pub(crate) fn item_type(object_type: &'static Type) -> Option<(u16, &'static Type)> {
    let field = object_type.field("items")?;
    let Kind::List(Kind::Struct(item)) = field.kind else { return None };
    let is_last = object_type.fields.iter().all(|other| other.number <= field.number && other.embedded.is_empty());
    is_last.then_some((field.number, item))
}

/// The texts of the items in a list's text, which was written by us.
fn items(text: &[u8]) -> Vec<&[u8]> {
    let mut items = Vec::new();
    let mut rest = text.strip_prefix(b"[").unwrap_or_default();
    while !rest.is_empty() && !rest.starts_with(b"]") {
        let (item, after) = rest.split_at_checked(json::value_length(rest)).unwrap_or_default();
        items.push(item);
        rest = after.strip_prefix(b",").unwrap_or_default();
    }
    items
}

/// Appends the message of an item whose text is given; none, and nothing is appended, if it cannot be read.
pub(crate) fn put_item(number: u16, object_type: &'static Type, text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    if WRITER.with_borrow_mut(|writer| writer.nested_text(number, object_type, text, out)).is_none() {
        put_item_of(number, object_type, &json::parse(text).ok()?, out);
    }
    Some(())
}

/// Appends the message of an item in normal form.
pub(crate) fn put_item_of(number: u16, object_type: &'static Type, item: &json::Value, out: &mut Vec<u8>) {
    WRITER.with_borrow_mut(|writer| writer.nested(number, object_type, item, out));
}

/// The messages of items, some at a time; none if one of them cannot be read.
fn messages(number: u16, of: &'static Type, items: &[&[u8]]) -> Option<Vec<Vec<u8>>> {
    let write = |items: &[&[u8]]| -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(items.iter().map(|item| item.len()).fold(0, usize::saturating_add));
        items.iter().try_for_each(|item| put_item(number, of, item, &mut out))?;
        Some(out)
    };
    let bytes = items.iter().map(|item| item.len()).fold(0, usize::saturating_add);
    let threads = if bytes < PARALLEL_MIN { 1 } else { std::thread::available_parallelism().map_or(1, usize::from) };
    if threads < 2 {
        return Some(vec![write(items)?]);
    }
    let part = items.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        let parts: Vec<_> = items.chunks(part).map(|items| scope.spawn(move || write(items))).collect();
        // A panic of a part is ours.
        parts.into_iter().map(|part| part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::types::protobuf;

    #[test]
    fn a_list_item_by_item_is_the_list_as_a_whole() {
        for count in [0, 1, 3, 2_000] {
            let items: Vec<String> = (0..count)
                .map(|n| {
                    format!(
                        r#"{{"metadata":{{"name":"p{n}","namespace":"a,]b","labels":{{"x":"[{n}"}}}},"spec":{{"containers":[{{"name":"c","image":"i","resources":{{"limits":{{"cpu":"1"}}}}}}],"nodeName":"{}"}},"status":{{"phase":"Running"}}}}"#,
                        "n".repeat(200)
                    )
                })
                .collect();
            let text = format!(
                r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"7"}},"items":[{}]}}"#,
                items.join(",")
            );
            let body = from_json(text.as_bytes()).unwrap().whole().unwrap();
            let of = types::by_kind("", "v1", "PodList").unwrap();
            let whole = protobuf::write(of, &json::parse(text.as_bytes()).unwrap());
            assert!(body == protobuf::write_envelope("v1", "PodList", &whole), "{count} items");
        }
        let null = br#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":null}"#;
        assert!(from_json(null).is_some());
        assert!(from_json(br#"{"kind":"Unheard","apiVersion":"v1"}"#).is_none());
    }
}
