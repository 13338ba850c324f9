//! All policies of one kind with their bindings, found by group and resource.
//!
//! A request that no rule is about costs one look into a table. Policies without a binding are left out: they do nothing.

use std::collections::HashMap;
use std::sync::Arc;

use super::cluster::Cluster;
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
    operations: u8,
    /// Number of the policy's constraints: equal ones have the same.
    constraints: u32,
}

/// A group, and the places of the hooks about a resource of it.
type GroupPlaces = (Box<str>, Vec<u32>);

/// Policies by group and resource.
#[derive(Debug)]
pub struct Catalog<B> {
    hooks: Vec<Hook<B>>,
    /// The places of hooks by resource, then by group.
    by_resource: HashMap<Box<str>, Vec<GroupPlaces>>,
    /// The places of hooks that may be about anything, or about equivalents in other groups.
    others: Vec<u32>,
    /// Number of different constraints.
    constraints: u32,
}

impl<B> Default for Catalog<B> {
    fn default() -> Self {
        Self { hooks: Vec::new(), by_resource: HashMap::new(), others: Vec::new(), constraints: 0 }
    }
}

/// Resources that two groups serve: a rule about one can match requests for the other.
pub(super) const SHARED: [&str; 1] = ["events"];

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
            let operations = policy.constraints.rules().iter().fold(0, |all, rule| all | rule.operations());
            catalog.index(&policy);
            let (number, first) = numbers
                .entry(policy.constraints.fingerprint())
                .or_insert_with(|| (catalog.constraints, policy.clone()));
            let is_known = *number < catalog.constraints && first.constraints == policy.constraints;
            let constraints = if is_known { *number } else { catalog.constraints };
            catalog.constraints = catalog.constraints.max(constraints.saturating_add(1));
            catalog.hooks.push(Hook { policy, bindings, operations, constraints });
        }
        catalog
    }

    fn index(&mut self, policy: &Policy<B>) {
        let Ok(place) = u32::try_from(self.hooks.len()) else { return };
        let constraints = &policy.constraints;
        let keys: Option<Vec<Vec<(&str, &str)>>> = constraints.rules().iter().map(super::rules::Rule::keys).collect();
        let keys: Vec<(&str, &str)> = keys.unwrap_or_default().into_iter().flatten().collect();
        let is_shared = !constraints.is_exact() && keys.iter().any(|(_, resource)| SHARED.contains(resource));
        if keys.is_empty() || is_shared {
            self.others.push(place);
            return;
        }
        for (group, resource) in keys {
            let groups = self.by_resource.entry(resource.into()).or_default();
            let places = match groups.iter().position(|(known, _)| **known == *group) {
                Some(at) => groups.get_mut(at),
                None => {
                    groups.push((group.into(), Vec::new()));
                    groups.last_mut()
                }
            };
            if let Some((_, places)) = places
                && places.last() != Some(&place)
            {
                places.push(place);
            }
        }
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

    fn places(&self, group: &str, resource: &str) -> &[u32] {
        let groups = self.by_resource.get(resource).map(Vec::as_slice).unwrap_or_default();
        groups.iter().find(|(known, _)| **known == *group).map(|(_, places)| places.as_slice()).unwrap_or_default()
    }

    /// Whether a policy may be about an operation on a resource.
    #[must_use]
    pub fn may_match(&self, group: &str, resource: &str, operation: Operation) -> bool {
        if self.hooks.is_empty() {
            return false;
        }
        let places = self.others.iter().chain(self.places(group, resource));
        places.filter_map(|place| self.hook(*place)).any(|hook| hook.operations & operation.bit() != 0)
    }

    fn hook(&self, place: u32) -> Option<&Hook<B>> {
        self.hooks.get(usize::try_from(place).ok()?)
    }

    /// The policies that may be about a request, in the order of their names.
    pub(super) fn candidates(&self, request: &Request) -> impl Iterator<Item = &Hook<B>> {
        let found = self.places(&request.resource.group, &request.resource.resource);
        let mut places: Vec<u32> = self.others.iter().chain(found).copied().collect();
        if !self.others.is_empty() {
            places.sort_unstable();
        }
        let operation = request.operation.bit();
        places.into_iter().filter_map(|place| self.hook(place)).filter(move |hook| hook.operations & operation != 0)
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
