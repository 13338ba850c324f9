//! Members of a fleet: the configured nodes, and those that request simulation.

use locks::RwLock;
use std::collections::HashMap;
use std::sync::Arc;

use api::core::v1::Node;
use api::json::Text;
use api::labels::Selector;

use super::member::{Member, address_of};
use crate::{annotations, pod_addresses};

/// A Node with this annotation set to `true` is simulated, regardless of its creator.
pub const PLAYED: &str = "sim.celplane.dev/node";

/// Whether a Node requests simulation, or matches the fleet's selector.
pub(super) fn asks(node: &Node, adopted: Option<&Selector>) -> bool {
    adopted.is_some_and(|selector| selector.matches(&node.metadata.labels))
        || annotations::get(&node.metadata.annotations, "node") == Some("true")
}

/// The nodes of a fleet by name.
#[derive(Default)]
pub(super) struct Members(RwLock<HashMap<Text, Arc<Member>>>);

impl Members {
    pub(super) fn new(members: impl Iterator<Item = Member>) -> Self {
        Self(RwLock::new(members.map(|member| (member.name.clone(), Arc::new(member))).collect()))
    }

    pub(super) fn get(&self, name: &str) -> Option<Arc<Member>> {
        self.0.read().get(name).cloned()
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.0.read().contains_key(name)
    }

    pub(super) fn len(&self) -> usize {
        self.0.read().len()
    }

    pub(super) fn all(&self) -> Vec<Arc<Member>> {
        self.0.read().values().cloned().collect()
    }

    /// Takes a node in. Its number is the one that its address has, where that is free: a fleet that is started again
    /// gives the same addresses.
    pub(super) fn adopt(&self, node: &Node, make: impl FnOnce(&str, usize) -> Member) {
        let mut members = self.0.write();
        let name = &node.metadata.name;
        if members.contains_key(name) {
            return;
        }
        let is_free = |number: &usize| members.values().all(|member| member.number != *number);
        let known = pod_addresses::number_of(&address_of(node)).filter(is_free);
        let next = || members.values().map(|member| member.number.saturating_add(1)).max().unwrap_or(0);
        let number = known.unwrap_or_else(next);
        members.insert(name.clone(), Arc::new(make(name, number)));
    }
}
