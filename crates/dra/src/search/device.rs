//! Taking one device for a request, and giving it back.

use std::sync::Arc;

use api::resource::v1::DeviceAttribute;

use super::{CounterUse, Pick, Search};
use crate::capacity::{self, Amounts};
use crate::claims::RequestAlternative;
use crate::compatibility::CommonGroups;
use crate::constraints::Rule;
use crate::counters::Ledger;
use crate::error::{Error, RequestProblem};
use crate::ids::{AskId, CandidateId, ClaimId};
use crate::pools::Candidate;
use crate::taints;

/// Changes made by taking a device.
#[derive(Debug, Default)]
pub(super) struct Undo {
    /// By counter set: the previous common groups.
    groups: Vec<(usize, CommonGroups)>,
    drew_counters: bool,
    constraints: usize,
    is_taken: bool,
    is_shared: bool,
    is_picked: bool,
}

impl Search<'_, '_> {
    /// Whether a device has an exclusive owner and the request cannot share it.
    pub(super) fn is_in_use(&self, claim: ClaimId, ask: AskId, candidate: CandidateId) -> bool {
        let used = self.uses.of(candidate);
        if self.claims.asks.of(ask).admin_access {
            used.takers.contains(&claim)
        } else {
            used.is_dedicated || !used.takers.is_empty()
        }
    }

    /// Whether as much of a device is left as a request takes.
    pub(super) fn has_capacity(&self, claim: ClaimId, ask: AskId, candidate: CandidateId) -> Result<bool, Error> {
        Ok(!self.features.consumable_capacity || self.consumed(claim, ask, candidate)?.is_some())
    }

    /// Returns the amounts that a request takes from a device; `None` if not enough is left.
    fn consumed(&self, claim: ClaimId, ask: AskId, candidate: CandidateId) -> Result<Option<Amounts>, Error> {
        let ask = self.claims.asks.of(ask);
        let used = self.uses.of(candidate);
        let candidate = self.pools.candidates.of(candidate);
        let capacity = &candidate.model().capacity;
        let fractions = self.features.fractional_capacity_range;
        let consumed = capacity::consumed(ask.capacity.as_ref(), capacity, fractions)
            .map_err(|problem| self.capacity_error(claim, ask, candidate.id().to_string(), problem))?;
        let in_use = used.shares.iter().copied().chain(&used.taken_shares);
        Ok(consumed.filter(|consumed| capacity::fits(consumed, capacity, in_use, fractions)))
    }

    /// Takes a device that is selectable, if it can be had and no constraint is violated.
    ///
    /// `must`: the request cannot do without it; then a violated constraint is an error.
    pub(super) fn take(
        &mut self,
        claim: ClaimId,
        ask_id: AskId,
        id: CandidateId,
        must: bool,
    ) -> Result<Option<Undo>, Error> {
        let (pools, claims) = (self.pools, self.claims);
        let (ask, candidate) = (claims.asks.of(ask_id), pools.candidates.of(id));
        let can_be_shared = self.features.consumable_capacity && candidate.model().allow_multiple_allocations;
        if self.is_in_use(claim, ask_id, id) || !self.can_be_prepared(candidate) {
            return Ok(None);
        }
        let mut undo = Undo::default();
        let consumes = !candidate.device().consumes.is_empty();
        if consumes && !self.features.partitionable_devices {
            return Ok(None);
        }
        // A device that is shared has drawn its counters once.
        let used = self.uses.of(id);
        let has_drawn = can_be_shared && !(used.shares.is_empty() && used.taken_shares.is_empty());
        if consumes && !has_drawn && !self.draw(candidate, &mut undo) {
            return Ok(None);
        }
        let is_tainted = candidate.device().taints.iter().any(|taint| taints::prevents(taint, &ask.tolerations));
        if self.features.device_taints && is_tainted {
            self.give_back(claim, ask_id, id, undo);
            return Ok(None);
        }
        match self.satisfies_constraints(claim, ask, id, &mut undo) {
            Ok(true) => {}
            Ok(false) if must => {
                self.give_back(claim, ask_id, id, undo);
                return Err(Error::Request {
                    claim: claims.claims.of(claim).key.clone(),
                    of: format!("request {}", ask.name),
                    problem: RequestProblem::AllExcludedByConstraint { device: candidate.id().to_string() },
                });
            }
            other => {
                self.give_back(claim, ask_id, id, undo);
                return other.map(|_| None);
            }
        }
        let mut share = None;
        if self.features.consumable_capacity {
            match self.consumed(claim, ask_id, id) {
                Ok(Some(consumed)) if can_be_shared => share = Some(consumed),
                Ok(Some(_)) => {}
                other => {
                    self.give_back(claim, ask_id, id, undo);
                    return other.map(|_| None);
                }
            }
        }
        let used = self.uses.of_mut(id);
        match &share {
            Some(share) => used.taken_shares.push(share.clone()),
            None => used.takers.push(claim),
        }
        undo.is_shared = share.is_some();
        undo.is_taken = share.is_none();
        undo.is_picked = true;
        self.picks.of_mut(claim).push(Pick { ask: ask_id, candidate: id, share });
        Ok(Some(undo))
    }

