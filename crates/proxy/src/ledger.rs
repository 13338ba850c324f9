//! The rules of all Services, and their difference from the applied ones.
//!
//! The cost of a change is that of the changed Service, regardless of the number of others: the ledger remembers the applied value of
//! everything that was touched since the last transaction. Several Services may claim an element (external IPs, hairpins, the
//! cluster IP for several ports); the oldest Service's claim counts.

use std::collections::BTreeMap;
use std::sync::Arc;

use client::Key;

use crate::rules::{Element, Name, ServiceRules, Verdict};

/// The owner of a claim: creation time, then namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// Creation time in seconds.
    pub created: i64,
    /// The Service.
    pub key: Key,
}

/// The rules of a chain.
pub type Chain = Arc<[String]>;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Claim {
    owner: Arc<Owner>,
    verdict: Verdict,
}

/// All rules, as sorted values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuleSet {
    /// Elements of shared sets and maps.
    pub elements: BTreeMap<Element, Verdict>,
    /// Chains of Services.
    pub chains: BTreeMap<Name, Chain>,
    /// Sets of clients, with their timeout in seconds.
    pub sets: BTreeMap<Name, u32>,
}

/// The desired rules, with what differs from the applied ones.
#[derive(Debug, Default)]
pub struct Ledger {
    claims: BTreeMap<Element, Vec<Claim>>,
    chains: BTreeMap<Name, Chain>,
    sets: BTreeMap<Name, u32>,
    touched: TouchedValues,
}

/// The applied values of everything that was touched.
#[derive(Debug, Default)]
struct TouchedValues {
    elements: BTreeMap<Element, Option<Verdict>>,
    chains: BTreeMap<Name, Option<Chain>>,
    sets: BTreeMap<Name, Option<u32>>,
}

/// The steps from the applied to the desired rules, each list sorted.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Chains that do not exist yet.
    pub new_chains: Vec<Name>,
    /// Chains whose rules are replaced, new ones included.
    pub changed_chains: Vec<(Name, Chain)>,
    /// Chains that are emptied, and deleted later.
    pub stale_chains: Vec<Name>,
    /// Sets that are deleted, before others are added.
    pub removed_sets: Vec<Name>,
    /// Sets that are added.
    pub added_sets: Vec<(Name, u32)>,
    /// Elements that are deleted, before others are added.
    pub removed_elements: Vec<Element>,
    /// Elements that are added.
    pub added_elements: Vec<(Element, Verdict)>,
}

impl Difference {
    /// Whether nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Ledger {
    /// Replaces the rules of a Service.
    pub fn replace(&mut self, owner: &Arc<Owner>, old: &ServiceRules, new: &ServiceRules) {
        for (element, _) in &old.elements {
            self.release(*element, owner);
        }
        for (element, verdict) in &new.elements {
            self.claim(*element, owner, verdict);
        }
        for (name, _) in &old.chains {
            let applied = self.chains.remove(name);
            self.touched.chains.entry(name.clone()).or_insert(applied);
        }
        for (name, rules) in &new.chains {
            let applied = self.chains.insert(name.clone(), rules.clone());
            self.touched.chains.entry(name.clone()).or_insert(applied);
        }
        for (name, _) in &old.sets {
            let applied = self.sets.remove(name);
            self.touched.sets.entry(name.clone()).or_insert(applied);
        }
        for (name, seconds) in &new.sets {
            let applied = self.sets.insert(name.clone(), *seconds);
            self.touched.sets.entry(name.clone()).or_insert(applied);
        }
    }

    fn release(&mut self, element: Element, owner: &Arc<Owner>) {
        let Some(claims) = self.claims.get_mut(&element) else { return };
        self.touched.elements.entry(element).or_insert_with(|| claims.first().map(|it| it.verdict.clone()));
        claims.retain(|it| it.owner.key != owner.key);
        if claims.is_empty() {
            self.claims.remove(&element);
        }
    }

    fn claim(&mut self, element: Element, owner: &Arc<Owner>, verdict: &Verdict) {
        let claims = self.claims.entry(element).or_default();
        self.touched.elements.entry(element).or_insert_with(|| claims.first().map(|it| it.verdict.clone()));
        // Two ports of a Service claim its cluster IP, and may claim the same endpoint.
        if claims.iter().any(|it| it.owner == *owner) {
            return;
        }
        let at = claims.partition_point(|it| it.owner < *owner);
        claims.insert(at, Claim { owner: owner.clone(), verdict: verdict.clone() });
    }

    /// The verdict that counts.
    fn verdict(&self, element: &Element) -> Option<&Verdict> {
        self.claims.get(element)?.first().map(|it| &it.verdict)
    }

    /// All desired rules.
    #[must_use]
    pub fn rule_set(&self) -> RuleSet {
        let verdict = |(element, claims): (&Element, &Vec<Claim>)| Some((*element, claims.first()?.verdict.clone()));
        RuleSet {
            elements: self.claims.iter().filter_map(verdict).collect(),
            chains: self.chains.clone(),
            sets: self.sets.clone(),
        }
    }

    /// The steps from the applied rules to the desired ones.
    #[must_use]
    pub fn difference(&self) -> Difference {
        let mut steps = Difference::default();
        for (element, applied) in &self.touched.elements {
            let desired = self.verdict(element);
            if applied.as_ref() == desired {
                continue;
            }
            if applied.is_some() {
                steps.removed_elements.push(*element);
            }
            steps.added_elements.extend(desired.map(|it| (*element, it.clone())));
        }
        for (name, applied) in &self.touched.chains {
            match (applied, self.chains.get(name)) {
                (Some(applied), Some(desired)) if applied == desired => {}
                (None, None) => {}
                (Some(_), None) => steps.stale_chains.push(name.clone()),
                (applied, Some(desired)) => {
                    if applied.is_none() {
                        steps.new_chains.push(name.clone());
                    }
                    steps.changed_chains.push((name.clone(), desired.clone()));
                }
            }
        }
        for (name, applied) in &self.touched.sets {
            let desired = self.sets.get(name);
            if applied.as_ref() == desired {
                continue;
            }
            if applied.is_some() {
                steps.removed_sets.push(name.clone());
            }
            steps.added_sets.extend(desired.map(|it| (name.clone(), *it)));
        }
        steps
    }

    /// Records that the desired rules are applied.
    pub fn confirm(&mut self) {
        self.touched = TouchedValues::default();
    }

    /// Numbers of elements and chains.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        (self.claims.len(), self.chains.len())
    }
}

#[cfg(test)]
mod tests;
