//! `ConversionReview`: the document that a conversion webhook is sent, and the rules that its answer obeys.
//!
//! Of a converted object's metadata only labels and annotations are taken; name, namespace and uid must be equal, and the
//! rest is restored. Follows `apiextensions-apiserver/pkg/apiserver/conversion/webhook_converter.go`; texts are Kubernetes'
//! and Go's.

use api::field::{Errors, Path};
use api::json::{Object, Value};

use crate::meta;

/// The group of the review.
pub const GROUP: &str = "apiextensions.k8s.io";
/// The kind of the review.
pub const KIND: &str = "ConversionReview";

/// The review that asks for `objects` in the version `to`, named `group/version`.
#[must_use]
pub fn request(version: &str, uid: &str, to: &str, objects: Vec<Value>) -> Value {
    // Kubernetes: the request carries an empty answer.
    api::json!({
        "kind": KIND, "apiVersion": (format!("{GROUP}/{version}")),
        "request": {"uid": uid, "desiredAPIVersion": to, "objects": objects},
        "response": {"uid": "", "convertedObjects": null, "result": {"metadata": {}}}
    })
}

/// The converted objects of an answer, whose type has been checked.
///
/// # Errors
/// The webhook's own message, or the reason why it is no answer to the review of that version and uid.
pub fn converted_objects(review: &mut Value, version: &str, uid: &str) -> Result<Vec<Value>, String> {
    let response = review.get_mut("response").filter(|it| !it.is_null()).ok_or("no response provided")?;
    let given = response.text("uid");
    // Kubernetes: answers of the old version are not compared with the request.
    if version != "v1beta1" && given != uid {
        let quote = api::go_text::quote;
        return Err(format!("expected response.uid={}, got {}", quote(uid), quote(given)));
    }
    let result = |field: &str| response.text_at(&["result", field]);
    if result("status") != "Success" {
        return Err(match result("message") {
            "" => format!("response.result.status was '{}', not 'Success'", result("status")),
            message => message.to_owned(),
        });
    }
    match response.get_mut("convertedObjects").map(Value::take) {
        Some(Value::Array(objects)) => Ok(objects),
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(other) => Err(format!(
            "json: cannot unmarshal {} into Go struct field ConversionResponse.response.convertedObjects of type []runtime.RawExtension",
            kind_text(&other)
        )),
    }
}

/// The converted form of an object, with the metadata that is taken of it.
///
/// # Errors
/// Text for a document that is no conversion of the object to the version `to`. `about` names the webhook in it.
pub fn accept(about: &str, original: &Value, mut converted: Value, to: &str) -> Result<Value, String> {
    match &converted {
        Value::Object(_) => {}
        Value::Null => return Err("unexpected end of JSON input".to_owned()),
        other => {
            let kind = kind_text(other);
            return Err(format!("json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"));
        }
    }
    let text = |object: &Value, path: &[&str]| object.text_at(path).to_owned();
    if text(&converted, &["kind"]).is_empty() {
        return Err(format!("Object 'Kind' is missing in '{}'", api::json::to_string(&converted)));
    }
    let invalid = format!("{about} returned invalid object");
    let given = text(&converted, &["apiVersion"]);
    if given != to {
        return Err(format!("{invalid} at index 0: invalid groupVersion (expected {to}, received {given})"));
    }
    let (expected, given) = (text(original, &["kind"]), text(&converted, &["kind"]));
    if given != expected {
        return Err(format!("{invalid} at index 0: invalid kind (expected {expected}, received {given})"));
    }
    for (shown, field) in [("name", "name"), ("namespace", "namespace"), ("UID", "uid")] {
        let (expected, given) = (text(original, &["metadata", field]), text(&converted, &["metadata", field]));
        if given != expected {
            return Err(format!("{invalid}: must have the same {shown}: {expected} != {given}"));
        }
    }
    let metadata = restored(original, converted.get("metadata"));
    let metadata = metadata.map_err(|why| format!("{about} returned invalid metadata: {why}"))?;
    if let Some(fields) = converted.as_object_mut() {
        fields.insert("metadata", metadata);
    }
    Ok(converted)
}

