//! A search that takes longer than its attempt can wait: it is carried out elsewhere, with the rest of the budget.
//!
//! It contains everything it needs, so that the state may change meanwhile. Its result is passed to the
//! inventory ([`Inventory::learn`](crate::Inventory::learn)) and used by the next attempt, unless the node has
//! changed by then.

use std::sync::Arc;

use crate::allocated::AllocatedState;
use crate::answers::{Answer, SearchKey};
use crate::claims::Claims;
use crate::constraints::pruning::Pruning;
use crate::error::Error;
use crate::pools::NodePools;
use crate::search::{Budget, Effort, Search};

/// A search that can be carried out anywhere.
#[derive(Debug, Clone)]
pub struct DeferredSearch {
    pub(crate) key: SearchKey,
    pub(crate) pools: Arc<NodePools>,
    /// Allocation in the pools that the node can use.
    pub(crate) state: AllocatedState,
    pub(crate) claims: Arc<Claims>,
}

/// Result of such a search.
#[derive(Debug)]
pub struct SearchOutcome {
    pub(crate) key: SearchKey,
    pub(crate) answer: Result<Answer, Error>,
    /// Effort of the search.
    pub effort: Effort,
}

impl DeferredSearch {
    /// Searches.
    pub fn run<'b>(&self, budget: &mut Budget<'b>, pruning: Option<&mut (dyn Pruning + 'b)>) -> SearchOutcome {
        let (answer, effort) = answer(&self.pools, &self.state, &self.claims, budget, pruning);
        SearchOutcome { key: self.key, answer, effort }
    }
}

impl SearchOutcome {
    /// Error of the search: the attempt has ended.
    #[must_use]
    pub fn failure(&self) -> Option<&Error> {
        self.answer.as_ref().err()
    }
}

/// Searches, and keeps the result for all nodes of the shape.
pub(crate) fn answer<'b>(
    pools: &NodePools,
    state: &AllocatedState,
    claims: &Claims,
    budget: &mut Budget<'b>,
    pruning: Option<&mut (dyn Pruning + 'b)>,
) -> (Result<Answer, Error>, Effort) {
    let (result, failed, effort) = Search::new(pools, state, claims, budget, pruning).run_to_failure();
    let answer = match result {
        Ok(Some(solution)) => Ok(Answer::Found(Arc::new(solution))),
        Ok(None) => Ok(Answer::Nothing),
        Err(error) if error.is_about_node() => Ok(Answer::Fails(error, failed.claim, failed.devices)),
        Err(error) => Err(error),
    };
    (answer, effort)
}
