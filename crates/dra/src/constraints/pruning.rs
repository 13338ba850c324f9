//! Checks of a set before it is complete.
//!
//! A search calls this before it continues with a partial set. A branch may be cut only if every completion of
//! the set makes the expression false; without such a proof the search is exhaustive.

use cel_kubernetes::environments::device::Device;

use crate::expressions::SetExpression;

/// A device, and its position in canonical order. Equivalent devices may share the form for expressions.
#[derive(Debug, Clone, Copy)]
pub struct PlacedDevice<'p> {
    /// Position of the device.
    pub at: usize,
    /// The device in the form of expressions.
    pub device: &'p Device,
}

/// A set of which a part is chosen.
#[derive(Debug)]
pub struct PartialSet<'p> {
    /// The constraint.
    pub expression: &'p SetExpression,
    /// The devices chosen so far, in canonical order.
    pub chosen: &'p [PlacedDevice<'p>],
    /// Open choices by request. Completions are among these; not all of these need be possible.
    pub open: &'p [OpenChoice<'p>],
}

/// Open choice of a request.
#[derive(Debug)]
pub struct OpenChoice<'p> {
    /// Number of devices to choose.
    pub places: usize,
    /// Candidates in canonical order, without repetition.
    pub candidates: &'p [PlacedDevice<'p>],
}

/// Whether the chosen devices precede all candidates; both are in canonical order.
#[must_use]
pub fn stand_before(chosen: &[PlacedDevice<'_>], candidates: &[PlacedDevice<'_>]) -> bool {
    match (chosen.last(), candidates.first()) {
        (Some(last), Some(first)) => last.at < first.at,
        _ => true,
    }
}

/// Possible results of an expression on the completions of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outlook {
    /// Whether some completion may be true.
    pub may_hold: bool,
    /// Whether some completion may be neither true nor false.
    pub may_fail: bool,
}

impl Outlook {
    /// Nothing is known.
    pub const UNKNOWN: Outlook = Outlook { may_hold: true, may_fail: true };

    /// Whether every completion is false.
    #[must_use]
    pub fn is_hopeless(self) -> bool {
        !self.may_hold && !self.may_fail
    }
}

/// Looks ahead, for one search.
pub trait Pruning {
    /// Returns the possible results of a set's completions, and the cost.
    fn look_ahead(&mut self, set: &PartialSet<'_>) -> (Outlook, u64);

    /// Number of failed branches after which equivalent devices are determined.
    fn patience(&self) -> u64 {
        64
    }
}
