//! Unknown values, and their known properties.
//!
//! A value that depends on input that is not known may still be one of a few values, lie between two, or be a list of which a part is
//! known. That is what lets an evaluation decide before all of its input is there. Every claim holds for every completion.

use std::mem;
use std::sync::Arc;

use super::{ErrorKind, PartialList, Value, Verdict};

/// A value that is not known (yet).
///
/// Names the inputs that an answer would need, by the numbers that the host gave them.
#[derive(Clone, Debug)]
pub struct UnknownValue<'a> {
    inputs: u64,
    failing: FailureChance,
    /// Known properties of the value. `None` means that it can be anything.
    shape: Option<Arc<Shape<'a>>>,
}

/// The possibility that there is no value at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailureChance {
    /// The value certainly exists.
    Never,
    /// An error may occur instead.
    Perhaps,
    /// An error that nothing absorbs may occur instead.
    Fatally,
}

/// Known properties of an unknown value.
#[derive(Clone, Debug)]
pub enum Shape<'a> {
    /// One of these; of none, if there is only an error.
    OneOf(Vec<Value<'a>>),
    /// A value of this kind, not before the first and not after the second.
    Between(Value<'a>, Value<'a>),
    /// A list of which a part is known.
    Drawn(PartialList<'a>),
}

/// Above this number, ordered values are described by the first and the last one.
const LISTED_MAX: usize = 16;

/// Above this number, no values are kept.
const KEPT_MAX: usize = 256;

impl<'a> UnknownValue<'a> {
    /// An input that is not known, under a number that the host gives it; numbers from 63 on are one.
    pub fn input(number: u32) -> Self {
        UnknownValue { inputs: 1 << number.min(63), failing: FailureChance::Fatally, shape: None }
    }

    /// A value that can be anything, or fail.
    pub fn anything() -> Self {
        UnknownValue { inputs: 0, failing: FailureChance::Fatally, shape: None }
    }

    /// A value that can be anything, or an error that other operands absorb.
    pub fn anything_or_error() -> Self {
        UnknownValue { inputs: 0, failing: FailureChance::Perhaps, shape: None }
    }

    /// A neutral element: depends on no input and does not fail.
    pub(crate) fn nothing() -> Self {
        UnknownValue { inputs: 0, failing: FailureChance::Never, shape: None }
    }

    /// A value with known properties.
    pub fn new(failing: FailureChance, shape: Shape<'a>) -> Self {
        UnknownValue { inputs: 0, failing, shape: Some(Arc::new(shape)) }
    }

    /// The numbers of the inputs that are not known.
    pub fn inputs(&self) -> impl Iterator<Item = u32> + use<> {
        let inputs = self.inputs;
        (0..64).filter(move |number| inputs >> number & 1 == 1)
    }

    /// Known properties of the value.
    pub fn shape(&self) -> Option<&Shape<'a>> {
        self.shape.as_deref()
    }

    /// The possibility that there is no value at all.
    pub fn failing(&self) -> FailureChance {
        self.failing
    }

    /// The list, if it is one of which a part is known.
    pub fn as_drawn(&self) -> Option<&PartialList<'a>> {
        match self.shape() {
            Some(Shape::Drawn(drawn)) => Some(drawn),
            _ => None,
        }
    }

    /// Raises the possible failure to at least this level.
    #[must_use]
    pub(crate) fn failing_at_least(mut self, failing: FailureChance) -> Self {
        self.failing = self.failing.max(failing);
        self
    }

    /// The same value, assuming that it does not fail.
    #[must_use]
    pub(crate) fn if_any(mut self) -> Self {
        self.failing = FailureChance::Never;
        self
    }

    /// Adds the inputs of another value.
    #[must_use]
    pub(crate) fn and_inputs_of(mut self, other: &UnknownValue<'_>) -> Self {
        self.inputs |= other.inputs;
        self
    }

    /// An arbitrary value that depends on the same inputs, and fails where this one does.
    #[must_use]
    pub(crate) fn blurred<'b>(&self) -> UnknownValue<'b> {
        UnknownValue { inputs: self.inputs, failing: self.failing, shape: None }
    }

    /// Possible results of a predicate with this value.
    pub(crate) fn verdict(&self) -> Verdict {
        let failing = match self.failing {
            FailureChance::Never => Verdict::NONE,
            FailureChance::Perhaps => Verdict::ERROR,
            FailureChance::Fatally => Verdict::FATAL,
        };
        let values = match self.shape() {
            None => Verdict::ANY,
            Some(Shape::OneOf(values)) => values.iter().fold(Verdict::NONE, |all, value| all | value.verdict()),
            Some(Shape::Between(Value::Bool(_), _)) => Verdict::TRUE | Verdict::FALSE,
            Some(Shape::Between(..) | Shape::Drawn(_)) => Verdict::OTHER,
        };
        failing | values
    }

    /// The least and the greatest value that it can have, if all of them are of one kind that has an order.
    pub fn range(&self) -> Option<(Value<'a>, Value<'a>)> {
        match self.shape()? {
            Shape::OneOf(values) => range_of(values),
            Shape::Between(first, last) => Some((first.clone(), last.clone())),
            Shape::Drawn(_) => None,
        }
    }

    pub(super) fn into_owned(self) -> UnknownValue<'static> {
        self.blurred()
    }
}

