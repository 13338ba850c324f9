//! `==`: deep, across numeric kinds, and honest about what is not known.

use std::cell::Cell;
use std::ops::ControlFlow;

use super::bounds::{COMPARISONS_MAX, too_large};
use super::{ErrorKind, EvalError, HostObject, List, Map, Value};

/// Bytes of a copy that count as much as a comparison.
const COPY_BYTES: u64 = 32;

thread_local! {
    /// Element pairs that the evaluation on this thread may still compare. Functions of libraries have no access to the
    /// evaluation that calls them, and an evaluation does not change threads.
    static LEFT: Cell<u32> = const { Cell::new(COMPARISONS_MAX) };
}

/// Begins an evaluation: it may compare [`COMPARISONS_MAX`] pairs. One that runs inside another, as that of a variable,
/// fills the budget of the other one again; there are as many of these as variables.
#[inline(always)]
pub(crate) fn start_evaluation() {
    LEFT.set(COMPARISONS_MAX);
}

impl Value<'_> {
    /// The two are equal.
    ///
    /// Values of different types are not equal, except for numbers, which compare across kinds. Fails only with
    /// [`ErrorKind::Undetermined`], where the answer depends on something unknown, or with the
    /// error of an element that cannot be read, or with [`ErrorKind::TooLarge`], where values share
    /// their parts so often that comparing them has no end.
    pub fn equals(&self, other: &Value<'_>) -> Result<bool, EvalError> {
        self.equals_within(other, &mut Comparisons::Alone { left: COMPARISONS_MAX })
    }

    /// Like [`Value::equals`], for the evaluation that runs on this thread: the comparisons of all its calls count together.
    ///
    /// The reference prices `==` by the sizes of the outer values. Nested lists that share their parts have 2^n elements
    /// for a cost of n, so that a bound for each comparison alone would allow a short loop to take hours.
    pub fn equals_in_evaluation(&self, other: &Value<'_>) -> Result<bool, EvalError> {
        self.equals_within(other, &mut Comparisons::InEvaluation)
    }

    fn equals_within(&self, other: &Value<'_>, comparisons: &mut Comparisons) -> Result<bool, EvalError> {
        let equal = match (self, other) {
            (Value::String(a), Value::String(b)) => a == b,
            (Value::Int(a), Value::Int(b)) => a == b,
            (Value::Bool(a), Value::Bool(b)) => a == b,
            (Value::Uint(a), Value::Uint(b)) => a == b,
            (Value::Double(a), Value::Double(b)) => a == b,
            (Value::Int(_) | Value::Uint(_) | Value::Double(_), Value::Int(_) | Value::Uint(_) | Value::Double(_)) => {
                self.compare(other).is_ok_and(std::cmp::Ordering::is_eq)
            }
            (Value::Null, Value::Null) => true,
            (Value::Bytes(a), Value::Bytes(b)) => a == b,
            (Value::Duration(a), Value::Duration(b)) => a == b,
            (Value::Timestamp(a), Value::Timestamp(b)) => a == b,
            (Value::Type(a), Value::Type(b)) => a.name() == b.name(),
            (Value::List(a), b) if let Some(answer) = a.shape().and_then(|shape| shape.equals(a, b)) => return answer,
            (Value::Map(Map::Shaped(data, shape)), b) if let Some(answer) = shape.equals(*data, b) => return answer,
            (Value::List(a), b) => return list_equals(a, b, comparisons),
            (Value::Map(a), Value::Map(b)) => return map_equals(a, b, comparisons),
            (Value::Optional(None), Value::Optional(None)) => true,
            (Value::Optional(Some(a)), Value::Optional(Some(b))) => return a.equals_within(b, comparisons),
            (Value::Object(a), Value::Object(b)) => return object_equals(*a, *b, comparisons),
            (Value::Opaque(a), Value::Opaque(b)) if a.type_of() == b.type_of() => a.equals(b.as_ref()),
            (Value::Opaque(_), Value::Null) => false,
            (Value::Error(error), _) | (_, Value::Error(error)) => return Err(error.clone()),
            (Value::Unknown(_), _) | (_, Value::Unknown(_)) => return Err(EvalError::undetermined()),
            // A library's value on the left knows only its own kind.
            (Value::Opaque(_), _) => return Err(EvalError::no_such_overload()),
            _ => false,
        };
        Ok(equal)
    }
}

