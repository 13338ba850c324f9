//! `semver`, `isSemver`, and the order and the numbers of versions.
//!
//! Versions are defined in [`api::semver`]. Follows Kubernetes `apiserver/pkg/cel/library/semverlib.go`.

use std::cmp::Ordering;

use api::semver::{ParseError, Version};
use cel::cost::Price;
use cel::env::{Library, Overload};
use cel::types::Type;
use cel::value::{EvalError, HostValue, Value};

use super::price::PARSE;
use super::{bool, computed, library, native, opaque, opaque_eq, since, text};

/// The library in a version: 0, or 1 with normalization.
pub fn semver(version: u32) -> Library {
    library("kubernetes.Semver", version, OVERLOADS)
}

/// A version as a CEL value.
#[derive(Clone, Debug)]
pub struct SemverValue(pub Version);

static OVERLOADS: &[Overload] = &[
    computed(native("string_to_semver", "semver(string) -> kubernetes.Semver", PARSE, |operands| {
        parsed(Version::parse(text(operands, 0)?))
    })),
    since(
        1,
        computed(native("string_bool_to_semver", "semver(string, bool) -> kubernetes.Semver", PARSE, |operands| {
            parsed(parse(text(operands, 0)?, bool(operands, 1)?))
        })),
    ),
    computed(native("is_semver_string", "isSemver(string) -> bool", PARSE, |operands| {
        Ok(Value::Bool(Version::parse(text(operands, 0)?).is_ok()))
    })),
    since(
        1,
        computed(native("is_semver_string_bool", "isSemver(string, bool) -> bool", PARSE, |operands| {
            Ok(Value::Bool(parse(text(operands, 0)?, bool(operands, 1)?).is_ok()))
        })),
    ),
    computed(native(
        "semver_is_greater_than",
        "kubernetes.Semver.isGreaterThan(kubernetes.Semver) -> bool",
        Price::ONE,
        |operands| Ok(Value::Bool(compare(operands)?.is_gt())),
    )),
    computed(native(
        "semver_is_less_than",
        "kubernetes.Semver.isLessThan(kubernetes.Semver) -> bool",
        Price::ONE,
        |operands| Ok(Value::Bool(compare(operands)?.is_lt())),
    )),
    computed(native(
        "semver_compare_to",
        "kubernetes.Semver.compareTo(kubernetes.Semver) -> int",
        Price::ONE,
        |operands| Ok(Value::Int(compare(operands)? as i64)),
    )),
    computed(native("semver_major", "kubernetes.Semver.major() -> int", Price::ONE, |operands| {
        Ok(Value::Int(value(operands, 0)?.major.cast_signed()))
    })),
    computed(native("semver_minor", "kubernetes.Semver.minor() -> int", Price::ONE, |operands| {
        Ok(Value::Int(value(operands, 0)?.minor.cast_signed()))
    })),
    computed(native("semver_patch", "kubernetes.Semver.patch() -> int", Price::ONE, |operands| {
        Ok(Value::Int(value(operands, 0)?.patch.cast_signed()))
    })),
];

fn parse(text: &str, normalize: bool) -> Result<Version, ParseError> {
    if normalize { Version::parse_normalized(text) } else { Version::parse(text) }
}

fn parsed<'v>(version: Result<Version, ParseError>) -> Result<Value<'v>, EvalError> {
    match version {
        Ok(version) => Ok(Value::opaque(SemverValue(version))),
        Err(error) => Err(EvalError::other(error.to_string())),
    }
}

fn value<'o>(operands: &'o [Value<'_>], operand: usize) -> Result<&'o Version, EvalError> {
    opaque::<SemverValue>(operands, operand).map(|version| &version.0)
}

fn compare(operands: &[Value<'_>]) -> Result<Ordering, EvalError> {
    Ok(value(operands, 0)?.cmp(value(operands, 1)?))
}

impl HostValue for SemverValue {
    fn type_of(&self) -> Type {
        Type::object("kubernetes.Semver")
    }

    fn equals(&self, other: &dyn HostValue) -> bool {
        opaque_eq(self, other, |a, b| a.0 == b.0)
    }

    fn text(&self) -> String {
        self.0.to_string()
    }

    fn go_type_name(&self) -> &'static str {
        "cel.Semver"
    }

    fn is_hashable(&self) -> bool {
        false
    }
}
