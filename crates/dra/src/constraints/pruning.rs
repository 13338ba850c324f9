//! What can be said about a set before it is whole.
//!
//! A search asks before it goes on with a partial set. An answer may cut a branch only if every completion of the set
//! makes the expression false; whoever cannot tell says so, and the search is exhaustive.

use cel_kubernetes::environments::device::Device;

use crate::expressions::SetExpression;

/// A device, and where it stands in canonical order. Devices that look the same may share what is seen of them.
#[derive(Debug, Clone, Copy)]
pub struct Placed<'p> {
    /// Its position.
    pub at: usize,
    /// What expressions see.
    pub device: &'p Device,
}

/// A set of which a part is chosen.
#[derive(Debug)]
pub struct Partial<'p> {
    /// The constraint.
    pub expression: &'p SetExpression,
    /// The devices chosen so far, in canonical order.
    pub chosen: &'p [Placed<'p>],
    /// What is still to be chosen, by request. Completions are among these; not all of these need be possible.
    pub open: &'p [Open<'p>],
}

/// What a request still has to choose.
#[derive(Debug)]
pub struct Open<'p> {
    /// How many devices.
    pub places: usize,
    /// From which, in canonical order, without repetition.
    pub candidates: &'p [Placed<'p>],
}

/// Whether devices that are chosen stand before all candidates; both are in canonical order.
#[must_use]
pub fn stand_before(chosen: &[Placed<'_>], candidates: &[Placed<'_>]) -> bool {
    match (chosen.last(), candidates.first()) {
        (Some(last), Some(first)) => last.at < first.at,
        _ => true,
    }
}

/// What completions of a set can make of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outlook {
    /// Some completion may be true.
    pub may_hold: bool,
    /// Some completion may be neither true nor false.
    pub may_fail: bool,
}

impl Outlook {
    /// Nothing can be said.
    pub const UNKNOWN: Outlook = Outlook { may_hold: true, may_fail: true };

    /// Every completion is false.
    #[must_use]
    pub fn is_hopeless(self) -> bool {
        !self.may_hold && !self.may_fail
    }
}

/// Looks ahead, for one search.
pub trait Pruning {
    /// What the completions of a set can come to, and what it cost to find out.
    fn look_ahead(&mut self, set: &Partial<'_>) -> (Outlook, u64);

    /// After this many branches that came to nothing it is worth the while to find out which devices are alike.
    fn patience(&self) -> u64 {
        64
    }
}
