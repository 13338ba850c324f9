//! The counters of a cache as metrics show them, the same for every component that evaluates expressions.

use super::{CompileCache, Reason};

/// A counter: its name behind the component's prefix, its help, at most one label with its value, and the number.
pub type Sample = (&'static str, &'static str, Option<(&'static str, &'static str)>, f64);

impl CompileCache {
    /// All counters of the cache.
    #[must_use]
    pub fn samples(&self) -> Vec<Sample> {
        let mut all = Vec::new();
        let fields = [("toleration", self.toleration_statistics()), ("affinity", self.node_affinity_statistics())];
        for (field, done) in fields {
            let label = Some(("field", field));
            let counts = [
                (
                    "compilations_total",
                    "[ALPHA] Number of expressions that were compiled, by the field that holds them.",
                    number(done.misses),
                ),
                (
                    "cache_hits_total",
                    "[ALPHA] Number of expressions that were found compiled, by the field that holds them.",
                    number(done.hits),
                ),
                (
                    "cache_evictions_total",
                    "[ALPHA] Number of compiled expressions that were dropped because there were too many.",
                    number(done.evictions),
                ),
                (
                    "compilation_seconds_total",
                    "[ALPHA] Time spent compiling expressions.",
                    done.compile_time.as_secs_f64(),
                ),
            ];
            all.extend(counts.map(|(name, help, value)| (name, help, label, value)));
        }
        let counts = self.counts();
        let plain = [
            ("evaluations_total", "[ALPHA] Number of expressions that were evaluated.", counts.evaluations),
            ("cost_total", "[ALPHA] Cost of the evaluations of expressions, in CEL's units.", counts.cost),
            (
                "remembered_total",
                "[ALPHA] Number of verdicts of expressions that were remembered instead of evaluated.",
                counts.hits,
            ),
        ];
        all.extend(plain.map(|(name, help, value)| (name, help, None, number(value))));
        let help = "[ALPHA] Number of evaluations of expressions that had no answer, by reason.";
        let failures = counts.failures.into_iter();
        all.extend(
            failures
                .map(|(reason, count)| ("errors_total", help, Some(("reason", Reason::name(reason))), number(count))),
        );
        all
    }
}

#[expect(clippy::cast_precision_loss, reason = "metrics are such numbers")]
fn number(count: u64) -> f64 {
    count as f64
}
