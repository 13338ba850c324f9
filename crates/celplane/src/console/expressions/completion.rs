//! Names and signatures that can be typed at a place of an expression.

use ::console::Failure;
use api::json::Value;
use cel::env::Env;
use cel::syntax::macros::Arity;
use cel::types::{Signature, Type};
use cel::value::Value as Cel;
use cel_kubernetes::compile::ResultRule;
use cel_kubernetes::environments::Dialect;
use cel_kubernetes::places::{InputError, Place};

use super::{Setting, document, invalid, setting};

/// Items of an answer.
const ITEMS_MAX: usize = 400;
/// Keys of a map in the input.
const KEYS_MAX: usize = 100;

/// The variables of a validation of an admission policy.
const ADMISSION_VARIABLES: [(&str, &str); 5] = [
    ("object", "dyn"),
    ("oldObject", "dyn"),
    ("request", "kubernetes.AdmissionRequest"),
    ("params", "dyn"),
    ("namespaceObject", "kubernetes.Namespace"),
];

/// Answers with variables and functions, or with fields, keys and member functions of what stands before a dot: `before`.
pub(in crate::console) fn complete(question: &Value) -> Result<Value, Failure> {
    let before = question.text("before");
    let input = document(question.text("input")).ok().flatten();
    let mut items = Vec::new();
    match setting(question)? {
        Setting::Admission => {
            let base = Place::Base.environment(Dialect::CELPLANE, None).map_err(|error| invalid(&error))?;
            if before.is_empty() {
                items.extend(ADMISSION_VARIABLES.map(|(name, of)| item(name, "variable", of)));
                functions(&base.env, None, &mut items);
            } else {
                fields_of_document(before, input.as_ref(), &mut items);
                functions(&base.env, Some(&Type::Dyn), &mut items);
            }
        }
        Setting::Place(place, schema, environment) => {
            if before.is_empty() {
                for name in ["taint", "node", "device", "devices", "self", "oldSelf"] {
                    if let Ok(typed) = environment.env.compile(name) {
                        items.push(item(name, "variable", &typed.result_type().to_string()));
                    }
                }
                functions(&environment.env, None, &mut items);
            } else if let Ok(typed) = environment.env.compile(before) {
                let of = typed.result_type().clone();
                if let Type::Object(name) = &of {
                    for field in environment.env.provider().field_names(name) {
                        let of = environment.env.provider().find_field(name, &field);
                        items.push(item(&field, "field", &of.map_or_else(String::new, |it| it.field_type.to_string())));
                    }
                }
                let mut unlimited = (*environment).clone().without_estimate_limit();
                // A part of an expression may be of any type.
                unlimited.result = ResultRule::Any;
                if let (Type::Map(_), Some(document), Ok(compiled)) = (&of, input, unlimited.compile(before)) {
                    let read = place.input(Some(document), schema, &|_, _| Err(InputError::new("no variables")));
                    if let Ok(input) = read {
                        input.with(|input| keys(&compiled.eval(input).result, &mut items));
                    }
                }
                functions(&environment.env, Some(&of), &mut items);
            }
        }
    }
    items.truncate(ITEMS_MAX);
    Ok(api::json!({"items": (Value::Array(items))}))
}

fn item(name: &str, kind: &str, detail: &str) -> Value {
    api::json!({"name": name, "kind": kind, "detail": detail})
}

fn keys<E>(value: &Result<Cel<'_>, E>, items: &mut Vec<Value>) {
    let Ok(value) = value else { return };
    if let Value::Object(map) = crate::output::document(value) {
        items.extend(map.keys().take(KEYS_MAX).map(|key| item(key, "key", "key of the input")));
    }
}

/// The fields of what a path leads to in the input: an admission request's objects have no types.
fn fields_of_document(path: &str, input: Option<&Value>, items: &mut Vec<Value>) {
    let Some(mut at) = input else { return };
    for name in path.split('.') {
        let (name, index) = name
            .split_once('[')
            .map_or((name, None), |(name, rest)| (name, rest.trim_end_matches(']').parse::<usize>().ok()));
        let Some(found) = at.get(name) else { return };
        at = match index {
            Some(index) => match found.as_array().and_then(|it| it.get(index)) {
                Some(element) => element,
                None => return,
            },
            None => found,
        };
    }
    if let Some(fields) = at.as_object() {
        items.extend(fields.iter().take(KEYS_MAX).map(|(name, value)| item(name, "field", value.kind())));
    }
}