    /// Reverts the changes of taking a device.
    pub(super) fn give_back(&mut self, claim: ClaimId, ask: AskId, id: CandidateId, undo: Undo) {
        let (pools, claims) = (self.pools, self.claims);
        let candidate = pools.candidates.of(id);
        if undo.is_picked {
            self.picks.of_mut(claim).pop();
        }
        // The search is a stack: the last addition is removed first.
        if undo.is_shared {
            self.uses.of_mut(id).taken_shares.pop();
        }
        if undo.is_taken {
            self.uses.of_mut(id).takers.pop();
        }
        if let Ok(constraints) = &claims.claims.of(claim).constraints {
            let ask = claims.asks.of(ask);
            let states = self.constraints.of_mut(claim).iter_mut();
            for (constraint, state) in constraints.iter().zip(states).take(undo.constraints) {
                if !constraint.is_over_set() && constraint.covers(ask, request_name(claims, claim, ask)) {
                    state.remove();
                }
            }
        }
        if let Some(drawn) = self.drawn.of_mut(candidate.pool) {
            for (set, before) in undo.groups.into_iter().rev() {
                if let Some(common) = drawn.groups.get_mut(set) {
                    *common = before;
                }
            }
            if undo.drew_counters {
                drawn.ledger.give_back(&candidate.consumption);
            }
        }
    }

    /// Whether the node can skip the operations that the slice excludes.
    fn can_be_prepared(&self, candidate: &Candidate) -> bool {
        candidate.slice.skip_node_operations.is_empty()
            || (self.features.optional_node_operations && self.pools.optional_node_operations)
    }

    /// Consumes the counters of a device, if it is compatible with the other devices; returns whether it is.
    fn draw(&mut self, candidate: &Candidate, undo: &mut Undo) -> bool {
        let (pools, state) = (self.pools, self.state);
        let drawn = self.drawn.of_mut(candidate.pool).get_or_insert_with(|| {
            let pool = pools.pools.of(candidate.pool);
            let in_use = state.pool(&pool.driver, &pool.name);
            let is_used = |device: &str| in_use.is_some_and(|it| it.is_used(device));
            let here = pool.candidates.iter().map(|id| pools.candidates.of(*id));
            let here = here.filter(|it| is_used(&it.device().name)).map(|it| &it.consumption);
            let elsewhere = pool.elsewhere.iter().filter(|(name, _)| is_used(name)).map(|(_, it)| it);
            let mut groups = vec![CommonGroups::default(); pool.counters.set_count()];
            for (set, declared) in here.clone().chain(elsewhere.clone()).flat_map(|it| &it.groups) {
                if let Some(common) = groups.get_mut(*set) {
                    *common = common.with(declared);
                }
            }
            CounterUse { ledger: Ledger::new(&pool.counters, here.chain(elsewhere)), groups }
        });
        if self.features.compatibility_groups {
            for (set, declared) in &candidate.consumption.groups {
                let Some(common) = drawn.groups.get_mut(*set) else { continue };
                if !common.admits(declared) {
                    for (set, before) in undo.groups.drain(..).rev() {
                        if let Some(common) = drawn.groups.get_mut(set) {
                            *common = before;
                        }
                    }
                    return false;
                }
                let with = common.with(declared);
                undo.groups.push((*set, std::mem::replace(common, with)));
            }
        }
        undo.drew_counters = drawn.ledger.take(&candidate.consumption);
        if !undo.drew_counters {
            for (set, before) in undo.groups.drain(..).rev() {
                if let Some(common) = drawn.groups.get_mut(set) {
                    *common = before;
                }
            }
        }
        undo.drew_counters
    }

    /// Adds a device to the constraints that can be judged device by device.
    fn satisfies_constraints(
        &mut self,
        claim: ClaimId,
        ask: &RequestAlternative,
        id: CandidateId,
        undo: &mut Undo,
    ) -> Result<bool, Error> {
        let claims = self.claims;
        let lists = self.features.list_type_attributes;
        let Ok(constraints) = &claims.claims.of(claim).constraints else { return Ok(false) };
        for (index, constraint) in constraints.iter().enumerate() {
            if constraint.covers(ask, request_name(claims, claim, ask)) {
                let holds = match &constraint.rule {
                    Rule::Set(_) => true,
                    Rule::Match(name) | Rule::Distinct(name) => {
                        let attribute = self.attribute(ask, id, name)?;
                        let state = self.constraints.of_mut(claim).get_mut(index);
                        match (attribute, state, &constraint.rule) {
                            (Some(attribute), Some(state), Rule::Match(_)) => state.add_matching(&attribute, lists),
                            (Some(attribute), Some(state), _) => state.add_distinct(&attribute, lists),
                            _ => false,
                        }
                    }
                };
                if !holds {
                    return Ok(false);
                }
            }
            undo.constraints = index.saturating_add(1);
        }
        Ok(true)
    }

    /// An attribute: one that the request derives, or one that the driver publishes.
    fn attribute(
        &mut self,
        ask: &RequestAlternative,
        id: CandidateId,
        name: &str,
    ) -> Result<Option<Arc<DeviceAttribute>>, Error> {
        let candidate = self.pools.candidates.of(id);
        let Some(program) = ask.derived.get(name) else { return Ok(candidate.model().attribute(name).cloned()) };
        let program = program.as_ref().map_err(Error::clone)?;
        if let Some(known) = self.derived.get(&(id, program.id())) {
            return Ok(Some(known.clone()));
        }
        let value = match candidate.model().seen() {
            Ok(seen) => program.derive(seen),
            Err(problem) => Err(problem.to_string()),
        };
        let value = value.map_err(|error| Error::DerivedAttributeFails {
            name: name.to_owned(),
            device: candidate.id().to_string(),
            error,
        })?;
        let value = Arc::new(value);
        self.derived.insert((id, program.id()), value.clone());
        Ok(Some(value))
    }
}

fn request_name<'c>(claims: &'c crate::Claims, claim: ClaimId, ask: &'c RequestAlternative) -> &'c api::json::Text {
    claims.claims.of(claim).requests.get(ask.request).map_or(&ask.name, |request| &request.name)
}
