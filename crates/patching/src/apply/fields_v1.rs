//! Sets of paths as `fieldsV1` writes them: `{"f:spec":{"f:replicas":{},"f:ports":{".":{},"k:{\"port\":80}":{}}}}`.
//!
//! Follows `fieldpath/serialize.go` of structured-merge-diff: a step without content is a member, one with content is a
//! member if it has `.`; steps of unknown kinds are passed over.

use api::json::{self, Lookup, Object, Text, Value};

use super::element::Element;
use super::set::{FieldSet, Node};

/// Writes a set.
#[must_use]
pub fn encode(set: &FieldSet) -> Value {
    Value::Object(encode_nodes(set, false))
}

fn encode_nodes(set: &FieldSet, is_member: bool) -> Object {
    let own = usize::from(is_member && !set.is_empty());
    let mut fields = Vec::with_capacity(set.nodes().len().saturating_add(own));
    if own == 1 {
        fields.push((Text::const_new("."), Value::object()));
    }
    for node in set.nodes() {
        let below = encode_nodes(&node.children, node.member);
        fields.push((encode_element(&node.element), Value::Object(below)));
    }
    Object::from_distinct(fields)
}

fn encode_element(element: &Element) -> Text {
    let mut text = Text::const_new("");
    match element {
        Element::Field(name) => {
            text.push_str("f:");
            text.push_str(name);
        }
        Element::Key(fields) => {
            let mut written = String::with_capacity(64);
            written.push_str("k:{");
            for (index, (name, value)) in fields.iter().enumerate() {
                if index > 0 {
                    written.push(',');
                }
                json::write_string(&mut written, name);
                written.push(':');
                json::write_value(&mut written, value);
            }
            written.push('}');
            text.push_str(&written);
        }
        Element::Value(value) => {
            text.push_str("v:");
            text.push_str(&json::to_string(value));
        }
        Element::Index(index) => {
            text.push_str("i:");
            text.push_str(&index.to_string());
        }
    }
    text
}

/// Whether a set that is written has a path in common with another.
#[must_use]
pub fn touches(written: &Value, set: &FieldSet) -> bool {
    let Value::Object(fields) = written else { return !set.is_empty() };
    let steps = Steps::new(fields);
    set.nodes().iter().any(|node| {
        let Some(below) = steps.find(&node.element) else { return false };
        node.member && is_member(below) || !node.children.is_empty() && touches(below, &node.children)
    })
}

/// Whether a set that is written has all paths of another.
#[must_use]
pub fn has_all(written: &Value, set: &FieldSet) -> bool {
    let Value::Object(fields) = written else { return set.is_empty() };
    let steps = Steps::new(fields);
    set.nodes().iter().all(|node| {
        steps
            .find(&node.element)
            .is_some_and(|below| (!node.member || is_member(below)) && has_all(below, &node.children))
    })
}

/// Number of steps up to which they are compared one by one, without writing the wanted one.
const COMPARED_MAX: usize = 32;

/// Steps of a set that is written.
struct Steps<'v> {
    fields: &'v Object,
    /// Set if there are many.
    lookup: Option<Lookup<'v>>,
}

impl<'v> Steps<'v> {
    fn new(fields: &'v Object) -> Self {
        Self { fields, lookup: (fields.len() > COMPARED_MAX).then(|| Lookup::new(fields)) }
    }

    /// Returns the fields below a step.
    fn find(&self, element: &Element) -> Option<&'v Value> {
        if let Some(lookup) = &self.lookup {
            return lookup.get(&encode_element(element));
        }
        let found = match element {
            Element::Field(name) => self.fields.iter().find(|(key, _)| key.strip_prefix("f:") == Some(name)),
            element => {
                let key = encode_element(element);
                self.fields.iter().find(|(it, _)| *it == key)
            }
        };
        found.map(|(_, below)| below)
    }
}

/// Whether the step that this is written below is a member.
fn is_member(below: &Value) -> bool {
    below.as_object().is_none_or(|fields| fields.is_empty() || fields.contains_key("."))
}

/// Reads a set.
///
/// # Errors
/// The value is invalid.
pub fn decode(value: &Value) -> Result<FieldSet, String> {
    Ok(decode_node(value)?.1)
}

