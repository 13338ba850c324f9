//! Arguments of plugins: read strictly, missing ones by default.

use api::field::Errors;
use api::json::{Value, from_value, to_value};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A reason to reject arguments.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArgsError {
    /// The arguments do not have the expected form.
    #[error("{0}")]
    Form(String),
    /// Invalid values: every faulty field, in Kubernetes' words.
    #[error("{0}")]
    Invalid(String),
}

/// Reads arguments. A field that is not known is refused.
pub(super) fn read<T: DeserializeOwned + Default>(args: &Value) -> Result<T, ArgsError> {
    let Value::Object(object) = args else {
        return if args.is_null() {
            Ok(T::default())
        } else {
            Err(ArgsError::Form("args must be an object".to_owned()))
        };
    };
    // The type of the arguments follows from the plugin.
    let fields = object.iter().filter(|(key, _)| !matches!(*key, "apiVersion" | "kind"));
    let fields = fields.map(|(key, value)| (key, value.clone())).collect();
    from_value(&Value::Object(fields)).map_err(|error| ArgsError::Form(error.to_string()))
}

/// Arguments as a document, defaults written out.
pub(super) fn write<T: Serialize>(args: &T) -> Result<Value, ArgsError> {
    to_value(args).map_err(|error| ArgsError::Form(error.to_string()))
}

/// The plugin takes no arguments.
pub(super) fn none(args: &Value) -> Result<(), ArgsError> {
    #[derive(Default, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct NoArgs {}
    read::<NoArgs>(args).map(|_| ())
}

/// Refuses arguments in which something is wrong.
pub(super) fn check(errors: &Errors) -> Result<(), ArgsError> {
    if errors.is_empty() { Ok(()) } else { Err(ArgsError::Invalid(errors.message())) }
}
