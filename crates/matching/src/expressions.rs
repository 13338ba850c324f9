//! Expressions that were compiled before, each with the verdicts it has given.
//!
//! An expression is compiled once and evaluated once per distinct projection of its input onto what it reads: the fields of
//! a taint, the labels of a node. Both memories are bounded, shared between threads, and owned by whoever owns the cache.

mod outcome;
mod projection;
mod set_masks;
mod verdicts;

use std::num::NonZeroUsize;
use std::sync::Arc;

use api::core::v1::Taint;
use cel::env::EnvError;
use cel_kubernetes::cache::{Cache, Clock, Statistics};
use cel_kubernetes::compile::{CompileError, Compiled, Environment};
use cel_kubernetes::environments::node_affinity::{self, Labels};
use cel_kubernetes::environments::{Dialect, toleration};
use outcome::Counters;
pub use outcome::{Counts, Failure, Outcome, Reason};
use projection::{LabelProjection, TaintProjection};
use set_masks::SetMasks;
use verdicts::Verdicts;

use crate::taints::{Set, seen_by_expressions};

/// An expression in a toleration: sees a taint.
pub type TolerationExpression = Expression<TaintProjection>;

/// An expression in a node selector term: sees a node's labels.
pub type LabelExpression = Expression<LabelProjection>;

/// Programs of tolerations and of node selector terms, by their text.
#[derive(Debug)]
pub struct CompileCache {
    toleration: Environment,
    node_affinity: Environment,
    tolerations: Cache<TolerationExpression, CompileError>,
    node_affinities: Cache<LabelExpression, CompileError>,
    counters: Arc<Counters>,
}

/// A compiled expression, and the verdicts it has given. `P` knows which part of the input it reads.
#[derive(Debug)]
pub struct Expression<P> {
    compiled: Compiled,
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
        Ok(CompileCache {
            toleration: toleration::environment_in(&language)?,
            node_affinity: node_affinity::environment_in(&language)?,
            tolerations: Cache::new(capacity, clock.clone()),
            node_affinities: Cache::new(capacity, clock),
            counters: Arc::default(),
        })
    }

    /// The program of `Toleration.expression`.
    ///
    /// # Errors
    /// Why it does not compile; errors are not kept.
    pub fn toleration(&self, text: &str) -> Result<Arc<TolerationExpression>, CompileError> {
        self.tolerations.get_or_compile(text, || {
            let compiled = self.toleration.compile(text)?;
            let projection = TaintProjection::of(&compiled);
            Ok(Expression::new(compiled, projection, self.counters.clone()))
        })
    }

    /// The program of an entry of `matchCELExpressions`.
    ///
    /// # Errors
    /// Why it does not compile; errors are not kept.
    pub fn node_affinity(&self, text: &str) -> Result<Arc<LabelExpression>, CompileError> {
        self.node_affinities.get_or_compile(text, || {
            let compiled = self.node_affinity.compile(text)?;
            let projection = LabelProjection::of(&compiled);
            Ok(Expression::new(compiled, projection, self.counters.clone()))
        })
    }

    /// What the expressions did so far: evaluations, cost, remembered outcomes, failures.
    pub fn counts(&self) -> Counts {
        self.counters.counts()
    }

    /// What the cache of toleration expressions has done so far.
    pub fn toleration_statistics(&self) -> Statistics {
        self.tolerations.statistics()
    }

    /// What the cache of node affinity expressions has done so far.
    pub fn node_affinity_statistics(&self) -> Statistics {
        self.node_affinities.statistics()
    }
}

impl<P> Expression<P> {
    fn new(compiled: Compiled, projection: P, counters: Arc<Counters>) -> Self {
        Expression { compiled, projection, verdicts: Verdicts::default(), sets: SetMasks::default(), counters }
    }

    /// What was compiled.
    pub fn text(&self) -> &str {
        self.compiled.typed().ast().source().text()
    }

    /// The program, for explanations.
    pub fn compiled(&self) -> &Compiled {
        &self.compiled
    }

    /// How many verdicts are remembered.
    pub fn remembered(&self) -> usize {
        self.verdicts.len()
    }
}

impl TolerationExpression {
    /// Whether the taint is tolerated. Remembered by what the expression reads of a taint; a failure is no.
    pub fn matches(&self, taint: &toleration::Taint<'_>) -> bool {
        self.outcome(taint).holds()
    }

    /// What the expression says to the taint. Remembered by what it reads.
    pub fn outcome(&self, taint: &toleration::Taint<'_>) -> Outcome {
        self.projection.with(taint, |projection| {
            self.verdicts.get_or_insert(projection, &self.counters, || self.counters.run(&self.compiled, taint))
        })
    }

    /// Whether it reads when a taint was added.
    pub(crate) fn reads_time(&self) -> bool {
        self.projection.reads_time()
    }
}

impl TolerationExpression {
    /// Which taints of a set are tolerated: a bit for each. Only for sets that [have masks](Set::has_masks).
    pub(crate) fn tolerated(&self, set: &Set) -> u32 {
        if let Some(mask) = self.sets.get(set, self.reads_time()) {
            return mask;
        }
        let tolerates = |taint: &Taint| self.matches(&seen_by_expressions(taint));
        let bits = set.taints().iter().zip(0..crate::taints::MASK_BITS);
        let mask = bits.filter(|(taint, _)| tolerates(taint)).fold(0, |mask, (_, bit)| mask | 1 << bit);
        self.sets.put(set, self.reads_time(), mask);
        mask
    }
}

impl LabelExpression {
    /// Whether the labels fit. Remembered by the labels that the expression reads; a failure is no.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.outcome(labels).holds()
    }

    /// What the expression says to the labels. Remembered by what it reads.
    pub fn outcome(&self, labels: &Labels) -> Outcome {
        self.projection.with(labels, |projection| {
            self.verdicts.get_or_insert(projection, &self.counters, || {
                self.counters.run(&self.compiled, &node_affinity::Node { labels })
            })
        })
    }
}
