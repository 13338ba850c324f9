//! The standard library: operators, conversions, strings, times.
//!
//! The entries stand beside their code, one file per topic. The logical operators, equality, indexing and the loop
//! condition are the evaluator's own.
//!
//! Follows cel-go's `common/stdlib` and `common/types`.

mod arithmetic;
mod conversion;
mod logic;
mod membership;
mod order;
mod text;
mod time;
mod zone;

pub(super) use membership::contains;

use super::{count, join};
use crate::env::{Library, LibraryVersion, Overload, Singleton};
use crate::syntax::macros;
use crate::types::Type;
use crate::value::Value;

/// The operators and functions that every environment of CEL has.
pub fn standard() -> Library {
    let list = Type::list(Type::Param("A".into()));
    let map = Type::map(Type::Param("A".into()), Type::Param("B".into()));
    Library {
        name: "stdlib",
        version: LibraryVersion(0),
        overloads: &OVERLOADS,
        singletons: SINGLETONS,
        types: vec![
            ("bool", Type::Bool),
            ("bytes", Type::Bytes),
            ("double", Type::Double),
            ("google.protobuf.Duration", Type::Duration),
            ("int", Type::Int),
            ("list", list),
            ("map", map),
            ("null_type", Type::Null),
            ("string", Type::String),
            ("google.protobuf.Timestamp", Type::Timestamp),
            ("type", Type::Type(None)),
            ("uint", Type::Uint),
        ],
        macros: macros::STANDARD,
        validators: &[],
    }
}

const PARTS: &[&[Overload]] = &[
    logic::OVERLOADS,
    arithmetic::OVERLOADS,
    order::LESS,
    order::LESS_EQUALS,
    order::GREATER,
    order::GREATER_EQUALS,
    membership::OVERLOADS,
    conversion::OVERLOADS,
    text::OVERLOADS,
    time::OVERLOADS,
];

static OVERLOADS: [Overload; count(PARTS)] = join(PARTS);

static SINGLETONS: &[Singleton] = &[
    Singleton { function: "!_", accepts: anything, call: logic::not },
    Singleton { function: "_+_", accepts: arithmetic::is_adder, call: arithmetic::add },
    Singleton { function: "_/_", accepts: arithmetic::is_divider, call: arithmetic::divide },
    Singleton { function: "_%_", accepts: arithmetic::is_modder, call: arithmetic::modulo },
    Singleton { function: "_*_", accepts: arithmetic::is_divider, call: arithmetic::multiply },
    Singleton { function: "-_", accepts: arithmetic::is_negater, call: arithmetic::negate },
    Singleton { function: "_-_", accepts: arithmetic::is_subtracter, call: arithmetic::subtract },
    Singleton { function: "_<_", accepts: comparable, call: order::less },
    Singleton { function: "_<=_", accepts: comparable, call: order::less_equals },
    Singleton { function: "_>_", accepts: comparable, call: order::greater },
    Singleton { function: "_>=_", accepts: comparable, call: order::greater_equals },
    Singleton { function: "@in", accepts: anything, call: membership::is_in },
    Singleton { function: "size", accepts: membership::is_sizer, call: membership::size },
    Singleton { function: "type", accepts: anything, call: conversion::type_of },
    Singleton { function: "dyn", accepts: anything, call: conversion::identity },
    Singleton { function: "contains", accepts: anything, call: text::contains },
    Singleton { function: "endsWith", accepts: anything, call: text::ends_with },
    Singleton { function: "startsWith", accepts: anything, call: text::starts_with },
    Singleton { function: "matches", accepts: receives, call: text::matches },
];

/// The function itself says what it does not take.
fn anything(_: &Value<'_>) -> bool {
    true
}

/// Strings, durations and timestamps answer every call themselves, at least with `no such overload` without a name.
fn receives(value: &Value<'_>) -> bool {
    matches!(value, Value::String(_) | Value::Duration(_) | Value::Timestamp(_))
}

fn comparable(value: &Value<'_>) -> bool {
    value.is_comparable()
}

#[cfg(test)]
mod tests;
