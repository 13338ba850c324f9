//! The texts that users of the API see, and the limits.

use super::{CompileError, ResultRule};
use crate::environments::toleration::{self, Taint};
use crate::environments::{Dialect, node_affinity};
use cel::program::Verdict;
use cel::value::ErrorKind;

#[track_caller]
fn error(expression: &str) -> String {
    toleration::environment(Dialect::CELPLANE).unwrap().compile(expression).unwrap_err().to_string()
}

#[test]
fn type_error_is_shown_with_a_caret() {
    assert_eq!(
        error("taint.creationTimestamp == ''"),
        "compilation failed: ERROR: <input>:1:6: undefined field 'creationTimestamp'\n | taint.creationTimestamp == ''\n | .....^"
    );
}

#[test]
fn wrong_result_type_is_rejected() {
    assert_eq!(error("size(taint.key)"), "must evaluate to bool or the unknown type, not int");
    assert_eq!(error("dyn(true)"), "must evaluate to bool or the unknown type, not dyn");
}

#[test]
fn long_expression_is_rejected_before_parsing() {
    let long = format!("taint.key == '{}'", "x".repeat(10 * 1024));
    assert_eq!(error(&long), "may not be more than 10240 bytes");
}

#[test]
fn expensive_expression_is_rejected() {
    let environment = node_affinity::environment(Dialect::CELPLANE).unwrap();
    let nested = "node.labels.all(a, node.labels.all(b, node.labels.all(c, a + b + c != '')))";
    match environment.compile(nested) {
        Err(error @ CompileError::TooExpensive { limit: 1_000_000, .. }) => {
            assert_eq!(error.to_string(), "too complex, exceeds cost limit");
        }
        other => panic!("{other:?}"),
    }
    assert!(environment.without_estimate_limit().compile(nested).is_ok());
}

#[test]
fn a_constant_that_fails_is_no_program() {
    assert_eq!(
        error("int('x') == 1 || true"),
        "program instantiation failed: type conversion error from 'string' to 'int'"
    );
}

#[test]
fn evaluation_stops_at_the_limit() {
    let mut environment = toleration::environment(Dialect::CELPLANE).unwrap();
    environment.limits.runtime_cost = 2;
    let compiled = environment.compile("taint.key == 'a' && taint.value == 'b'").unwrap();
    let taint = Taint { key: "a", value: "b", effect: "NoSchedule", time_added: None };
    let evaluation = compiled.eval(&taint);
    assert_eq!(evaluation.verdict(), Verdict::ANY);
    assert_eq!(evaluation.result.unwrap_err().kind(), ErrorKind::CostLimit);
}

#[test]
fn rules_must_be_truth_values_and_messages_text() {
    let mut environment = toleration::environment(Dialect::CELPLANE).unwrap();
    environment.result = ResultRule::Bool;
    let error = environment.compile("1").unwrap_err();
    assert_eq!(error.to_string(), "cel expression must evaluate to a bool");
    environment.result = ResultRule::String;
    let error = environment.compile("1").unwrap_err();
    assert_eq!(error.to_string(), "messageExpression must evaluate to a string");
}
