//! Strategic merge patch: lists are merged by the keys that their types declare.
//!
//! Follows `apimachinery/pkg/util/strategicpatch`, directives included: `$patch`, `$retainKeys`, `$setElementOrder/…` and
//! `$deleteFromPrimitiveList/…`.

mod order;
mod places;

use api::json::{self, Object, ObjectEditor, Value};
use api::types::{Field, Kind, Type};

use self::order::normalize;
use self::places::Places;
use super::{Error, Result};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const ELEMENT_ORDER: &str = "$setElementOrder";
const DELETE_PRIMITIVES: &str = "$deleteFromPrimitiveList";

/// Lays the patch over an object of a type. The second result lists keys that occur twice in the patch.
///
/// # Errors
/// The patch cannot be read, or does not fit the type.
pub fn apply(document: &Value, patch: &[u8], object_type: &'static Type) -> Result<(Value, Vec<String>)> {
    let (patch, duplicates) = json::parse_strict(patch).map_err(|error| Error::malformed(error.message))?;
    let Value::Object(patch) = patch else {
        if patch.is_null() {
            return Ok((document.clone(), Vec::new()));
        }
        let kind = patch.kind();
        return Err(Error::malformed(format!(
            "json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"
        )));
    };
    let original = document.as_object().cloned().unwrap_or_default();
    let merged = merge_map(original, patch, Some(Schema::Struct(object_type)))?;
    let duplicates = duplicates.into_iter().map(|it| format!("duplicate field \"{}\"", it.path)).collect();
    Ok((Value::Object(merged), duplicates))
}

/// Type information of a map.
#[derive(Clone, Copy)]
enum Schema {
    Struct(&'static Type),
    /// A map whose values are of one kind.
    Values(&'static Kind),
}

/// Type information of a field of a map.
#[derive(Clone, Copy, Default)]
struct Meta {
    schema: Option<Schema>,
    merge_key: &'static str,
    merges: bool,
    replaces: bool,
}

fn schema_of(kind: &'static Kind) -> Option<Schema> {
    match kind {
        Kind::Struct(of) => Some(Schema::Struct(of)),
        Kind::Map(inner) => Some(Schema::Values(inner)),
        Kind::List(inner) => schema_of(inner),
        _ => None,
    }
}

impl Meta {
    fn of(schema: Option<Schema>, key: &str) -> Self {
        let field: Option<&'static Field> = match schema {
            Some(Schema::Struct(of)) => of.field(key),
            Some(Schema::Values(kind)) => return Self { schema: schema_of(kind), ..Self::default() },
            None => None,
        };
        let Some(field) = field else { return Self::default() };
        let strategies = field.patch.unwrap_or_default();
        let has = |name: &str| strategies.split(',').any(|it| it == name);
        Self {
            schema: schema_of(&field.kind),
            merge_key: field.merge_key.unwrap_or_default(),
            merges: has("merge"),
            replaces: has("replace"),
        }
    }
}

fn failed(message: impl Into<String>) -> Error {
    Error::Unfit(message.into())
}

fn no_merge_key(item: &Value, key: &str) -> Error {
    failed(format!("map: {} does not contain declared merge key: {key}", api::go_text::plain(item)))
}

fn merge_map(mut original: Object, mut patch: Object, schema: Option<Schema>) -> Result<Object> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(DIRECTIVE);
                Ok(patch)
            }
            Some("delete") => Ok(Object::new()),
            _ => {
                let directive = api::go_text::plain(directive);
                Err(failed(format!(
                    "unknown patch type: {directive} in map: {}",
                    api::go_text::plain(&Value::Object(patch))
                )))
            }
        };
    }
    retain_keys(&mut original, &mut patch)?;
    order::merge_ordered_lists(&mut original, &mut patch, schema)?;
    let mut original = ObjectEditor::new(original);
    for (key, value) in patch {
        let (key, is_delete_list) = match key.split_once('/') {
            Some((DELETE_PRIMITIVES, name)) => (name.into(), true),
            _ if key.starts_with(DELETE_PRIMITIVES) => {
                return Err(Error::malformed("invalid patch format of primitive list"));
            }
            _ => (key, false),
        };
        if value.is_null() {
            original.remove(&key);
            continue;
        }
        let Some(slot) = original.get_mut(&key) else {
            if !is_delete_list {
                set(&mut original, &key, value);
            }
            continue;
        };
        let meta = Meta::of(schema, &key);
        match (slot, value) {
            (Value::Object(fields), Value::Object(patch)) => {
                let merged = if meta.replaces { patch } else { merge_map(std::mem::take(fields), patch, meta.schema)? };
                original.insert(key, merged);
            }
            (Value::Array(items), Value::Array(patch)) => {
                let items = std::mem::take(items);
                let merged = merge_lists(items, patch, meta, is_delete_list)?;
                original.insert(key, merged);
            }
            (slot, value) => {
                let same_kind = slot.kind() == value.kind();
                if !is_delete_list || same_kind {
                    set(&mut original, &key, value);
                }
            }
        }
    }
    Ok(original.into_object())
}

