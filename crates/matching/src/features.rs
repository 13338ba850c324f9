//! Which of the gated ways to match are allowed.

use api::features::Gate;

/// Which of the gated ways to match are allowed. What is not allowed matches nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Features {
    /// `Toleration.expression`.
    pub cel: bool,
    /// `NodeSelectorTerm.matchCELExpressions`.
    pub affinity_cel: bool,
    /// `SemverLt`, `SemverGt` and `SemverEq`, in tolerations and node selectors.
    pub semver: bool,
    /// `Lt` and `Gt` in tolerations.
    pub comparison: bool,
}

impl Features {
    /// Everything is allowed.
    pub const ALL: Features = Features { cel: true, affinity_cel: true, semver: true, comparison: true };
}

impl From<api::features::Features> for Features {
    fn from(gates: api::features::Features) -> Self {
        Features {
            cel: gates.toleration_cel(),
            affinity_cel: gates.enabled(Gate::TaintTolerationNodeAffinityCEL),
            semver: gates.enabled(Gate::TaintTolerationNodeAffinitySemverComparisonOperators),
            comparison: gates.enabled(Gate::TaintTolerationComparisonOperators),
        }
    }
}
