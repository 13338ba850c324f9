//! The first set of devices that satisfies all claims of a pod on one node.
//!
//! Claim by claim, request by request, device by device, with backtracking. Within a request devices are taken
//! in ascending order: combinations are tried, never permutations. Follows `allocateOne` and `allocateDevice`
//! of the experimental allocator; constraints over sets follow KEP-5254.

mod alike;
mod device;
mod set;

use std::collections::HashMap;
use std::sync::Arc;

use api::resource::v1::DeviceAttribute;

use crate::allocated::AllocatedState;
use crate::capacity::{self, Amounts};
use crate::claims::{Claims, Count, RequestAlternative};
use crate::compatibility::CommonGroups;
use crate::constraints::attribute::Attributes;
use crate::constraints::pruning::Pruning;
use crate::counters::Ledger;
use crate::error::{Error, RequestProblem, with_hint};
use crate::expressions::Answer;
use crate::features::Features;
use crate::ids::{AskId, CandidateId, ClaimId, Id, PoolId, Table};
use crate::narration::{Narration, Step};
use crate::pools::{NodePools, State};
use crate::{RESULTS_MAX, allocation};

/// Remaining budget of a scheduling attempt, over all nodes.
pub struct Budget<'b> {
    /// Cost limit of set constraints.
    pub cost_limit: u64,
    /// Cost of set constraints so far.
    pub cost: u64,
    /// Called periodically: returns the reason to stop the search.
    pub interrupt: Box<dyn Fn() -> Option<String> + 'b>,
    /// Record of every step, if requested.
    pub narration: Option<Narration>,
    /// Amount of work before searches are deferred; `None` if the caller waits for them. A step counts as
    /// [`STEP_WORK`](Self::STEP_WORK), and the cost of set expressions is added.
    pub patience: Option<u64>,
}

impl std::fmt::Debug for Budget<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Budget").field("cost_limit", &self.cost_limit).field("cost", &self.cost).finish_non_exhaustive()
    }
}

impl Budget<'_> {
    /// Default cost limit of a scheduling attempt.
    pub const COST_LIMIT: u64 = 100_000_000;
    /// Work of a search step, besides the cost of expressions.
    pub const STEP_WORK: u64 = 20;

    /// The default limit on cost, and no limit on time.
    #[must_use]
    pub fn by_cost() -> Self {
        Budget { cost_limit: Self::COST_LIMIT, cost: 0, interrupt: Box::new(|| None), narration: None, patience: None }
    }

    /// Subtracts work from the patience.
    fn wait(&mut self, work: u64) -> Result<(), Error> {
        let Some(left) = &mut self.patience else { return Ok(()) };
        *left = left.checked_sub(work).ok_or(Error::OutOfPatience)?;
        Ok(())
    }
}

/// Effort of a search.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Effort {
    /// Calls of the recursive step.
    pub steps: u64,
    /// Evaluations on complete sets.
    pub evaluations: u64,
    /// Branches that were cut.
    pub cuts: u64,
    /// Cost of set expressions on complete and partial sets.
    pub cost: u64,
}

/// Devices for all claims, by their positions on a node: equivalent nodes share it.
#[derive(Debug, Clone, PartialEq)]
pub struct Solution {
    /// By claim.
    pub(crate) picks: Vec<Vec<Pick>>,
    /// By claim and request: which alternative was taken.
    pub(crate) alternatives: Vec<Vec<usize>>,
}

/// A device for a request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pick {
    pub(crate) ask: AskId,
    pub(crate) candidate: CandidateId,
    /// Share of a shared device.
    pub(crate) share: Option<Amounts>,
}

