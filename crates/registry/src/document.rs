//! Comparing documents: what is missing, null or empty is the same.

use api::json::{Lookup, Object, Value};

static NULL: Value = Value::Null;

/// Whether two fields are equal; missing, null and empty are equivalent.
pub(crate) fn same(left: &Value, right: &Value) -> bool {
    if left == right || (is_empty(left) && is_empty(right)) {
        return true;
    }
    match (left, right) {
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            let both = |one: &Object, other: &Object| {
                let other = Lookup::new(other);
                one.iter().all(|(key, value)| same(value, other.get(key).unwrap_or(&NULL)))
            };
            both(left, right) && both(right, left)
        }
        _ => false,
    }
}

/// The value without empty lists and maps inside, as Go writes structs whose fields may be left out.
pub(crate) fn without_empty(value: &Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.iter().map(without_empty).collect()),
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(_, value)| match value {
                Value::Array(items) => !items.is_empty(),
                Value::Object(fields) => !fields.is_empty(),
                _ => true,
            });
            Value::Object(kept.map(|(key, value)| (key, without_empty(value))).collect())
        }
        _ => value.clone(),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes minutes if each field is searched for in the whole other map.
    #[test]
    fn large_maps_are_compared_without_regard_to_order() {
        let names = || (0..100_000).map(|number| format!("k{number}"));
        let field = |name: String| (name, Value::Int(1));
        let forward = Value::Object(names().map(field).collect());
        let mut backward: Vec<(String, Value)> = names().map(field).collect();
        backward.push(("empty".to_owned(), Value::Array(Vec::new())));
        backward.reverse();
        assert!(same(&forward, &Value::Object(backward.iter().cloned().collect())));
        backward.push(("more".to_owned(), Value::Int(1)));
        assert!(!same(&forward, &Value::Object(backward.into_iter().collect())));
    }
}