impl<'a> Value<'a> {
    /// An input that is not known, under a number that the host gives it.
    pub fn unknown(number: u32) -> Self {
        Value::Unknown(UnknownValue::input(number))
    }

    /// Returns a predicate with these possible results.
    pub(crate) fn of_verdict(verdict: Verdict) -> Value<'a> {
        let mut values = Vec::new();
        values.extend(verdict.can_be(Verdict::TRUE).then_some(Value::Bool(true)));
        values.extend(verdict.can_be(Verdict::FALSE).then_some(Value::Bool(false)));
        let failing = match (verdict.can_end(), verdict.can_be(Verdict::ERROR)) {
            (true, _) => FailureChance::Fatally,
            (false, true) => FailureChance::Perhaps,
            (false, false) => FailureChance::Never,
        };
        match (values.as_slice(), failing, verdict.can_be(Verdict::OTHER)) {
            ([Value::Bool(truth)], FailureChance::Never, false) => Value::Bool(*truth),
            (_, _, false) => Value::Unknown(UnknownValue::new(failing, Shape::OneOf(values))),
            (_, _, true) => Value::Unknown(UnknownValue { inputs: 0, failing, shape: None }),
        }
    }

    /// A value between two of one kind that has an order.
    pub fn between(first: Value<'a>, last: Value<'a>) -> Value<'a> {
        if first.compare(&last).is_ok_and(std::cmp::Ordering::is_eq) {
            return first;
        }
        Value::Unknown(UnknownValue::new(FailureChance::Never, Shape::Between(first, last)))
    }

    /// The least and the greatest value that it can have, if all of them are of one kind that has an order.
    pub fn range(&self) -> Option<(Value<'a>, Value<'a>)> {
        match self {
            Value::Unknown(unknown) => unknown.range(),
            value if has_order(value) => Some((value.clone(), value.clone())),
            _ => None,
        }
    }

    /// Compares a possible value with another one, with the semantics of `in`: incomparable values are not equal.
    pub(crate) fn can_equal(&self, other: &Value<'a>) -> Verdict {
        if !matches!(self, Value::Unknown(_)) && !matches!(other, Value::Unknown(_)) {
            return match self.equals_in_evaluation(other) {
                Ok(equal) => Verdict::of(equal),
                Err(error) if error.kind() == ErrorKind::NoSuchOverload => Verdict::FALSE,
                Err(error) if error.kind() == ErrorKind::Undetermined => {
                    Verdict::TRUE | Verdict::FALSE | Verdict::FATAL
                }
                Err(error) if error.is_fatal() => Verdict::FATAL,
                Err(_) => Verdict::ERROR,
            };
        }
        let (Some((first, last)), Some((other_first, other_last))) = (self.range(), other.range()) else {
            return if lengths_differ(self, other) {
                Verdict::FALSE
            } else {
                Verdict::TRUE | Verdict::FALSE | Verdict::FATAL
            };
        };
        let is_before = |a: &Value<'_>, b: &Value<'_>| a.compare(b).is_ok_and(std::cmp::Ordering::is_lt);
        let is_number = |value: &Value<'_>| matches!(value, Value::Int(_) | Value::Uint(_) | Value::Double(_));
        let comparable = same_kind(&first, &other_first) || is_number(&first) && is_number(&other_first);
        if !comparable || is_before(&last, &other_first) || is_before(&other_last, &first) {
            return Verdict::FALSE;
        }
        Verdict::TRUE | Verdict::FALSE
    }

    /// An unknown value without its known properties; other values are unchanged.
    pub(crate) fn blurred(self) -> Value<'a> {
        match self {
            Value::Unknown(unknown) => Value::Unknown(unknown.blurred()),
            other => other,
        }
    }

    /// Adds the inputs and the failures of another operand.
    #[must_use]
    pub(crate) fn after(self, operand: &UnknownValue<'_>) -> Value<'a> {
        match self {
            Value::Unknown(unknown) => Value::Unknown(unknown.failing_at_least(operand.failing).and_inputs_of(operand)),
            value if operand.failing == FailureChance::Never => value,
            value => {
                let unknown = UnknownValue::new(operand.failing, Shape::OneOf(vec![value]));
                Value::Unknown(unknown.and_inputs_of(operand))
            }
        }
    }
}

/// Whether two lists cannot have the same length.
fn lengths_differ(left: &Value<'_>, right: &Value<'_>) -> bool {
    let length = |value: &Value<'_>| match value {
        // A list with a meaning of its own may have an equality of its own.
        Value::List(list) if !list.has_meaning() => Some((list.len(), list.len())),
        Value::Unknown(unknown) => unknown.as_drawn().map(PartialList::length),
        _ => None,
    };
    match (length(left), length(right)) {
        (Some((least, most)), Some((other_least, other_most))) => most < other_least || other_most < least,
        _ => false,
    }
}

