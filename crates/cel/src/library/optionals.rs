//! Optional values.
//!
//! Optional selection and indexing are implemented by the evaluator, and so are `or` and `orValue`: the
//! receiver is evaluated first; an error or unknown is the result, a present value too (`or` yields the
//! optional, `orValue` its content), and only an absent one evaluates the argument, which is then the result.
//! Any other receiver fails with `no such overload`. At run time the call itself is free, although its estimate
//! is 1.
//!
//! Follows cel-go's `cel.OptionalTypes`, versions 0 to 2; the syntax `.?`, `[?]`, `?` belongs to the parser.

use super::{builtin, list, native, since, unexpected};
use crate::cost::{Cost, Price};
use crate::env::{Library, LibraryVersion, Overload};
use crate::syntax::macros;
use crate::types::Type;
use crate::value::{EvalError, Value};

/// Functions over optional values. Version 1 brought the macro `optFlatMap`, 2 `first`, `last`, and `unwrap` of lists.
pub fn optionals(version: u32) -> Library {
    Library {
        name: "cel.lib.optional",
        version: LibraryVersion(version),
        overloads: OVERLOADS,
        singletons: &[],
        types: vec![("optional_type", Type::optional(Type::Dyn))],
        // The first is `optMap`, the second `optFlatMap`.
        macros: if version >= 1 { macros::OPTIONAL } else { macros::OPTIONAL.get(..1).unwrap_or_default() },
        validators: &[],
        partial: &[],
    }
}

/// Estimated at 1, free at run time.
const SHORT_CIRCUIT: Price =
    Price::Sized { estimate: |_| Cost::exactly(1).into(), actual: |_, _| 0, when_dynamic: true };

static OVERLOADS: &[Overload] = &[
    native("optional_of", ":optional.of(V) -> optional(V)", Price::ONE, |operands| match operands {
        [value] => Ok(Value::some(value.clone())),
        _ => Err(unexpected()),
    }),
    native("optional_ofNonZeroValue", ":optional.ofNonZeroValue(V) -> optional(V)", Price::ONE, |operands| {
        match operands {
            [value] if value.is_zero() => Ok(Value::NONE),
            [value] => Ok(Value::some(value.clone())),
            _ => Err(unexpected()),
        }
    }),
    native("optional_none", ":optional.none() -> optional(V)", Price::ONE, |_| Ok(Value::NONE)),
    native("optional_value", "optional(V).value() -> V", Price::ONE, |operands| match operands {
        [Value::Optional(Some(value))] => Ok(Value::clone(value)),
        [Value::Optional(None)] => Err(EvalError::other("optional.none() dereference")),
        _ => Err(unexpected()),
    }),
    native("optional_hasValue", "optional(V).hasValue() -> bool", Price::ONE, |operands| match operands {
        [Value::Optional(value)] => Ok(Value::Bool(value.is_some())),
        _ => Err(unexpected()),
    }),
    builtin("optional_or_optional", "optional(V).or(optional(V)) -> optional(V)", SHORT_CIRCUIT),
    builtin("optional_orValue_value", "optional(V).orValue(V) -> V", SHORT_CIRCUIT),
    builtin("select_optional_field", "_?._(dyn, string) -> optional(V)", Price::ONE),
    builtin("list_optindex_optional_int", "_[?_](list(V), int) -> optional(V)", Price::ONE),
    builtin("optional_list_optindex_optional_int", "_[?_](optional(list(V)), int) -> optional(V)", Price::ONE),
    builtin("map_optindex_optional_value", "_[?_](map(K, V), K) -> optional(V)", Price::ONE),
    builtin("optional_map_optindex_optional_value", "_[?_](optional(map(K, V)), K) -> optional(V)", Price::ONE),
    builtin("optional_list_index_int", "_[_](optional(list(V)), int) -> optional(V)", Price::ONE),
    builtin("optional_map_index_value", "_[_](optional(map(K, V)), K) -> optional(V)", Price::ONE),
    since(
        2,
        native("list_last", "list(V).last() -> optional(V)", Price::ONE, |operands| {
            Ok(list(operands, 0)?.iter().next_back().map_or(Value::NONE, Value::some))
        }),
    ),
    since(
        2,
        native("list_first", "list(V).first() -> optional(V)", Price::ONE, |operands| {
            Ok(list(operands, 0)?.get(0).map_or(Value::NONE, Value::some))
        }),
    ),
    since(2, native("optional_unwrap", ":optional.unwrap(list(optional(V))) -> list(V)", Price::ONE, unwrap)),
    since(2, native("optional_unwrapOpt", "list(optional(V)).unwrapOpt() -> list(V)", Price::ONE, unwrap)),
];

fn unwrap<'v>(operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let mut present = Vec::new();
    for element in list(operands, 0)?.iter() {
        match element {
            Value::Optional(Some(value)) => present.push(Value::clone(&value)),
            Value::Optional(None) => {}
            Value::Error(error) => return Err(error),
            Value::Unknown(_) => return Err(EvalError::undetermined()),
            other => return Err(EvalError::other(format!("value {other} is not optional"))),
        }
    }
    Ok(Value::list(present))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Call;

    #[track_caller]
    fn call(id: &str, operands: &[Value<'static>]) -> Result<String, String> {
        let overload = OVERLOADS.iter().find(|overload| overload.id == id).unwrap();
        let Call::Native(call) = overload.call else { panic!("{id}") };
        call(operands).map(|value| value.to_string()).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn values_are_wrapped_and_unwrapped() {
        assert_eq!(call("optional_of", &[Value::Int(1)]), Ok("optional(1)".into()));
        assert_eq!(call("optional_value", &[Value::some(Value::Int(1))]), Ok("1".into()));
        assert_eq!(call("optional_value", &[Value::NONE]), Err("optional.none() dereference".into()));
        assert_eq!(call("optional_hasValue", &[Value::NONE]), Ok("false".into()));
        let mixed = Value::list(vec![Value::some(Value::Int(1)), Value::NONE]);
        assert_eq!(call("optional_unwrap", &[mixed]), Ok("[1]".into()));
        let plain = Value::list(vec![Value::Int(1)]);
        assert_eq!(call("optional_unwrapOpt", &[plain]), Err("value 1 is not optional".into()));
    }

    #[test]
    fn zero_values_are_nothing() {
        let none = || Ok("optional.none()".to_owned());
        for zero in [
            Value::Null,
            Value::Int(0),
            Value::Double(-0.0),
            Value::str(""),
            Value::Bool(false),
            Value::list(Vec::new()),
            Value::str("0s").to_duration().unwrap(),
            Value::str("0001-01-01T00:00:00Z").to_timestamp().unwrap(),
        ] {
            assert_eq!(call("optional_ofNonZeroValue", &[zero]), none());
        }
        let epoch = Value::Int(0).to_timestamp().unwrap();
        assert!(call("optional_ofNonZeroValue", &[epoch]).unwrap().starts_with("optional("));
        assert_eq!(call("optional_ofNonZeroValue", &[Value::NONE]), Ok("optional(optional.none())".into()));
    }

    #[test]
    fn ends_of_lists() {
        let numbers = || Value::list(vec![Value::Int(1), Value::Int(2)]);
        assert_eq!(call("list_first", &[numbers()]), Ok("optional(1)".into()));
        assert_eq!(call("list_last", &[numbers()]), Ok("optional(2)".into()));
        assert_eq!(call("list_last", &[Value::list(Vec::new())]), Ok("optional.none()".into()));
    }
}
