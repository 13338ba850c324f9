//! One attempt to place a pod: its claims, asked about one node after the other.
//!
//! Nodes that look alike share one search, and all searches share one budget.

use std::collections::HashMap;
use std::sync::Arc;

use api::json::Text;
use api::resource::v1::AllocationResult;

use crate::claims::Claims;
use crate::constraints::pruning::Pruning;
use crate::error::Error;
use crate::ids::CandidateId;
use crate::inventory::{Inventory, Shaped};
use crate::narration::Narration;
use crate::pools::Target;
use crate::search::{Budget, Effort, Pick, Search, Solution};
use crate::shape;

/// How many alternatives a request can have.
const ALTERNATIVES_MAX: i64 = 8;

/// Makes a look-ahead for a search.
pub type NewPruning<'p> = &'p dyn Fn() -> Box<dyn Pruning>;

/// One attempt to place a pod.
pub struct Attempt<'a> {
    inventory: &'a Inventory,
    claims: Claims,
    budget: Budget<'a>,
    pruning: Option<NewPruning<'a>>,
    /// By what can be used, and what of it is taken.
    answers: HashMap<(u64, String), Answer>,
    effort: Effort,
    searches: u64,
}

/// What a search came to, without names of nodes and pools.
#[derive(Debug, Clone)]
enum Answer {
    Found(Arc<Solution>),
    Nothing,
    /// An error about the node; on which devices.
    Fails(Error, Vec<CandidateId>),
}

/// Devices for all claims on a node.
#[derive(Debug, Clone)]
pub struct Found {
    shaped: Shaped,
    solution: Arc<Solution>,
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
        Attempt { inventory, claims, budget, pruning, answers: HashMap::new(), effort: Effort::default(), searches: 0 }
    }

    /// The same with another limit on what expressions over sets may cost altogether.
    #[must_use]
    pub fn with_cost_limit(mut self, limit: u64) -> Self {
        self.budget.cost_limit = limit;
        self
    }

    /// Devices for all claims on a node; nothing if there are none.
    ///
    /// # Errors
    /// [`Error::is_about_node`]: other nodes are worth a try. Otherwise the attempt is over.
    pub fn ask(&mut self, target: Target<'_>) -> Result<Option<Found>, Error> {
        let shaped = self.inventory.shaped(target)?;
        let state = self.inventory.allocated();
        let key = (shaped.number, shape::taken(&shaped.pools, state));
        if let Some(answer) = self.answers.get(&key) {
            return answer.on(&shaped);
        }
        let mut pruning = self.pruning.map(|new| new());
        let pruning = pruning.as_deref_mut().map(|it| it as &mut dyn Pruning);
        let search = Search::new(&shaped.pools, state, &self.claims, &mut self.budget, pruning);
        let (result, failed_set, effort) = search.run_to_failure();
        self.searches = self.searches.saturating_add(1);
        self.effort = self.effort.and(effort);
        let answer = match result {
            Ok(Some(solution)) => Answer::Found(Arc::new(solution)),
            Ok(None) => Answer::Nothing,
            Err(error) if error.is_about_node() => Answer::Fails(error, failed_set),
            Err(error) => return Err(error),
        };
        let on_node = answer.on(&shaped);
        self.answers.insert(key, answer);
        on_node
    }

    /// An allocation for each claim. `share_id` makes ids of shares.
    ///
    /// # Errors
    /// A slice selects nodes in a way that an allocation cannot repeat; the search has said so before.
    pub fn allocations(
        &self,
        found: &Found,
        share_id: &mut dyn FnMut() -> Text,
    ) -> Result<Vec<AllocationResult>, Error> {
        found.solution.allocations(&self.claims, &found.shaped.pools, share_id)
    }

    /// How much earlier alternatives are liked better: Kubernetes' raw score of a node.
    #[must_use]
    pub fn score(&self, found: &Found) -> i64 {
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

    /// What all searches did.
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
    pub(crate) fn names(&self, found: &Found) -> Vec<String> {
        let picks = found.solution.picks.iter().flatten();
        let name = |pick: &Pick| {
            let device = found.shaped.pools.candidates.of(pick.candidate).id();
            format!("{}: {device}", self.claims.asks.of(pick.ask).full_name)
        };
        picks.map(name).collect()
    }

    /// What all searches told, if the budget asks for it.
    pub fn take_narration(&mut self) -> Option<Narration> {
        self.budget.narration.as_mut().map(std::mem::take)
    }

    /// How many searches there were.
    #[must_use]
    pub fn searches(&self) -> u64 {
        self.searches
    }
}

impl Answer {
    /// The answer in the names of a node of this shape.
    fn on(&self, shaped: &Shaped) -> Result<Option<Found>, Error> {
        match self {
            Answer::Found(solution) => Ok(Some(Found { shaped: shaped.clone(), solution: solution.clone() })),
            Answer::Nothing => Ok(None),
            Answer::Fails(Error::ConstraintFails { claim, index, error, .. }, set) => Err(Error::ConstraintFails {
                node: shaped.pools.node.to_string(),
                claim: claim.clone(),
                index: *index,
                devices: shaped.pools.few_names(set),
                error: error.clone(),
            }),
            Answer::Fails(error, _) => Err(error.clone()),
        }
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
