//! Verdicts: the possible results of a predicate on partly known input.

use std::ops::{BitOr, BitOrAssign};

use super::Value;

/// A set of possible results: true, false, an error, a value that is not a boolean.
///
/// On known input the set has one member. On partly known input, the result of every completion is in the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Verdict(u8);

impl Verdict {
    /// The empty set: the input has no completion.
    pub const NONE: Verdict = Verdict(0);
    /// True.
    pub const TRUE: Verdict = Verdict(1);
    /// False.
    pub const FALSE: Verdict = Verdict(2);
    /// An error.
    pub const ERROR: Verdict = Verdict(4);
    /// A value that is not a truth value.
    pub const OTHER: Verdict = Verdict(8);
    /// Anything.
    pub const ANY: Verdict = Verdict(15);

    /// An error that nothing absorbs: the evaluation would end there.
    const END: Verdict = Verdict(16);

    /// An error that nothing absorbs.
    pub(crate) const FATAL: Verdict = Verdict(Verdict::ERROR.0 | Verdict::END.0);

    /// One or both of two truth values.
    pub(crate) const fn of(truth: bool) -> Verdict {
        if truth { Verdict::TRUE } else { Verdict::FALSE }
    }

    /// Whether one of these results is possible.
    pub const fn can_be(self, any_of: Verdict) -> bool {
        self.0 & any_of.0 != 0
    }

    /// Whether false is the only possible result, so that a search for a true result can skip this input.
    pub const fn is_never_but_false(self) -> bool {
        !self.can_be(Verdict(Verdict::TRUE.0 | Verdict::ERROR.0 | Verdict::OTHER.0))
    }

    /// Intersection with another set.
    #[must_use]
    pub(crate) const fn only(self, those: Verdict) -> Verdict {
        Verdict(self.0 & those.0)
    }

    /// Without what is in the other set.
    #[must_use]
    pub(crate) const fn without(self, those: Verdict) -> Verdict {
        Verdict(self.0 & !those.0)
    }

    /// True where it was false, and the other way round.
    #[must_use]
    pub(crate) const fn negated(self) -> Verdict {
        let others = self.0 & !(Verdict::TRUE.0 | Verdict::FALSE.0);
        let was_true = if self.can_be(Verdict::TRUE) { Verdict::FALSE.0 } else { 0 };
        let was_false = if self.can_be(Verdict::FALSE) { Verdict::TRUE.0 } else { 0 };
        Verdict(others | was_true | was_false)
    }

    pub(crate) const fn can_end(self) -> bool {
        self.can_be(Verdict::END)
    }

    /// As logic takes it: what is not a truth value is an error.
    #[must_use]
    pub(crate) fn as_operand(self) -> Verdict {
        if self.can_be(Verdict::OTHER) { self.without(Verdict::OTHER) | Verdict::ERROR } else { self }
    }

    /// The results that callers can observe.
    #[must_use]
    pub(crate) fn shown(self) -> Verdict {
        self.only(Verdict::ANY)
    }
}

impl BitOr for Verdict {
    type Output = Verdict;

    fn bitor(self, other: Verdict) -> Verdict {
        Verdict(self.0 | other.0)
    }
}

impl BitOrAssign for Verdict {
    fn bitor_assign(&mut self, other: Verdict) {
        self.0 |= other.0;
    }
}

impl Value<'_> {
    /// Possible results of a predicate with this value.
    pub fn verdict(&self) -> Verdict {
        match self {
            Value::Bool(truth) => Verdict::of(*truth),
            Value::Unknown(unknown) => unknown.verdict(),
            Value::Error(error) if error.is_fatal() => Verdict::FATAL,
            Value::Error(_) => Verdict::ERROR,
            _ => Verdict::OTHER,
        }
    }
}
