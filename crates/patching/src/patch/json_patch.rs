//! JSON patch: a list of operations on places in the document.
//!
//! Follows `gopkg.in/evanphx/json-patch.v4`, which takes negative indexes and `null` for no operations.

use api::json::{self, Object, Value};

use super::{Error, Result};

fn unprocessable(message: String) -> Error {
    Error::Inapplicable(message)
}

/// At most this many operations are taken.
const OPERATIONS_MAX: usize = 10_000;
/// Copies may make the document longer by at most this many bytes: each could double it.
const COPIED_BYTES_MAX: usize = 3 << 20;
/// Entries of all lists and maps that the operations go through. An operation at the start of a list moves all others, so
/// that 10,000 of them on a list of 300,000 numbers, in 1 MB, would take ten seconds.
const ENTRIES_MAX: usize = 50_000_000;

/// Applies the operations in order.
///
/// # Errors
/// The patch cannot be read, has too many operations, or one of them does not apply.
pub fn apply(document: &Value, patch: &[u8]) -> Result<Value> {
    let patch = json::parse(patch).map_err(|error| Error::malformed(error.message))?;
    let operations = match patch {
        Value::Null => Vec::new(),
        Value::Array(operations) => operations,
        other => {
            let kind = other.kind();
            return Err(Error::malformed(format!(
                "json: cannot unmarshal {kind} into Go value of type jsonpatch.Patch"
            )));
        }
    };
    if operations.len() > OPERATIONS_MAX {
        let count = operations.len();
        return Err(Error::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {count}"
        )));
    }
    for operation in &operations {
        if !matches!(operation, Value::Object(_) | Value::Null) {
            let kind = operation.kind();
            return Err(Error::malformed(format!(
                "json: cannot unmarshal {kind} into Go value of type jsonpatch.Operation"
            )));
        }
    }
    let mut result = document.clone();
    let nothing = Object::new();
    let (mut copied_bytes, mut entries) = (0, 0_usize);
    for operation in &operations {
        let operation = operation.as_object().unwrap_or(&nothing);
        for path in ["from", "path"].into_iter().filter_map(|field| operation.get(field)?.as_str()) {
            entries = entries.saturating_add(entries_on(&mut result, path));
        }
        if entries > ENTRIES_MAX {
            return Err(Error::TooLarge(format!(
                "The operations of the JSON patch go through more than {ENTRIES_MAX} entries of lists and maps"
            )));
        }
        step(&mut result, operation, &mut copied_bytes)?;
    }
    // A stored object must be readable again.
    if is_deeper(&result, json::MAX_DEPTH) {
        return Err(unprocessable("exceeded max depth".to_owned()));
    }
    Ok(result)
}

fn is_deeper(value: &Value, depth: usize) -> bool {
    let Some(inner) = depth.checked_sub(1) else { return matches!(value, Value::Array(_) | Value::Object(_)) };
    match value {
        Value::Array(items) => items.iter().any(|item| is_deeper(item, inner)),
        Value::Object(fields) => fields.iter().any(|(_, value)| is_deeper(value, inner)),
        _ => false,
    }
}

fn step(document: &mut Value, operation: &Object, copied_bytes: &mut usize) -> Result<()> {
    let text = |key: &str| operation.get(key).and_then(Value::as_str);
    let kind = text("op").unwrap_or("unknown");
    let path =
        || text("path").ok_or_else(|| unprocessable(format!("{kind} operation failed to decode path: missing value")));
    let from = || {
        text("from").ok_or_else(|| {
            unprocessable(format!(
                "{kind} operation failed to decode from: operation, missing from field: missing value"
            ))
        })
    };
    let value = || operation.get("value").cloned().unwrap_or_default();
    match kind {
        "add" => add(document, path()?, value()),
        "remove" => remove(document, path()?).map(drop),
        "replace" => replace(document, path()?, value()),
        "move" => {
            let moved = take(document, from()?, "move")?;
            let path = path()?;
            let Some((target, key)) = parent(document, path) else {
                return Err(missing(&format!(
                    "move operation does not apply: doc is missing destination path: {path}"
                )));
            };
            insert(target, &key, moved).map_err(|why| unprocessable(format!("error in move for path: '{path}': {why}")))
        }
        "copy" => copy(document, from()?, path()?, copied_bytes),
        "test" => test(document, path()?, operation.get("value")),
        other => Err(unprocessable(format!("Unexpected kind: {other}"))),
    }
}

