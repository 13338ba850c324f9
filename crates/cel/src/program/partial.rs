//! Evaluation where input is partly known: what the evaluator does with values that are not known.
//!
//! An addition to the one evaluator, off the path of known input: it is used only when an operand or a range is
//! [`Value::Unknown`]. Bodies of loops over lists that are still being drawn run once per element, on the
//! element itself, and their results are cached if they depend only on the element ([`Memory`]).

mod calls;
mod closed;
mod loops;
mod memory;

pub(super) use closed::can_end;
pub(super) use loops::closed_range;
pub use memory::Memory;
pub(super) use memory::Recall;

use super::machine::{EvalResult, Machine, TestResult};
use super::node::{Attribute, ConditionalNode, Member};
use super::trace::Tracer;
use crate::value::unknown::Union;
use crate::value::{EvalError, FailureChance, Shape, UnknownValue, Value, Verdict};

/// Operands of `&&` or `||` that are not known.
#[derive(Debug)]
pub(super) struct Logic<'a> {
    hangs_on: UnknownValue<'a>,
    /// Possible results of the operands, apart from those that do not decide.
    verdict: Verdict,
    /// Whether all operands can have results that do not decide.
    can_pass: bool,
}

impl Default for Logic<'_> {
    fn default() -> Self {
        Logic { hangs_on: UnknownValue::nothing(), verdict: Verdict::NONE, can_pass: true }
    }
}

impl<'a> Logic<'a> {
    pub(super) fn add(&mut self, operand: UnknownValue<'a>, decisive: bool) {
        let found = operand.verdict().as_operand();
        self.verdict |= found.without(Verdict::of(!decisive));
        self.can_pass &= found.can_be(Verdict::of(!decisive));
        self.hangs_on = self.hangs_on.clone().and_inputs_of(&operand);
    }

    /// Result if another operand decided, unless one of these has ended the evaluation before.
    #[cold]
    pub(super) fn decided(&self, truth: bool) -> TestResult<'a> {
        let end = if self.verdict.can_end() { Verdict::FATAL } else { Verdict::NONE };
        Value::of_verdict(Verdict::of(truth) | end).after(&self.hangs_on).into()
    }

    /// No other operand decided; one may have failed.
    pub(super) fn or_else(&self, truth: bool, has_failed: bool) -> TestResult<'a> {
        let others = match (has_failed, self.can_pass) {
            (true, _) => Verdict::ERROR,
            (false, true) => Verdict::of(truth),
            (false, false) => Verdict::NONE,
        };
        Value::of_verdict(self.verdict | others).after(&self.hangs_on).into()
    }
}

/// Records a failure, which may be replaced by another one.
///
/// An error occurs in every completion; an unknown value may be an error in some.
#[cold]
pub(super) fn note_failure<'a>(failed: &mut Option<Box<Value<'a>>>, why: Value<'a>) {
    let noted = match (failed.take().map(|earlier| *earlier), why) {
        (Some(error @ Value::Error(_)), _) | (_, error @ Value::Error(_)) => error,
        (Some(Value::Unknown(earlier)), Value::Unknown(why)) => Value::Unknown(earlier.blurred()).after(&why),
        (_, why) => why.blurred(),
    };
    *failed = Some(Box::new(noted));
}

impl<'a, T: Tracer<'a>> Machine<'_, 'a, T> {
    /// The condition is not known: one branch or the other.
    #[cold]
    pub(super) fn resolve_either(
        &mut self,
        conditional: &'a ConditionalNode,
        condition: &UnknownValue<'a>,
    ) -> EvalResult<'a> {
        let verdict = condition.verdict().as_operand();
        let mut union = Union::new();
        for (truth, branch) in [(Verdict::TRUE, &conditional.truthy), (Verdict::FALSE, &conditional.falsy)] {
            if verdict.can_be(truth) {
                self.add_branch(&mut union, branch)?;
            }
        }
        if verdict.can_be(Verdict::ERROR) {
            union.fail(if verdict.can_end() { FailureChance::Fatally } else { FailureChance::Perhaps });
        }
        Ok(union.finish().after(condition))
    }

    fn add_branch(&mut self, union: &mut Union<'a>, branch: &'a Attribute) -> Result<(), EvalError> {
        match self.resolve(branch) {
            Ok(value) => union.add(value),
            Err(fatal) if fatal.is_fatal() => return Err(fatal),
            Err(_) => union.fail(FailureChance::Perhaps),
        }
        Ok(())
    }

    /// Looks up a key in an unknown value.
    ///
    /// `find` answers for a value that is known: nothing where the key is absent.
    #[cold]
    pub(super) fn look_up_unknown(
        object: &UnknownValue<'a>,
        index: Option<usize>,
        is_question: bool,
        mut find: impl FnMut(&Value<'a>) -> Result<Option<Value<'a>>, EvalError>,
    ) -> Result<Option<Value<'a>>, EvalError> {
        let mut union = Union::new();
        match (object.shape(), index) {
            (Some(Shape::OneOf(values)), _) => {
                let (mut present, mut absent) = (Verdict::NONE, Verdict::NONE);
                for value in values {
                    match find(value) {
                        Ok(Some(Value::Unknown(unknown))) if is_question => {
                            union.add(Value::Unknown(unknown.blurred()))
                        }
                        Ok(Some(found)) => {
                            present = Verdict::TRUE;
                            if !is_question {
                                union.add(found);
                            }
                        }
                        Ok(None) => absent = Verdict::FALSE,
                        Err(fatal) if fatal.is_fatal() => return Err(fatal),
                        Err(_) => union.fail(FailureChance::Perhaps),
                    }
                }
                if is_question {
                    union.add(Value::of_verdict(present | absent));
                } else if absent != Verdict::NONE {
                    // An absent value offers nothing.
                    return Ok(Some(Value::Unknown(UnknownValue::anything()).after(object)));
                }
            }
            (Some(Shape::Drawn(list)), Some(index)) if !is_question => match list.get(index) {
                Some(found) => union.add(found),
                None => union.fail(FailureChance::Perhaps),
            },
            _ => return Ok(Some(Value::Unknown(UnknownValue::anything()).after(object))),
        }
        Ok(match union.finish().after(object) {
            // All that it can be lacks the key.
            Value::Bool(false) if is_question => None,
            found => Some(found),
        })
    }

    /// Tests an unknown operand for membership in a list of constants.
    #[cold]
    pub(super) fn test_unknown_member(
        &mut self,
        member: &'a Member,
        operand: &UnknownValue<'a>,
        test: fn(&'a Member, Value<'a>) -> Result<bool, EvalError>,
    ) -> EvalResult<'a> {
        let mut verdict = Verdict::NONE;
        match operand.shape() {
            Some(Shape::OneOf(values)) => {
                for value in values {
                    verdict |= match test(member, value.clone()) {
                        Ok(truth) => Verdict::of(truth),
                        Err(fatal) if fatal.is_fatal() => return Err(fatal),
                        Err(_) => Verdict::ERROR,
                    };
                }
            }
            Some(Shape::Between(..)) => verdict = Verdict::TRUE | Verdict::FALSE | Verdict::FATAL,
            _ => verdict = Verdict::TRUE | Verdict::FALSE | Verdict::FATAL,
        }
        Ok(Value::of_verdict(verdict).after(operand))
    }
}