fn set(original: &mut ObjectEditor, key: &str, value: Value) {
    match without_directives(without_nulls(value)) {
        Some(value) => original.insert(key, value),
        None => original.remove(key),
    }
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(key, value)| (key, without_nulls(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

/// The value without parts that have a directive; `None` if it has one itself.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => {
            let kept = fields.into_iter().filter_map(|(key, value)| Some((key, without_directives(value)?)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        other => Some(other),
    }
}

fn retain_keys(original: &mut Object, patch: &mut Object) -> Result<()> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let wrong = || Error::malformed("invalid patch format of retainKeys");
    let keys = keys.as_array().ok_or_else(wrong)?;
    let kept = |key: &str| keys.iter().any(|it| it.as_str() == Some(key));
    for (key, value) in patch.iter() {
        let is_directive = key.starts_with(DELETE_PRIMITIVES) || key.starts_with(ELEMENT_ORDER);
        if !value.is_null() && !is_directive && !kept(key) {
            return Err(wrong());
        }
    }
    original.retain(|key, _| kept(key));
    Ok(())
}

fn merge_lists(original: Vec<Value>, patch: Vec<Value>, meta: Meta, is_delete_list: bool) -> Result<Vec<Value>> {
    if !meta.merges && !is_delete_list {
        return Ok(patch);
    }
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    let of_maps = element_kind(&original, &patch)? == "object";
    let (original_order, patch_order, merged);
    if of_maps {
        if meta.merge_key.is_empty() {
            return Err(failed("cannot merge lists without merge key for struct"));
        }
        let (kept, items) = apply_directives(original, patch, meta.merge_key)?;
        merged = merge_items(kept.clone(), &items, meta)?;
        (original_order, patch_order) = (kept, items);
    } else if is_delete_list {
        let deleted = Places::of(&patch, "");
        return Ok(original.into_iter().filter(|item| deleted.get(item).is_none()).collect());
    } else {
        let mut both = original.clone();
        let mut known = Places::of(&original, "");
        for item in &patch {
            if known.add(item, both.len()) {
                both.push(item.clone());
            }
        }
        both.dedup();
        merged = both;
        (original_order, patch_order) = (original, patch);
    }
    let (in_patch, server_only) = order::partition(merged, &patch_order, meta.merge_key)?;
    normalize(in_patch, server_only, &patch_order, &original_order, meta.merge_key)
}

/// The kind of all items, which must be one.
fn element_kind(original: &[Value], patch: &[Value]) -> Result<&'static str> {
    let mut kinds = original.iter().chain(patch).map(Value::kind);
    let first = kinds.next().unwrap_or("null");
    if kinds.all(|kind| kind == first) && first != "array" {
        return Ok(first);
    }
    let lists = [original, patch].map(|items| api::go_text::plain(&Value::Array(items.to_vec())));
    Err(failed(format!("list element types are not identical: [{}]", lists.join(" "))))
}

/// Applies `$patch` in items; returns the rest of both lists.
fn apply_directives(mut original: Vec<Value>, patch: Vec<Value>, key: &str) -> Result<(Vec<Value>, Vec<Value>)> {
    let mut items = Vec::with_capacity(patch.len());
    let (mut replaces, mut deleted) = (false, Vec::new());
    for item in patch {
        match item.get(DIRECTIVE).map(|directive| directive.as_str().unwrap_or_default().to_owned()).as_deref() {
            None => items.push(item),
            Some("delete") => {
                let Some(value) = item.get(key) else { return Err(no_merge_key(&item, key)) };
                deleted.push(value.clone());
            }
            Some("replace") => replaces = true,
            Some("merge") => return Err(failed("merging lists cannot yet be specified in the patch")),
            Some(other) => {
                return Err(failed(format!("unknown patch type: {other} in map: {}", api::go_text::plain(&item))));
            }
        }
    }
    let deleted = Places::of(&deleted, "");
    original.retain(|item| item.get(key).is_none_or(|value| deleted.get(value).is_none()));
    Ok(if replaces { (items, Vec::new()) } else { (original, items) })
}

fn merge_items(mut original: Vec<Value>, patch: &[Value], meta: Meta) -> Result<Vec<Value>> {
    let mut places = Places::of(&original, meta.merge_key);
    for item in patch {
        if item.get(meta.merge_key).is_none() {
            return Err(no_merge_key(item, meta.merge_key));
        }
        let found = places.get(item).and_then(|place| original.get_mut(place));
        match (found, item) {
            (Some(Value::Object(fields)), Value::Object(patch)) => {
                *fields = merge_map(std::mem::take(fields), patch.clone(), meta.schema)?;
            }
            _ => {
                places.add(item, original.len());
                original.push(item.clone());
            }
        }
    }
    Ok(original)
}
