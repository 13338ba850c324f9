//! The observed Services and EndpointSlices of the cluster. Only changed Services are computed again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv4Addr;
use std::sync::Arc;

use api::json::Text;
use api::time::Timestamp;
use client::Key;

use crate::conntrack::{Frontend, Frontends};
use crate::decide::{NodeFacts, decide};
use crate::endpoint::Slice;
use crate::health_check::HealthCheck;
use crate::ledger::{Ledger, Owner};
use crate::network::Protocol;
use crate::plan::{NAMESPACE_SETS_MAX, Omissions, Plan, PlannedPort, SERVICE_SETS_MAX, SETS_MAX};
use crate::rules::ServiceRules;
use crate::service::Service;

/// One Service with its slices, and the rules that follow from them.
#[derive(Default)]
struct Entry {
    service: Option<Arc<Service>>,
    slices: BTreeMap<Text, Arc<Slice>>,
    rules: ServiceRules,
    udp: Frontends,
    omissions: Omissions,
}

/// Results of an update, besides the ledger's.
#[derive(Debug, Default)]
pub struct Update {
    /// Frontends of UDP whose flows to other endpoints are stale.
    pub udp: Frontends,
    /// Times of the changes that caused updates of EndpointSlices.
    pub triggers: Vec<Timestamp>,
    /// Services whose parts without rules have changed.
    pub omissions: Vec<(Key, Omissions)>,
}

/// All Services and EndpointSlices.
pub struct State {
    node: NodeFacts,
    entries: HashMap<Key, Entry>,
    changed: BTreeSet<Key>,
    triggers: Vec<Timestamp>,
    health_checks: BTreeMap<Key, HealthCheck>,
    /// Numbers of ports that drop traffic for lack of local endpoints: internal, external.
    without_local: (usize, usize),
    /// Number of sets of clients by namespace.
    sets: BTreeMap<Text, usize>,
    /// The desired rules.
    pub ledger: Ledger,
}

impl State {
    /// An empty cluster, seen from a node.
    #[must_use]
    pub fn new(node: NodeFacts) -> Self {
        Self {
            node,
            entries: HashMap::new(),
            changed: BTreeSet::new(),
            triggers: Vec::new(),
            health_checks: BTreeMap::new(),
            without_local: (0, 0),
            sets: BTreeMap::new(),
            ledger: Ledger::default(),
        }
    }

    /// Facts of the node.
    #[must_use]
    pub fn node(&self) -> &NodeFacts {
        &self.node
    }

    /// Replaces the facts of the node; every Service is computed again.
    pub fn set_node(&mut self, node: NodeFacts) {
        if self.node != node {
            self.node = node;
            self.changed.extend(self.entries.keys().cloned());
        }
    }

    /// Sets or removes a Service.
    pub fn set_service(&mut self, key: &Key, service: Option<Arc<Service>>) {
        let known = self.entries.get(key).and_then(|it| it.service.as_ref());
        if known == service.as_ref() {
            return;
        }
        self.entries.entry(key.clone()).or_default().service = service;
        self.changed.insert(key.clone());
    }

    /// Sets an EndpointSlice. `old` is its last state: it may have belonged to another Service.
    pub fn set_slice(&mut self, name: &Text, old: Option<&Slice>, new: Option<Arc<Slice>>) {
        if let Some(old) = old.filter(|old| new.as_ref().is_none_or(|new| new.service != old.service))
            && let Some(entry) = self.entries.get_mut(&old.service)
            && entry.slices.remove(name).is_some()
        {
            self.changed.insert(old.service.clone());
        }
        let Some(new) = new else { return };
        let entry = self.entries.entry(new.service.clone()).or_default();
        let is_same = entry.slices.get(name).is_some_and(|it| it.ports == new.ports && it.endpoints == new.endpoints);
        if !is_same {
            self.triggers.extend(new.trigger);
            self.changed.insert(new.service.clone());
        }
        entry.slices.insert(name.clone(), new);
    }

    /// Whether an update would do anything.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Computes the rules of changed Services and enters them into the ledger.
    pub fn update(&mut self) -> Update {
        let mut update = Update { triggers: std::mem::take(&mut self.triggers), ..Update::default() };
        for key in std::mem::take(&mut self.changed) {
            let sets_before = self.entries.get(&key).map_or(0, |it| it.rules.sets.len());
            let sets_max = self.sets_left(&key, sets_before);
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            let slices = || entry.slices.values().map(|it| &**it);
            let (created, rules, udp, omissions) = match &entry.service {
                Some(service) => {
                    let plan = Plan::new(service, slices(), sets_max);
                    let rules = decide(service, &plan, &self.node);
                    (service.created, rules, udp_frontends(service, &plan), plan.omissions)
                }
                None => Default::default(),
            };
            if entry.omissions != omissions {
                update.omissions.push((key.clone(), omissions));
            }
            let sets = self.sets.entry(key.namespace.clone()).or_default();
            *sets = sets.saturating_sub(sets_before).saturating_add(rules.sets.len());
            if *sets == 0 {
                self.sets.remove(&key.namespace);
            }
            let owner = Arc::new(Owner { created, key: key.clone() });
            self.ledger.replace(&owner, &entry.rules, &rules);
            let counts = |it: &ServiceRules| (it.internal_without_local, it.external_without_local);
            let ((old_internal, old_external), (internal, external)) = (counts(&entry.rules), counts(&rules));
            let (all_internal, all_external) = self.without_local;
            self.without_local = (
                all_internal.saturating_sub(old_internal).saturating_add(internal),
                all_external.saturating_sub(old_external).saturating_add(external),
            );
            // Flows to a removed frontend have no endpoint that they may keep.
            let removed = entry.udp.keys().filter(|it| matches!(it, Frontend::Address(..)) && !udp.contains_key(it));
            update.udp.extend(removed.map(|it| (*it, Arc::default())));
            if entry.udp != udp {
                update.udp.extend(udp.clone());
            }
            match entry.service.as_ref().and_then(|it| it.health_check_node_port) {
                Some(port) => {
                    let local_endpoints = local_endpoints(slices());
                    self.health_checks.insert(key.clone(), HealthCheck { port, local_endpoints });
                }
                None => {
                    self.health_checks.remove(&key);
                }
            }
            (entry.rules, entry.udp, entry.omissions) = (rules, udp, omissions);
            if entry.service.is_none() && entry.slices.is_empty() {
                self.entries.remove(&key);
            }
        }
        update
    }

