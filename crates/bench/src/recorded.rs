//! Figures of cel-go, which is not part of a run of these benches: Kubernetes' environments on the same expressions and
//! inputs, in a separate run on a busy 2-core machine. They show the order of magnitude, never a ratio of this run.

/// Header of the column.
pub const LABEL: &str = "cel-go*";

/// The foot of a table.
pub const NOTE: &str = "* recorded: cel-go in the environments of Kubernetes 1.38, the same expressions and inputs; both compile, check types, \
     estimate the cost and plan";

/// A case, and nanoseconds of one compilation and of one evaluation: the fastest of 30 samples.
const FIGURES: [(&str, f64, f64); 5] = [
    ("startsWith", 76_022.0, 944.0),
    ("or", 136_178.0, 1_938.0),
    ("semver", 119_168.0, 2_468.0),
    ("regex", 100_377.0, 1_323.0),
    ("exists", 189_282.0, 37_134.0),
];

/// Nanoseconds for one compilation of the case, if recorded.
#[must_use]
pub fn compile_ns(case: &str) -> Option<f64> {
    FIGURES.iter().find(|(name, ..)| *name == case).map(|(_, compile, _)| *compile)
}

/// Nanoseconds for one evaluation of the case, if recorded.
#[must_use]
pub fn evaluate_ns(case: &str) -> Option<f64> {
    FIGURES.iter().find(|(name, ..)| *name == case).map(|(_, _, evaluate)| *evaluate)
}
