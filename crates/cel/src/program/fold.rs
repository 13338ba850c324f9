//! Comprehensions, other than `map` and `filter`.

use std::ops::ControlFlow;

use super::machine::{EvalResult, Machine, TestResult, UndecidedReasons};
use super::node::{Fold, FoldCondition, FoldStep, Kind, Node, Quantifier};
use super::partial::closed_range;
use super::trace::Tracer;
use crate::cost::LIST_CREATION;
use crate::value::{EvalError, List, UnknownValue, Value};

/// The body of a loop, run for each element after its variables are set.
pub(super) trait Round<M> {
    /// Runs one round; an error ends the loop.
    fn run(&mut self, machine: &mut M) -> Result<ControlFlow<()>, EvalError>;
}

impl<M, F: FnMut(&mut M) -> Result<ControlFlow<()>, EvalError>> Round<M> for F {
    #[inline(always)]
    fn run(&mut self, machine: &mut M) -> Result<ControlFlow<()>, EvalError> {
        self(machine)
    }
}

impl<'a, T: Tracer<'a>> Machine<'_, 'a, T> {
    #[inline(never)]
    pub(super) fn eval_fold(&mut self, fold: &'a Fold) -> EvalResult<'a> {
        let range = match closed_range(self.eval(&fold.range)?) {
            Value::Unknown(unknown) => return self.fold_unknown(fold, &unknown),
            range => range,
        };
        match &fold.init {
            Some(init) => self.set_slot(fold.accumulator, init.clone()),
            None => self.unset_slot(fold.accumulator),
        }
        let round = &mut |machine: &mut Self| machine.eval_round(fold);
        self.for_each_round(&range, (fold.variable, fold.second_variable), round)?;
        self.eval(&fold.result)
    }

    /// `all` and `exists`. The cost is that of the equivalent comprehension: each round tests the loop
    /// condition, which reads the accumulator, negates it for `exists`, and tests it; then it reads the
    /// accumulator again; the result reads it a last time.
    #[inline(never)]
    pub(super) fn test_quantifier(&mut self, quantifier: &'a Quantifier) -> Result<TestResult<'a>, EvalError> {
        match closed_range(self.eval(&quantifier.range)?) {
            Value::Unknown(unknown) => self.test_unknown_quantifier(quantifier, &unknown),
            range => self.quantify(quantifier, &range),
        }
    }

    /// Evaluates `all` or `exists` over a known range.
    #[inline(always)]
    pub(super) fn quantify(
        &mut self,
        quantifier: &'a Quantifier,
        range: &Value<'a>,
    ) -> Result<TestResult<'a>, EvalError> {
        let mut is_decided = false;
        let mut undecided = UndecidedReasons::default();
        let mut round = |machine: &mut Self| {
            let asking = if quantifier.decisive { 3 } else { 2 };
            if is_decided {
                machine.charge_each(asking)?;
                return Ok(ControlFlow::Break(()));
            }
            machine.charge_each(asking.saturating_add(1))?;
            match machine.test(&quantifier.predicate) {
                Ok(TestResult::Is(truth)) => is_decided = truth == quantifier.decisive,
                other => undecided.add(other, quantifier.decisive)?,
            }
            Ok(ControlFlow::Continue(()))
        };
        self.for_each_round(range, (quantifier.variable, quantifier.second_variable), &mut round)?;
        self.charge(1)?;
        if is_decided { undecided.decided(quantifier.decisive) } else { undecided.or_else(!quantifier.decisive) }
    }

    /// Sets the variables for each element of a list or map and runs the round, until the round requests a
    /// stop.
    #[inline]
    pub(super) fn for_each_round(
        &mut self,
        range: &Value<'a>,
        (variable, second): (usize, Option<usize>),
        round: &mut impl Round<Self>,
    ) -> Result<(), EvalError> {
        let mut outcome = Ok(());
        if let Some(recall) = self.tracer().recall() {
            recall.bind(variable, None);
            if let Some(second) = second {
                recall.bind(second, None);
            }
        }
        match (range, second) {
            (Value::List(List::Shaped(data, shape)), None) => {
                let mut index = 0_usize;
                while let Some(variable) = self.slot_mut(variable)
                    && shape.read(*data, index, variable)
                    && self.run_round(round, &mut outcome).is_continue()
                {
                    index = index.saturating_add(1);
                }
            }
            (Value::List(list), None) => list.for_each(|element| {
                self.set_slot(variable, element);
                self.run_round(round, &mut outcome)
            }),
            (Value::List(list), Some(second)) => {
                let mut index = 0_i64;
                list.for_each(|element| {
                    self.set_slot(variable, Value::Int(index));
                    self.set_slot(second, element);
                    index = index.saturating_add(1);
                    self.run_round(round, &mut outcome)
                });
            }
            (Value::Map(map), _) => map.for_each(|key, value| {
                self.set_slot(variable, key);
                if let Some(second) = second {
                    self.set_slot(second, value);
                }
                self.run_round(round, &mut outcome)
            }),
            (other, _) => return Err(not_iterable(other, second.is_some())),
        }
        outcome
    }

    #[inline(always)]
    fn run_round(&mut self, round: &mut impl Round<Self>, outcome: &mut Result<(), EvalError>) -> ControlFlow<()> {
        match round.run(self).and_then(|flow| self.count_round().map(|()| flow)) {
            Ok(flow) => flow,
            Err(error) => {
                *outcome = Err(error);
                ControlFlow::Break(())
            }
        }
    }

    fn eval_round(&mut self, fold: &'a Fold) -> Result<ControlFlow<()>, EvalError> {
        if let FoldCondition::While(condition) = &fold.condition {
            match self.test(condition) {
                Ok(TestResult::Is(false)) => return Ok(ControlFlow::Break(())),
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
                Ok(TestResult::Is(true)) => self.append(fold.accumulator, list)?,
                Ok(TestResult::Is(false)) => {}
                other => {
                    let value = match (undecided(other)?, self.take_slot(fold.accumulator)) {
                        (_, Some(error @ Value::Error(_))) => error,
                        (Value::Unknown(why), Some(Value::Unknown(earlier))) => {
                            Value::Unknown(earlier.blurred()).after(&why)
                        }
                        (why, _) => why,
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
                self.charge(LIST_CREATION)?;
                value
            }
            None => or_error(self.eval(list))?,
        };
        self.charge(1)?;
        let sum = match (self.take_slot(accumulator), more) {
            (Some(error @ Value::Error(_)), _) | (_, error @ Value::Error(_)) => error,
            (Some(Value::Unknown(elements)), Value::Unknown(more)) => Value::Unknown(elements.blurred()).after(&more),
            (Some(unknown @ Value::Unknown(_)), _) | (_, unknown @ Value::Unknown(_)) => unknown.blurred(),
            (Some(Value::List(elements)), value) if single.is_some() => Value::List(elements.push(value)),
            (Some(Value::List(elements)), Value::List(more)) => Value::List(Self::concat(elements, &more)),
            _ => Value::Error(EvalError::no_such_overload()),
        };
        self.set_slot(accumulator, sum);
        Ok(())
    }
}

/// An error that is not fatal is the accumulator's next value.
pub(super) fn or_error(result: EvalResult<'_>) -> EvalResult<'_> {
    match result {
        Err(error) if !error.is_fatal() => Ok(Value::Error(error)),
        other => other,
    }
}

/// Value of the accumulator after a condition that is not a boolean.
#[cold]
pub(super) fn undecided(condition: Result<TestResult<'_>, EvalError>) -> EvalResult<'_> {
    match condition.map(Value::from) {
        Ok(Value::Unknown(unknown)) => Ok(Value::Unknown(UnknownValue::anything()).after(&unknown)),
        Ok(_) => Ok(Value::Error(EvalError::no_such_overload())),
        Err(error) => or_error(Err(error)),
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
