//! `map` and `filter`, and where their elements go.
//!
//! The cost is that of the equivalent comprehension, wherever the elements are written: a round that adds an
//! element reads the accumulator, creates a list and concatenates it; the result reads the accumulator once
//! more.

use std::mem;
use std::ops::ControlFlow;

use super::fold::{Round, or_error, undecided};
use super::machine::{EvalResult, Machine, Slot, TestResult};
use super::node::{CollectNode, Kind, Node};
use super::partial::{closed_range, note_failure};
use super::sink::ListSink;
use super::trace::Tracer;
use crate::value::{EvalError, List, UnknownValue, Value};

/// Initial capacity of a list.
const FIRST_ELEMENTS: usize = 4;

/// Receiver of the collected elements.
pub(super) trait Collector<'a> {
    /// The next element.
    fn add(&mut self, element: Value<'a>);

    /// Adds the next element, from a slot that is not read again.
    fn add_from(&mut self, slot: &mut Value<'a>) {
        self.add(mem::replace(slot, Value::Null));
    }

    /// The sink that receives the elements of an element that is itself a list, one by one.
    fn sink(&mut self) -> Option<&mut dyn ListSink>;
}

/// The reason for the absence of a list: an error, or an unknown value.
type CollectFailure<'a> = Option<Box<Value<'a>>>;

/// Collects the elements into a list.
struct Elements<'a>(Vec<Value<'a>>);

impl<'a> Collector<'a> for Elements<'a> {
    #[inline(always)]
    fn add(&mut self, element: Value<'a>) {
        if self.0.capacity() == 0 {
            self.0.reserve(FIRST_ELEMENTS);
        }
        self.0.push(element);
    }

    #[inline(always)]
    fn sink(&mut self) -> Option<&mut dyn ListSink> {
        None
    }
}

/// One of them is wanted.
struct PickedElement<'a> {
    /// Number of elements before this list.
    before: usize,
    found: Option<Value<'a>>,
}

impl<'a> Collector<'a> for PickedElement<'a> {
    #[inline(always)]
    fn add(&mut self, element: Value<'a>) {
        match self.before.checked_sub(1) {
            Some(before) => self.before = before,
            None if self.found.is_none() => self.found = Some(element),
            None => {}
        }
    }

    #[inline(always)]
    fn sink(&mut self) -> Option<&mut dyn ListSink> {
        None
    }
}

/// Passes the elements to a sink.
struct ListForwarder<'s>(&'s mut dyn ListSink);

impl<'a> Collector<'a> for ListForwarder<'_> {
    #[inline(always)]
    fn add(&mut self, element: Value<'a>) {
        self.0.element(&element);
    }

    #[inline(always)]
    fn add_from(&mut self, slot: &mut Value<'a>) {
        self.0.element(slot);
    }

    #[inline(always)]
    fn sink(&mut self) -> Option<&mut dyn ListSink> {
        Some(self.0)
    }
}

struct CollectRound<'r, 'a, G> {
    it: &'a CollectNode,
    gather: &'r mut G,
    failed: CollectFailure<'a>,
}

impl<'m, 'a, T: Tracer<'a>, G: Collector<'a>> Round<Machine<'m, 'a, T>> for CollectRound<'_, 'a, G> {
    #[inline(always)]
    fn run(&mut self, machine: &mut Machine<'m, 'a, T>) -> Result<ControlFlow<()>, EvalError> {
        if let Some(condition) = &self.it.condition {
            match machine.test(condition) {
                Ok(TestResult::Is(true)) => {}
                Ok(TestResult::Is(false)) => return Ok(ControlFlow::Continue(())),
                other => {
                    note_failure(&mut self.failed, undecided(other)?);
                    return Ok(ControlFlow::Continue(()));
                }
            }
        }
        machine.add_element(self.it, self.gather, &mut self.failed)?;
        Ok(ControlFlow::Continue(()))
    }
}

impl<'a, T: Tracer<'a>> Machine<'_, 'a, T> {
    /// The list.
    #[inline(never)]
    pub(super) fn eval_collect(&mut self, collect: &'a CollectNode) -> EvalResult<'a> {
        let mut elements = Elements(Vec::new());
        Ok(match self.collect(collect, &mut elements)? {
            Some(unknown) => *unknown,
            None if elements.0.is_empty() => Value::List(List::Borrowed(&[])),
            None => Value::list(elements.0),
        })
    }

    /// One element of the list, if it is that long. An unknown as `Err(Ok(_))`.
    #[inline(never)]
    pub(super) fn pick(
        &mut self,
        collect: &'a CollectNode,
        index: usize,
    ) -> Result<Option<Value<'a>>, Result<Value<'a>, EvalError>> {
        let mut picked = PickedElement { before: index, found: None };
        match self.collect(collect, &mut picked) {
            Ok(None) => Ok(picked.found),
            Ok(Some(unknown)) => Err(Ok(*unknown)),
            Err(error) => Err(Err(error)),
        }
    }

    /// Passes the list to a sink. An unknown result is returned as a value instead.
    #[inline(never)]
    pub(super) fn list(
        &mut self,
        collect: &'a CollectNode,
        sink: &mut dyn ListSink,
    ) -> Result<CollectFailure<'a>, EvalError> {
        sink.begin();
        let unknown = self.collect(collect, &mut ListForwarder(sink))?;
        sink.end();
        Ok(unknown)
    }