fn missing(what: &str) -> Error {
    unprocessable(format!("{what}: missing value"))
}

/// The container that the last step of a path leads into, and that step.
fn parent<'a>(document: &'a mut Value, path: &str) -> Option<(&'a mut Value, String)> {
    let mut steps = path.split('/');
    // The library ignores the text before the first slash.
    steps.next()?;
    let mut steps: Vec<String> = steps.map(unescape).collect();
    let last = steps.pop()?;
    let mut current = document;
    for step in steps {
        current = child(current, &step)?;
    }
    matches!(current, Value::Object(_) | Value::Array(_)).then_some((current, last))
}

/// Number of entries of the lists and maps that a path leads through.
fn entries_on(document: &mut Value, path: &str) -> usize {
    let mut current = document;
    let mut entries = 0_usize;
    for step in path.split('/').skip(1) {
        entries = entries.saturating_add(match current {
            Value::Object(fields) => fields.len(),
            Value::Array(items) => items.len(),
            _ => 0,
        });
        match child(current, &unescape(step)) {
            Some(inner) => current = inner,
            None => break,
        }
    }
    entries
}

fn unescape(step: &str) -> String {
    step.replace("~1", "/").replace("~0", "~")
}

fn child<'a>(container: &'a mut Value, step: &str) -> Option<&'a mut Value> {
    match container {
        Value::Object(fields) => fields.get_mut(step),
        Value::Array(items) => {
            let index = index(step, items.len(), 0).ok()?;
            items.get_mut(index)
        }
        _ => None,
    }
}

/// The index that a step names in a list of `length`, up to `extra` behind the last.
fn index(step: &str, length: usize, extra: usize) -> std::result::Result<usize, String> {
    let number: i64 = step.parse().map_err(|_| {
        format!("value was not a proper array index: '{step}': strconv.Atoi: parsing \"{step}\": invalid syntax")
    })?;
    let length = i64::try_from(length.saturating_add(extra)).unwrap_or(i64::MAX);
    let at = if number < 0 { number.saturating_add(length) } else { number };
    if at < 0 || at >= length {
        return Err(format!("Unable to access invalid index: {number}: invalid index referenced"));
    }
    usize::try_from(at).map_err(|error| error.to_string())
}

fn insert(target: &mut Value, key: &str, value: Value) -> std::result::Result<(), String> {
    match target {
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            let at = index(key, items.len(), 1)?;
            items.insert(at.min(items.len()), value);
        }
        Value::Object(fields) => {
            fields.insert(key, value);
        }
        _ => {}
    }
    Ok(())
}

fn add(document: &mut Value, path: &str, value: Value) -> Result<()> {
    // Kubernetes: only `replace` can name the whole document.
    let Some((target, key)) = (if path.is_empty() { None } else { parent(document, path) }) else {
        return Err(missing(&format!("add operation does not apply: doc is missing path: \"{path}\"")));
    };
    insert(target, &key, value).map_err(|why| unprocessable(format!("error in add for path: '{path}': {why}")))
}

fn replace_all(document: &mut Value, value: Value, kind: &str) -> Result<()> {
    if !matches!(value, Value::Object(_) | Value::Array(_)) {
        return Err(unprocessable(format!("{kind} operation value must be object or array: %!w(<nil>)")));
    }
    *document = value;
    Ok(())
}

