//! Calls and comparisons with operands that are not known.

use super::super::call;
use super::super::machine::{EvalResult, Machine, TestResult};
use super::super::node::CallNode;
use super::super::trace::Tracer;
use crate::cost::Price;
use crate::value::unknown::Union;
use crate::value::{ErrorKind, EvalError, FailureChance, Shape, UnknownValue, Value};

/// Maximum number of combinations of operand values that are tried one by one.
const COMBINATIONS_MAX: usize = 256;

/// Maximum number of integers that are tried one by one.
const INTEGERS_MAX: i64 = 16;

/// The possible values of an operand, if they are few.
fn options<'o, 'a>(operand: &'o Value<'a>) -> &'o [Value<'a>] {
    match operand {
        Value::Unknown(unknown) => match unknown.shape() {
            Some(Shape::OneOf(values)) => values,
            _ => std::slice::from_ref(operand),
        },
        _ => std::slice::from_ref(operand),
    }
}

/// All that depends on operands that are not known: fails where they do.
fn after<'a>(mut value: Value<'a>, operands: &[Value<'a>]) -> Value<'a> {
    for operand in operands {
        if let Value::Unknown(unknown) = operand {
            value = value.after(unknown);
        }
    }
    value
}

/// Runs a function on each combination of possible operand values, if these are few, and else on the operands
/// as they are.
fn combine<'a>(
    operands: &[Value<'a>],
    run: &mut dyn FnMut(&[Value<'a>]) -> EvalResult<'a>,
) -> Result<Value<'a>, EvalError> {
    let count = operands.iter().fold(1_usize, |count, operand| count.saturating_mul(options(operand).len()));
    let mut union = Union::new();
    let mut add = |operands: &[Value<'a>]| match run(operands) {
        Ok(value) => {
            union.add(value);
            Ok(())
        }
        Err(fatal) if fatal.is_fatal() => Err(fatal),
        Err(_) => {
            union.fail(FailureChance::Perhaps);
            Ok(())
        }
    };
    if count > COMBINATIONS_MAX {
        add(operands)?;
    } else {
        for number in 0..count {
            let mut rest = number;
            let combination: Vec<Value<'a>> = operands
                .iter()
                .map(|operand| {
                    let options = options(operand);
                    let at = rest.checked_rem(options.len()).unwrap_or_default();
                    rest = rest.checked_div(options.len()).unwrap_or_default();
                    options.get(at).cloned().unwrap_or(Value::Null)
                })
                .collect();
            add(&combination)?;
        }
    }
    Ok(after(union.finish(), operands))
}

/// The operands with each small range of integers written out.
fn with_integers<'a>(operands: &[Value<'a>]) -> Option<Vec<Value<'a>>> {
    let mut changed = false;
    let written = operands.iter().map(|operand| match operand {
        Value::Unknown(unknown) => match unknown.shape() {
            Some(Shape::Between(Value::Int(first), Value::Int(last)))
                if last.checked_sub(*first).is_some_and(|span| span < INTEGERS_MAX) =>
            {
                changed = true;
                let integers = (*first..=*last).map(Value::Int).collect();
                Value::Unknown(UnknownValue::new(unknown.failing(), Shape::OneOf(integers)))
            }
            _ => operand.clone(),
        },
        _ => operand.clone(),
    });
    let written = written.collect();
    changed.then_some(written)
}

fn is_unknown(operand: &Value<'_>) -> bool {
    matches!(operand, Value::Unknown(_))
}

impl<'a, T: Tracer<'a>> Machine<'_, 'a, T> {
    /// A call with operands that are not known, none of which has failed for certain.
    #[cold]
    pub(in super::super) fn call_unknown(&mut self, call: &'a CallNode, operands: &[Value<'a>]) -> EvalResult<'a> {
        let value = self.call_combinations(call, operands, true)?;
        Ok(match call.price {
            // Where that operand fails, the meter fails, too.
            Price::OfList { operand, .. } => match operands.get(operand) {
                Some(Value::Unknown(unknown)) if unknown.failing() != FailureChance::Never => {
                    value.after(&UnknownValue::nothing().failing_at_least(FailureChance::Fatally))
                }
                _ => value,
            },
            _ => value,
        })
    }

    fn call_combinations(&mut self, call: &'a CallNode, operands: &[Value<'a>], may_write_out: bool) -> EvalResult<'a> {
        combine(operands, &mut |operands| {
            self.charge(1)?;
            self.count_round()?;
            if operands.iter().any(is_unknown) {
                if let Some(answer) = call.partial.and_then(|partial| partial(operands)) {
                    return Ok(answer);
                }
                return match with_integers(operands) {
                    Some(operands) if may_write_out => self.call_combinations(call, &operands, false),
                    _ => Ok(Value::Unknown(UnknownValue::anything())),
                };
            }
            let result = call::run(&call.code, &call.name, operands);
            if let Err(error) = &result
                && call.price.fails_on(operands)
            {
                return Err(call::aborted(error));
            }
            match result {
                Ok(value) => {
                    self.count_result(&value)?;
                    Ok(value)
                }
                Err(error) => call::undetermined_is_unknown(error),
            }
        })
    }

    /// `==`, or `!=` where it is negated, of operands of which one is not known.
    #[cold]
    pub(in super::super) fn test_unknown_equality(
        &mut self,
        left: &Value<'a>,
        right: &Value<'a>,
        negated: bool,
    ) -> Result<TestResult<'a>, EvalError> {
        let value = combine(&[left.clone(), right.clone()], &mut |operands| {
            let [left, right] = operands else { return Ok(Value::Unknown(UnknownValue::anything())) };
            if operands.iter().any(is_unknown) {
                let found = left.can_equal(right);
                return Ok(Value::of_verdict(if negated { found.negated() } else { found }));
            }
            match left.equals_in_evaluation(right) {
                Ok(equal) => Ok(Value::Bool(equal != negated)),
                Err(error) if error.kind() == ErrorKind::Undetermined => call::undetermined_is_unknown(error),
                Err(fatal) if fatal.is_fatal() => Err(fatal),
                Err(_) if negated => Ok(Value::Bool(true)),
                Err(error) => Err(error),
            }
        })?;
        Ok(value.into())
    }
}