    /// Number of sets of clients that a Service may have, which has `own` now.
    fn sets_left(&self, key: &Key, own: usize) -> usize {
        let all = self.sets.values().fold(0_usize, |sum, it| sum.saturating_add(*it));
        let in_namespace = self.sets.get(&key.namespace).copied().unwrap_or(0);
        let left = |max: usize, used: usize| max.saturating_sub(used.saturating_sub(own));
        SERVICE_SETS_MAX.min(left(NAMESPACE_SETS_MAX, in_namespace)).min(left(SETS_MAX, all))
    }

    /// Health checks of load balancers, by Service.
    #[must_use]
    pub fn health_checks(&self) -> &BTreeMap<Key, HealthCheck> {
        &self.health_checks
    }

    /// Numbers of ports that drop internal and external traffic for lack of local endpoints.
    #[must_use]
    pub fn without_local(&self) -> (usize, usize) {
        self.without_local
    }
}

/// The number of ready endpoints on this node, each pod once.
fn local_endpoints<'a>(slices: impl Iterator<Item = &'a Slice>) -> usize {
    let endpoints = slices.filter(|it| !it.ports.is_empty()).flat_map(|it| &it.endpoints);
    let local = endpoints.filter(|it| it.facts.is_local && it.facts.is_ready).map(|it| it.address);
    local.collect::<BTreeSet<Ipv4Addr>>().len()
}

/// Serving endpoints of each UDP frontend. Policies and readiness do not end established flows, as with TCP.
fn udp_frontends(service: &Service, plan: &Plan<'_>) -> Frontends {
    let mut frontends = Frontends::new();
    for PlannedPort { port, endpoints } in plan.ports.iter().filter(|it| it.port.protocol == Protocol::Udp) {
        let serving = endpoints.iter().filter(|it| it.facts.is_serving).map(|it| it.address);
        let serving: Arc<BTreeSet<_>> = Arc::new(serving.collect());
        let others = service.load_balancer_ips.iter().chain(&service.external_ips);
        for address in others.chain([&service.cluster_ip]) {
            frontends.insert(Frontend::Address(*address, port.port), serving.clone());
        }
        // A node port is recognized by its number only: without endpoints, flows of others might be deleted.
        if let Some(node_port) = port.node_port.filter(|_| !serving.is_empty()) {
            frontends.insert(Frontend::NodePort(node_port), serving);
        }
    }
    frontends
}

#[cfg(test)]
mod tests {
    #![allow(clippy::arithmetic_side_effects, reason = "tests")]

    use api::json::Value;

    use super::*;
    use crate::nft::tests::node;

    fn add(state: &mut State, namespace: &str, name: &str, endpoints: usize) {
        let service = Service::read(&api::json!({
            "metadata": {"namespace": namespace, "name": name},
            "spec": {
                "clusterIP": "10.96.0.1", "sessionAffinity": "ClientIP", "ports": [{"port": 80_i64, "protocol": "TCP"}]
            },
        }));
        let endpoint = |it: usize| api::json!({"addresses": [(format!("10.0.{}.{}", it / 250, it % 250))]});
        let slice = Slice::read(
            &api::json!({
                "metadata": {"namespace": namespace, "labels": {"kubernetes.io/service-name": name}},
                "addressType": "IPv4", "ports": [{"name": "", "port": 80_i64, "protocol": "TCP"}],
                "endpoints": (Value::Array((0..endpoints).map(endpoint).collect())),
            }),
            "here",
        );
        state.set_service(&Key::new(namespace, name), Some(Arc::new(service.unwrap())));
        state.set_slice(&name.into(), None, slice.map(Arc::new));
    }

    #[test]
    fn sets_of_clients_are_bounded_by_namespace() {
        let mut state = State::new(node());
        for number in 0..6 {
            add(&mut state, "a", &format!("s{number}"), 1000);
        }
        let omissions = state.update().omissions;
        let names: Vec<_> = omissions.iter().map(|(key, omissions)| (key.name.as_str(), omissions.affinity)).collect();
        assert_eq!(names, [("s4", true), ("s5", true)]);
        add(&mut state, "b", "s", 1000);
        assert!(state.update().omissions.is_empty());
        // Removed Services leave room for changed ones.
        state.set_service(&Key::new("a", "s0"), None);
        state.update();
        add(&mut state, "a", "s4", 999);
        let restored = state.update().omissions;
        assert_eq!(restored, [(Key::new("a", "s4"), Omissions::default())]);
    }
}