fn take_from(target: &mut Value, key: &str) -> std::result::Result<Value, String> {
    match target {
        Value::Array(items) => {
            // Only `add` explains that the key is no index.
            let why = |text: String| text.split_once("': ").map_or(text.clone(), |(_, cause)| cause.to_owned());
            let at = index(key, items.len(), 0).map_err(why)?;
            Ok(items.remove(at))
        }
        Value::Object(fields) => {
            fields.remove(key).ok_or_else(|| format!("Unable to remove nonexistent key: {key}: missing value"))
        }
        _ => Ok(Value::Null),
    }
}

fn remove(document: &mut Value, path: &str) -> Result<Value> {
    let Some((target, key)) = parent(document, path) else {
        return Err(missing(&format!("remove operation does not apply: doc is missing path: \"{path}\"")));
    };
    take_from(target, &key).map_err(|why| unprocessable(format!("error in remove for path: '{path}': {why}")))
}

fn take(document: &mut Value, path: &str, kind: &str) -> Result<Value> {
    let Some((target, key)) = parent(document, path) else {
        return Err(missing(&format!("{kind} operation does not apply: doc is missing from path: {path}")));
    };
    // The library names the key here, not the path.
    take_from(target, &key).map_err(|why| unprocessable(format!("error in {kind} for path: '{key}': {why}")))
}

fn replace(document: &mut Value, path: &str, value: Value) -> Result<()> {
    if path.is_empty() {
        return replace_all(document, value, "replace");
    }
    let Some((target, key)) = parent(document, path) else {
        return Err(missing(&format!("replace operation does not apply: doc is missing path: {path}")));
    };
    // A field that is missing is set: only items of lists must exist.
    if let Value::Object(fields) = target {
        fields.insert(key, value);
        return Ok(());
    }
    match child(target, &key) {
        Some(slot) => {
            *slot = value;
            Ok(())
        }
        None => Err(missing(&format!("replace operation does not apply: doc is missing key: {path}"))),
    }
}

fn copy(document: &mut Value, from: &str, path: &str, copied_bytes: &mut usize) -> Result<()> {
    let Some((source, key)) = parent(document, from) else {
        return Err(missing(&format!("copy operation does not apply: doc is missing from path: {from}")));
    };
    let value = match source {
        Value::Array(items) => {
            let at = index(&key, items.len(), 0)
                .map_err(|why| unprocessable(format!("error in copy for from: '{from}': {why}")))?;
            items.get(at).cloned().unwrap_or_default()
        }
        other => other.get(&key).cloned().unwrap_or_default(),
    };
    let Some((target, key)) = parent(document, path) else {
        return Err(missing(&format!("copy operation does not apply: doc is missing destination path: {path}")));
    };
    *copied_bytes = copied_bytes.saturating_add(json::to_string(&value).len());
    if *copied_bytes > COPIED_BYTES_MAX {
        let why = "Unable to complete the copy, the accumulated size increase of copy is";
        return Err(unprocessable(format!("{why} {copied_bytes}, exceeding the limit {COPIED_BYTES_MAX}")));
    }
    insert(target, &key, value).map_err(|why| unprocessable(format!("error in copy for path: '{path}': {why}")))
}

fn test(document: &mut Value, path: &str, value: Option<&Value>) -> Result<()> {
    let failed = || Err(unprocessable(format!("testing value {path} failed: test failed")));
    let wanted = value.filter(|value| !value.is_null());
    if path.is_empty() {
        return if Some(&*document) == wanted { Ok(()) } else { failed() };
    }
    let Some((target, key)) = parent(document, path) else {
        return Err(missing(&format!("test operation does not apply: is missing path: {path}")));
    };
    let found = match target {
        Value::Array(items) => {
            let at = index(&key, items.len(), 0)
                .map_err(|why| unprocessable(format!("error in test for path: '{path}': {why}")))?;
            items.get(at)
        }
        other => other.get(&key),
    };
    // Kubernetes: a field that is missing passes the test for null.
    if found.filter(|value| !value.is_null()) == wanted { Ok(()) } else { failed() }
}
