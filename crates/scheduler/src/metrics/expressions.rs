//! What expressions do: how many are compiled and found, how often they run, fail and what that costs.

use std::sync::Arc;
use std::time::Duration;

use matching::CompileCache;
use matching::expressions::Reason;
use telemetry::metrics::{Counter, Family, Registry};

/// The metrics of expressions, and what was shown of them.
pub(super) struct Expressions {
    compilations: Arc<Family<Counter>>,
    cache_hits: Arc<Family<Counter>>,
    evictions: Arc<Family<Counter>>,
    compile_milliseconds: Arc<Family<Counter>>,
    evaluations: Arc<Counter>,
    cost: Arc<Counter>,
    remembered: Arc<Counter>,
    errors: Arc<Family<Counter>>,
}

impl Expressions {
    pub(super) fn new(registry: &Registry) -> Self {
        let by_field = |name, help| registry.family::<Counter>(name, help, &["field"], &[]);
        let one = |name, help| registry.family::<Counter>(name, help, &[], &[]).with(&[]);
        Self {
            compilations: by_field(
                "scheduler_cel_compilations_total",
                "[ALPHA] Number of expressions that were compiled, by the field that holds them.",
            ),
            cache_hits: by_field(
                "scheduler_cel_cache_hits_total",
                "[ALPHA] Number of expressions that were found compiled, by the field that holds them.",
            ),
            evictions: by_field(
                "scheduler_cel_cache_evictions_total",
                "[ALPHA] Number of compiled expressions that had to go because there were too many.",
            ),
            compile_milliseconds: by_field(
                "scheduler_cel_compilation_milliseconds_total",
                "[ALPHA] Time spent compiling expressions.",
            ),
            evaluations: one("scheduler_cel_evaluations_total", "[ALPHA] Number of expressions that were evaluated."),
            cost: one("scheduler_cel_cost_total", "[ALPHA] What evaluations of expressions cost, in CEL's units."),
            remembered: one(
                "scheduler_cel_remembered_total",
                "[ALPHA] Number of verdicts of expressions that were remembered instead of evaluated.",
            ),
            errors: registry.family(
                "scheduler_cel_errors_total",
                "[ALPHA] Number of evaluations of expressions that had no answer, by reason.",
                &["reason"],
                &[],
            ),
        }
    }

    /// Shows what a cache has done so far.
    pub(super) fn show(&self, cache: &CompileCache) {
        let fields = [("toleration", cache.toleration_statistics()), ("affinity", cache.node_affinity_statistics())];
        for (field, done) in fields {
            raise(&self.compilations.with(&[field]), done.misses);
            raise(&self.cache_hits.with(&[field]), done.hits);
            raise(&self.evictions.with(&[field]), done.evictions);
            raise(&self.compile_milliseconds.with(&[field]), millis(done.compile_time));
        }
        let counts = cache.counts();
        raise(&self.evaluations, counts.evaluations);
        raise(&self.cost, counts.cost);
        raise(&self.remembered, counts.hits);
        for (reason, count) in counts.failures {
            raise(&self.errors.with(&[Reason::name(reason)]), count);
        }
    }
}

/// Brings a counter up to a number.
fn raise(counter: &Counter, to: u64) {
    counter.add(to.saturating_sub(counter.get()));
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
