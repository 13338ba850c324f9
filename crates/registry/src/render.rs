//! Values in messages as Kubernetes shows them: JSON of Go's internal structs, which have no JSON names.

use api::field::BadValue;
use api::json::Value;
use api::types::{self, internal_form};

const CORE: &str = "k8s.io/api/core/v1";

/// A struct of the core group.
pub(crate) fn core(name: &str, value: &Value) -> BadValue {
    internal(CORE, name, value)
}

/// A struct of any group.
pub(crate) fn internal(package: &str, name: &str, value: &Value) -> BadValue {
    match types::by_name(package, name) {
        Some(of) if !value.is_null() => BadValue::Value(internal_form(of, value)),
        _ => BadValue::Value(value.clone()),
    }
}

/// A list of structs.
pub(crate) fn list(package: &str, name: &str, items: &[Value]) -> BadValue {
    match types::by_name(package, name) {
        Some(of) => BadValue::Value(items.iter().map(|item| internal_form(of, item)).collect::<Vec<_>>().into()),
        None => BadValue::Value(items.to_vec().into()),
    }
}
