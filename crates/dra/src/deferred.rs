//! A search that takes longer than its attempt can wait: it is carried out elsewhere, with the rest of the budget.
//!
//! It holds all it needs, so that the world may change meanwhile. What it comes to is told to the inventory
//! ([`Inventory::learn`](crate::Inventory::learn)) and answers the next attempt, unless the node has changed by then.

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
pub struct Deferred {
    pub(crate) key: SearchKey,
    pub(crate) pools: Arc<NodePools>,
    /// Of the pools that the node can use.
    pub(crate) state: AllocatedState,
    pub(crate) claims: Arc<Claims>,
}

/// What such a search came to.
#[derive(Debug)]
pub struct Searched {
    pub(crate) key: SearchKey,
    pub(crate) answer: Result<Answer, Error>,
    /// What it took.
    pub effort: Effort,
}

impl Deferred {
    /// Searches.
    pub fn run<'b>(&self, budget: &mut Budget<'b>, pruning: Option<&mut (dyn Pruning + 'b)>) -> Searched {
        let (answer, effort) = answer(&self.pools, &self.state, &self.claims, budget, pruning);
        Searched { key: self.key, answer, effort }
    }
}

impl Searched {
    /// Why there is no answer: the attempt is over.
    #[must_use]
    pub fn failure(&self) -> Option<&Error> {
        self.answer.as_ref().err()
    }
}

/// Searches, and keeps what holds for all nodes of the shape.
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