/// A search for devices on one node.
pub struct Search<'s, 'b> {
    pools: &'s NodePools,
    claims: &'s Claims,
    features: &'s Features,
    budget: &'s mut Budget<'b>,
    pruning: Option<&'s mut (dyn Pruning + 'b)>,
    /// Use of candidates, before and during the search.
    uses: Table<CandidateId, Use<'s>>,
    /// By pool, from the first device on that takes counters.
    drawn: Table<PoolId, Option<CounterUse>>,
    asks: Table<AskId, AskState>,
    /// By claim and constraint.
    constraints: Table<ClaimId, Vec<Attributes>>,
    derived: HashMap<(CandidateId, u64), Arc<DeviceAttribute>>,
    picks: Table<ClaimId, Vec<Pick>>,
    alternatives: Table<ClaimId, Vec<usize>>,
    state: &'s AllocatedState,
    domains: set::Domains,
    alike: alike::Equivalence,
    failed: FailedSet,
    effort: Effort,
}

/// The devices of a claim on which a set constraint failed.
#[derive(Debug)]
pub(crate) struct FailedSet {
    pub(crate) claim: ClaimId,
    pub(crate) devices: Vec<CandidateId>,
}

/// Use of a candidate.
#[derive(Debug, Default)]
struct Use<'s> {
    /// Whether it has an exclusive owner.
    is_dedicated: bool,
    /// Shares of other pods.
    shares: Vec<&'s Amounts>,
    /// Claims of this pod that have it alone.
    takers: Vec<ClaimId>,
    /// Shares of this pod.
    taken_shares: Vec<Amounts>,
}

/// Counters of a pool with their consumption.
#[derive(Debug)]
struct CounterUse {
    ledger: Ledger,
    /// By counter set.
    groups: Vec<CommonGroups>,
}

/// State of a request on this node.
#[derive(Debug, Default)]
struct AskState {
    count: i64,
    /// Devices of a request for all devices.
    all: Vec<CandidateId>,
    /// By candidate.
    selectable: Table<CandidateId, Option<bool>>,
}

/// A reason to end a branch of the search.
enum Stop {
    /// There would be more devices than a claim can have.
    TooMany,
    Error(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Error(error)
    }
}

/// Position of the search.
#[derive(Debug, Clone, Copy)]
struct SearchPosition {
    claim: usize,
    request: usize,
    alternative: usize,
    /// Number of devices that the request has.
    device: i64,
}

/// Number of steps between two checks for an interrupt.
const STEPS_BETWEEN_INTERRUPTS: u64 = 64;

