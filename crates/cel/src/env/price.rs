//! Price of a call, defined once for the estimate and for the meter.

use super::{Cost, Size};
use crate::syntax::ast::Literal;
use crate::types::Type;
use crate::value::{EvalError, Value};

/// Cost of reading one code point or octet.
pub const STRING_TRAVERSAL_FACTOR: f64 = 0.1;

/// Result of a call, for prices that depend on it.
pub type Outcome<'o, 'v> = Result<&'o Value<'v>, &'o EvalError>;

/// The price of a function: an estimate from the facts about its operands, and the actual cost of a call.
///
/// The operands' own cost is never part of it.
#[derive(Clone, Copy, Debug)]
pub enum Price {
    /// Always the same.
    Fixed(u64),
    /// Reads one operand from end to end: a tenth of its size, rounded up.
    Traversal {
        /// Index of the operand.
        operand: usize,
    },
    /// Depends on the operands, one of which must be a list: where it has failed, the reference's meter fails too, and with it
    /// the whole evaluation.
    OfList {
        /// The operand that must be a list.
        operand: usize,
        /// The range, from the operands' sizes.
        estimate: fn(&dyn CallSite) -> CallEstimate,
        /// The cost of a call that was made.
        actual: fn(&[Value<'_>], Outcome<'_, '_>) -> u64,
    },
    /// Depends on the operands.
    Sized {
        /// The range, from the operands' sizes.
        estimate: fn(&dyn CallSite) -> CallEstimate,
        /// The cost of a call that was made. Operands that failed have size 1.
        actual: fn(&[Value<'_>], Outcome<'_, '_>) -> u64,
        /// Whether it also applies if the overload is known only at run time; otherwise such a call costs 1.
        when_dynamic: bool,
    },
}

impl Price {
    /// The price of most functions.
    pub const ONE: Price = Price::Fixed(1);

    /// Estimates the cost of a call of the function.
    pub fn estimate(&self, site: &dyn CallSite) -> CallEstimate {
        match self {
            Price::Fixed(cost) => Cost::exactly(*cost).into(),
            Price::Traversal { operand } => site.size(*operand).times_factor(STRING_TRAVERSAL_FACTOR).into(),
            Price::Sized { estimate, .. } | Price::OfList { estimate, .. } => estimate(site),
        }
    }

    /// Actual cost of a call with these operands.
    #[inline]
    pub fn actual(&self, operands: &[Value<'_>], outcome: Outcome<'_, '_>) -> u64 {
        match self {
            Price::Fixed(cost) => *cost,
            Price::Traversal { operand } => traversal_cost(operands.get(*operand).map_or(1, Value::size)),
            Price::Sized { actual, .. } | Price::OfList { actual, .. } => actual(operands, outcome),
        }
    }

    /// Whether the meter itself fails on these operands.
    pub(crate) fn fails_on(&self, operands: &[Value<'_>]) -> bool {
        matches!(self, Price::OfList { operand, .. } if !matches!(operands.get(*operand), Some(Value::List(_))))
    }
}

/// Cost of reading this many code points or octets: a tenth, rounded up.
///
/// The reference multiplies floating point numbers by 0.1; for every size that fits into memory the result is the same.
#[inline]
pub fn traversal_cost(size: u64) -> u64 {
    size.div_ceil(10)
}

/// Estimated price of a call, and the size of its result, if known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallEstimate {
    /// The call's own cost.
    pub cost: Cost,
    /// The result's size.
    pub result_size: Option<Size>,
}

impl From<Cost> for CallEstimate {
    fn from(cost: Cost) -> Self {
        CallEstimate { cost, result_size: None }
    }
}

/// Facts about a call that an estimate can read. Operands are counted from 0, the receiver first.
pub trait CallSite {
    /// Number of operands.
    fn operand_count(&self) -> usize;

    /// The operand's checked type.
    fn operand_type(&self, operand: usize) -> Type;

    /// The operand's value, if it is written as a literal.
    fn operand_literal(&self, operand: usize) -> Option<&Literal>;

    /// The operand's size, if anything is known about it.
    fn known_size(&self, operand: usize) -> Option<Size>;

    /// The size of the elements of a list operand, if anything is known about it.
    fn known_element_size(&self, operand: usize) -> Option<Size>;

    /// The operand's size.
    fn size(&self, operand: usize) -> Size {
        self.known_size(operand).unwrap_or(Size::UNKNOWN)
    }
}
