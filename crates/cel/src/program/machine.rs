//! The evaluator: walks the plan, counts the cost, stops at limits.
//!
//! Costs are added exactly where cel-go's cost tracker adds them, so that also a failed or cut-off evaluation costs the same.

use std::mem;

use super::node::{ComputedValue, Element, Entry, Kind, Member, Node, StructNode};
use super::trace::Tracer;
use super::{Activation, Evaluation, Limits, Program, Verdict, partial};
use crate::cost::{LIST_CREATION, MAP_CREATION, STRUCT_CREATION};
use crate::value::bounds::{RESULT_BYTES_MAX, read_bytes, result_bytes, too_large};
use crate::value::equality::start_evaluation;
use crate::value::{ErrorKind, EvalError, Key, List, Map, UnknownValue, Value};

/// A local variable of the running program.
pub(super) enum Slot<'a> {
    /// Not computed yet.
    Unset,
    /// Its value; a failed accumulator holds its error.
    Set(Value<'a>),
}

pub(super) struct Machine<'m, 'a, T> {
    pub(super) program: &'a Program,
    pub(super) input: &'a dyn Activation,
    limits: Limits<'m>,
    cost: u64,
    rounds: u32,
    /// Bytes that calls have produced so far, or read at a fixed price.
    result_bytes: u64,
    pub(super) slots: &'m mut [Slot<'a>],
    tracer: T,
}

pub(super) type EvalResult<'a> = Result<Value<'a>, EvalError>;

/// Result of a predicate: small, so that logical operators pass it in registers.
pub(super) enum TestResult<'a> {
    Is(bool),
    /// An unknown value, or a value that is not a boolean.
    Other(Box<Value<'a>>),
}

impl<'a> From<Value<'a>> for TestResult<'a> {
    #[inline]
    fn from(value: Value<'a>) -> Self {
        match value {
            Value::Bool(truth) => TestResult::Is(truth),
            other => TestResult::Other(Box::new(other)),
        }
    }
}

impl<'a> From<TestResult<'a>> for Value<'a> {
    #[inline]
    fn from(tested: TestResult<'a>) -> Self {
        match tested {
            TestResult::Is(truth) => Value::Bool(truth),
            TestResult::Other(value) => *value,
        }
    }
}

/// Writes a value where there is none yet: `out` holds [`Value::Null`], which needs no dropping.
#[inline(always)]
pub(super) fn put<'a>(out: &mut Value<'a>, value: Value<'a>) {
    mem::forget(mem::replace(out, value));
}

/// Number of loop rounds between two checks of the interrupt.
const ROUNDS_PER_INTERRUPT_CHECK: u32 = 64;

