//! One check of all nodes: silent ones, recovered ones, and those whose pods are evicted.
//!
//! Silent nodes get unknown conditions at once. The `NoExecute` taint, which evicts pods, comes after that and at a rate
//! that depends on how the node's [zone](super::zones) is doing. Follows `monitorNodeHealth` and `doNoExecuteTaintingPass`
//! of Kubernetes' node lifecycle controller.

use std::collections::{BTreeMap, HashMap};

use api::core::v1::{Node, Taint};
use api::json::{Text, Value};
use api::time::Timestamp;
use api::well_known::{EFFECT_NO_EXECUTE, EFFECT_NO_SCHEDULE, TAINT_NOT_READY, TAINT_UNREACHABLE};

use super::health::{self, Grace, Health};
use super::taints;
use super::zones::{self, Outlook, Rates, Zones};

/// A node with this label does not count when its zone is judged.
const EXCLUDED: &str = "node.kubernetes.io/exclude-disruption";

/// A node and its lease.
#[derive(Debug, Clone, Copy)]
pub struct ObservedNode<'n> {
    /// The node.
    pub node: &'n Node,
    /// All of it.
    pub document: &'n Value,
    /// Time of the lease's last renewal.
    pub lease: Option<Timestamp>,
}

/// Changes of nodes to write.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Findings {
    /// Seen for the first time.
    pub registered: Vec<Text>,
    /// Removed nodes: their names and UIDs.
    pub removed: Vec<(Text, Text)>,
    /// Silent nodes: their new documents. Their pods are no longer ready.
    pub silenced: Vec<(Text, Value)>,
    /// The taints that nodes should have.
    pub taints: BTreeMap<Text, Vec<Taint>>,
}

/// State between two checks.
#[derive(Debug, Default)]
pub struct Monitor {
    grace: Grace,
    rates: Rates,
    /// The uids of the nodes that are known.
    known: HashMap<Text, Text>,
    health: HashMap<Text, Health>,
    zones: Zones,
}

impl Monitor {
    /// A monitor without nodes.
    #[must_use]
    pub fn new(grace: Grace, rates: Rates) -> Self {
        Monitor { grace, rates, ..Monitor::default() }
    }

    /// Checks all nodes.
    pub fn look(&mut self, nodes: &[ObservedNode<'_>], now: Timestamp) -> Findings {
        let mut findings = Findings::default();
        self.meet(nodes, &mut findings);
        let mut counts: BTreeMap<Text, (usize, usize)> = BTreeMap::new();
        for seen in nodes {
            let status = self.judge(seen, &mut findings, now);
            if !seen.node.metadata.labels.contains_key(EXCLUDED) {
                let (ready, others) = counts.entry(zones::key(seen.node)).or_default();
                let count = if status == Some("True") { ready } else { others };
                *count = count.saturating_add(1);
            }
            self.consider_evicting(seen.node, status, &mut findings, now);
        }
        match self.zones.look(&counts, &self.rates, now) {
            Outlook::Steady => {}
            Outlook::AllSilent => {
                for seen in nodes {
                    self.zones.keep(&seen.node.metadata.name);
                    clear(seen.node, &mut findings);
                }
            }
            Outlook::BackAgain => self.health.values_mut().for_each(|health| health.heard_at = now),
        }
        findings
    }

    /// Returns the nodes whose pods are evicted now, with the taints. To be called often.
    pub fn evictions<'n>(
        &mut self,
        node: impl Fn(&str) -> Option<&'n Node>,
        now: Timestamp,
    ) -> Vec<(Text, Vec<Taint>)> {
        // NoSchedule comes first, separately.
        let key_of = |name: &str| {
            let node = node(name)?;
            let key = match health::ready(node)?.status.as_str() {
                "False" => TAINT_NOT_READY,
                "Unknown" => TAINT_UNREACHABLE,
                _ => return None,
            };
            (taints::has(node, key, EFFECT_NO_SCHEDULE) && !taints::has(node, key, EFFECT_NO_EXECUTE))
                .then_some((node, key))
        };
        let due = self.zones.due(now, |name| key_of(name).is_some());
        let tainted = due.into_iter().filter_map(|name| {
            let (node, key) = key_of(&name)?;
            Some((name, taints::with(node, key, EFFECT_NO_EXECUTE, now)))
        });
        tainted.collect()
    }

