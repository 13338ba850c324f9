//! Figures of engines that cannot run here, recorded on another run: cel-go 0.29 in Kubernetes'
//! environment, on a 2-core machine. They show the order of magnitude, never a ratio of this run.

/// Source of the figures, for the footer of a table.
pub const LABEL: &str = "cel-go*";

/// The foot of a table of compile times. No figure per expression was recorded.
pub const COMPILE_NOTE: &str =
    "* recorded on another run: cel-go 0.29 compiles, checks, estimates and plans these in 103 to 257 µs each";

/// The foot of a table of evaluation times.
pub const EVALUATE_NOTE: &str =
    "* recorded on another run: cel-go 0.29 in Kubernetes' environment, other input of the same shape";

/// Nanoseconds for one evaluation of the case, if recorded.
#[must_use]
pub fn evaluate_ns(case: &str) -> Option<f64> {
    match case {
        "startsWith" => Some(646.0),
        "or" => Some(724.0),
        "semver" => Some(2_899.0),
        "regex" => Some(746.0),
        "exists" => Some(17_709.0),
        _ => None,
    }
}
