//! Expressions that were compiled before, each with the verdicts it has given.
//!
//! An expression is compiled once and evaluated once per distinct projection of its input onto the parts that
//! it reads: the fields of a taint, the labels of a node. Both caches are bounded, shared between threads, and
//! belong to the owner of the compile cache.

pub mod meter;
mod outcome;
mod projection;
mod samples;
mod set_masks;
mod verdicts;

use std::num::NonZeroUsize;
use std::sync::Arc;

use api::core::v1::Taint;
use cel::env::EnvError;
use cel_kubernetes::cache::{Cache, Clock, Statistics};
use cel_kubernetes::compile::{CompileError, CompiledExpression, Environment};
use cel_kubernetes::environments::node_affinity::{self, Labels};
use cel_kubernetes::environments::{Dialect, toleration};
pub use cel_kubernetes::object_limits;
pub use meter::Meter;
use outcome::Counters;
pub use outcome::{Counts, Failure, Outcome, Reason};
use projection::{LabelProjection, TaintProjection};
pub use samples::Sample;
use set_masks::SetMasks;
use verdicts::Verdicts;

use crate::taints::{Set, seen_by_expressions};

/// An expression in a toleration: sees a taint.
pub type TolerationExpression = MeteredExpression<TaintProjection>;

/// An expression in a node selector term: sees a node's labels.
pub type LabelExpression = MeteredExpression<LabelProjection>;

/// Programs of tolerations and of node selector terms, by their text. Clones share them.
#[derive(Debug, Clone)]
pub struct CompileCache {
    programs: Arc<Programs>,
    /// Budget of the attempts that evaluate these expressions; unlimited without one.
    meter: Option<Arc<Meter>>,
}

#[derive(Debug)]
struct Programs {
    toleration: Environment,
    node_affinity: Environment,
    tolerations: Cache<Expression<TaintProjection>, CompileError>,
    node_affinities: Cache<Expression<LabelProjection>, CompileError>,
    counters: Arc<Counters>,
}

/// A compiled expression with the budget of its caller.
#[derive(Debug)]
pub struct MeteredExpression<P> {
    expression: Arc<Expression<P>>,
    meter: Option<Arc<Meter>>,
}

/// A compiled expression with its cached verdicts. `P` is the part of the input that it reads.
#[derive(Debug)]
struct Expression<P> {
    compiled: CompiledExpression,
    projection: P,
    verdicts: Verdicts,
    /// Verdicts about whole sets of taints; unused by expressions that see labels.
    sets: SetMasks,
    counters: Arc<Counters>,
}

impl CompileCache {
    /// A cache of at most `capacity` expressions of each kind.
    ///
    /// # Errors
    /// Never, unless a library of ours contradicts another.
    pub fn new(capacity: NonZeroUsize, clock: Clock) -> Result<Self, EnvError> {
        let language = Dialect::CELPLANE.language()?;
        let programs = Programs {
            toleration: toleration::environment_in(&language)?,
            node_affinity: node_affinity::environment_in(&language)?,
            tolerations: Cache::new(capacity, clock.clone()),
            node_affinities: Cache::new(capacity, clock),
            counters: Arc::default(),
        };
        Ok(CompileCache { programs: Arc::new(programs), meter: None })
    }

    /// The same programs and verdicts, evaluated within a budget.
    #[must_use]
    pub fn metered(&self, meter: Arc<Meter>) -> Self {
        CompileCache { programs: self.programs.clone(), meter: Some(meter) }
    }

    /// The budget, where there is one.
    pub fn meter(&self) -> Option<&Arc<Meter>> {
        self.meter.as_ref()
    }

    /// The program of `Toleration.expression`.
    ///
    /// # Errors
    /// Why it does not compile; errors are not kept.
    pub fn toleration(&self, text: &str) -> Result<TolerationExpression, CompileError> {
        let programs = &*self.programs;
        let expression = programs.tolerations.get_or_compile(text, || {
            let compiled = programs.toleration.compile(text)?;
            let projection = TaintProjection::of(&compiled);
            Ok(Expression::new(compiled, projection, programs.counters.clone()))
        })?;
        Ok(MeteredExpression { expression, meter: self.meter.clone() })
    }

    /// The program of an entry of `matchCELExpressions`.
    ///
    /// # Errors
    /// Why it does not compile; errors are not kept.
    pub fn node_affinity(&self, text: &str) -> Result<LabelExpression, CompileError> {
        let programs = &*self.programs;
        let expression = programs.node_affinities.get_or_compile(text, || {
            let compiled = programs.node_affinity.compile(text)?;
            let projection = LabelProjection::of(&compiled);
            Ok(Expression::new(compiled, projection, programs.counters.clone()))
        })?;
        Ok(MeteredExpression { expression, meter: self.meter.clone() })
    }

