//! Type conversions. A constant operand is converted while planning, for free.

use crate::cost::Price;
use crate::env::{NativeFunction, Overload, PlanTime};
use crate::library::{native, price, shared, unexpected};
use crate::value::{EvalError, Value};

pub(super) const OVERLOADS: &[Overload] = &[
    folded(shared("type", "type(A) -> type(A)", Price::ONE)),
    convert("bool_to_bool", "bool(bool) -> bool", identity),
    convert("string_to_bool", "bool(string) -> bool", |operands| first(operands)?.to_bool()),
    convert("bytes_to_bytes", "bytes(bytes) -> bytes", identity),
    folded(native("string_to_bytes", "bytes(string) -> bytes", price::STRING_TO_BYTES, |operands| {
        first(operands)?.to_bytes()
    })),
    convert("double_to_double", "double(double) -> double", identity),
    convert("int64_to_double", "double(int) -> double", to_double),
    convert("string_to_double", "double(string) -> double", to_double),
    convert("uint64_to_double", "double(uint) -> double", to_double),
    convert("duration_to_duration", "duration(duration) -> duration", identity),
    convert("string_to_duration", "duration(string) -> duration", |operands| first(operands)?.to_duration()),
    folded(shared("to_dyn", "dyn(A) -> dyn", Price::ONE)),
    convert("int64_to_int64", "int(int) -> int", identity),
    convert("double_to_int64", "int(double) -> int", to_int),
    convert("duration_to_int64", "int(duration) -> int", to_int),
    convert("string_to_int64", "int(string) -> int", to_int),
    convert("timestamp_to_int64", "int(timestamp) -> int", to_int),
    convert("uint64_to_int64", "int(uint) -> int", to_int),
    convert("string_to_string", "string(string) -> string", identity),
    convert("bool_to_string", "string(bool) -> string", to_text),
    folded(native("bytes_to_string", "string(bytes) -> string", price::BYTES_TO_STRING, to_text)),
    convert("double_to_string", "string(double) -> string", to_text),
    convert("duration_to_string", "string(duration) -> string", to_text),
    convert("int64_to_string", "string(int) -> string", to_text),
    convert("timestamp_to_string", "string(timestamp) -> string", to_text),
    convert("uint64_to_string", "string(uint) -> string", to_text),
    convert("timestamp_to_timestamp", "timestamp(timestamp) -> timestamp", identity),
    convert("int64_to_timestamp", "timestamp(int) -> timestamp", to_timestamp),
    convert("string_to_timestamp", "timestamp(string) -> timestamp", to_timestamp),
    convert("uint64_to_uint64", "uint(uint) -> uint", identity),
    convert("double_to_uint64", "uint(double) -> uint", to_uint),
    convert("int64_to_uint64", "uint(int) -> uint", to_uint),
    convert("string_to_uint64", "uint(string) -> uint", to_uint),
];

const fn convert(id: &'static str, signature: &'static str, call: NativeFunction) -> Overload {
    folded(native(id, signature, Price::ONE, call))
}

const fn folded(overload: Overload) -> Overload {
    Overload { plan_time: PlanTime::Convert, ..overload }
}

fn first<'o, 'v>(operands: &'o [Value<'v>]) -> Result<&'o Value<'v>, EvalError> {
    operands.first().ok_or_else(unexpected)
}

pub(super) fn identity<'v>(operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    first(operands).cloned()
}

pub(super) fn type_of<'v>(operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    Ok(Value::Type(first(operands)?.type_of()))
}

fn to_int<'v>(operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    first(operands)?.to_int()
}

fn to_uint<'v>(operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    first(operands)?.to_uint()
}

fn to_double<'v>(operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    first(operands)?.to_double()
}

fn to_text<'v>(operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    first(operands)?.to_text()
}

fn to_timestamp<'v>(operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    first(operands)?.to_timestamp()
}
