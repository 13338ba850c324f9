//! Numbers: least and greatest, rounding, signs, bits, roots.
//!
//! `math.least` and `math.greatest` are macros that expand to `math.@min` and `math.@max`.
//!
//! Follows cel-go's `ext.Math`, versions 0 to 2.

mod macros;

use std::cmp::Ordering;

use macros::MACROS;

use super::{int, list, native, since, unexpected};
use crate::cost::Price;
use crate::env::{Library, LibraryVersion, NativeFunction, Overload};
use crate::value::{EvalError, Value};

/// Functions over numbers. Version 1 brought all but least and greatest, 2 `math.sqrt`.
pub fn math(version: u32) -> Library {
    Library {
        name: "cel.lib.ext.math",
        version: LibraryVersion(version),
        overloads: &OVERLOADS,
        singletons: &[],
        types: Vec::new(),
        macros: MACROS,
        validators: &[],
        partial: &[],
    }
}

/// The overloads of `math.@min` or `math.@max`.
macro_rules! extreme {
    ($name:literal, $pair:path, $all:path) => {
        &[
            extreme!(@one $name, "_double", "(double) -> double", identity),
            extreme!(@one $name, "_int", "(int) -> int", identity),
            extreme!(@one $name, "_uint", "(uint) -> uint", identity),
            extreme!(@one $name, "_double_double", "(double, double) -> double", $pair),
            extreme!(@one $name, "_int_int", "(int, int) -> int", $pair),
            extreme!(@one $name, "_uint_uint", "(uint, uint) -> uint", $pair),
            extreme!(@one $name, "_int_uint", "(int, uint) -> dyn", $pair),
            extreme!(@one $name, "_int_double", "(int, double) -> dyn", $pair),
            extreme!(@one $name, "_double_int", "(double, int) -> dyn", $pair),
            extreme!(@one $name, "_double_uint", "(double, uint) -> dyn", $pair),
            extreme!(@one $name, "_uint_int", "(uint, int) -> dyn", $pair),
            extreme!(@one $name, "_uint_double", "(uint, double) -> dyn", $pair),
            extreme!(@one $name, "_list_double", "(list(double)) -> double", $all),
            extreme!(@one $name, "_list_int", "(list(int)) -> int", $all),
            extreme!(@one $name, "_list_uint", "(list(uint)) -> uint", $all),
        ]
    };
    (@one $name:literal, $suffix:literal, $signature:literal, $call:path) => {
        native(concat!("math_@", $name, $suffix), concat!(":math.@", $name, $signature), Price::ONE, $call)
    };
}

const MIN: &[Overload] = extreme!("min", min_pair, min_list);
const MAX: &[Overload] = extreme!("max", max_pair, max_list);

const fn v1(id: &'static str, signature: &'static str, call: NativeFunction) -> Overload {
    since(1, native(id, signature, Price::ONE, call))
}