impl<'m, 'a, T: Tracer<'a>> Machine<'m, 'a, T> {
    pub(super) fn new(
        program: &'a Program,
        input: &'a dyn Activation,
        limits: Limits<'m>,
        slots: &'m mut [Slot<'a>],
        tracer: T,
    ) -> Self {
        start_evaluation();
        Machine { program, input, limits, cost: 0, rounds: 0, result_bytes: 0, slots, tracer }
    }

    pub(super) fn cost(&self) -> u64 {
        self.cost
    }

    /// The tracer of this evaluation.
    #[inline(always)]
    pub(super) fn tracer(&mut self) -> &mut T {
        &mut self.tracer
    }

    pub(super) fn into_tracer(self) -> T {
        self.tracer
    }

    /// Adds to the cost; fails when that exceeds the limit.
    #[inline]
    pub(super) fn charge(&mut self, cost: u64) -> Result<(), EvalError> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limits.cost { Err(cost_limit_exceeded()) } else { Ok(()) }
    }

    /// Adds to the cost, unless that exceeds the limit; returns whether it was added.
    #[inline(always)]
    pub(super) fn try_charge(&mut self, cost: u64) -> bool {
        let sum = self.cost.saturating_add(cost);
        let is_within = sum <= self.limits.cost;
        if is_within {
            self.cost = sum;
        }
        is_within
    }

    /// Adds this many times 1 to the cost: fails as soon as that exceeds the limit.
    #[inline(always)]
    pub(super) fn charge_each(&mut self, cost: u64) -> Result<(), EvalError> {
        if self.try_charge(cost) {
            return Ok(());
        }
        self.cost = self.limits.cost.saturating_add(1);
        Err(cost_limit_exceeded())
    }

    /// Takes back a cost that the reference takes back.
    pub(super) fn refund(&mut self, cost: u64) {
        self.cost = self.cost.saturating_sub(cost);
    }

    /// Adds the size of a call's result to the total; fails if that exceeds the limit.
    #[inline(always)]
    pub(super) fn count_result(&mut self, value: &Value<'a>) -> Result<(), EvalError> {
        match value {
            Value::String(_) | Value::Bytes(_) | Value::List(_) => self.count_large_result(value),
            _ => Ok(()),
        }
    }

    #[inline(never)]
    fn count_large_result(&mut self, value: &Value<'a>) -> Result<(), EvalError> {
        self.result_bytes = self.result_bytes.saturating_add(result_bytes(value));
        if self.result_bytes > RESULT_BYTES_MAX { Err(too_large()) } else { Ok(()) }
    }

    /// Adds the texts that a call at a fixed price reads to the total; fails if that exceeds the limit.
    #[inline(always)]
    pub(super) fn count_reading(&mut self, operands: &[Value<'a>]) -> Result<(), EvalError> {
        let bytes = read_bytes(operands);
        if bytes == 0 {
            return Ok(());
        }
        self.result_bytes = self.result_bytes.saturating_add(bytes);
        if self.result_bytes > RESULT_BYTES_MAX { Err(too_large()) } else { Ok(()) }
    }

    /// Counts a round of a loop; fails when the evaluation was interrupted.
    pub(super) fn count_round(&mut self) -> Result<(), EvalError> {
        self.rounds = self.rounds.wrapping_add(1);
        if let Some(interrupt) = self.limits.interrupt
            && self.rounds.is_multiple_of(ROUNDS_PER_INTERRUPT_CHECK)
            && interrupt()
        {
            return Err(EvalError::new(ErrorKind::Interrupted, "operation interrupted"));
        }
        Ok(())
    }

    pub(super) fn slot(&self, index: usize) -> Option<&Value<'a>> {
        match self.slots.get(index) {
            Some(Slot::Set(value)) => Some(value),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn set_slot(&mut self, index: usize, value: Value<'a>) {
        if let Some(slot) = self.slots.get_mut(index) {
            *slot = Slot::Set(value);
        }
    }

    /// Place for the value of a variable.
    #[inline(always)]
    pub(super) fn slot_mut(&mut self, index: usize) -> Option<&mut Value<'a>> {
        let slot = self.slots.get_mut(index)?;
        if matches!(slot, Slot::Unset) {
            *slot = Slot::Set(Value::Null);
        }
        match slot {
            Slot::Set(value) => Some(value),
            Slot::Unset => None,
        }
    }

    pub(super) fn take_slot(&mut self, index: usize) -> Option<Value<'a>> {
        match self.slots.get_mut(index).map(|slot| mem::replace(slot, Slot::Unset)) {
            Some(Slot::Set(value)) => Some(value),
            _ => None,
        }
    }

    pub(super) fn unset_slot(&mut self, index: usize) {
        if let Some(slot) = self.slots.get_mut(index) {
            *slot = Slot::Unset;
        }
    }

    /// The value of a node. A value that cannot be had is an error here, never [`Value::Error`].
    pub(super) fn eval(&mut self, node: &'a Node) -> EvalResult<'a> {
        let result = match &node.kind {
            Kind::Constant(value) => Ok(value.borrowed()),
            Kind::Attribute(attribute) => self.eval_attribute(attribute),
            Kind::Call(call) => self.eval_call(call),
            Kind::Equality(it) => self.test_equality(it).map(Value::from),
            Kind::And(terms) => self.test_logic(terms, false).map(Value::from),
            Kind::Or(terms) => self.test_logic(terms, true).map(Value::from),
            Kind::NotStrictlyFalse(operand) => self.eval_not_strictly_false(operand),
            Kind::Member(member) => self.eval_member(member),
            Kind::Computed(computed) => self.eval_computed(computed),
            Kind::Quantifier(it) => self.test_quantifier(it).map(Value::from),
            Kind::Collect(it) => self.eval_collect(it),
            Kind::Fold(fold) => self.eval_fold(fold),
            Kind::List(elements) => self.eval_list(elements),
            Kind::Map(entries) => self.eval_map(entries),
            Kind::Struct(it) => self.eval_struct(it),
            Kind::OptionalOr(operands) => self.eval_optional_or(operands, false),
            Kind::OptionalOrValue(operands) => self.eval_optional_or(operands, true),
        };
        if T::ENABLED {
            self.tracer.record(node.id, self.cost, &result);
        }
        result
    }

    /// Reports a list that was not made as one.
    pub(super) fn record_list(&mut self, node: &Node, cost: u64, result: &EvalResult<'a>) {
        self.tracer.record(node.id, self.cost.saturating_add(cost), result);
    }

    /// The value of the whole expression, and its cost. Most expressions are predicates.
    #[inline(always)]
    pub(super) fn evaluate(&mut self, node: &'a Node) -> Evaluation<'a> {
        if let (Kind::Attribute(attribute), false) = (&node.kind, T::ENABLED) {
            // The value is written to where it stays.
            let mut evaluation = Evaluation { result: Ok(Value::Null), cost: 0 };
            let outcome = match &mut evaluation.result {
                Ok(out) => self.eval_attribute_into(attribute, out),
                Err(_) => Ok(()),
            };
            if let Err(error) = outcome {
                evaluation.result = Err(error);
            }
            evaluation.cost = self.cost;
            return evaluation;
        }
        let result = self.eval_root(node);
        Evaluation { result, cost: self.cost }
    }

    #[inline(always)]
    fn eval_root(&mut self, node: &'a Node) -> EvalResult<'a> {
        match &node.kind {
            Kind::Call(call) if call.question.is_some() && !T::ENABLED => self.test_call(call),
            Kind::Equality(it) if !T::ENABLED => self.test_equality(it),
            Kind::And(terms) if !T::ENABLED => self.test_logic(terms, false),
            Kind::Or(terms) if !T::ENABLED => self.test_logic(terms, true),
            Kind::Quantifier(it) if !T::ENABLED => self.test_quantifier(it),
            _ => return self.eval(node),
        }
        .map(Value::from)
    }

    /// The answer of the whole expression, if it is a predicate.
    #[inline(always)]
    pub(super) fn judge_root(&mut self, node: &'a Node) -> Verdict {
        match self.test(node) {
            Ok(TestResult::Is(true)) => Verdict::TRUE,
            Ok(TestResult::Is(false)) => Verdict::FALSE,
            other => super::verdict_of(&other.map(Value::from)),
        }
    }

    /// Evaluates a predicate.
    #[inline(always)]
    pub(super) fn test(&mut self, node: &'a Node) -> Result<TestResult<'a>, EvalError> {
        match &node.kind {
            Kind::Call(call) if !T::ENABLED => self.test_call(call),
            Kind::Equality(it) if !T::ENABLED => self.test_equality(it),
            Kind::And(terms) if !T::ENABLED => self.test_logic(terms, false),
            Kind::Or(terms) if !T::ENABLED => self.test_logic(terms, true),
            Kind::Quantifier(it) if !T::ENABLED => self.test_quantifier(it),
            _ => self.eval(node).map(TestResult::from),
        }
    }

    /// The value of an operand, written to where it is needed. Most operands are variables and constants.
    #[inline(always)]
    pub(super) fn eval_into(&mut self, node: &'a Node, out: &mut Value<'a>) -> Result<(), EvalError> {
        match &node.kind {
            Kind::Constant(Value::String(text)) if !T::ENABLED => put(out, Value::str(text)),
            Kind::Attribute(attribute) if !T::ENABLED => return self.eval_attribute_into(attribute, out),
            _ => put(out, self.eval(node)?),
        }
        Ok(())
    }

    #[inline(never)]
    fn eval_computed(&mut self, computed: &'a ComputedValue) -> EvalResult<'a> {
        self.charge(computed.cost)?;
        match &computed.result {
            Ok(value) => Ok(value.borrowed()),
            Err(error) => Err(error.clone()),
        }
    }

    /// Evaluates `&&` if `decisive` is false, `||` if it is true. A later operand can decide in spite of an
    /// error.
    #[inline(never)]
    fn test_logic(&mut self, terms: &'a [Node], decisive: bool) -> Result<TestResult<'a>, EvalError> {
        let mut undecided = UndecidedReasons::default();
        for term in terms {
            match self.test(term) {
                Ok(TestResult::Is(truth)) if truth == decisive => return undecided.decided(decisive),
                Ok(TestResult::Is(_)) => {}
                other => undecided.add(other, decisive)?,
            }
        }
        undecided.or_else(!decisive)
    }

    #[inline(never)]
    fn eval_not_strictly_false(&mut self, operand: &'a Node) -> EvalResult<'a> {
        let truth = match self.eval(operand) {
            Ok(Value::Bool(truth)) => truth,
            Ok(Value::Unknown(unknown)) => {
                let verdict = unknown.verdict().as_operand();
                let truths = if verdict == Verdict::FALSE { Verdict::NONE } else { Verdict::TRUE };
                self.charge(1)?;
                return Ok(Value::of_verdict(verdict.without(Verdict::ERROR) | truths));
            }
            Err(fatal) if fatal.is_fatal() => return Err(fatal),
            _ => true,
        };
        self.charge(1)?;
        Ok(Value::Bool(truth))
    }

    #[inline(never)]
    fn eval_member(&mut self, member: &'a Member) -> EvalResult<'a> {
        match self.eval(&member.operand)? {
            Value::Unknown(unknown) => self.test_unknown_member(member, &unknown, is_member),
            operand => is_member(member, operand).map(Value::Bool),
        }
    }

    #[inline(never)]
    fn eval_optional_or(&mut self, operands: &'a (Node, Node), unwrap: bool) -> EvalResult<'a> {
        match self.eval(&operands.0)? {
            Value::Unknown(unknown) => Ok(Value::Unknown(UnknownValue::anything()).after(&unknown)),
            Value::Optional(Some(value)) if unwrap => Ok(Value::clone(&value)),
            present @ Value::Optional(Some(_)) => Ok(present),
            Value::Optional(None) => self.eval(&operands.1),
            _ => Err(EvalError::no_such_overload()),
        }
    }

    /// An element's value; nothing where an optional element is absent; an unknown as `Err(Ok(_))`.
    fn eval_element(
        &mut self,
        value: &'a Node,
        optional: bool,
        describe: impl FnOnce(&Value<'a>) -> String,
    ) -> Result<Option<Value<'a>>, Result<Value<'a>, EvalError>> {
        let value = match self.eval(value) {
            // The whole value is unknown, too.
            Ok(Value::Unknown(unknown)) => return Err(Ok(Value::Unknown(UnknownValue::anything()).after(&unknown))),
            Ok(value) => value,
            Err(error) => return Err(Err(error)),
        };
        if !optional {
            return Ok(Some(value));
        }
        match value {
            Value::Optional(None) => Ok(None),
            Value::Optional(Some(value)) => Ok(Some(Value::clone(&value))),
            other => Err(Err(EvalError::other(describe(&other)))),
        }
    }

    /// Charges for a container, also for one that could not be built.
    fn finish_container(
        &mut self,
        cost: u64,
        built: Result<Value<'a>, Result<Value<'a>, EvalError>>,
    ) -> EvalResult<'a> {
        if let Err(Err(fatal)) = &built
            && fatal.is_fatal()
        {
            return Err(fatal.clone());
        }
        self.charge(cost)?;
        match built {
            Ok(value) | Err(Ok(value)) => Ok(value),
            Err(Err(error)) => Err(error),
        }
    }

    #[inline(never)]
    fn eval_list(&mut self, elements: &'a [Element]) -> EvalResult<'a> {
        let built = self.build_list(elements);
        self.finish_container(LIST_CREATION, built)
    }

    fn build_list(&mut self, elements: &'a [Element]) -> Result<Value<'a>, Result<Value<'a>, EvalError>> {
        let mut values = Vec::with_capacity(elements.len());
        for element in elements {
            let value = self.eval_element(&element.value, element.optional, |value| {
                format!("cannot initialize optional list element from non-optional value {value}")
            })?;
            values.extend(value);
        }
        Ok(Value::list(values))
    }

    #[inline(never)]
    fn eval_map(&mut self, entries: &'a [Entry]) -> EvalResult<'a> {
        let built = self.build_map(entries);
        self.finish_container(MAP_CREATION, built)
    }

    fn build_map(&mut self, entries: &'a [Entry]) -> Result<Value<'a>, Result<Value<'a>, EvalError>> {
        let mut map = std::collections::BTreeMap::new();
        for entry in entries {
            let key = match self.eval(&entry.key) {
                Ok(Value::Unknown(unknown)) => {
                    return Err(Ok(Value::Unknown(UnknownValue::anything()).after(&unknown)));
                }
                Ok(key) => key,
                Err(error) => return Err(Err(error)),
            };
            let shown = key.clone();
            let value = self.eval_element(&entry.value, entry.optional, |value| {
                format!("cannot initialize optional entry '{shown}' from non-optional value {value}")
            })?;
            let key = Key::of_entry(key).map_err(Err)?;
            match value {
                Some(value) => map.insert(key, value),
                None => map.remove(&key),
            };
        }
        Ok(Value::Map(Map::Shared(std::sync::Arc::new(map))))
    }

    #[inline(never)]
    fn eval_struct(&mut self, literal: &'a StructNode) -> EvalResult<'a> {
        let built = self.build_struct(literal);
        self.finish_container(STRUCT_CREATION, built)
    }

    fn build_struct(&mut self, literal: &'a StructNode) -> Result<Value<'a>, Result<Value<'a>, EvalError>> {
        let mut fields: Vec<(crate::syntax::ast::Name, Value<'a>)> = Vec::with_capacity(literal.fields.len());
        for (name, element) in &literal.fields {
            let value = self.eval_element(&element.value, element.optional, |value| {
                format!("cannot initialize optional entry '{name}' from non-optional value {value}")
            })?;
            fields.retain(|(earlier, _)| earlier != name);
            if let Some(value) = value {
                fields.push((name.clone(), value));
            }
        }
        literal.provider.construct(&literal.type_name, fields).map_err(Err)
    }

    /// Appends the elements of a list to a list.
    pub(super) fn concat(accumulator: List<'a>, more: &List<'a>) -> List<'a> {
        more.iter().fold(accumulator, List::push)
    }
}

/// Whether a value that is known is one of some constants.
fn is_member<'a>(member: &'a Member, operand: Value<'a>) -> Result<bool, EvalError> {
    match operand {
        Value::Double(number) if number.is_nan() => Ok(false),
        Value::String(text) => {
            let found = member.set.binary_search_by(|candidate| match candidate.value() {
                Value::String(candidate) => candidate.as_str().cmp(&text),
                _ => std::cmp::Ordering::Less,
            });
            Ok(found.is_ok())
        }
        Value::Opaque(opaque) if opaque.is_hashable() => Ok(false),
        Value::Bytes(_) | Value::Opaque(_) => {
            Err(EvalError::new(ErrorKind::Aborted, "internal error: a value of this type is not a member of a set"))
        }
        other => Ok(Key::new(other).is_ok_and(|key| member.set.contains(&key))),
    }
}

/// Reasons why the operands of `&&` or `||` have not decided.
///
/// Empty in most cases, so that nothing is allocated, inspected or dropped.
#[derive(Default)]
pub(super) struct UndecidedReasons<'a>(Option<Box<Reasons<'a>>>);

#[derive(Default)]
struct Reasons<'a> {
    unknown: Option<partial::Logic<'a>>,
    error: Option<EvalError>,
}

impl<'a> UndecidedReasons<'a> {
    /// Records an operand that is not a boolean; only a fatal error is returned.
    #[cold]
    pub(super) fn add(&mut self, operand: Result<TestResult<'a>, EvalError>, decisive: bool) -> Result<(), EvalError> {
        let reasons = self.0.get_or_insert_default();
        match operand.map(Value::from) {
            Ok(Value::Unknown(unknown)) => reasons.unknown.get_or_insert_default().add(unknown, decisive),
            Ok(_) => {
                reasons.error.get_or_insert_with(EvalError::no_such_overload);
            }
            Err(fatal) if fatal.is_fatal() => return Err(fatal),
            Err(error) => {
                reasons.error.get_or_insert(error);
            }
        }
        Ok(())
    }

    /// The outcome where an operand decided.
    #[inline(always)]
    pub(super) fn decided(self, truth: bool) -> Result<TestResult<'a>, EvalError> {
        match self.0 {
            None => Ok(TestResult::Is(truth)),
            Some(reasons) => Ok(reasons.decided(truth)),
        }
    }

    /// The outcome where no operand decided: the first error counts, if there is one in any case.
    #[inline(always)]
    pub(super) fn or_else(self, truth: bool) -> Result<TestResult<'a>, EvalError> {
        match self.0 {
            None => Ok(TestResult::Is(truth)),
            Some(reasons) => (*reasons).or_else(truth),
        }
    }
}

impl<'a> Reasons<'a> {
    #[cold]
    fn decided(self, truth: bool) -> TestResult<'a> {
        self.unknown.map_or(TestResult::Is(truth), |unknown| unknown.decided(truth))
    }

    #[cold]
    fn or_else(self, truth: bool) -> Result<TestResult<'a>, EvalError> {
        match (self.unknown, self.error) {
            (Some(unknown), error) => Ok(unknown.or_else(truth, error.is_some())),
            (None, Some(error)) => Err(error),
            (None, None) => Ok(TestResult::Is(truth)),
        }
    }
}

#[cold]
fn cost_limit_exceeded() -> EvalError {
    EvalError::new(ErrorKind::CostLimit, "operation cancelled: actual cost limit exceeded")
}