impl<'s, 'b> Search<'s, 'b> {
    /// A search on a node. Without `pruning` it is exhaustive.
    pub fn new(
        pools: &'s NodePools,
        state: &'s AllocatedState,
        claims: &'s Claims,
        budget: &'s mut Budget<'b>,
        pruning: Option<&'s mut (dyn Pruning + 'b)>,
    ) -> Self {
        let uses = pools.candidates.iter().map(|(_, candidate)| {
            let slice = &candidate.slice;
            let device = &candidate.device().name;
            let Some(pool) = state.pool(&slice.driver, &slice.pool) else { return Use::default() };
            Use {
                is_dedicated: pool.is_dedicated(device),
                shares: pool.shares(device).into_iter().flat_map(|shares| shares.values()).collect(),
                ..Use::default()
            }
        });
        Search {
            pools,
            claims,
            features: &claims.features,
            budget,
            pruning,
            uses: uses.collect(),
            drawn: Table::filled(pools.pools.len(), || None),
            asks: Table::filled(claims.asks.len(), AskState::default),
            constraints: Table::filled(claims.claims.len(), Vec::new),
            derived: HashMap::new(),
            picks: Table::filled(claims.claims.len(), Vec::new),
            alternatives: Table::filled(claims.claims.len(), Vec::new),
            state,
            domains: set::Domains::default(),
            alike: alike::Equivalence::default(),
            failed: FailedSet { claim: ClaimId::new(0), devices: Vec::new() },
            effort: Effort::default(),
        }
    }

    /// Looks for devices; none are found if the claims cannot be satisfied on this node. It is an error if the claims
    /// cannot be understood, if an expression fails, or if the budget is spent.
    pub fn run(mut self) -> (Result<Option<Solution>, Error>, Effort) {
        let result = self.find();
        (result, self.effort)
    }

    /// Like `run`, and returns the devices on which a set constraint failed.
    pub(crate) fn run_to_failure(mut self) -> (Result<Option<Solution>, Error>, FailedSet, Effort) {
        let result = self.find();
        (result, self.failed, self.effort)
    }

    fn find(&mut self) -> Result<Option<Solution>, Error> {
        self.prepare()?;
        let first = SearchPosition { claim: 0, request: 0, alternative: 0, device: 0 };
        match self.step(first, false, 0) {
            Ok(true) => {}
            Ok(false) | Err(Stop::TooMany) => {
                let is_invalid = self.pools.pools.iter().any(|(_, pool)| pool.state == State::Invalid);
                return if is_invalid { Err(Error::InvalidPools) } else { Ok(None) };
            }
            Err(Stop::Error(error)) => return Err(error),
        }
        let solution = Solution {
            picks: self.picks.iter().map(|(_, picks)| picks.clone()).collect(),
            alternatives: self.alternatives.iter().map(|(_, taken)| taken.clone()).collect(),
        };
        allocation::check_node_selectors(&solution, self.pools, self.claims)?;
        Ok(Some(solution))
    }

    /// Checks the preconditions of the search, and determines the number of devices of each request.
    fn prepare(&mut self) -> Result<(), Error> {
        let claims = self.claims;
        for (id, claim) in claims.claims.iter() {
            let mut least = 0_i64;
            for request in &claim.requests {
                if let Some(problem) = &request.problem {
                    return Err(problem.clone());
                }
                let mut least_of_request = i64::MAX;
                for ask_id in &request.asks {
                    least_of_request = least_of_request.min(self.prepare_ask(id, *ask_id)?);
                }
                least = least.saturating_add(least_of_request);
            }
            if i64::try_from(RESULTS_MAX).is_ok_and(|max| least > max) {
                return Err(Error::TooManyDevices { claim: claim.key.clone(), requested: least });
            }
            match &claim.constraints {
                Ok(constraints) => {
                    *self.constraints.of_mut(id) = constraints.iter().map(|_| Attributes::default()).collect();
                }
                Err(error) => return Err(error.clone()),
            }
            *self.alternatives.of_mut(id) = vec![0; claim.requests.len()];
        }
        Ok(())
    }

    fn prepare_ask(&mut self, claim: ClaimId, id: AskId) -> Result<i64, Error> {
        let ask = self.claims.asks.of(id);
        if let Some(problem) = &ask.problem {
            return Err(problem.clone());
        }
        self.asks.of_mut(id).selectable = Table::filled(self.pools.candidates.len(), || None);
        self.asks.of_mut(id).count = match ask.count {
            Count::Exactly(count) => count,
            Count::All => {
                let all = self.all_devices(claim, id)?;
                let count = i64::try_from(all.len()).unwrap_or(i64::MAX);
                self.asks.of_mut(id).all = all;
                count
            }
        };
        Ok(self.asks.of(id).count)
    }

    /// All devices that a request is about; none may be missing.
    fn all_devices(&mut self, claim: ClaimId, id: AskId) -> Result<Vec<CandidateId>, Error> {
        let (pools, claims) = (self.pools, self.claims);
        let ask = claims.asks.of(id);
        let refuse = |problem| {
            Err(Error::Request {
                claim: claims.claims.of(claim).key.clone(),
                of: format!("request {}", ask.name),
                problem,
            })
        };
        let mut all = Vec::new();
        for (_, pool) in pools.pools.iter() {
            match pool.state {
                State::Usable => {}
                State::Incomplete => return refuse(RequestProblem::PoolIncomplete { pool: pool.id() }),
                State::Invalid => return refuse(RequestProblem::PoolInvalid { pool: pool.id() }),
            }
            for candidate in &pool.candidates {
                if !self.is_selectable(id, *candidate)? {
                    continue;
                }
                if self.features.consumable_capacity {
                    // Only the device's capacity counts: one that is in use stays, so that not all devices are
                    // available.
                    let model = pools.candidates.of(*candidate).model();
                    let name = || pools.candidates.of(*candidate).device().name.to_string();
                    let fractions = self.features.fractional_capacity_range;
                    let consumed = capacity::consumed(ask.capacity.as_ref(), &model.capacity, fractions);
                    let consumed = consumed.map_err(|problem| self.capacity_error(claim, ask, name(), problem))?;
                    let nobody = std::iter::empty::<&Amounts>();
                    if !consumed.is_some_and(|it| capacity::fits(&it, &model.capacity, nobody, fractions)) {
                        continue;
                    }
                }
                all.push(*candidate);
            }
        }
        Ok(all)
    }

    /// Records a step, if requested.
    fn report(&mut self, step: impl FnOnce(&NodePools) -> Step) {
        if let Some(narration) = &mut self.budget.narration {
            narration.add(|| step(self.pools));
        }
    }

    fn capacity_error(&self, claim: ClaimId, ask: &RequestAlternative, device: String, problem: String) -> Error {
        let claim = self.claims.claims.of(claim).key.clone();
        Error::Capacity { claim, request: ask.name.to_string(), device, problem }
    }

    /// Finds the next device; true when everything has its devices.
    ///
    /// `in_alternative`: one of several alternatives has been chosen. `start`: position in the order of devices
    /// from which to continue.
    fn step(&mut self, at: SearchPosition, in_alternative: bool, start: usize) -> Result<bool, Stop> {
        self.effort.steps = self.effort.steps.saturating_add(1);
        self.budget.wait(Budget::STEP_WORK)?;
        if self.effort.steps.checked_rem(STEPS_BETWEEN_INTERRUPTS) == Some(0)
            && let Some(why) = (self.budget.interrupt)()
        {
            return Err(Error::Interrupted(why).into());
        }
        let claims = self.claims;
        let claim_id = ClaimId::new(at.claim);
        let Some(claim) = claims.claims.get(claim_id) else { return Ok(true) };
        let Some(request) = claim.requests.get(at.request) else {
            let next = SearchPosition { claim: at.claim.saturating_add(1), request: 0, alternative: 0, device: 0 };
            // Another choice for an earlier claim may allow an alternative with fewer devices.
            return match self.step(next, false, 0) {
                Err(Stop::TooMany) => Ok(false),
                other => other,
            };
        };
        if request.has_alternatives && !in_alternative {
            return self.first_alternative(at, claim_id, request.asks.len());
        }
        let Some(ask_id) = request.asks.get(at.alternative).copied() else { return Ok(false) };
        let is_all = claims.asks.of(ask_id).count == Count::All;
        let count = self.asks.of(ask_id).count;
        if is_all && self.asks.of(ask_id).all.is_empty() {
            return Ok(false);
        }
        if at.device >= count {
            if !self.sets_hold(claim_id, at.request)? {
                return Ok(false);
            }
            let next = SearchPosition { request: at.request.saturating_add(1), alternative: 0, device: 0, ..at };
            return self.step(next, false, 0);
        }
        let missing = usize::try_from(count.saturating_sub(at.device)).unwrap_or(usize::MAX);
        if self.picks.of(claim_id).len().saturating_add(missing) > RESULTS_MAX {
            return Err(Stop::TooMany);
        }
        if claim.is_canonical() {
            self.report(|_| Step::Collecting { current: at.device, expected: count });
        }
        if self.is_hopeless(claim_id, at, start)? {
            return Ok(false);
        }
        if let Some(narration) = &mut self.budget.narration {
            let picks = self.picks.of(claim_id);
            let names = || self.pools.names(&picks.iter().map(|pick| pick.candidate).collect::<Vec<_>>());
            narration.reach(picks.len(), names);
        }
        if is_all { self.take_next_of_all(at, claim_id, ask_id) } else { self.take_any(at, claim_id, ask_id, start) }
    }

    fn first_alternative(&mut self, at: SearchPosition, claim: ClaimId, alternatives: usize) -> Result<bool, Stop> {
        let mut all_too_many = true;
        for alternative in 0..alternatives {
            match self.step(SearchPosition { alternative, ..at }, true, 0) {
                Err(Stop::TooMany) => continue,
                Ok(true) => {
                    if let Some(taken) = self.alternatives.of_mut(claim).get_mut(at.request) {
                        *taken = alternative;
                    }
                    return Ok(true);
                }
                Ok(false) => all_too_many = false,
                Err(error) => return Err(error),
            }
        }
        if all_too_many { Err(Stop::TooMany) } else { Ok(false) }
    }

    /// All devices are known; the next one can be had, or there is no solution.
    fn take_next_of_all(&mut self, at: SearchPosition, claim: ClaimId, ask: AskId) -> Result<bool, Stop> {
        let next = usize::try_from(at.device).ok().and_then(|index| self.asks.of(ask).all.get(index).copied());
        let Some(candidate) = next else { return Ok(false) };
        let Some(undo) = self.take(claim, ask, candidate, true)? else { return Ok(false) };
        match self.step(SearchPosition { device: at.device.saturating_add(1), ..at }, true, 0) {
            Ok(true) => Ok(true),
            other => {
                self.give_back(claim, ask, candidate, undo);
                other
            }
        }
    }

    fn take_any(&mut self, at: SearchPosition, claim: ClaimId, ask: AskId, start: usize) -> Result<bool, Stop> {
        let pools = self.pools;
        let is_canonical = self.claims.claims.of(claim).is_canonical();
        let order = if is_canonical { &pools.canonical } else { &pools.listed };
        let mut failed_kinds = Vec::new();
        for (position, candidate) in order.iter().copied().enumerate().skip(start) {
            if self.is_in_use(claim, ask, candidate) || !self.is_selectable(ask, candidate)? {
                continue;
            }
            if !self.has_capacity(claim, ask, candidate)? {
                continue;
            }
            if !failed_kinds.is_empty() && self.kind(candidate).is_some_and(|kind| failed_kinds.contains(&kind)) {
                continue;
            }
            let Some(undo) = self.take(claim, ask, candidate, false)? else { continue };
            let next = SearchPosition { device: at.device.saturating_add(1), ..at };
            match self.step(next, true, position.saturating_add(1)) {
                Ok(true) => return Ok(true),
                Ok(false) => {
                    self.give_back(claim, ask, candidate, undo);
                    if is_canonical {
                        failed_kinds.extend(self.note_failure(self.claims.asks.of(ask), candidate));
                    }
                }
                Err(stop) => {
                    self.give_back(claim, ask, candidate, undo);
                    return Err(stop);
                }
            }
        }
        Ok(false)
    }

    /// Whether the selectors of class and request select a device, and the node can use it.
    fn is_selectable(&mut self, ask_id: AskId, candidate_id: CandidateId) -> Result<bool, Error> {
        if let Some(known) = self.asks.of(ask_id).selectable.of(candidate_id) {
            return Ok(*known);
        }
        let candidate = self.pools.candidates.of(candidate_id);
        let device = candidate.device();
        let mut is_selectable = self.features.device_binding_and_status || device.binding_conditions.is_empty();
        for selector in &self.claims.asks.of(ask_id).selectors {
            if !is_selectable {
                break;
            }
            let program = selector.program.as_ref().map_err(Error::clone)?;
            is_selectable = match candidate.model().answer(program) {
                Answer::Yes => true,
                Answer::No => false,
                Answer::Fails(error) => {
                    return Err(Error::SelectorFails {
                        of: selector.of.to_string(),
                        index: selector.index,
                        device: candidate.id().to_string(),
                        error: with_hint(&error),
                    });
                }
            };
        }
        is_selectable = is_selectable && candidate.is_reachable.clone()?;
        *self.asks.of_mut(ask_id).selectable.of_mut(candidate_id) = Some(is_selectable);
        Ok(is_selectable)
    }
}
