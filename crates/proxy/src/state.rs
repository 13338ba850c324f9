//! The observed Services and EndpointSlices of the cluster. Only changed Services are computed again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv4Addr;
use std::sync::Arc;

use api::json::Text;
use api::time::Timestamp;
use client::Key;

use crate::conntrack::{Frontend, Frontends};
use crate::decide::{NodeFacts, decide};
use crate::endpoint::{self, Slice};
use crate::health_check::HealthCheck;
use crate::ledger::{Ledger, Owner};
use crate::network::Protocol;
use crate::rules::ServiceRules;
use crate::service::Service;

/// One Service with its slices, and the rules that follow from them.
#[derive(Default)]
struct Entry {
    service: Option<Arc<Service>>,
    slices: BTreeMap<Text, Arc<Slice>>,
    rules: ServiceRules,
    udp: Frontends,
}

/// Results of an update, besides the ledger's.
#[derive(Debug, Default)]
pub struct Update {
    /// Frontends of UDP whose flows to other endpoints are stale.
    pub udp: Frontends,
    /// Times of the changes that caused updates of EndpointSlices.
    pub triggers: Vec<Timestamp>,
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
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            let slices = || entry.slices.values().map(|it| &**it);
            let (created, rules, udp) = match &entry.service {
                Some(service) => {
                    (service.created, decide(service, slices(), &self.node), udp_frontends(service, slices()))
                }
                None => Default::default(),
            };
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
            update.udp.extend(removed.map(|it| (*it, BTreeSet::new())));
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
            (entry.rules, entry.udp) = (rules, udp);
            if entry.service.is_none() && entry.slices.is_empty() {
                self.entries.remove(&key);
            }
        }
        update
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
fn udp_frontends<'a>(service: &Service, slices: impl Iterator<Item = &'a Slice> + Clone) -> Frontends {
    let mut frontends = Frontends::new();
    for port in service.ports.iter().filter(|it| it.protocol == Protocol::Udp) {
        let endpoints = endpoint::of_port(slices.clone(), &port.name, port.protocol);
        let serving: BTreeSet<_> = endpoints.iter().filter(|it| it.facts.is_serving).map(|it| it.address).collect();
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