/// Returns whether the step with this content is a member, and the set below it.
fn decode_node(value: &Value) -> Result<(bool, FieldSet), String> {
    let fields = match value {
        Value::Object(fields) => fields,
        Value::Null => return Ok((true, FieldSet::new())),
        other => return Err(format!("expect {{ or n, but found {}", other.kind())),
    };
    let mut member = false;
    let mut nodes = Vec::with_capacity(fields.len());
    for (key, value) in fields.iter() {
        if key == "." {
            member = true;
            continue;
        }
        let Some(element) = decode_element(key)? else { continue };
        let (member, children) = decode_node(value)?;
        nodes.push(Node { element, member, children });
    }
    let children = FieldSet::from_nodes(nodes);
    Ok((member || children.is_empty(), children))
}

/// The step that a key names; none if it is of an unknown kind.
fn decode_element(key: &str) -> Result<Option<Element>, String> {
    let mut chars = key.chars();
    let (Some(kind), Some(separator)) = (chars.next(), chars.next()) else {
        return Err("key must be 2 characters long:".to_owned());
    };
    if separator != ':' {
        return Err(format!("missing colon: {key}"));
    }
    let rest = chars.as_str();
    let parse = || json::parse(rest.as_bytes()).map_err(|error| error.message);
    Ok(Some(match kind {
        'f' => Element::Field(rest.into()),
        'v' => Element::Value(parse()?),
        'k' => match parse()? {
            Value::Object(fields) => {
                let mut fields: Vec<(Text, Value)> = fields.into_iter().collect();
                fields.sort_by(|left, right| left.0.cmp(&right.0));
                Element::Key(fields)
            }
            other => return Err(format!("expect {{ or n, but found {}", other.kind())),
        },
        'i' => match rest.parse() {
            Ok(index) => Element::Index(index),
            Err(_) => return Err(format!("strconv.Atoi: parsing {}: invalid syntax", api::go_text::quote(rest))),
        },
        _ => return Ok(None),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn round_trip(text: &str) {
        let value = json::parse(text.as_bytes()).unwrap();
        let set = decode(&value).unwrap();
        assert_eq!(json::to_string(&encode(&set)), text);
        assert_eq!(decode(&encode(&set)).unwrap(), set);
    }

    #[test]
    fn written_fields_round_trip() {
        round_trip("{}");
        round_trip(r#"{"f:data":{}}"#);
        round_trip(
            r#"{"f:metadata":{"f:labels":{".":{},"f:a/b":{}}},"f:spec":{"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:port":{}}}}}"#,
        );
        round_trip(r#"{"f:set":{"v:\"a\\u003cb\"":{},"v:true":{}},"f:x":{"i:3":{}}}"#);
    }

    #[test]
    fn touched_fields_are_found_without_full_decoding() {
        let text = r#"{"f:a":{".":{},"f:b":{}},"f:l":{"k:{\"n\":1}":{"f:v":{}},"v:\"x\"":{}},"f:s":{}}"#;
        let written = json::parse(text.as_bytes()).unwrap();
        let set = decode(&written).unwrap();
        let mut all = Vec::new();
        set.for_each(&mut |path| all.push(path.to_vec()));
        assert_eq!(all.len(), 5);
        for path in &all {
            assert!(touches(&written, &FieldSet::of_path(path)), "{path:?}");
            assert!(has_all(&written, &FieldSet::of_path(path)), "{path:?}");
        }
        assert!(has_all(&written, &set));
        assert!(!has_all(&written, &set.clone().union(FieldSet::of_names(&[&["a", "c"]]))));
        for path in [&["l"][..], &["a", "c"], &["t"], &["s", "x"]] {
            assert!(!touches(&written, &FieldSet::of_names(&[path])), "{path:?}");
            assert!(!has_all(&written, &FieldSet::of_names(&[path])), "{path:?}");
        }
        assert!(!touches(&written, &FieldSet::new()));
    }

    #[test]
    fn order_and_unknown_steps_do_not_matter() {
        let read = |text: &str| decode(&json::parse(text.as_bytes()).unwrap());
        let sorted = read(r#"{"f:a":{"f:b":{},"f:c":{}},"f:d":{}}"#).unwrap();
        assert_eq!(read(r#"{"f:d":null,"f:a":{"f:c":{},"f:b":{".":1},"q:zz":{}}}"#).unwrap(), sorted);
        assert_eq!(read(r#"{"f:a":{"q:zz":{}}}"#).unwrap(), FieldSet::of_names(&[&["a"]]));
        assert!(read(r#"{"a":{}}"#).is_err());
        assert!(read(r#"{"ab":{}}"#).is_err());
        assert!(read(r#"{"k:1":{}}"#).is_err());
        assert!(read(r#"{"i:x":{}}"#).is_err());
        assert!(read(r#"{"f:a":1}"#).is_err());
        assert!(read("[]").is_err());
    }
}
