//! The standard library: operators, conversions, strings, times.
//!
//! The entries are next to their code, one file per topic. The logical operators, equality, indexing and the
//! loop condition are implemented by the evaluator.
//!
//! Follows cel-go's `common/stdlib` and `common/types`.

mod arithmetic;
mod conversion;
mod logic;
mod membership;
mod order;
mod partial;
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
            ("list", Type::list(Type::Dyn)),
            ("map", Type::map(Type::Dyn, Type::Dyn)),
            ("null_type", Type::Null),
            ("string", Type::String),
            ("google.protobuf.Timestamp", Type::Timestamp),
            ("type", Type::Type(None)),
            ("uint", Type::Uint),
        ],
        macros: macros::STANDARD,
        validators: &[],
        partial: partial::FUNCTIONS,
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
    Singleton::new("!_", anything, logic::not),
    Singleton::new("_+_", arithmetic::is_adder, arithmetic::add),
    Singleton::new("_/_", arithmetic::is_divider, arithmetic::divide),
    Singleton::new("_%_", arithmetic::is_modder, arithmetic::modulo),
    Singleton::new("_*_", arithmetic::is_divider, arithmetic::multiply),
    Singleton::new("-_", arithmetic::is_negater, arithmetic::negate),
    Singleton::new("_-_", arithmetic::is_subtracter, arithmetic::subtract),
    Singleton::new("_<_", comparable, order::less),
    Singleton::new("_<=_", comparable, order::less_equals),
    Singleton::new("_>_", comparable, order::greater),
    Singleton::new("_>=_", comparable, order::greater_equals),
    Singleton::new("@in", anything, membership::is_in),
    Singleton::new("size", membership::is_sizer, membership::size),
    Singleton::new("type", anything, conversion::type_of),
    Singleton::new("dyn", anything, conversion::identity),
    Singleton::of_texts("contains", anything, text::contains, text::is_part),
    Singleton::of_texts("endsWith", anything, text::ends_with, text::is_suffix),
    Singleton::of_texts("startsWith", anything, text::starts_with, text::is_prefix),
    Singleton::new("matches", receives, text::matches),
];

/// Accepts every operand: the function itself rejects unsupported ones.
fn anything(_: &Value<'_>) -> bool {
    true
}

/// Whether a value handles every call itself, at least with `no such overload` without a name: strings,
/// durations and timestamps do.
fn receives(value: &Value<'_>) -> bool {
    matches!(value, Value::String(_) | Value::Duration(_) | Value::Timestamp(_))
}

fn comparable(value: &Value<'_>) -> bool {
    value.is_comparable()
}

#[cfg(test)]
mod tests;