/// The metadata of the original with the labels and annotations of the converted object.
fn restored(original: &Value, converted: Option<&Value>) -> Result<Object, String> {
    let converted = converted.ok_or("missing metadata in converted object")?;
    let Some(converted) = converted.as_object() else {
        return Err(format!("invalid metadata of type {} in converted object", api::go_text::type_name(converted)));
    };
    let mut metadata = original.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
    for field in ["labels", "annotations"] {
        let given = match converted.get(field) {
            None | Some(Value::Null) => {
                metadata.remove(field);
                continue;
            }
            Some(Value::Object(given)) => given,
            Some(other) => {
                return Err(format!(
                    "invalid metadata.{field} of type {} in converted object",
                    api::go_text::type_name(other)
                ));
            }
        };
        if let Some((key, value)) = given.iter().find(|(_, value)| value.as_str().is_none()) {
            let found = api::go_text::type_name(value);
            return Err(format!("metadata.{field}[{key}] must be a string, but is {found} in converted object"));
        }
        let before = metadata.get(field).and_then(Value::as_object);
        let is_same = before.is_some_and(|before| {
            before.len() == given.len() && given.iter().all(|(key, value)| before.get(key) == Some(value))
        });
        if !is_same {
            check(field, given)?;
            let mut given = given.clone();
            given.sort();
            metadata.insert(field, given);
        }
    }
    Ok(metadata)
}

fn check(field: &str, values: &Object) -> Result<(), String> {
    let (mut errors, at) = (Errors::new(), Path::new("metadata"));
    match field {
        "labels" => meta::validate_labels(values, &at.child("labels"), &mut errors),
        // Kubernetes names this path in the singular.
        _ => meta::validate_annotations(values, &at.child("annotation"), &mut errors),
    }
    if errors.is_empty() { Ok(()) } else { Err(errors.message()) }
}

/// The kind of a JSON value in errors of Go's decoder.
fn kind_text(value: &Value) -> &'static str {
    match value {
        Value::Int(_) | Value::Float(_) => "number",
        Value::Bool(_) => "bool",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        _ => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn original() -> Value {
        api::json!({
            "apiVersion": "g/v1", "kind": "K",
            "metadata": {"name": "a", "uid": "u", "labels": {"x": "1"}, "finalizers": ["f"]}, "spec": {"a": 1}
        })
    }

    #[track_caller]
    fn check_refused(converted: Value, expected: &str) {
        assert_eq!(accept("W", &original(), converted, "g/v2").unwrap_err(), expected);
    }

    #[test]
    fn metadata_is_restored_except_labels_and_annotations() {
        let converted = api::json!({
            "apiVersion": "g/v2", "kind": "K",
            "metadata": {"name": "a", "uid": "u", "labels": {"y": "2"}, "generation": 9}, "spec": {"b": 1}
        });
        let accepted = accept("W", &original(), converted, "g/v2").unwrap();
        let expected = api::json!({
            "apiVersion": "g/v2", "kind": "K",
            "metadata": {"name": "a", "uid": "u", "labels": {"y": "2"}, "finalizers": ["f"]}, "spec": {"b": 1}
        });
        assert_eq!(accepted, expected);
    }

    #[test]
    fn other_objects_are_refused() {
        check_refused(Value::Null, "unexpected end of JSON input");
        check_refused(
            api::json!({"kind": "K"}),
            "W returned invalid object at index 0: invalid groupVersion (expected g/v2, received )",
        );
        let other = api::json!({"apiVersion": "g/v2", "kind": "L", "metadata": {"name": "a", "uid": "u"}});
        check_refused(other, "W returned invalid object at index 0: invalid kind (expected K, received L)");
        let other = api::json!({"apiVersion": "g/v2", "kind": "K", "metadata": {"name": "a", "uid": "v"}});
        check_refused(other, "W returned invalid object: must have the same UID: u != v");
        let other =
            api::json!({"apiVersion": "g/v2", "kind": "K", "metadata": {"name": "a", "uid": "u", "labels": []}});
        check_refused(
            other,
            "W returned invalid metadata: invalid metadata.labels of type []interface {} in converted object",
        );
    }

    #[test]
    fn answers_must_report_success() {
        let answer = |result: Value| api::json!({"response": {"uid": "u", "convertedObjects": [1], "result": result}});
        assert_eq!(converted_objects(&mut answer(api::json!({"status": "Success"})), "v1", "u").unwrap().len(), 1);
        let why = converted_objects(&mut answer(api::json!({})), "v1", "u").unwrap_err();
        assert_eq!(why, "response.result.status was '', not 'Success'");
        let why =
            converted_objects(&mut answer(api::json!({"status": "Failure", "message": "m"})), "v1", "u").unwrap_err();
        assert_eq!(why, "m");
        let mut other = answer(api::json!({"status": "Success"}));
        assert_eq!(
            converted_objects(&mut other.clone(), "v1", "x").unwrap_err(),
            "expected response.uid=\"x\", got \"u\""
        );
        assert!(converted_objects(&mut other, "v1beta1", "x").is_ok());
        assert_eq!(converted_objects(&mut api::json!({}), "v1", "u").unwrap_err(), "no response provided");
    }
}