    /// Counters of all expressions: evaluations, cost, cache hits, failures.
    pub fn counts(&self) -> Counts {
        self.programs.counters.counts()
    }

    /// Counters of the cache of toleration expressions.
    pub fn toleration_statistics(&self) -> Statistics {
        self.programs.tolerations.statistics()
    }

    /// Counters of the cache of node affinity expressions.
    pub fn node_affinity_statistics(&self) -> Statistics {
        self.programs.node_affinities.statistics()
    }
}

impl<P> Expression<P> {
    fn new(compiled: CompiledExpression, projection: P, counters: Arc<Counters>) -> Self {
        Expression { compiled, projection, verdicts: Verdicts::default(), sets: SetMasks::default(), counters }
    }
}

impl<P> Drop for Expression<P> {
    fn drop(&mut self) {
        self.counters.forget(self.verdicts.stored());
    }
}

impl<P> MeteredExpression<P> {
    /// Source text of the expression.
    pub fn text(&self) -> &str {
        self.expression.compiled.typed().ast().source().text()
    }

    /// The program, for explanations.
    pub fn compiled(&self) -> &CompiledExpression {
        &self.expression.compiled
    }

    /// Number of cached verdicts.
    pub fn remembered(&self) -> usize {
        self.expression.verdicts.len()
    }

    /// Bytes of the tables of verdicts about sets of taints.
    pub fn set_table_bytes(&self) -> usize {
        self.expression.sets.memory_bytes()
    }

    /// Whether both are one program with one memory.
    pub fn is_shared_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.expression, &other.expression)
    }

    /// The outcome that was found before for a projection of the input, or a new one if the budget admits it.
    fn remember_or_run(&self, projection: &[u8], input: &dyn cel::program::Activation) -> Outcome {
        let Expression { compiled, verdicts, counters, .. } = &*self.expression;
        let run = || {
            let Some(meter) = &self.meter else { return Some(counters.run(compiled, input).0) };
            if !meter.admits() {
                return None;
            }
            let (outcome, cost) = counters.run(compiled, input);
            meter.add(cost);
            Some(outcome)
        };
        verdicts.get_or_insert(projection, counters, run).unwrap_or_else(Outcome::over_budget)
    }

    fn is_exceeded(&self) -> bool {
        self.meter.as_ref().is_some_and(|meter| meter.is_exceeded())
    }
}

impl TolerationExpression {
    /// Whether the taint is tolerated. Cached by the parts of the taint that the expression reads; a failure
    /// counts as no.
    pub fn matches(&self, taint: &toleration::Taint<'_>) -> bool {
        self.outcome(taint).holds()
    }

    /// Evaluates the expression for a taint. Cached by the parts that it reads.
    pub fn outcome(&self, taint: &toleration::Taint<'_>) -> Outcome {
        self.expression.projection.with(taint, |projection| self.remember_or_run(projection, taint))
    }

    /// Whether it reads when a taint was added.
    pub(crate) fn reads_time(&self) -> bool {
        self.expression.projection.reads_time()
    }

    /// Returns the tolerated taints of a set, a bit for each. Only for sets that [have masks](Set::has_masks).
    pub(crate) fn tolerated(&self, set: &Set) -> u32 {
        let sets = &self.expression.sets;
        if let Some(mask) = sets.get(set, self.reads_time()) {
            return mask;
        }
        let tolerates = |taint: &Taint| self.matches(&seen_by_expressions(taint));
        let bits = set.taints().iter().zip(0..crate::taints::MASK_BITS);
        let mask = bits.filter(|(taint, _)| tolerates(taint)).fold(0, |mask, (_, bit)| mask | 1 << bit);
        // A mask in which an evaluation is missing must not be found by later attempts.
        if !self.is_exceeded() {
            sets.put(set, self.reads_time(), mask);
        }
        mask
    }
}

impl LabelExpression {
    /// Whether the labels match. Cached by the labels that the expression reads; a failure counts as no.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.outcome(labels).holds()
    }

    /// Evaluates the expression for labels. Cached by the labels that it reads.
    pub fn outcome(&self, labels: &Labels) -> Outcome {
        let input = node_affinity::Node { labels };
        self.expression.projection.with(labels, |projection| self.remember_or_run(projection, &input))
    }
}