/// Whether the value has an order among its kind: NaN has none.
fn has_order(value: &Value<'_>) -> bool {
    value.is_comparable() && !matches!(value, Value::Double(number) if number.is_nan())
}

/// Whether two values are of one kind.
pub(crate) fn same_kind(a: &Value<'_>, b: &Value<'_>) -> bool {
    mem::discriminant(a) == mem::discriminant(b)
}

/// The first and the last of values of one kind that has an order.
fn range_of<'a>(values: &[Value<'a>]) -> Option<(Value<'a>, Value<'a>)> {
    let (first, rest) = values.split_first()?;
    if !has_order(first) {
        return None;
    }
    let (mut low, mut high) = (first, first);
    for value in rest {
        if !same_kind(first, value) || !has_order(value) {
            return None;
        }
        if value.compare(low).is_ok_and(std::cmp::Ordering::is_lt) {
            low = value;
        }
        if value.compare(high).is_ok_and(std::cmp::Ordering::is_gt) {
            high = value;
        }
    }
    Some((low.clone(), high.clone()))
}

/// Several things that one value can be.
#[derive(Debug)]
pub(crate) struct Union<'a> {
    inputs: u64,
    failing: FailureChance,
    is_anything: bool,
    values: Vec<Value<'a>>,
    between: Option<(Value<'a>, Value<'a>)>,
    drawn: Option<Arc<Shape<'a>>>,
}

impl<'a> Union<'a> {
    pub(crate) fn new() -> Self {
        Union {
            inputs: 0,
            failing: FailureChance::Never,
            is_anything: false,
            values: Vec::new(),
            between: None,
            drawn: None,
        }
    }

    /// Records a possible failure.
    pub(crate) fn fail(&mut self, failing: FailureChance) {
        self.failing = self.failing.max(failing);
    }

    /// Records a possible value.
    pub(crate) fn add(&mut self, value: Value<'a>) {
        match value {
            Value::Error(error) if error.is_fatal() => self.fail(FailureChance::Fatally),
            Value::Error(_) => self.fail(FailureChance::Perhaps),
            Value::Unknown(unknown) => {
                self.inputs |= unknown.inputs;
                self.fail(unknown.failing);
                match unknown.shape.as_deref() {
                    None => self.is_anything = true,
                    Some(Shape::OneOf(values)) => self.values.extend(values.iter().cloned()),
                    Some(Shape::Between(first, last)) => self.widen(first, last),
                    Some(Shape::Drawn(_)) if self.drawn.is_none() => self.drawn = unknown.shape.clone(),
                    Some(Shape::Drawn(_)) => self.is_anything = true,
                }
            }
            value => self.values.push(value),
        }
    }

    fn widen(&mut self, first: &Value<'a>, last: &Value<'a>) {
        self.between = match self.between.take() {
            None => Some((first.clone(), last.clone())),
            Some((low, high)) => range_of(&[low, high, first.clone(), last.clone()]),
        };
        // Values of several kinds have no order.
        self.is_anything |= self.between.is_none();
    }

    /// All of it as one value.
    pub(crate) fn finish(mut self) -> Value<'a> {
        let failing = self.failing;
        let inputs = self.inputs;
        let unknown = |shape| Value::Unknown(UnknownValue { inputs, failing, shape });
        if self.is_anything {
            return unknown(None);
        }
        if let Some(drawn) = self.drawn {
            let is_alone = self.values.is_empty() && self.between.is_none();
            return unknown(is_alone.then_some(drawn));
        }
        if let Some((first, last)) = self.between.take() {
            self.values.extend([first, last]);
            let shape = range_of(&self.values).map(|(first, last)| Arc::new(Shape::Between(first, last)));
            return unknown(shape);
        }
        let mut values = distinct(self.values);
        if values.len() == 1 && failing == FailureChance::Never {
            return values.pop().unwrap_or(Value::Null);
        }
        let shape = match range_of(&values) {
            Some((first, last)) if values.len() > LISTED_MAX => Some(Shape::Between(first, last)),
            _ if values.len() > KEPT_MAX => None,
            _ => Some(Shape::OneOf(values)),
        };
        unknown(shape.map(Arc::new))
    }
}

/// Removes duplicates, as far as they can be detected cheaply.
fn distinct(mut values: Vec<Value<'_>>) -> Vec<Value<'_>> {
    let all_alike = values.iter().all(has_order)
        && values.windows(2).all(|pair| match pair {
            [a, b] => same_kind(a, b),
            _ => true,
        });
    if all_alike {
        values.sort_by(|a, b| a.compare(b).unwrap_or(std::cmp::Ordering::Equal));
        values.dedup_by(|a, b| is_same(a, b));
    }
    values
}

/// Whether two values are indistinguishable. Zeros of different sign are equal but distinguishable.
fn is_same(a: &Value<'_>, b: &Value<'_>) -> bool {
    match (a, b) {
        (Value::Double(a), Value::Double(b)) => a.to_bits() == b.to_bits(),
        _ => a.compare(b).is_ok_and(std::cmp::Ordering::is_eq),
    }
}