const FUNCTIONS: &[Overload] = &[
    v1("math_ceil_double", ":math.ceil(double) -> double", |operands| of_double(operands, f64::ceil)),
    v1("math_floor_double", ":math.floor(double) -> double", |operands| of_double(operands, f64::floor)),
    // Halves away from zero.
    v1("math_round_double", ":math.round(double) -> double", |operands| of_double(operands, f64::round)),
    v1("math_trunc_double", ":math.trunc(double) -> double", |operands| of_double(operands, f64::trunc)),
    v1("math_isInf_double", ":math.isInf(double) -> bool", |operands| Ok(Value::Bool(double(operands)?.is_infinite()))),
    v1("math_isNaN_double", ":math.isNaN(double) -> bool", |operands| Ok(Value::Bool(double(operands)?.is_nan()))),
    v1("math_isFinite_double", ":math.isFinite(double) -> bool", |operands| {
        Ok(Value::Bool(double(operands)?.is_finite()))
    }),
    v1("math_abs_double", ":math.abs(double) -> double", |operands| of_double(operands, f64::abs)),
    v1("math_abs_int", ":math.abs(int) -> int", |operands| {
        int(operands, 0)?.checked_abs().map(Value::Int).ok_or_else(EvalError::int_overflow)
    }),
    v1("math_abs_uint", ":math.abs(uint) -> uint", identity),
    v1("math_sign_double", ":math.sign(double) -> double", |operands| of_double(operands, sign)),
    v1("math_sign_int", ":math.sign(int) -> int", |operands| Ok(Value::Int(int(operands, 0)?.signum()))),
    v1("math_sign_uint", ":math.sign(uint) -> uint", |operands| Ok(Value::Uint(uint(operands, 0)?.min(1)))),
    v1("math_bitAnd_int_int", ":math.bitAnd(int, int) -> int", |operands| {
        Ok(Value::Int(int(operands, 0)? & int(operands, 1)?))
    }),
    v1("math_bitAnd_uint_uint", ":math.bitAnd(uint, uint) -> uint", |operands| {
        Ok(Value::Uint(uint(operands, 0)? & uint(operands, 1)?))
    }),
    v1("math_bitOr_int_int", ":math.bitOr(int, int) -> int", |operands| {
        Ok(Value::Int(int(operands, 0)? | int(operands, 1)?))
    }),
    v1("math_bitOr_uint_uint", ":math.bitOr(uint, uint) -> uint", |operands| {
        Ok(Value::Uint(uint(operands, 0)? | uint(operands, 1)?))
    }),
    v1("math_bitXor_int_int", ":math.bitXor(int, int) -> int", |operands| {
        Ok(Value::Int(int(operands, 0)? ^ int(operands, 1)?))
    }),
    v1("math_bitXor_uint_uint", ":math.bitXor(uint, uint) -> uint", |operands| {
        Ok(Value::Uint(uint(operands, 0)? ^ uint(operands, 1)?))
    }),
    v1("math_bitNot_int_int", ":math.bitNot(int) -> int", |operands| Ok(Value::Int(!int(operands, 0)?))),
    v1("math_bitNot_uint_uint", ":math.bitNot(uint) -> uint", |operands| Ok(Value::Uint(!uint(operands, 0)?))),
    v1("math_bitShiftLeft_int_int", ":math.bitShiftLeft(int, int) -> int", |operands| {
        let offset = shift(operands, "math.bitShiftLeft")?;
        Ok(Value::Int(int(operands, 0)?.checked_shl(offset).unwrap_or(0)))
    }),
    v1("math_bitShiftLeft_uint_int", ":math.bitShiftLeft(uint, int) -> uint", |operands| {
        let offset = shift(operands, "math.bitShiftLeft")?;
        Ok(Value::Uint(uint(operands, 0)?.checked_shl(offset).unwrap_or(0)))
    }),
    // Zeros come in from the left, also for negative numbers.
    v1("math_bitShiftRight_int_int", ":math.bitShiftRight(int, int) -> int", |operands| {
        let offset = shift(operands, "math.bitShiftRight")?;
        Ok(Value::Int(int(operands, 0)?.cast_unsigned().checked_shr(offset).unwrap_or(0).cast_signed()))
    }),
    v1("math_bitShiftRight_uint_int", ":math.bitShiftRight(uint, int) -> uint", |operands| {
        let offset = shift(operands, "math.bitShiftRight")?;
        Ok(Value::Uint(uint(operands, 0)?.checked_shr(offset).unwrap_or(0)))
    }),
    since(2, native("math_sqrt_double", ":math.sqrt(double) -> double", Price::ONE, square_root)),
    since(2, native("math_sqrt_int", ":math.sqrt(int) -> double", Price::ONE, square_root)),
    since(2, native("math_sqrt_uint", ":math.sqrt(uint) -> double", Price::ONE, square_root)),
];

const PARTS: &[&[Overload]] = &[MIN, MAX, FUNCTIONS];

static OVERLOADS: [Overload; super::count(PARTS)] = super::join(PARTS);

fn identity<'v>(operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    operands.first().cloned().ok_or_else(unexpected)
}

fn double(operands: &[Value<'_>]) -> Result<f64, EvalError> {
    match operands.first() {
        Some(Value::Double(number)) => Ok(*number),
        _ => Err(unexpected()),
    }
}

fn uint(operands: &[Value<'_>], operand: usize) -> Result<u64, EvalError> {
    match operands.get(operand) {
        Some(Value::Uint(number)) => Ok(*number),
        _ => Err(unexpected()),
    }
}

fn of_double<'v>(operands: &[Value<'v>], function: fn(f64) -> f64) -> Result<Value<'v>, EvalError> {
    Ok(Value::Double(function(double(operands)?)))
}

/// Zero has no sign here, and NaN stays.
fn sign(number: f64) -> f64 {
    if number.is_nan() {
        number
    } else if number == 0.0 {
        0.0
    } else {
        number.signum()
    }
}

fn shift(operands: &[Value<'_>], function: &str) -> Result<u32, EvalError> {
    let offset = int(operands, 1)?;
    if offset < 0 {
        return Err(EvalError::other(format!("{function}() negative offset: {offset}")));
    }
    Ok(u32::try_from(offset).unwrap_or(u32::MAX))
}

fn square_root<'v>(operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let number = match operands {
        [Value::Double(number)] => *number,
        [Value::Int(number)] => *number as f64,
        [Value::Uint(number)] => *number as f64,
        _ => return Err(unexpected()),
    };
    Ok(Value::Double(number.sqrt()))
}

fn min_pair<'v>(operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    match operands {
        [first, second] => pick(first, second, Ordering::Greater, "math.@min"),
        _ => Err(unexpected()),
    }
}

