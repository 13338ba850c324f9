//! Paths of the replica counts, and their validation.
//!
//! Paths are plain: `.spec.replicas`. Follows `apiextensions-apiserver/pkg/registry/customresource`.

use api::field::{Errors, Path};
use api::json::Value;

/// The scale subresource of a definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scale {
    /// `.spec.replicas`
    pub spec_replicas: String,
    /// `.status.replicas`
    pub status_replicas: String,
    /// `.status.selector`, if there is one.
    pub selector: Option<String>,
}

impl Scale {
    /// Reads the scale subresource of a definition.
    pub(super) fn read(scale: &Value) -> Self {
        Self {
            spec_replicas: scale.text("specReplicasPath").to_owned(),
            status_replicas: scale.text("statusReplicasPath").to_owned(),
            selector: scale.optional_text("labelSelectorPath").map(ToOwned::to_owned),
        }
    }

    /// Returns the desired number of replicas; `None` if the object has none.
    ///
    /// # Errors
    /// The value is not an integer.
    pub fn wanted(&self, object: &Value) -> Result<Option<i64>, String> {
        integer_at(object, &self.spec_replicas)
    }

    /// The current number of replicas (`statusReplicasPath`).
    ///
    /// # Errors
    /// The value is not an integer.
    pub fn actual(&self, object: &Value) -> Result<Option<i64>, String> {
        integer_at(object, &self.status_replicas)
    }

    /// The selector of the replicas, as text.
    ///
    /// # Errors
    /// What stands there is not text.
    pub fn selector<'o>(&self, object: &'o Value) -> Result<Option<&'o str>, String> {
        let Some(path) = &self.selector else { return Ok(None) };
        match at(object, path)? {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(mismatch(path, other, "string")),
        }
    }

    /// Sets the number of replicas that is wanted.
    ///
    /// # Errors
    /// Something on the way is not an object.
    pub fn set_wanted(&self, object: &mut Value, replicas: i64) -> Result<(), String> {
        let mut steps = steps(&self.spec_replicas).peekable();
        let mut here = object;
        while let Some(step) = steps.next() {
            let Value::Object(fields) = here else {
                return Err(format!(
                    "value cannot be set because {} is not a map[string]interface{{}}",
                    self.spec_replicas
                ));
            };
            if steps.peek().is_none() {
                fields.insert(step, replicas);
                return Ok(());
            }
            here = fields.get_or_insert(step, Value::object);
        }
        Ok(())
    }

    pub(super) fn validate_spec(&self, object: &Value, errors: &mut Errors) {
        validate_replicas(self.wanted(object), &self.spec_replicas, errors);
    }

    pub(super) fn validate_status(&self, object: &Value, errors: &mut Errors) {
        validate_replicas(self.actual(object), &self.status_replicas, errors);
        if let (Err(detail), Some(path)) = (self.selector(object), &self.selector) {
            errors.invalid(Path::new(path), "", detail);
        }
    }
}

fn validate_replicas(found: Result<Option<i64>, String>, path: &str, errors: &mut Errors) {
    let at = Path::new(path);
    match found {
        Err(detail) => errors.invalid(at, 0_i64, detail),
        Ok(Some(replicas)) if replicas < 0 => errors.invalid(at, replicas, "should be a non-negative integer"),
        Ok(Some(replicas)) if replicas > i64::from(i32::MAX) => {
            errors.invalid(at, replicas, format!("should be less than or equal to {}", i32::MAX));
        }
        Ok(_) => {}
    }
}

fn steps(path: &str) -> impl Iterator<Item = &str> {
    path.strip_prefix('.').unwrap_or(path).split('.')
}

fn at<'o>(object: &'o Value, path: &str) -> Result<Option<&'o Value>, String> {
    let mut here = object;
    let mut walked = String::new();
    for step in steps(path) {
        let Value::Object(fields) = here else {
            let is =
                format!("{walked} accessor error: {} is of the type {}", shown(here), api::go_text::type_name(here));
            return Err(format!("{is}, expected map[string]interface{{}}"));
        };
        walked.push('.');
        walked.push_str(step);
        match fields.get(step) {
            None => return Ok(None),
            Some(next) => here = next,
        }
    }
    Ok(Some(here))
}

fn integer_at(object: &Value, path: &str) -> Result<Option<i64>, String> {
    match at(object, path)? {
        None => Ok(None),
        Some(Value::Int(number)) => Ok(Some(*number)),
        Some(other) => Err(mismatch(path, other, "int64")),
    }
}

fn mismatch(path: &str, found: &Value, expected: &str) -> String {
    let path = if path.starts_with('.') { path.to_owned() } else { format!(".{path}") };
    format!(
        "{path} accessor error: {} is of the type {}, expected {expected}",
        shown(found),
        api::go_text::type_name(found)
    )
}

/// As Go's `%v` shows it.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.to_string(),
        Value::Float(number) => api::go_text::format_float(number.get()),
        Value::Array(items) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(" ")),
        Value::Object(fields) => {
            let mut entries: Vec<(&str, &Value)> = fields.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            let entries: Vec<String> = entries.iter().map(|(key, value)| format!("{key}:{}", shown(value))).collect();
            format!("map[{}]", entries.join(" "))
        }
        other => other.to_string(),
    }
}
