//! Comprehensions.

use std::ops::ControlFlow;

use super::machine::{Evaluated, Machine, Tested, Undecided};
use super::node::{Fold, FoldCondition, FoldStep, Kind, Node, Quantifier};
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
        self.for_each_round(&range, (fold.variable, fold.second_variable), |machine| machine.eval_round(fold))?;
        self.eval(&fold.result)
    }

    /// `all` and `exists`: costs what the comprehension costs that they stand for. Each round asks whether to go on, which reads the
    /// accumulator, negates it for `exists`, and tests it; then reads it again; the result reads it a last time.
    #[inline(never)]
    pub(super) fn test_quantifier(&mut self, it: &'a Quantifier) -> Result<Tested<'a>, EvalError> {
        let range = match self.eval(&it.range)? {
            unknown @ Value::Unknown(_) => return Ok(unknown.into()),
            range => range,
        };
        let mut is_decided = false;
        let mut undecided = Undecided::default();
        self.for_each_round(&range, (it.variable, it.second_variable), |machine| {
            machine.charge(1)?;
            if it.decisive {
                machine.charge(1)?;
            }
            machine.charge(1)?;
            if is_decided {
                return Ok(ControlFlow::Break(()));
            }
            machine.charge(1)?;
            match machine.test(&it.predicate) {
                Ok(Tested::Is(truth)) => is_decided = truth == it.decisive,
                other => undecided.add(other)?,
            }
            Ok(ControlFlow::Continue(()))
        })?;
        self.charge(1)?;
        if is_decided { Ok(Tested::Is(it.decisive)) } else { undecided.or_else(!it.decisive) }
    }

    /// Sets the variables for each element of a list or map and runs the round, until told to stop.
    #[inline]
    fn for_each_round(
        &mut self,
        range: &Value<'a>,
        (variable, second): (usize, Option<usize>),
        mut round: impl FnMut(&mut Self) -> Result<ControlFlow<()>, EvalError>,
    ) -> Result<(), EvalError> {
        match range {
            Value::List(list) => {
                for (index, element) in list.iter().enumerate() {
                    match second {
                        None => self.set_slot(variable, element),
                        Some(second) => {
                            self.set_slot(variable, Value::Int(i64::try_from(index).unwrap_or(i64::MAX)));
                            self.set_slot(second, element);
                        }
                    }
                    if round(self)?.is_break() {
                        break;
                    }
                    self.count_round()?;
                }
                Ok(())
            }
            Value::Map(map) => {
                let mut outcome = Ok(());
                map.for_each(|key, value| {
                    self.set_slot(variable, key);
                    if let Some(second) = second {
                        self.set_slot(second, value);
                    }
                    match round(self).and_then(|flow| self.count_round().map(|()| flow)) {
                        Ok(flow) => flow,
                        Err(error) => {
                            outcome = Err(error);
                            ControlFlow::Break(())
                        }
                    }
                });
                outcome
            }
            other => Err(not_iterable(other, second.is_some())),
        }
    }

    fn eval_round(&mut self, fold: &'a Fold) -> Result<ControlFlow<()>, EvalError> {
        if let FoldCondition::While(condition) = &fold.condition {
            match self.test(condition) {
                Ok(Tested::Is(false)) => return Ok(ControlFlow::Break(())),
                Err(fatal) if fatal.is_fatal() => return Err(fatal),
                _ => {}
            }
        }
        match &fold.step {
            FoldStep::Assign(step) => {
                let value = or_error(self.eval(step))?;
                self.set_slot(fold.accumulator, value);
            }
            FoldStep::Append(list) => self.append(fold.accumulator, list)?,
            FoldStep::AppendIf(condition, list) => match self.test(condition) {
                Ok(Tested::Is(true)) => self.append(fold.accumulator, list)?,
                Ok(Tested::Is(false)) => {}
                other => {
                    let value = match other.map(Value::from) {
                        Ok(unknown @ Value::Unknown(_)) => unknown,
                        Ok(_) => Value::Error(EvalError::no_such_overload()),
                        Err(error) => or_error(Err(error))?,
                    };
                    self.set_slot(fold.accumulator, value);
                }
            },
        }
        Ok(ControlFlow::Continue(()))
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

#[cold]
fn not_iterable(range: &Value<'_>, two_variables: bool) -> EvalError {
    let range_type = range.go_type_name();
    EvalError::other(if two_variables {
        format!("unsupported comprehension range type: {range_type}")
    } else {
        format!("got '{range_type}', expected iterable type")
    })
}
