//! The CEL libraries of Kubernetes, one file each, and the library versions of each Kubernetes minor.
//!
//! Functions have the identifiers, signatures, prices and texts of Kubernetes; values of its own types (quantities,
//! versions, addresses, URLs, formats) are built when a program is planned wherever they are written as literals.
//! Follows Kubernetes `apiserver/pkg/cel/library` and `apiserver/pkg/cel/environment/base.go`.

pub mod authorization;
pub mod celplane;
pub mod cidr;
pub mod equality;
pub mod format;
pub mod ip;
pub mod json_patch;
pub mod lists;
mod price;
pub mod quantity;
pub mod regex;
pub mod semver;
pub mod urls;

use cel::checker::Validator;
use cel::cost::Price;
use cel::env::{Builder, Call, Env, Library, LibraryVersion, NativeFunction, Overload, PlanTime};
use cel::value::{EvalError, HostValue, Value};

/// A minor version of Kubernetes 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Minor(pub u32);

impl Minor {
    /// The compatibility version, one below the implemented release: Kubernetes stores only expressions that the release
    /// before it can evaluate, so that a cluster can be rolled back.
    pub const CURRENT: Minor = Minor(api::kubernetes::MINOR.saturating_sub(1));
}

/// One row of the list of library versions.
struct Entry {
    since: Minor,
    /// The first minor without it.
    until: Option<Minor>,
    add: fn(Builder) -> Builder,
}

const fn from(since: u32, add: fn(Builder) -> Builder) -> Entry {
    Entry { since: Minor(since), until: None, add }
}

const fn between(since: u32, until: u32, add: fn(Builder) -> Builder) -> Entry {
    Entry { since: Minor(since), until: Some(Minor(until)), add }
}

/// Library versions by Kubernetes minor.
static LANGUAGE: &[Entry] = &[
    from(0, |builder| {
        let builder = builder.library(&cel::library::standard()).library(&equality::equality());
        builder.validator(Validator::HomogeneousLiterals).options(|options| {
            options.cross_type_comparisons = false;
            options.presence_test_has_cost = false;
        })
    }),
    from(0, |builder| builder.library(&urls::urls()).library(&regex::regex())),
    between(0, 37, |builder| builder.library(&lists::lists(0))),
    from(27, |builder| builder.library(&authorization::authorization())),
    from(28, |builder| builder.options(|options| options.cross_type_comparisons = true)),
    from(28, |builder| {
        // Kubernetes requests no version, which means the latest.
        let builder = builder.library(&cel::library::optionals(u32::MAX));
        builder.syntax(|options| options.optional_syntax = true)
    }),
    from(28, |builder| builder.library(&quantity::quantity())),
    from(29, |builder| {
        builder
            .validator(Validator::DurationLiterals)
            .validator(Validator::TimestampLiterals)
            .validator(Validator::RegexLiterals)
    }),
    between(0, 29, |builder| builder.library(&cel::library::strings(0))),
    from(29, |builder| builder.library(&cel::library::strings(2))),
    from(29, |builder| builder.library(&cel::library::sets())),
    from(30, |builder| builder.library(&ip::ip()).library(&cidr::cidr())),
    from(31, |builder| builder.library(&format::format())),
    from(31, |builder| builder.library(&authorization::authorization_selectors())),
    from(32, |builder| builder.library(&cel::library::two_variable_comprehensions())),
    from(33, |builder| builder.library(&semver::semver(1))),
    from(34, |builder| builder.library(&cel::library::lists(3))),
    from(37, |builder| builder.library(&lists::lists(1))),
];

/// Starts an environment in the way Kubernetes builds all of its own: the libraries of the given minor, and no
/// variables.
pub fn base(compatibility: Minor) -> Builder {
    let is_spoken =
        |entry: &&Entry| entry.since <= compatibility && entry.until.is_none_or(|until| compatibility < until);
    LANGUAGE.iter().filter(is_spoken).fold(Env::builder(), |builder, entry| (entry.add)(builder))
}

fn library(name: &'static str, version: u32, overloads: &'static [Overload]) -> Library {
    let version = LibraryVersion(version);
    Library { name, version, overloads, singletons: &[], types: Vec::new(), macros: &[], validators: &[], partial: &[] }
}

const fn native(id: &'static str, signature: &'static str, price: Price, call: NativeFunction) -> Overload {
    Overload { id, signature, since: LibraryVersion(0), price, call: Call::Native(call), plan_time: PlanTime::Nothing }
}

/// The same overload, from a later version of its library on.
const fn since(version: u32, overload: Overload) -> Overload {
    Overload { since: LibraryVersion(version), ..overload }
}

const fn at_plan_time(plan_time: PlanTime, overload: Overload) -> Overload {
    Overload { plan_time, ..overload }
}

/// The same overload, computed when the program is planned if all operands are known then.
const fn computed(overload: Overload) -> Overload {
    at_plan_time(PlanTime::Compute, overload)
}

/// The text of a string operand. The evaluator has checked the operands' types, so the error is never returned
/// to a caller.
fn text<'o>(operands: &'o [Value<'_>], operand: usize) -> Result<&'o str, EvalError> {
    operands.get(operand).and_then(Value::as_str).ok_or_else(EvalError::no_such_overload)
}

fn bool(operands: &[Value<'_>], operand: usize) -> Result<bool, EvalError> {
    operands.get(operand).and_then(Value::as_bool).ok_or_else(EvalError::no_such_overload)
}

fn int(operands: &[Value<'_>], operand: usize) -> Result<i64, EvalError> {
    match operands.get(operand) {
        Some(Value::Int(number)) => Ok(*number),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn opaque<'o, T: HostValue>(operands: &'o [Value<'_>], operand: usize) -> Result<&'o T, EvalError> {
    operands.get(operand).and_then(Value::as_opaque).ok_or_else(EvalError::no_such_overload)
}

/// Compares with a value that is of the same type, if it is.
fn opaque_eq<T: HostValue>(this: &T, other: &dyn HostValue, equals: fn(&T, &T) -> bool) -> bool {
    let other: &dyn std::any::Any = other;
    other.downcast_ref().is_some_and(|other| equals(this, other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(function: &str, since: u32) {
        let is_known = |minor| base(Minor(minor)).build().unwrap().function(function).is_some();
        assert!(
            is_known(since) && (since == 0 || !is_known(since.saturating_sub(1))),
            "{function} appeared in 1.{since}"
        );
    }

    #[test]
    fn older_minors_lack_later_functions() {
        check("url", 0);
        check("isSorted", 0);
        check("charAt", 0);
        check("check", 27);
        check("quantity", 28);
        check("optional.of", 28);
        check("strings.quote", 29);
        check("sets.contains", 29);
        check("cidr", 30);
        check("format.named", 31);
        check("fieldSelector", 31);
        check("cel.@mapInsert", 32);
        check("semver", 33);
        check("lists.range", 34);
        check("includes", 37);
    }

    #[test]
    fn older_minors_check_less_and_compare_less() {
        let compiles = |minor, text| base(Minor(minor)).build().unwrap().compile(text).is_ok();
        assert!(!compiles(27, "1 < 1.5") && compiles(28, "1 < 1.5"));
        assert!(!compiles(27, "{'a': 1}[?'a'].hasValue()") && compiles(28, "{'a': 1}[?'a'].hasValue()"));
        assert!(compiles(28, "'a'.matches('(')") && !compiles(29, "'a'.matches('(')"));
        assert!(!compiles(28, "[1, 'a'].size() == 2"));
    }
}
