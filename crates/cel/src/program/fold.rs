//! Comprehensions.

use std::ops::ControlFlow;

use super::machine::{Evaluated, LIST_COST, Machine, Tested, Undecided};
use super::node::{Attribute, Base, Collect, Fold, FoldCondition, FoldStep, Kind, Node, Quantifier, Way};
use super::trace::Tracer;
use crate::value::{EvalError, List, Value};

/// For how many elements a list has room at first.
const FIRST_ELEMENTS: usize = 4;

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
            let asking = if it.decisive { 3 } else { 2 };
            if is_decided {
                machine.charge_each(asking)?;
                return Ok(ControlFlow::Break(()));
            }
            machine.charge_each(asking.saturating_add(1))?;
            match machine.test(&it.predicate) {
                Ok(Tested::Is(truth)) => is_decided = truth == it.decisive,
                other => undecided.add(other)?,
            }
            Ok(ControlFlow::Continue(()))
        })?;
        self.charge(1)?;
        if is_decided { Ok(Tested::Is(it.decisive)) } else { undecided.or_else(!it.decisive) }
    }

    /// `map` and `filter`: costs what the comprehension costs that they stand for. A round that adds reads the accumulator,
    /// makes a list, and adds it; the result reads the accumulator once more.
    #[inline(never)]
    pub(super) fn eval_collect(&mut self, it: &'a Collect) -> Evaluated<'a> {
        let mut range = Value::Null;
        self.eval_into(&it.range, &mut range)?;
        if matches!(range, Value::Unknown(_)) {
            return Ok(range);
        }
        let mut elements = Vec::new();
        let mut failed = None;
        self.for_each_round(&range, (it.variable, it.second_variable), |machine| {
            if let Some(condition) = &it.condition {
                match machine.test(condition) {
                    Ok(Tested::Is(true)) => {}
                    Ok(Tested::Is(false)) => return Ok(ControlFlow::Continue(())),
                    other => {
                        failed = Some(undecided(other)?);
                        return Ok(ControlFlow::Continue(()));
                    }
                }
            }
            machine.charge(1)?;
            let element = or_error(machine.eval_collected(it))?;
            machine.charge(it.list_cost)?;
            machine.charge(1)?;
            match element {
                Value::Error(_) | Value::Unknown(_) => _ = failed.get_or_insert(element),
                element => {
                    if elements.is_empty() {
                        elements.reserve(FIRST_ELEMENTS);
                    }
                    elements.push(element);
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        self.charge(1)?;
        match failed {
            Some(Value::Error(error)) => Err(error),
            Some(unknown) => Ok(unknown),
            None if elements.is_empty() => Ok(Value::List(List::Borrowed(&[]))),
            None => Ok(Value::list(elements)),
        }
    }

    /// What a round adds.
    #[inline]
    fn eval_collected(&mut self, it: &'a Collect) -> Evaluated<'a> {
        let Some(element) = it.element() else { return self.eval(&it.list) };
        match &element.kind {
            // Someone wants to hear of the list, too. It costs what is charged for it afterwards.
            _ if T::ENABLED => self.eval_traced_element(it, element),
            // What `filter` adds is the variable itself, which nobody needs any more in this round.
            Kind::Attribute(attribute) if matches!(**attribute, Attribute { way: Way::Local, base: Base::Local(slot), .. } if slot == it.variable) =>
            {
                self.charge(1)?;
                match self.take_slot(it.variable) {
                    Some(Value::Error(error)) => Err(error),
                    Some(value) => Ok(value),
                    None => Ok(Value::Null),
                }
            }
            _ => self.eval(element),
        }
    }

    fn eval_traced_element(&mut self, it: &'a Collect, element: &'a Node) -> Evaluated<'a> {
        let result = self.eval(element);
        let single = result.clone().map(|value| match value {
            unknown @ Value::Unknown(_) => unknown,
            value => Value::list(vec![value]),
        });
        self.record_list(&it.list, it.list_cost, &single);
        result
    }

    /// Sets the variables for each element of a list or map and runs the round, until told to stop.
    #[inline]
    fn for_each_round(
        &mut self,
        range: &Value<'a>,
        (variable, second): (usize, Option<usize>),
        mut round: impl FnMut(&mut Self) -> Result<ControlFlow<()>, EvalError>,
    ) -> Result<(), EvalError> {
        let mut outcome = Ok(());
        let mut visit = |first: Value<'a>, other: Option<Value<'a>>| {
            self.set_slot(variable, first);
            if let (Some(second), Some(other)) = (second, other) {
                self.set_slot(second, other);
            }
            match round(self).and_then(|flow| self.count_round().map(|()| flow)) {
                Ok(flow) => flow,
                Err(error) => {
                    outcome = Err(error);
                    ControlFlow::Break(())
                }
            }
        };
        match range {
            Value::List(list) if second.is_none() => list.for_each(|element| visit(element, None)),
            Value::List(list) => {
                let mut index = 0_i64;
                list.for_each(|element| {
                    let flow = visit(Value::Int(index), Some(element));
                    index = index.saturating_add(1);
                    flow
                });
            }
            Value::Map(map) => map.for_each(|key, value| visit(key, Some(value))),
            other => return Err(not_iterable(other, second.is_some())),
        }
        outcome
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
                    let value = undecided(other)?;
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
                self.charge(LIST_COST)?;
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

/// What a condition that is no truth value makes of the accumulator.
#[cold]
fn undecided(condition: Result<Tested<'_>, EvalError>) -> Evaluated<'_> {
    match condition.map(Value::from) {
        Ok(unknown @ Value::Unknown(_)) => Ok(unknown),
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