/// Functions without a receiver, or those that a receiver of a type has.
fn functions(env: &Env, receiver: Option<&Type>, items: &mut Vec<Value>) {
    let mut found = Vec::new();
    for function in env.functions() {
        let is_word = function.name.bytes().next().is_some_and(|it| it.is_ascii_alphabetic());
        if !is_word {
            continue;
        }
        for overload in &function.overloads {
            let signature = &overload.signature;
            let fits = match (receiver, signature.receiver) {
                (None, false) => true,
                (Some(of), true) => signature.parameters.first().is_some_and(|wanted| is_like(wanted, of)),
                _ => false,
            };
            if fits {
                found.push((function.name.as_str().to_owned(), "function", text(signature)));
                // One line for each function: its first signature that fits.
                break;
            }
        }
    }
    let is_collection = |of: &Type| matches!(of, Type::List(_) | Type::Map(_) | Type::Dyn | Type::Any);
    for expander in env.macros().iter() {
        if expander.receiver == receiver.is_some() && receiver.is_none_or(is_collection) {
            let arguments = match expander.arity {
                Arity::Exact(1) => "x",
                Arity::Exact(2) => "x, …",
                Arity::Exact(3) => "x, …, …",
                _ => "…",
            };
            found.push((
                expander.name.as_str().to_owned(),
                "macro",
                format!("{}({arguments})", expander.name.as_str()),
            ));
        }
    }
    found.sort();
    found.dedup_by(|one, other| one.0 == other.0);
    items.extend(found.iter().map(|(name, kind, detail)| item(name, kind, detail)));
}

/// Whether a receiver of a type may be given where another is wanted, as far as the outermost type says.
fn is_like(wanted: &Type, given: &Type) -> bool {
    matches!((wanted, given), (Type::Dyn | Type::Any | Type::Param(_), _) | (_, Type::Dyn | Type::Any))
        || std::mem::discriminant(wanted) == std::mem::discriminant(given)
            && (matches!(wanted, Type::List(_) | Type::Map(_)) || wanted == given)
}

fn text(signature: &Signature) -> String {
    let all: Vec<String> = signature.parameters.iter().map(ToString::to_string).collect();
    let name = signature.function.as_str();
    match (signature.receiver, all.split_first()) {
        (true, Some((receiver, rest))) => format!("{receiver}.{name}({}) -> {}", rest.join(", "), signature.result),
        _ => format!("{name}({}) -> {}", all.join(", "), signature.result),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[track_caller]
    fn names(question: Value) -> Vec<String> {
        let answer = complete(&question).unwrap();
        let items = answer.get("items").and_then(Value::as_array).unwrap();
        items.iter().map(|it| it.str_at(&["name"]).unwrap().to_owned()).collect()
    }

    #[test]
    fn variables_fields_keys_and_functions_are_offered() {
        let all = names(api::json!({"place": "toleration", "before": ""}));
        assert!(
            all.contains(&"taint".to_owned()) && all.contains(&"int".to_owned()) && all.contains(&"has".to_owned())
        );
        assert!(!all.contains(&"node".to_owned()) && !all.contains(&"startsWith".to_owned()));
        let fields = names(api::json!({"place": "toleration", "before": "taint"}));
        assert!(fields.contains(&"key".to_owned()), "{fields:?}");
        let members = names(api::json!({"place": "toleration", "before": "taint.key"}));
        assert!(
            members.contains(&"startsWith".to_owned()) && !members.contains(&"isLessThan".to_owned()),
            "{members:?}"
        );
        let keys =
            names(api::json!({"place": "affinity", "before": "node.labels", "input": "metadata: {labels: {zone: a}}"}));
        assert!(keys.contains(&"zone".to_owned()) && keys.contains(&"exists".to_owned()), "{keys:?}");
        let fields = names(
            api::json!({"place": "admission", "before": "object.spec", "input": "object: {spec: {replicas: 1}}"}),
        );
        assert!(fields.contains(&"replicas".to_owned()), "{fields:?}");
    }
}
