//! Comprehensions with two variables: their macros, and the functions these call.
//!
//! `transformMap` and `transformMapEntry` build their map with `cel.@mapInsert`, once per iteration. The code here copies
//! the map; an evaluator that owns the accumulator inserts in place with [`Map::insert_all`](crate::value::Map::insert_all).
//!
//! Follows cel-go's `ext.TwoVarComprehensions`.

use super::{native, unexpected};
use crate::cost::Price;
use crate::env::{Library, LibraryVersion, Overload};
use crate::syntax::macros;
use crate::value::{EvalError, Map, Value};

/// The functions behind `transformMap` and `transformMapEntry`.
pub fn two_variable_comprehensions() -> Library {
    Library {
        name: "cel.lib.ext.comprev2",
        version: LibraryVersion(0),
        overloads: OVERLOADS,
        singletons: &[],
        types: Vec::new(),
        macros: macros::TWO_VARIABLE,
        validators: &[],
        partial: &[],
    }
}

static OVERLOADS: &[Overload] = &[
    native("@mapInsert_map_key_value", ":cel.@mapInsert(map(K, V), K, V) -> map(K, V)", Price::ONE, |operands| {
        match operands {
            [Value::Map(map), key, value] => insert(map, [(key.clone(), value.clone())]),
            _ => Err(unexpected()),
        }
    }),
    native("@mapInsert_map_map", ":cel.@mapInsert(map(K, V), map(K, V)) -> map(K, V)", Price::ONE, |operands| {
        match operands {
            [Value::Map(map), Value::Map(update)] => insert(map, update.entries()),
            _ => Err(unexpected()),
        }
    }),
];

fn insert<'v>(
    map: &Map<'v>,
    entries: impl IntoIterator<Item = (Value<'v>, Value<'v>)>,
) -> Result<Value<'v>, EvalError> {
    match map.clone().insert_all(entries)? {
        Ok(map) => Ok(Value::Map(map)),
        Err(key) => Err(EvalError::other(format!("insert failed: key {key} already exists"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_inserted_once() {
        let map = Map::from_entries([(Value::Int(1), Value::str("a"))]).unwrap();
        let Ok(Value::Map(grown)) = insert(&map, [(Value::Int(2), Value::str("b"))]) else { panic!() };
        assert_eq!((map.len(), grown.len()), (1, 2));
        let error = insert(&grown, [(Value::Uint(1), Value::Null)]).unwrap_err();
        assert_eq!(error.message(), "insert failed: key 1 already exists");
    }
}