fn max_pair<'v>(operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    match operands {
        [first, second] => pick(first, second, Ordering::Less, "math.@max"),
        _ => Err(unexpected()),
    }
}

fn min_list<'v>(operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    pick_of_list(operands, Ordering::Greater, "math.@min")
}

fn max_list<'v>(operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    pick_of_list(operands, Ordering::Less, "math.@max")
}

/// The second value if the first compares so to it, else the first.
fn pick<'v>(first: &Value<'v>, second: &Value<'v>, so: Ordering, function: &str) -> Result<Value<'v>, EvalError> {
    let ordering = first.compare(second).map_err(|error| match error.kind() {
        crate::value::ErrorKind::Undetermined => error,
        kind => EvalError::new(kind, format!("{error}: {function}")),
    })?;
    Ok(if ordering == so { second.clone() } else { first.clone() })
}

fn pick_of_list<'v>(operands: &[Value<'v>], so: Ordering, function: &str) -> Result<Value<'v>, EvalError> {
    let mut elements = list(operands, 0)?.iter();
    let first =
        elements.next().ok_or_else(|| EvalError::other(format!("{function}(list) argument must not be empty")))?;
    let picked = elements.try_fold(first, |picked, element| pick(&picked, &element, so, function))?;
    match picked {
        Value::Int(_) | Value::Uint(_) | Value::Double(_) => Ok(picked),
        Value::Unknown(_) => Err(EvalError::undetermined()),
        _ => Err(EvalError::new(crate::value::ErrorKind::NoSuchOverload, format!("no such overload: {function}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::{Call, Env};

    #[track_caller]
    fn call(id: &str, operands: &[Value<'static>]) -> Result<String, String> {
        let overload = OVERLOADS.iter().find(|overload| overload.id == id).unwrap();
        let Call::Native(call) = overload.call else { panic!() };
        call(operands).map(|value| value.to_string()).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn versions_bring_functions() {
        for (version, sqrt, abs) in [(0, false, false), (1, false, true), (2, true, true)] {
            let env = Env::builder().library(&math(version)).build().unwrap();
            assert_eq!(env.function("math.sqrt").is_some(), sqrt);
            assert_eq!(env.function("math.abs").is_some(), abs);
            assert_eq!(env.function("math.@min").unwrap().overloads.len(), 15);
        }
    }

    #[test]
    fn least_and_greatest_cross_types() {
        assert_eq!(call("math_@min_int_uint", &[Value::Int(-1), Value::Uint(1)]), Ok("-1".into()));
        assert_eq!(call("math_@max_int_double", &[Value::Int(1), Value::Double(1.5)]), Ok("1.5".into()));
        let numbers = Value::list(vec![Value::Int(3), Value::Int(1), Value::Int(2)]);
        assert_eq!(call("math_@max_list_int", &[numbers]), Ok("3".into()));
        let empty = Value::list(Vec::new());
        assert_eq!(call("math_@min_list_int", &[empty]), Err("math.@min(list) argument must not be empty".into()));
        let nan = [Value::Double(f64::NAN), Value::Double(1.0)];
        assert_eq!(call("math_@min_double_double", &nan), Err("NaN values cannot be ordered: math.@min".into()));
        let texts = Value::list(vec![Value::str("a"), Value::str("b")]);
        assert_eq!(call("math_@min_list_int", &[texts]), Err("no such overload: math.@min".into()));
    }

    #[test]
    fn numbers_are_rounded_signed_and_shifted() {
        assert_eq!(call("math_round_double", &[Value::Double(-1.5)]), Ok("-2".into()));
        assert_eq!(call("math_sign_double", &[Value::Double(-0.0)]), Ok("0".into()));
        assert_eq!(call("math_abs_int", &[Value::Int(i64::MIN)]), Err("integer overflow".into()));
        assert_eq!(call("math_sign_int", &[Value::Int(-7)]), Ok("-1".into()));
        assert_eq!(call("math_bitNot_int_int", &[Value::Int(1)]), Ok("-2".into()));
        assert_eq!(call("math_bitShiftLeft_int_int", &[Value::Int(1), Value::Int(64)]), Ok("0".into()));
        let right = call("math_bitShiftRight_int_int", &[Value::Int(-1024), Value::Int(3)]);
        assert_eq!(right, Ok("2305843009213693824".into()));
        let negative = call("math_bitShiftRight_uint_int", &[Value::Uint(1), Value::Int(-1)]);
        assert_eq!(negative, Err("math.bitShiftRight() negative offset: -1".into()));
        assert_eq!(call("math_sqrt_int", &[Value::Int(49)]), Ok("7".into()));
        assert_eq!(call("math_sqrt_double", &[Value::Double(-1.0)]), Ok("NaN".into()));
    }
}
