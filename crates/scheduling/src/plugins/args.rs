//! Arguments of plugins: read strictly, missing ones by default.

use api::json::{Value, from_value};
use serde::de::DeserializeOwned;

/// Why arguments are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArgsError {
    /// They do not have the form that the plugin reads.
    #[error("{0}")]
    Form(String),
    /// They have the form, but make no sense.
    #[error("{field}: Invalid value: {value}: {why}")]
    Invalid {
        /// Where.
        field: String,
        /// What.
        value: String,
        /// Why.
        why: String,
    },
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

/// The plugin takes no arguments.
pub(super) fn none(args: &Value) -> Result<(), ArgsError> {
    #[derive(Default, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct None {}
    read::<None>(args).map(|_| ())
}

pub(super) fn invalid(field: &str, value: impl ToString, why: impl Into<String>) -> ArgsError {
    ArgsError::Invalid { field: field.to_owned(), value: value.to_string(), why: why.into() }
}
