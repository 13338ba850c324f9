//! Constraints over whole sets, and looking ahead where a set is not whole yet.
//!
//! A set is whole when the last request that the constraint covers has its devices. Any answer but true or false ends
//! the search on this node. A branch is cut only where exhaustive search would find nothing but "false" in it.

use std::collections::HashMap;

use cel_kubernetes::environments::device::Device;

use super::{FailedSet, Search, SearchPosition, Stop};
use crate::claims::Count;
use crate::constraints::pruning::{OpenChoice, PartialSet, PlacedDevice};
use crate::constraints::{Constraint, Rule};
use crate::error::{Error, with_hint};
use crate::expressions::{Answer, SetExpression};
use crate::ids::{AskId, CandidateId, ClaimId};
use crate::narration::Step;
use crate::taints;

/// Candidates of requests, determined at the first look-ahead.
#[derive(Debug, Default)]
pub(super) struct Domains {
    /// By claim; nothing where an error is possible that exhaustive search would report.
    claims: HashMap<ClaimId, Option<HashMap<AskId, Vec<CandidateId>>>>,
}

impl<'s> Search<'s, '_> {
    /// Whether the constraints hold whose sets are whole with this request.
    pub(super) fn sets_hold(&mut self, claim: ClaimId, request: usize) -> Result<bool, Stop> {
        let claims = self.claims;
        let Ok(constraints) = &claims.claims.of(claim).constraints else { return Ok(false) };
        for constraint in constraints {
            if let Rule::Set(expression) = &constraint.rule
                && constraint.last_request == request
                && !self.set_holds(claim, constraint, expression)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn set_holds(&mut self, claim: ClaimId, constraint: &Constraint, expression: &SetExpression) -> Result<bool, Stop> {
        if let Some(why) = (self.budget.interrupt)() {
            return Err(Error::Interrupted(why).into());
        }
        let chosen = self.chosen(claim, constraint);
        // Only an alternative was named that was not taken.
        if chosen.is_empty() {
            return Ok(true);
        }
        self.report(|pools| Step::Evaluating { expression: expression.text().clone(), devices: pools.names(&chosen) });
        let answer = match self.seen(&chosen) {
            Ok(devices) => {
                let (answer, cost) = expression.ask(&devices);
                self.effort.evaluations = self.effort.evaluations.saturating_add(1);
                self.spend(cost)?;
                if let Answer::No = answer {
                    self.report(|_| Step::NotSatisfied { actual_cost: cost });
                }
                answer
            }
            Err(problem) => Answer::Fails(problem.into()),
        };
        match answer {
            Answer::Yes => Ok(true),
            Answer::No => Ok(false),
            Answer::Fails(error) => {
                let devices = self.pools.few_names(&chosen);
                self.failed = FailedSet { claim, devices: chosen };
                Err(Stop::Error(Error::ConstraintFails {
                    node: self.pools.node.to_string(),
                    claim: self.claims.claims.of(claim).key.clone(),
                    index: constraint.index,
                    devices,
                    error: with_hint(&error),
                }))
            }
        }
    }

    /// The devices chosen so far that count for a constraint, in canonical order.
    fn chosen(&self, claim: ClaimId, constraint: &Constraint) -> Vec<CandidateId> {
        let requests = &self.claims.claims.of(claim).requests;
        let covered = self.picks.of(claim).iter().filter(|pick| {
            let ask = self.claims.asks.of(pick.ask);
            requests.get(ask.request).is_some_and(|request| constraint.covers(ask, &request.name))
        });
        let mut chosen: Vec<CandidateId> = covered.map(|pick| pick.candidate).collect();
        chosen.sort_by_key(|id| self.pools.rank.of(*id));
        chosen
    }

    /// Devices as expressions see them.
    fn seen(&self, devices: &[CandidateId]) -> Result<Vec<&'s Device>, String> {
        let pools = self.pools;
        let seen = |id: &CandidateId| pools.candidates.of(*id).model().seen().map_err(|it| it.to_string());
        devices.iter().map(seen).collect()
    }

    /// The same devices, with their positions.
    fn placed(&self, devices: &[CandidateId]) -> Option<Vec<PlacedDevice<'s>>> {
        let seen = self.seen(devices).ok()?;
        let at = devices.iter().map(|id| *self.pools.rank.of(*id));
        Some(at.zip(seen).map(|(at, device)| PlacedDevice { at, device }).collect())
    }

    fn spend(&mut self, cost: u64) -> Result<(), Error> {
        self.effort.cost = self.effort.cost.saturating_add(cost);
        self.budget.cost = self.budget.cost.saturating_add(cost);
        if self.budget.cost > self.budget.cost_limit {
            return Err(Error::TooCostly { limit: self.budget.cost_limit });
        }
        self.budget.wait(cost)
    }

    /// Whether no completion of the chosen devices can satisfy the set constraints, and none would be an error.
    pub(super) fn is_hopeless(&mut self, claim: ClaimId, at: SearchPosition, start: usize) -> Result<bool, Stop> {
        let claims = self.claims;
        if self.pruning.is_none() || !claims.claims.of(claim).is_canonical() || !self.has_domains(claim) {
            return Ok(false);
        }
        let Ok(constraints) = &claims.claims.of(claim).constraints else { return Ok(false) };
        // In the order in which their sets become complete, as in an exhaustive search.
        let mut waiting: Vec<&Constraint> = constraints
            .iter()
            .filter(|constraint| constraint.is_over_set() && constraint.last_request >= at.request)
            .collect();
        waiting.sort_by_key(|constraint| constraint.last_request);
        for constraint in waiting {
            let Rule::Set(expression) = &constraint.rule else { continue };
            let Some(open) = self.open(claim, constraint, at, start) else { return Ok(false) };
            let chosen = self.chosen(claim, constraint);
            if chosen.is_empty() && open.iter().all(|open| open.places == 0) {
                continue;
            }
            let (outlook, cost) = {
                let (Some(chosen), Some(candidates)) = (
                    self.placed(&chosen),
                    open.iter().map(|open| self.placed(&open.candidates)).collect::<Option<Vec<_>>>(),
                ) else {
                    return Ok(false);
                };
                let candidates = open.iter().zip(&candidates);
                let open: Vec<OpenChoice<'_>> =
                    candidates.map(|(open, candidates)| OpenChoice { places: open.places, candidates }).collect();
                let set = PartialSet { expression, chosen: &chosen, open: &open };
                // The devices are borrowed from the pools, not from the search.
                let Some(pruning) = self.pruning.take() else { return Ok(false) };
                let answer = pruning.look_ahead(&set);
                self.pruning = Some(pruning);
                answer
            };
            self.spend(cost)?;
            if outlook.is_hopeless() {
                self.effort.cuts = self.effort.cuts.saturating_add(1);
                self.report(|pools| Step::Cut { devices: pools.names(&chosen) });
                return Ok(true);
            }
            if outlook.may_fail {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Returns the open choices of the requests from here on; `None` if they cannot be determined.
    fn open(
        &self,
        claim: ClaimId,
        constraint: &Constraint,
        at: SearchPosition,
        start: usize,
    ) -> Option<Vec<OpenRequest>> {
        let domains = self.domains.claims.get(&claim)?.as_ref()?;
        let requests = self.claims.claims.of(claim).requests.iter().enumerate();
        let mut open = Vec::new();
        for (index, request) in requests.skip(at.request).take_while(|(index, _)| *index <= constraint.last_request) {
            let is_current = index == at.request;
            let ask_id = match request.asks.as_slice() {
                asks if is_current => *asks.get(at.alternative)?,
                [ask] => *ask,
                _ => return None,
            };
            let ask = self.claims.asks.of(ask_id);
            if !constraint.covers(ask, &request.name) {
                continue;
            }
            let taken = if is_current { at.device } else { 0 };
            let places = usize::try_from(self.asks.of(ask_id).count.saturating_sub(taken)).ok()?;
            let candidates = domains.get(&ask_id)?.iter().copied();
            let mut candidates: Vec<CandidateId> = match ask.count {
                Count::All => self.asks.of(ask_id).all.iter().copied().skip(usize::try_from(taken).ok()?).collect(),
                Count::Exactly(_) if is_current => candidates.filter(|id| *self.pools.rank.of(*id) >= start).collect(),
                Count::Exactly(_) => candidates.collect(),
            };
            // A request for all devices takes them as they are listed, which may be another order.
            candidates.sort_by_key(|id| self.pools.rank.of(*id));
            open.push(OpenRequest { places, candidates });
        }
        Some(open)
    }

    /// Determines the candidates of a claim's requests, once; returns whether that was possible.
    fn has_domains(&mut self, claim: ClaimId) -> bool {
        if let Some(known) = self.domains.claims.get(&claim) {
            return known.is_some();
        }
        let domains = self.find_domains(claim);
        let found = domains.is_some();
        self.domains.claims.insert(claim, domains);
        found
    }

    fn find_domains(&mut self, claim: ClaimId) -> Option<HashMap<AskId, Vec<CandidateId>>> {
        let (claims, pools) = (self.claims, self.pools);
        if claims.may_miss_one_of_all(claim) {
            return None;
        }
        let mut domains = HashMap::new();
        for ask_id in claims.claims.of(claim).requests.iter().flat_map(|request| &request.asks) {
            let ask = claims.asks.of(*ask_id);
            // Derived attributes and amounts can fail separately.
            if !ask.derived.is_empty() || ask.capacity.is_some() {
                return None;
            }
            let mut domain = Vec::new();
            for id in &pools.canonical {
                let candidate = pools.candidates.of(*id);
                let tainted = candidate.device().taints.iter().any(|it| taints::prevents(it, &ask.tolerations));
                let selectable = self.is_selectable(*ask_id, *id).ok()?;
                let in_use = self.uses.of(*id).is_dedicated && !ask.admin_access;
                if selectable && !in_use && !(self.features.device_taints && tainted) {
                    self.has_capacity(claim, *ask_id, *id).ok()?;
                    candidate.model().seen().ok()?;
                    domain.push(*id);
                }
            }
            domains.insert(*ask_id, domain);
        }
        Some(domains)
    }
}

/// Open choice of a request.
struct OpenRequest {
    places: usize,
    candidates: Vec<CandidateId>,
}