    /// Whether [`evictions`](Self::evictions) has anything to do.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.zones.is_waiting()
    }

    /// Whether a node is known.
    #[must_use]
    pub fn knows(&self, node: &str) -> bool {
        self.health.contains_key(node)
    }

    fn meet(&mut self, nodes: &[ObservedNode<'_>], findings: &mut Findings) {
        let present: HashMap<&Text, &Text> =
            nodes.iter().map(|seen| (&seen.node.metadata.name, &seen.node.metadata.uid)).collect();
        let gone: Vec<Text> = self.known.keys().filter(|name| !present.contains_key(name)).cloned().collect();
        for name in gone {
            self.health.remove(&name);
            self.zones.keep(&name);
            let uid = self.known.remove(&name).unwrap_or_default();
            findings.removed.push((name, uid));
        }
        for seen in nodes {
            let metadata = &seen.node.metadata;
            if self.known.insert(metadata.name.clone(), metadata.uid.clone()).is_none() {
                findings.registered.push(metadata.name.clone());
                // The decision of an earlier instance is made again.
                clear(seen.node, findings);
            }
        }
        findings.removed.sort();
    }

    /// The status of the node's Ready condition, as it is or will be in a moment.
    fn judge<'n>(&mut self, seen: &ObservedNode<'n>, findings: &mut Findings, now: Timestamp) -> Option<&'n str> {
        let name = &seen.node.metadata.name;
        let health = health::received(self.health.get(name), seen.node, seen.lease, now);
        let is_silent = health::is_silent(&health, self.grace, now);
        self.health.insert(name.clone(), health);
        if !is_silent {
            return health::ready(seen.node).map(|it| it.status.as_str());
        }
        if let Some(document) = health::silenced(seen.node, seen.document, now) {
            findings.silenced.push((name.clone(), document));
        }
        Some("Unknown")
    }

    /// Queues the node for its `NoExecute` taint, or removes the taint. The two taints exclude each other.
    fn consider_evicting(&mut self, node: &Node, status: Option<&str>, findings: &mut Findings, now: Timestamp) {
        let name = &node.metadata.name;
        let (key, opposite) = match status {
            None => return,
            Some("False") => (TAINT_NOT_READY, TAINT_UNREACHABLE),
            Some("Unknown") => (TAINT_UNREACHABLE, TAINT_NOT_READY),
            Some(_) => {
                self.zones.keep(name);
                return clear(node, findings);
            }
        };
        let (has, has_opposite) =
            (taints::has(node, key, EFFECT_NO_EXECUTE), taints::has(node, opposite, EFFECT_NO_EXECUTE));
        match (has, has_opposite) {
            (true, false) => {}
            (true, true) => {
                findings.taints.insert(name.clone(), taints::without(node, &[opposite], EFFECT_NO_EXECUTE));
            }
            // Its pods are already being evicted.
            (false, true) => {
                findings.taints.insert(name.clone(), taints::with(node, key, EFFECT_NO_EXECUTE, now));
            }
            (false, false) => self.zones.wait(&zones::key(node), name, &self.rates, now),
        }
    }
}

/// Removes the taints that evict pods.
fn clear(node: &Node, findings: &mut Findings) {
    let keys = [TAINT_NOT_READY, TAINT_UNREACHABLE];
    if keys.iter().any(|key| taints::has(node, key, EFFECT_NO_EXECUTE)) {
        findings.taints.insert(node.metadata.name.clone(), taints::without(node, &keys, EFFECT_NO_EXECUTE));
    }
}

#[cfg(test)]
mod tests;
