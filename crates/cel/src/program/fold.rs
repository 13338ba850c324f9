//! Comprehensions.

use std::ops::ControlFlow;

use super::machine::{Evaluated, Machine};
use super::node::{Fold, FoldCondition, FoldStep, Kind, Node};
use super::trace::Tracer;
use crate::value::{EvalError, Value};

impl<'a, T: Tracer<'a>> Machine<'_, 'a, T> {
    #[inline(never)]
    pub(super) fn eval_fold(&mut self, fold: &'a Fold) -> Evaluated<'a> {
        let range = match self.eval(&fold.range)? {
            unknown @ Value::Unknown(_) => return Ok(unknown),
            range => range,
        };
        match &fold.init {
            Some(init) => self.set_slot(fold.accumulator, init.clone()),
            None => self.unset_slot(fold.accumulator),
        }
        match range {
            Value::List(list) => {
                for (index, element) in list.iter().enumerate() {
                    if self
                        .eval_round(fold, element, || Value::Int(i64::try_from(index).unwrap_or(i64::MAX)))?
                        .is_break()
                    {
                        break;
                    }
                }
            }
            Value::Map(map) => {
                let mut failed = None;
                map.for_each(|key, value| {
                    let (variable, other) =
                        if fold.second_variable.is_some() { (value, Some(key)) } else { (key, None) };
                    match self.eval_round(fold, variable, || other.unwrap_or(Value::Null)) {
                        Ok(flow) => flow,
                        Err(error) => {
                            failed = Some(error);
                            ControlFlow::Break(())
                        }
                    }
                });
                if let Some(error) = failed {
                    return Err(error);
                }
            }
            other if fold.second_variable.is_some() => {
                let range_type = other.go_type_name();
                return Err(EvalError::other(format!("unsupported comprehension range type: {range_type}")));
            }
            other => {
                return Err(EvalError::other(format!("got '{}', expected iterable type", other.go_type_name())));
            }
        }
        self.eval(&fold.result)
    }

    /// One round: `element` is the list's element, or the map's value where there are two variables, else its key.
    fn eval_round(
        &mut self,
        fold: &'a Fold,
        element: Value<'a>,
        position: impl FnOnce() -> Value<'a>,
    ) -> Result<ControlFlow<()>, EvalError> {
        match fold.second_variable {
            None => self.set_slot(fold.variable, element),
            Some(second) => {
                self.set_slot(fold.variable, position());
                self.set_slot(second, element);
            }
        }
        if self.is_over(fold)? {
            return Ok(ControlFlow::Break(()));
        }
        match &fold.step {
            FoldStep::Assign(step) => {
                let value = or_error(self.eval(step))?;
                self.set_slot(fold.accumulator, value);
            }
            FoldStep::Logic(decisive, predicate) => {
                self.charge(1)?;
                let accumulator = self.take_slot(fold.accumulator).unwrap_or(Value::Null);
                let value = self.combine(accumulator, *decisive, predicate)?;
                self.set_slot(fold.accumulator, value);
            }
            FoldStep::Append(list) => self.append(fold.accumulator, list)?,
            FoldStep::AppendIf(condition, list) => match self.eval(condition) {
                Ok(Value::Bool(true)) => self.append(fold.accumulator, list)?,
                Ok(Value::Bool(false)) => {}
                Ok(unknown @ Value::Unknown(_)) => self.set_slot(fold.accumulator, unknown),
                Ok(_) => self.set_slot(fold.accumulator, Value::Error(EvalError::no_such_overload())),
                Err(error) => {
                    let error = or_error(Err(error))?;
                    self.set_slot(fold.accumulator, error);
                }
            },
        }
        self.count_round()?;
        Ok(ControlFlow::Continue(()))
    }

    /// The loop's condition is false. It costs what its parts cost: reading the accumulator, negating it, asking.
    #[inline]
    fn is_over(&mut self, fold: &'a Fold) -> Result<bool, EvalError> {
        match &fold.condition {
            FoldCondition::Always => Ok(false),
            FoldCondition::Until(end) => {
                // Reading the accumulator, negating it, asking.
                self.charge(1)?;
                if *end {
                    self.charge(1)?;
                }
                self.charge(1)?;
                Ok(matches!(self.slot(fold.accumulator), Some(Value::Bool(truth)) if truth == end))
            }
            FoldCondition::While(condition) => match self.eval(condition) {
                Ok(Value::Bool(false)) => Ok(true),
                Err(fatal) if fatal.is_fatal() => Err(fatal),
                _ => Ok(false),
            },
        }
    }

    /// `accumulator || predicate`, or the same with `&&`, as [`Machine::eval_logic`] has it.
    #[inline]
    fn combine(&mut self, accumulator: Value<'a>, decisive: bool, predicate: &'a Node) -> Evaluated<'a> {
        if matches!(accumulator, Value::Bool(truth) if truth == decisive) {
            return Ok(accumulator);
        }
        match (accumulator, self.eval(predicate)) {
            (_, Ok(Value::Bool(truth))) if truth == decisive => Ok(Value::Bool(decisive)),
            (_, Err(fatal)) if fatal.is_fatal() => Err(fatal),
            (Value::Unknown(unknown), Ok(Value::Unknown(more))) => Ok(Value::Unknown(unknown.merge(&more))),
            (unknown @ Value::Unknown(_), _) | (_, Ok(unknown @ Value::Unknown(_))) => Ok(unknown),
            (error @ Value::Error(_), _) => Ok(error),
            (Value::Bool(_), Ok(truth @ Value::Bool(_))) => Ok(truth),
            (Value::Bool(_), Err(error)) => Ok(Value::Error(error)),
            _ => Ok(Value::Error(EvalError::no_such_overload())),
        }
    }

    /// `accumulator + list`, priced like the addition that it is: 1 for reading the accumulator, 1 for adding.
    fn append(&mut self, accumulator: usize, list: &'a Node) -> Result<(), EvalError> {
        self.charge(1)?;
        // The usual list has one element, which needs no list of its own.
        let single = match &list.kind {
            Kind::List(elements) => match &**elements {
                [element] if !element.optional && !T::ENABLED => Some(&element.value),
                _ => None,
            },
            _ => None,
        };
        let more = match single {
            Some(element) => {
                let value = or_error(self.eval(element))?;
                self.charge(10)?;
                value
            }
            None => or_error(self.eval(list))?,
        };
        self.charge(1)?;
        let sum = match (self.take_slot(accumulator), more) {
            (Some(failed @ (Value::Error(_) | Value::Unknown(_))), _) => failed,
            (_, failed @ (Value::Error(_) | Value::Unknown(_))) => failed,
            (Some(Value::List(elements)), value) if single.is_some() => Value::List(elements.push(value)),
            (Some(Value::List(elements)), Value::List(more)) => Value::List(Self::concat(elements, &more)),
            _ => Value::Error(EvalError::no_such_overload()),
        };
        self.set_slot(accumulator, sum);
        Ok(())
    }
}

/// An error that is not fatal is the accumulator's next value.
fn or_error(result: Evaluated<'_>) -> Evaluated<'_> {
    match result {
        Err(error) if !error.is_fatal() => Ok(Value::Error(error)),
        other => other,
    }
}