    /// Runs the rounds. An unknown result is returned as a value instead of a list.
    #[inline(always)]
    fn collect<G: Collector<'a>>(
        &mut self,
        collect: &'a CollectNode,
        gather: &mut G,
    ) -> Result<CollectFailure<'a>, EvalError> {
        let mut range = Value::Null;
        self.eval_into(&collect.range, &mut range)?;
        match closed_range(range) {
            Value::Unknown(unknown) => {
                // A sink takes no list that comes as a value.
                let collected = match gather.sink() {
                    None => self.collect_unknown(collect, &unknown)?,
                    Some(_) => Value::Unknown(UnknownValue::anything()).after(&unknown),
                };
                Ok(Some(Box::new(collected)))
            }
            range => self.collect_over(collect, &range, gather),
        }
    }

    /// The list that comes from a range that is known.
    pub(super) fn collect_from(&mut self, collect: &'a CollectNode, range: &Value<'a>) -> EvalResult<'a> {
        let mut elements = Elements(Vec::new());
        Ok(match self.collect_over(collect, range, &mut elements)? {
            Some(unknown) => *unknown,
            None => Value::list(elements.0),
        })
    }

    #[inline(always)]
    fn collect_over<G: Collector<'a>>(
        &mut self,
        it: &'a CollectNode,
        range: &Value<'a>,
        gather: &mut G,
    ) -> Result<CollectFailure<'a>, EvalError> {
        let mut round = CollectRound { it, gather, failed: None };
        self.for_each_round(range, (it.variable, it.second_variable), &mut round)?;
        let failed = round.failed;
        self.charge(1)?;
        match failed {
            None => Ok(None),
            Some(failed) => match *failed {
                Value::Error(error) => Err(error),
                unknown => Ok(Some(Box::new(unknown))),
            },
        }
    }

    /// Adds the element of a round, and charges for it.
    #[inline(always)]
    fn add_element<G: Collector<'a>>(
        &mut self,
        collect: &'a CollectNode,
        gather: &mut G,
        failed: &mut CollectFailure<'a>,
    ) -> Result<(), EvalError> {
        // The element that `filter` adds is the variable itself, which is not read again in this round.
        if collect.adds_variable && !T::ENABLED && self.try_charge(collect.list_cost.saturating_add(3)) {
            match self.slots.get_mut(collect.variable) {
                Some(Slot::Set(value @ (Value::Error(_) | Value::Unknown(_)))) => note_failure(failed, value.clone()),
                Some(Slot::Set(value)) => gather.add_from(value),
                _ => gather.add(Value::Null),
            }
            return Ok(());
        }
        self.charge(1)?;
        if let (Some(Node { kind: Kind::Collect(inner), .. }), Some(sink), false) =
            (collect.element(), gather.sink(), T::ENABLED)
        {
            match self.list(inner, sink) {
                Ok(None) => {}
                Ok(Some(unknown)) => note_failure(failed, *unknown),
                Err(error) => note_failure(failed, or_error(Err(error))?),
            }
            return self.charge_both(collect.list_cost, 1);
        }
        let element = or_error(self.eval_element_of(collect))?;
        self.charge_both(collect.list_cost, 1)?;
        match element {
            Value::Error(_) | Value::Unknown(_) => note_failure(failed, element),
            element => gather.add(element),
        }
        Ok(())
    }

    /// Charges twice.
    #[inline(always)]
    fn charge_both(&mut self, first: u64, second: u64) -> Result<(), EvalError> {
        if self.try_charge(first.saturating_add(second)) {
            return Ok(());
        }
        self.charge(first)?;
        self.charge(second)
    }

    #[inline]
    fn eval_element_of(&mut self, collect: &'a CollectNode) -> EvalResult<'a> {
        match collect.element() {
            None => self.eval(&collect.list),
            // The tracer also records the list. Its cost is charged afterwards.
            Some(element) if T::ENABLED => self.eval_traced_element(collect, element),
            Some(element) => {
                let mut value = Value::Null;
                self.eval_into(element, &mut value)?;
                Ok(value)
            }
        }
    }

    fn eval_traced_element(&mut self, collect: &'a CollectNode, element: &'a Node) -> EvalResult<'a> {
        let result = self.eval(element);
        let single = result.clone().map(|value| match value {
            unknown @ Value::Unknown(_) => unknown,
            value => Value::list(vec![value]),
        });
        self.record_list(&collect.list, collect.list_cost, &single);
        result
    }
}
