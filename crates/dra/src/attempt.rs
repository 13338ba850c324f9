//! One attempt to place a pod: its claims, tried on one node after the other.
//!
//! Equivalent nodes share one search, also with earlier attempts, and all searches share one budget. A search
//! that exceeds the patience is deferred.

use std::sync::Arc;

use api::json::Text;
use api::resource::v1::AllocationResult;

pub use crate::answers::FoundDevices;
use crate::answers::SearchKey;
use crate::claims::Claims;
use crate::constraints::pruning::Pruning;
use crate::deferred::{self, DeferredSearch};
use crate::error::Error;
use crate::inventory::Inventory;
use crate::narration::Narration;
use crate::pools::Target;
use crate::search::{Budget, Effort, Pick};

/// Maximum number of alternatives of a request.
const ALTERNATIVES_MAX: i64 = 8;

/// Makes a look-ahead for a search.
pub type NewPruning<'p> = &'p dyn Fn() -> Box<dyn Pruning>;

/// One attempt to place a pod.
pub struct Attempt<'a> {
    inventory: &'a Inventory,
    claims: Arc<Claims>,
    question: u64,
    budget: Budget<'a>,
    pruning: Option<NewPruning<'a>>,
    effort: Effort,
    searches: u64,
    deferred: Option<DeferredSearch>,
}

impl std::fmt::Debug for Attempt<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attempt")
            .field("effort", &self.effort)
            .field("searches", &self.searches)
            .finish_non_exhaustive()
    }
}

impl<'a> Attempt<'a> {
    /// An attempt for these claims.
    pub fn new(inventory: &'a Inventory, claims: Claims, budget: Budget<'a>, pruning: Option<NewPruning<'a>>) -> Self {
        // If every step is recorded, cached results of earlier attempts are not used.
        let question = if budget.narration.is_some() { inventory.new_question() } else { inventory.question(&claims) };
        let (claims, effort) = (Arc::new(claims), Effort::default());
        Attempt { inventory, claims, question, budget, pruning, effort, searches: 0, deferred: None }
    }

    /// Sets another limit on the total cost of set expressions.
    #[must_use]
    pub fn with_cost_limit(mut self, limit: u64) -> Self {
        self.budget.cost_limit = limit;
        self
    }

    /// Devices for all claims on a node; nothing if there are none.
    ///
    /// # Errors
    /// [`Error::is_about_node`]: other nodes should be tried. Otherwise the attempt has ended; with
    /// [`Error::OutOfPatience`], until [`take_deferred`](Self::take_deferred) was run.
    pub fn ask(&mut self, target: Target<'_>) -> Result<Option<FoundDevices>, Error> {
        let shaped = self.inventory.shaped(target)?;
        let key = SearchKey { question: self.question, usable: shaped.number, taken: shaped.taken };
        if let Some(answer) = self.inventory.answer(&key) {
            return answer.on(&shaped, &self.claims);
        }
        let mut pruning = self.pruning.map(|new| new());
        let pruning = pruning.as_deref_mut().map(|it| it as &mut dyn Pruning);
        let state = self.inventory.allocated();
        let (answer, effort) = deferred::answer(&shaped.pools, state, &self.claims, &mut self.budget, pruning);
        self.searches = self.searches.saturating_add(1);
        self.effort = self.effort.and(effort);
        let answer = answer.inspect_err(|error| {
            if matches!(error, Error::OutOfPatience) {
                let (pools, claims) = (shaped.pools.clone(), self.claims.clone());
                self.deferred = Some(DeferredSearch { key, state: state.of(&pools), pools, claims });
            }
        })?;
        let on_node = answer.on(&shaped, &self.claims);
        self.inventory.remember(key, answer);
        on_node
    }

    /// The search that was interrupted to be continued in the background.
    pub fn take_deferred(&mut self) -> Option<DeferredSearch> {
        self.deferred.take()
    }

    /// An allocation for each claim. `share_id` makes ids of shares.
    ///
    /// # Errors
    /// A slice selects nodes in a way that an allocation cannot express; the search has reported that before.
    pub fn allocations(
        &self,
        found: &FoundDevices,
        share_id: &mut dyn FnMut() -> Text,
    ) -> Result<Vec<AllocationResult>, Error> {
        found.solution.allocations(&self.claims, &found.shaped.pools, share_id)
    }

    /// Preference for earlier alternatives: Kubernetes' raw score of a node.
    #[must_use]
    pub fn score(&self, found: &FoundDevices) -> i64 {
        let mut score = 0_i64;
        for (index, (_, claim)) in self.claims.claims.iter().enumerate() {
            let taken = found.solution.alternatives.get(index).map(Vec::as_slice).unwrap_or_default();
            for (request, taken) in claim.requests.iter().zip(taken).filter(|(request, _)| request.has_alternatives) {
                let ask = request.asks.get(*taken);
                let mut picks = found.solution.picks.get(index).into_iter().flatten();
                if picks.any(|pick| Some(&pick.ask) == ask) {
                    let place = i64::try_from(*taken).unwrap_or(ALTERNATIVES_MAX);
                    score = score.saturating_add(ALTERNATIVES_MAX.saturating_sub(place));
                }
            }
        }
        score
    }

    /// Total effort of all searches.
    #[must_use]
    pub fn effort(&self) -> Effort {
        self.effort
    }

    pub(crate) fn inventory(&self) -> &'a Inventory {
        self.inventory
    }

    pub(crate) fn claims(&self) -> &Claims {
        &self.claims
    }

    /// Devices by claim and request, as people read them.
    pub(crate) fn names(&self, found: &FoundDevices) -> Vec<String> {
        let picks = found.solution.picks.iter().flatten();
        let name = |pick: &Pick| {
            let device = found.shaped.pools.candidates.of(pick.candidate).id();
            format!("{}: {device}", self.claims.asks.of(pick.ask).full_name)
        };
        picks.map(name).collect()
    }

    /// Recorded steps of all searches, if the budget requests them.
    pub fn take_narration(&mut self) -> Option<Narration> {
        self.budget.narration.as_mut().map(std::mem::take)
    }

    /// Number of searches.
    #[must_use]
    pub fn searches(&self) -> u64 {
        self.searches
    }
}

impl Effort {
    /// Both together.
    #[must_use]
    pub fn and(self, other: Effort) -> Effort {
        Effort {
            steps: self.steps.saturating_add(other.steps),
            evaluations: self.evaluations.saturating_add(other.evaluations),
            cuts: self.cuts.saturating_add(other.cuts),
            cost: self.cost.saturating_add(other.cost),
        }
    }
}
