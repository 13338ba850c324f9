//! An index of rules: the places of policies or webhooks by operation, resource and group.
//!
//! A request that no rule is about costs one look into a table, whatever else is configured.

use std::collections::HashMap;

use super::request::Operation;
use super::rules::{Constraints, Rule};

/// Resources that two groups serve: a rule about one can match requests for the other.
const SHARED: [&str; 1] = ["events"];

/// Places in ascending order, for each operation.
type PlacesByOperation = [Vec<u32>; Operation::ALL.len()];

/// Places of policies or webhooks. Those that it returns for a request are a superset of those that match.
#[derive(Debug, Default)]
pub struct RuleIndex {
    /// By resource, then by group.
    by_resource: HashMap<Box<str>, Vec<(Box<str>, PlacesByOperation)>>,
    /// The places of rules that may be about any resource, or about equivalents in other groups.
    others: PlacesByOperation,
}

fn add(places: &mut PlacesByOperation, place: u32, operations: u8) {
    for (operation, places) in Operation::ALL.into_iter().zip(places) {
        if operations & operation.bit() != 0 && places.last() != Some(&place) {
            places.push(place);
        }
    }
}

impl RuleIndex {
    /// Adds the rules of a policy or webhook. Places are added in ascending order.
    pub(super) fn add(&mut self, place: u32, constraints: &Constraints) {
        let rules = constraints.rules();
        let keys: Option<Vec<_>> = rules.iter().map(Rule::keys).collect();
        let is_shared = |(_, resource): &(&str, &str)| SHARED.contains(resource);
        let keys = keys.filter(|keys| constraints.is_exact() || !keys.iter().flatten().any(is_shared));
        let Some(keys) = keys else {
            return add(&mut self.others, place, rules.iter().fold(0, |all, rule| all | rule.operations()));
        };
        for (rule, keys) in rules.iter().zip(keys) {
            for (group, resource) in keys {
                if let Some(places) = self.entry(group, resource) {
                    add(places, place, rule.operations());
                }
            }
        }
    }

    fn entry(&mut self, group: &str, resource: &str) -> Option<&mut PlacesByOperation> {
        let groups = self.by_resource.entry(resource.into()).or_default();
        let at = groups.iter().position(|(known, _)| **known == *group).unwrap_or_else(|| {
            groups.push((group.into(), PlacesByOperation::default()));
            groups.len().saturating_sub(1)
        });
        groups.get_mut(at).map(|(_, places)| places)
    }

    /// The places of rules about anything, and those of rules about a resource.
    fn found(&self, group: &str, resource: &str, operation: Operation) -> (&[u32], &[u32]) {
        let groups = self.by_resource.get(resource).map(Vec::as_slice).unwrap_or_default();
        let found = groups.iter().find(|(known, _)| **known == *group).map(|(_, places)| places);
        (of(&self.others, operation), found.map(|places| of(places, operation)).unwrap_or_default())
    }

    /// Whether a rule may be about an operation on a resource.
    #[must_use]
    pub fn may_match(&self, group: &str, resource: &str, operation: Operation) -> bool {
        let (others, found) = self.found(group, resource, operation);
        !others.is_empty() || !found.is_empty()
    }

    /// The places of the rules that may be about an operation on a resource, in ascending order.
    #[must_use]
    pub fn places(&self, group: &str, resource: &str, operation: Operation) -> Vec<u32> {
        let (others, found) = self.found(group, resource, operation);
        let mut places = [others, found].concat();
        if !others.is_empty() {
            places.sort_unstable();
        }
        places
    }
}

fn of(places: &PlacesByOperation, operation: Operation) -> &[u32] {
    let all = Operation::ALL.into_iter().zip(places);
    all.filter(|(it, _)| *it == operation).map(|(_, places)| places.as_slice()).next().unwrap_or_default()
}
