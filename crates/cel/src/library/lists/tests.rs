//! Values, errors and costs of the golden data.

use super::*;
use crate::cost::Outcome;
use crate::env::Env;
use crate::library::testing::{double, int, list, s};

#[track_caller]
fn check(function: &str, operands: &[Value<'static>], expected: Result<&str, &str>, cost: u64) {
    crate::library::testing::check(&lists(3), function, operands, expected, cost);
}

#[test]
fn distinct_elements() {
    check("distinct", &[list(vec![Value::Null, Value::Null])], Ok("[null]"), 19);
    check("distinct", &[list(vec![])], Ok("[]"), 11);
    check("distinct", &[list(vec![int(1), int(2), int(2), int(3), int(1)])], Ok("[1, 2, 3]"), 61);
    check("distinct", &[list(vec![list(vec![int(1)]), list(vec![int(1)]), list(vec![int(2)])])], Ok("[[1], [2]]"), 29);
}

#[test]
fn flat_lists() {
    check("flatten", &[list(vec![])], Ok("[]"), 11);
    check("flatten", &[list(vec![list(vec![]), list(vec![int(1)])])], Ok("[1]"), 13);
    check("flatten", &[list(vec![list(vec![int(1), int(2)]), list(vec![int(3)])])], Ok("[1, 2, 3]"), 13);
    check("flatten", &[list(vec![list(vec![int(1)])]), int(-1)], Err("level must be non-negative"), 12);
    check(
        "flatten",
        &[list(vec![list(vec![list(vec![int(1)])]), list(vec![list(vec![int(2)])])]), int(0)],
        Ok("[[[1]], [[2]]]"),
        11,
    );
    check(
        "flatten",
        &[list(vec![list(vec![list(vec![int(1)])]), list(vec![list(vec![int(2)])])]), int(1)],
        Ok("[[1], [2]]"),
        13,
    );
    check(
        "flatten",
        &[list(vec![list(vec![list(vec![int(1)])]), list(vec![list(vec![int(2)])])]), int(2)],
        Ok("[1, 2]"),
        15,
    );
    check(
        "flatten",
        &[list(vec![list(vec![list(vec![int(1)])]), list(vec![list(vec![int(2)])])])],
        Ok("[[1], [2]]"),
        13,
    );
}

#[test]
fn ranges() {
    check("lists.range", &[int(-1)], Err("lists.range: size must be non-negative, got -1"), 12);
    check("lists.range", &[int(5)], Ok("[0, 1, 2, 3, 4]"), 16);
}

#[test]
fn reversed() {
    check("reverse", &[list(vec![int(1), int(2), int(3)])], Ok("[3, 2, 1]"), 14);
}

#[test]
fn slices() {
    check("slice", &[list(vec![int(1), int(2), int(3), int(4)]), int(0), int(0)], Ok("[]"), 11);
    check(
        "slice",
        &[list(vec![int(1), int(2), int(3), int(4)]), int(0), int(5)],
        Err("cannot slice(0, 5), list is length 4"),
        12,
    );
    check("slice", &[list(vec![int(1), int(2), int(3), int(4)]), int(1), int(3)], Ok("[2, 3]"), 13);
    check(
        "slice",
        &[list(vec![int(1), int(2), int(3), int(4)]), int(3), int(1)],
        Err("cannot slice(3, 1), start index must be less than or equal to end index"),
        12,
    );
    check("slice", &[list(vec![int(1), int(2), int(3), int(4)]), int(4), int(4)], Ok("[]"), 11);
    check(
        "slice",
        &[list(vec![int(1), int(2), int(3), int(4)]), int(5), int(5)],
        Err("cannot slice(5, 5), list is length 4"),
        12,
    );
}

#[test]
fn sorted() {
    check("sort", &[list(vec![Value::Bool(true), Value::Bool(false)])], Ok("[false, true]"), 19);
    check("sort", &[list(vec![])], Ok("[]"), 11);
    check("sort", &[list(vec![s("B"), s("a"), s("C")])], Ok("['B', 'C', 'a']"), 29);
    check("sort", &[list(vec![s("a10"), s("a2"), s("a1")])], Ok("['a1', 'a10', 'a2']"), 29);
    check("sort", &[list(vec![s("b"), s("a")])], Ok("['a', 'b']"), 19);
}

#[test]
fn sorting_needs_one_type_that_has_an_order() {
    check("sort", &[list(vec![int(1), s("a")])], Err("list elements must have the same type"), 19);
    check("sort", &[list(vec![int(1), Value::Uint(1)])], Err("list elements must have the same type"), 19);
    check("sort", &[list(vec![Value::Null])], Err("list elements must be comparable"), 13);
    let nan = || double(f64::NAN);
    check("sort", &[list(vec![double(2.0), nan(), double(1.0)])], Ok("[2, NaN, 1]"), 29);
}

#[test]
fn keys_decide_the_order() {
    let words = || list(vec![s("ccc"), s("a"), s("bb")]);
    let lengths = || list(vec![int(3), int(1), int(2)]);
    check("@sortByAssociatedKeys", &[words(), lengths()], Ok("['a', 'bb', 'ccc']"), 29);
    let short = "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got 3 and 0 \
                 elements respectively";
    check("@sortByAssociatedKeys", &[words(), list(vec![])], Err(short), 11);
}

#[test]
fn ranges_have_a_limit() {
    let message = "lists.range: size 1000001 exceeds maximum allowed (1000000)";
    check("lists.range", &[int(1_000_001)], Err(message), 12);
}

#[test]
fn flatten_infers_types() {
    let call = |operands: &[Value<'static>]| flatten(operands).unwrap_err().message().to_owned();
    assert_eq!(call(&[int(1)]), "no such overload: int.flatten()");
    assert_eq!(call(&[int(1), int(1)]), "no such overload: int.flatten(int)");
}

#[test]
fn versions_bring_functions_and_prices() {
    let env = |version| Env::builder().library(&lists(version)).build().unwrap();
    assert!(env(0).function("flatten").is_none());
    assert!(env(1).function("sort").is_none());
    let outcome: Outcome<'_, '_> = Ok(&Value::Null);
    for (version, cost) in [(2, 1), (3, 19)] {
        let env = env(version);
        let sort = env.function("sort").unwrap();
        assert_eq!(sort.overloads.len(), 8);
        let actual = sort.overloads[0].price.actual(&[list(vec![int(2), int(1)])], outcome);
        assert_eq!(actual, cost);
    }
}