/// Counts a comparison of two elements that no price covers.
pub(crate) fn count_comparison() -> Result<(), EvalError> {
    LEFT.set(LEFT.get().checked_sub(1).ok_or_else(too_large)?);
    Ok(())
}

/// Bytes of values that the evaluation on this thread may still copy: its comparisons and copies share a budget.
pub(super) fn copy_bytes_left() -> u64 {
    u64::from(LEFT.get()).saturating_mul(COPY_BYTES)
}

/// Counts bytes that were copied.
pub(super) fn count_copied(bytes: u64) {
    let elements = u32::try_from(bytes.div_ceil(COPY_BYTES)).unwrap_or(u32::MAX);
    LEFT.set(LEFT.get().saturating_sub(elements));
}

/// The budget of element pairs that may still be compared.
enum Comparisons {
    /// That of the evaluation on this thread.
    InEvaluation,
    /// One of its own.
    Alone { left: u32 },
}

impl Comparisons {
    fn compare(&mut self, a: &Value<'_>, b: &Value<'_>) -> Result<bool, EvalError> {
        match self {
            Self::InEvaluation => count_comparison()?,
            Self::Alone { left } => *left = left.checked_sub(1).ok_or_else(too_large)?,
        }
        a.equals_within(b, self)
    }
}

/// Keeps an undecided comparison, which is returned if no other comparison decides.
fn all_equal(answers: impl Iterator<Item = Result<bool, EvalError>>) -> Result<bool, EvalError> {
    let mut undecided = None;
    for answer in answers {
        match answer {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(error) if error.is_fatal() => return Err(error),
            // Elements that cannot be compared do not make containers differ: only a false does.
            Err(error) if error.kind() == ErrorKind::NoSuchOverload => {}
            Err(error) => undecided = undecided.or(Some(error)),
        }
    }
    undecided.map_or(Ok(true), Err)
}

fn list_equals(a: &List<'_>, b: &Value<'_>, comparisons: &mut Comparisons) -> Result<bool, EvalError> {
    match b {
        Value::List(b) if a.len() != b.len() => Ok(false),
        Value::List(b) => all_equal(a.iter().zip(b.iter()).map(|(a, b)| comparisons.compare(&a, &b))),
        Value::Unknown(_) => Err(EvalError::undetermined()),
        Value::Error(error) => Err(error.clone()),
        _ => Ok(false),
    }
}

fn map_equals(a: &Map<'_>, b: &Map<'_>, comparisons: &mut Comparisons) -> Result<bool, EvalError> {
    if a.is_partial() || b.is_partial() {
        return Err(EvalError::undetermined());
    }
    if a.len() != b.len() {
        return Ok(false);
    }
    let entries = a.entries();
    all_equal(
        entries.iter().map(|(key, value)| b.get(key).map_or(Ok(false), |other| comparisons.compare(value, &other))),
    )
}

fn object_equals(a: &dyn HostObject, b: &dyn HostObject, comparisons: &mut Comparisons) -> Result<bool, EvalError> {
    if let Some(answer) = a.equals(b) {
        return answer;
    }
    if a.type_name() != b.type_name() {
        return Ok(false);
    }
    let mut count = 0_usize;
    let mut answers = Vec::new();
    a.for_each(&mut |field, value| {
        count = count.saturating_add(1);
        answers.push(b.get(field).map_or(Ok(false), |other| comparisons.compare(&value, &other)));
        ControlFlow::Continue(())
    });
    let mut other_count = 0_usize;
    b.for_each(&mut |_, _| {
        other_count = other_count.saturating_add(1);
        ControlFlow::Continue(())
    });
    if count != other_count {
        return Ok(false);
    }
    all_equal(answers.into_iter())
}
