//! Changing the fields of a value, by name or by path.

use super::Value;

/// Fields by name.
impl Value {
    /// Sets a field; a value that is not an object stays as it is.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) {
        if let Some(object) = self.as_object_mut() {
            object.insert(key, value);
        }
    }

    /// Sets a field that is missing, `null`, or the zero value of its type.
    pub fn set_default(&mut self, key: &str, value: impl Into<Value>) {
        let is_zero = match self.get(key) {
            None | Some(Value::Null | Value::Bool(false) | Value::Int(0)) => true,
            Some(Value::String(text)) => text.is_empty(),
            Some(Value::Array(items)) => items.is_empty(),
            _ => false,
        };
        if is_zero {
            self.set(key, value);
        }
    }

    /// Sets a field that is missing or `null`: a pointer may hold a zero.
    pub fn set_missing(&mut self, key: &str, value: impl Into<Value>) {
        if !self.has(key) {
            self.set(key, value);
        }
    }

    /// Removes a field.
    pub fn unset(&mut self, key: &str) {
        if let Some(object) = self.as_object_mut() {
            object.remove(key);
        }
    }

    /// The items of a field, to be changed.
    pub fn list_mut(&mut self, key: &str) -> &mut [Value] {
        self.get_mut(key).and_then(Value::as_array_mut).map_or(&mut [], |items| items.as_mut_slice())
    }

    /// The struct of a field, to be changed, created if missing or `null`.
    pub fn make(&mut self, key: &str) -> &mut Value {
        let field = self.make_object().get_or_insert(key, Value::object);
        if field.is_null() {
            *field = Value::object();
        }
        field
    }
}

/// Fields at the end of a path.
impl Value {
    /// Sets the field at the end of a path; missing objects on the path are created.
    pub fn set_at(&mut self, path: &[&str], value: impl Into<Value>) {
        *self.make_at(path) = value.into();
    }

    /// Removes the field at the end of a path and returns it.
    pub fn remove_at(&mut self, path: &[&str]) -> Option<Value> {
        let (last, parents) = path.split_last()?;
        let parent = parents.iter().try_fold(self, |value, key| value.get_mut(key))?;
        parent.as_object_mut()?.remove(last)
    }

    /// Sets the field at the end of a path, or removes it if there is no value.
    pub fn set_or_remove_at<V: Into<Value>>(&mut self, path: &[&str], value: Option<V>) {
        match value {
            Some(value) => self.set_at(path, value),
            None => drop(self.remove_at(path)),
        }
    }

    /// The list at the end of a path, to be changed; created if it is missing.
    pub fn make_list_at(&mut self, path: &[&str]) -> &mut Vec<Value> {
        let field = self.make_at(path);
        if !matches!(field, Value::Array(_)) {
            *field = Value::Array(Vec::new());
        }
        match field {
            Value::Array(items) => items,
            #[expect(clippy::unreachable, reason = "the value has become a list above")]
            _ => unreachable!("the value is a list"),
        }
    }

    /// The field at the end of a path, to be changed, `null` if it was missing.
    fn make_at(&mut self, path: &[&str]) -> &mut Value {
        path.iter().fold(self, |value, key| value.make_object().get_or_insert(key, || Value::Null))
    }
}

#[cfg(test)]
mod tests {
    use crate::json;
    use crate::json::Value;

    #[test]
    fn paths_create_missing_objects_and_remove_fields() {
        let mut document = json!({"a": {"b": 1}});
        document.set_at(&["a", "c", "d"], 2);
        document.set_or_remove_at(&["a", "b"], None::<i64>);
        assert_eq!(document, json!({"a": {"c": {"d": 2}}}));
        assert_eq!(document.remove_at(&["a", "x", "y"]), None);
        document.make_list_at(&["l"]).push(Value::Int(1));
        assert_eq!(document.get("l"), Some(&json!([1])));
        assert_eq!(document.i64_at(&["a", "c", "d"]), Some(2));
        document.set_at(&["l", "x"], "y");
        assert_eq!(document.get("l"), Some(&json!({"x": "y"})));
    }

    #[test]
    fn defaults_replace_zero_values_but_not_pointers_to_zero() {
        let mut document = json!({"zero": 0, "empty": "", "null": null});
        for key in ["zero", "empty", "null", "missing"] {
            document.set_missing(key, "missing");
            document.set_default(key, "default");
        }
        let expected = json!({"zero": "default", "empty": "default", "null": "missing", "missing": "missing"});
        assert_eq!(document, expected);
    }

    #[test]
    fn made_field_replaces_null_but_keeps_content() {
        let mut document = json!({"a": null, "b": {"c": 1}});
        document.make("a").set("x", 1);
        document.make("b").set("d", 2);
        document.make("e");
        assert_eq!(document, json!({"a": {"x": 1}, "b": {"c": 1, "d": 2}, "e": {}}));
    }
}
