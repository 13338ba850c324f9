//! Removal of the values of Secrets from an answer.

use api::json::Value;

/// Replaces a value.
const HIDDEN: &str = "<hidden>";

/// Removes all values from a Secret, a list of Secrets, or a table of them. Names of keys stay.
pub(crate) fn redact(document: &mut Value) {
    redact_object(document);
    for list in ["items", "rows"] {
        for item in document.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            redact_object(item);
            if let Some(object) = item.get_mut("object") {
                redact_object(object);
            }
        }
    }
}

fn redact_object(object: &mut Value) {
    let Some(fields) = object.as_object_mut() else { return };
    for name in ["data", "stringData"] {
        match fields.get_mut(name) {
            Some(Value::Object(values)) => values.values_mut().for_each(|value| *value = Value::from(HIDDEN)),
            Some(other) => *other = Value::from(HIDDEN),
            None => {}
        }
    }
    if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
        // `kubectl apply` copies the whole manifest into an annotation; other tools have annotations of their own.
        if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
            annotations.values_mut().for_each(|value| *value = Value::from(HIDDEN));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_is_left() {
        let secret = api::json!({
            "kind": "Secret", "data": {"password": "cGFzcw=="}, "stringData": {"password": "pass"},
            "metadata": {"name": "a", "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{pass}"}}
        });
        let mut documents = [
            secret.clone(),
            api::json!({"kind": "SecretList", "items": [(secret.clone())]}),
            api::json!({"kind": "Table", "rows": [{"cells": ["a", "Opaque", 1], "object": (secret)}]}),
            api::json!({"kind": "Secret", "data": ["pass"]}),
        ];
        for document in &mut documents {
            redact(document);
            let text = api::json::to_string(document);
            assert!(!text.contains("pass\"") && !text.contains("cGFz") && !text.contains("{pass}"), "{text}");
        }
    }
}
