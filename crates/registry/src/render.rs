//! Values in messages as Kubernetes shows them: JSON of Go's internal structs, which have no JSON names.
//!
//! `{"Key":"k","Value":"","Effect":"NoSchedule","TimeAdded":null}`. Internal types have the fields of the external ones,
//! under their Go names, and leave no zero value out.

use api::field::BadValue;
use api::json::{Value, to_string, write_string};
use api::types::{self, Kind, Type};

const CORE: &str = "k8s.io/api/core/v1";

/// A struct of the core group.
pub(crate) fn core(name: &str, value: &Value) -> BadValue {
    internal(CORE, name, value)
}

/// A struct of any group.
pub(crate) fn internal(package: &str, name: &str, value: &Value) -> BadValue {
    let Some(of) = types::by_name(package, name) else { return BadValue::Value(value.clone()) };
    let mut out = String::new();
    if value.is_null() { out.push_str("null") } else { structure(&mut out, of, value) }
    BadValue::Rendered(out)
}

/// A list of structs.
pub(crate) fn list(package: &str, name: &str, items: &[Value]) -> BadValue {
    let Some(of) = types::by_name(package, name) else { return BadValue::Value(Value::from(items.to_vec())) };
    let mut out = String::from("[");
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        structure(&mut out, of, item);
    }
    out.push(']');
    BadValue::Rendered(out)
}

fn structure(out: &mut String, of: &'static Type, value: &Value) {
    // Types of `meta` have no internal form.
    if of.package.ends_with("meta/v1") {
        out.push_str(&to_string(value));
        return;
    }
    out.push('{');
    for (index, field) in of.fields.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        write_string(out, field.go_name);
        out.push(':');
        match value.get(field.name).filter(|it| !it.is_null()) {
            Some(value) => any(out, &field.kind, value),
            None if field.pointer => out.push_str("null"),
            None => zero(out, &field.kind),
        }
    }
    out.push('}');
}

fn any(out: &mut String, kind: &'static Kind, value: &Value) {
    match (kind, value) {
        (Kind::Struct(of), _) => structure(out, of, value),
        (Kind::List(inner), Value::Array(items)) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                any(out, inner, item);
            }
            out.push(']');
        }
        (Kind::Map(inner), Value::Object(fields)) => {
            out.push('{');
            for (index, (key, value)) in fields.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_string(out, key);
                out.push(':');
                any(out, inner, value);
            }
            out.push('}');
        }
        _ => out.push_str(&to_string(value)),
    }
}

fn zero(out: &mut String, kind: &'static Kind) {
    match kind {
        Kind::Struct(of) => structure(out, of, &Value::Null),
        Kind::Bool => out.push_str("false"),
        Kind::Int32 | Kind::Int64 | Kind::Float64 | Kind::IntOrString => out.push('0'),
        Kind::String => out.push_str("\"\""),
        Kind::Quantity => out.push_str("\"0\""),
        Kind::Duration => out.push_str("\"0s\""),
        _ => out.push_str("null"),
    }
}
