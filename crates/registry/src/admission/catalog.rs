//! All policies of one kind with their bindings, found by operation, group and resource.
//!
//! Policies without a binding are left out: they do nothing.

use std::collections::HashMap;
use std::sync::Arc;

use super::cluster::Cluster;
use super::index::RuleIndex;
use super::policy::{Binding, Policy};
use super::request::{Operation, Request};
use super::rules::{Match, MatchError};

/// A policy and its bindings, in the order of their names.
#[derive(Debug)]
pub struct Hook<B> {
    /// The policy.
    pub policy: Arc<Policy<B>>,
    /// The bindings; at least one.
    pub bindings: Vec<Arc<Binding>>,
    /// Number of the policy's constraints: equal ones have the same.
    constraints: u32,
}

/// Policies, found by operation, group and resource.
#[derive(Debug)]
pub struct Catalog<B> {
    hooks: Vec<Hook<B>>,
    /// The places of hooks.
    index: RuleIndex,
    /// Number of different constraints.
    constraints: u32,
}

impl<B> Default for Catalog<B> {
    fn default() -> Self {
        Self { hooks: Vec::new(), index: RuleIndex::default(), constraints: 0 }
    }
}

impl<B> Catalog<B> {
    /// The catalog of these policies and bindings.
    #[must_use]
    pub fn new(mut policies: Vec<Arc<Policy<B>>>, bindings: Vec<Arc<Binding>>) -> Self {
        policies.sort_by(|a, b| a.name.cmp(&b.name));
        let mut bound: HashMap<Arc<str>, Vec<Arc<Binding>>> = HashMap::new();
        for binding in bindings {
            bound.entry(binding.policy.clone()).or_default().push(binding);
        }
        let mut catalog = Self::default();
        // By fingerprint; different constraints with the same fingerprint share nothing.
        let mut numbers: HashMap<u64, (u32, Arc<Policy<B>>)> = HashMap::new();
        for policy in policies {
            let Some(mut bindings) = bound.remove(&policy.name) else { continue };
            bindings.sort_by(|a, b| a.name.cmp(&b.name));
            let Ok(place) = u32::try_from(catalog.hooks.len()) else { break };
            catalog.index.add(place, &policy.constraints);
            let (number, first) = numbers
                .entry(policy.constraints.fingerprint())
                .or_insert_with(|| (catalog.constraints, policy.clone()));
            let is_known = *number < catalog.constraints && first.constraints == policy.constraints;
            let constraints = if is_known { *number } else { catalog.constraints };
            catalog.constraints = catalog.constraints.max(constraints.saturating_add(1));
            catalog.hooks.push(Hook { policy, bindings, constraints });
        }
        catalog
    }

    /// Whether there is nothing to evaluate for any request.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hooks.is_empty()
    }

    /// The number of policies that have bindings.
    #[must_use]
    pub fn len(&self) -> usize {
        self.hooks.len()
    }

    /// Whether a policy may be about an operation on a resource.
    #[must_use]
    pub fn may_match(&self, group: &str, resource: &str, operation: Operation) -> bool {
        self.index.may_match(group, resource, operation)
    }

    /// The policies that may be about a request, in the order of their names.
    pub(super) fn candidates(&self, request: &Request) -> impl Iterator<Item = &Hook<B>> {
        let places = self.index.places(&request.resource.group, &request.resource.resource, request.operation);
        places.into_iter().filter_map(|place| self.hooks.get(usize::try_from(place).ok()?))
    }
}

/// The matches of one request with the constraints of policies. Equal constraints are matched once.
pub(super) struct Matches<'m> {
    request: &'m Request,
    cluster: &'m dyn Cluster,
    known: Vec<Option<Result<Option<Match>, MatchError>>>,
}

impl<'m> Matches<'m> {
    pub(super) fn new<B>(catalog: &Catalog<B>, request: &'m Request, cluster: &'m dyn Cluster) -> Self {
        let count = usize::try_from(catalog.constraints).unwrap_or_default();
        Self { request, cluster, known: vec![None; count] }
    }

    /// The match of a policy's constraints, if there is one.
    ///
    /// # Errors
    /// As [`Constraints::matches`](super::rules::Constraints::matches).
    pub(super) fn of<B>(&mut self, hook: &Hook<B>) -> Result<Option<Match>, MatchError> {
        let find = || hook.policy.constraints.matches(self.request, self.cluster);
        match usize::try_from(hook.constraints).ok().and_then(|at| self.known.get_mut(at)) {
            Some(known) => known.get_or_insert_with(find).clone(),
            None => find(),
        }
    }
}
