//! Enabled features of matching.

use api::features::Gate;

/// The enabled features of matching. A disabled one matches nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Features {
    /// Whether `Toleration.expression` is enabled.
    pub cel: bool,
    /// Whether `NodeSelectorTerm.matchCELExpressions` is enabled.
    pub affinity_cel: bool,
    /// Whether `SemverLt`, `SemverGt` and `SemverEq` are enabled, in tolerations and node selectors.
    pub semver: bool,
    /// Whether `Lt` and `Gt` in tolerations are enabled.
    pub comparison: bool,
}

impl Features {
    /// All features are enabled.
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
