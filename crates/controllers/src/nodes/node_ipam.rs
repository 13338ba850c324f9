//! Networks of pods: each Node gets a part of the cluster's (`spec.podCIDR`).
//!
//! One worker, so that no network is assigned twice. A Node keeps its network for life; that of a deleted Node is free again. Follows the
//! range allocator in `pkg/controller/nodeipam` of Kubernetes, for IPv4.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use api::core::v1::Node;
use api::json::Text;
use client::controller::{Controller, Next, own};
use client::informer::{Informer, Key};
use client::objects::Patch;
use client::resources::ServedView as _;
use locks::Mutex;
use tracing::warn;

use crate::machinery::action::Action;
use crate::machinery::executor::{Executor, Failure};
use crate::manager::Context;

/// Delay before a Node without a network is reconciled again if all networks are in use.
const FULL: Duration = Duration::from_secs(30);
/// Largest difference between the lengths of both prefixes, as in Kubernetes: 65,536 nodes.
const BITS_MAX: u8 = 16;

/// The cluster's network, and the length of each node's part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeNetworks {
    first: u32,
    prefix: u8,
    node_prefix: u8,
}

/// Networks that cannot be allocated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeNetworksError {
    /// Not an IPv4 network.
    #[error("`{0}` is not an IPv4 network, such as 10.244.0.0/16")]
    Network(String),
    /// The node's part is larger than the network, too small, or there are too many of them.
    #[error("a node's prefix must be from {least} to {most} bits long")]
    Prefix {
        /// Shortest prefix.
        least: u8,
        /// Longest prefix.
        most: u8,
    },
}

impl NodeNetworks {
    /// Parts of a network, of `node_prefix` bits each.
    ///
    /// # Errors
    /// A text that is not a network, or an unsuitable length.
    pub fn new(network: &str, node_prefix: u8) -> Result<Self, NodeNetworksError> {
        let parts = network.split_once('/');
        let parsed = parts.and_then(|(address, prefix)| {
            let prefix = prefix.parse::<u8>().ok().filter(|it| (1..=30).contains(it))?;
            Some((address.parse::<Ipv4Addr>().ok()?, prefix))
        });
        let (address, prefix) = parsed.ok_or_else(|| NodeNetworksError::Network(network.to_owned()))?;
        let most = prefix.saturating_add(BITS_MAX).min(30);
        if !(prefix..=most).contains(&node_prefix) {
            return Err(NodeNetworksError::Prefix { least: prefix, most });
        }
        let hosts = u32::MAX.checked_shr(u32::from(prefix)).unwrap_or(0);
        Ok(Self { first: u32::from(address) & !hosts, prefix, node_prefix })
    }

    /// Number of parts.
    fn count(self) -> u32 {
        1_u32.checked_shl(u32::from(self.node_prefix.saturating_sub(self.prefix))).unwrap_or(0)
    }

    /// A part by its number.
    fn network(self, number: u32) -> String {
        let offset = number.checked_shl(u32::from(32_u8.saturating_sub(self.node_prefix))).unwrap_or(0);
        format!("{}/{}", Ipv4Addr::from(self.first.saturating_add(offset)), self.node_prefix)
    }

    /// The parts that a network of a Node covers; none if it is outside.
    fn numbers(self, network: &str) -> Option<std::ops::RangeInclusive<u32>> {
        let (address, prefix) = network.split_once('/')?;
        let (address, prefix) = (u32::from(address.parse::<Ipv4Addr>().ok()?), prefix.parse::<u8>().ok()?);
        let size = 32_u8.saturating_sub(self.node_prefix);
        let last = address | u32::MAX.checked_shr(u32::from(prefix)).unwrap_or(0);
        let number = |it: u32| it.checked_sub(self.first).map(|it| it.checked_shr(u32::from(size)).unwrap_or(0));
        let (first, last) = (number(address)?, number(last)?);
        (first < self.count()).then(|| first..=last.min(self.count().saturating_sub(1)))
    }
}

/// Networks in use.
#[derive(Debug, Default)]
struct Allocation {
    by_node: BTreeMap<Text, String>,
    used: BTreeSet<u32>,
    is_complete: bool,
}

impl Allocation {
    fn occupy(&mut self, networks: NodeNetworks, node: &Text, network: &str) {
        if self.by_node.get(node).is_some_and(|known| known == network) {
            return;
        }
        self.release(networks, node);
        self.used.extend(networks.numbers(network).into_iter().flatten());
        self.by_node.insert(node.clone(), network.to_owned());
    }

    fn release(&mut self, networks: NodeNetworks, node: &Text) {
        let Some(network) = self.by_node.remove(node) else { return };
        for number in networks.numbers(&network).into_iter().flatten() {
            self.used.remove(&number);
        }
    }

    /// Assigns the lowest free network.
    fn assign(&mut self, networks: NodeNetworks, node: &Text) -> Option<String> {
        if let Some(known) = self.by_node.get(node) {
            return Some(known.clone());
        }
        let mut used = self.used.iter().copied();
        let free = (0..networks.count()).find(|number| used.next() != Some(*number))?;
        let network = networks.network(free);
        self.occupy(networks, node, &network);
        Some(network)
    }
}

struct NodeIpam {
    nodes: Informer<Node>,
    executor: Executor,
    networks: NodeNetworks,
    allocation: Mutex<Allocation>,
}

/// Runs the controller until shutdown, if networks are allocated.
pub async fn run(context: Context) {
    let Some(networks) = context.settings.node_networks else { return };
    let nodes = context.informers.all::<Node>();
    let runner = Controller::new("node-ipam", &context.runtime).watch(&nodes, own);
    let ipam = Arc::new(NodeIpam { nodes, executor: context.executor(), networks, allocation: Mutex::default() });
    runner
        .run(move |key: Key| {
            let ipam = ipam.clone();
            async move { ipam.reconcile(key).await }
        })
        .await;
}

impl NodeIpam {
    async fn reconcile(&self, key: Key) -> Result<Next, Failure> {
        let Some(network) = self.decide(&key) else { return Ok(Next::Done) };
        let Some(network) = network else {
            warn!(node = %key, "All networks of pods are in use");
            return Ok(Next::After(FULL));
        };
        let action = Action::Patch {
            resource: Node::RESOURCE,
            namespace: Text::default(),
            name: key.name.clone(),
            subresource: "",
            kind: Patch::StrategicMerge,
            patch: api::json!({"spec": {"podCIDR": (network.as_str()), "podCIDRs": [(network.as_str())]}}),
        };
        match self.executor.perform(&key, vec![action]).await {
            Err(failure) if failure.code() == 404 => Ok(Next::Done),
            result => result.map(|()| Next::Done),
        }
    }

    /// The network that a Node is to get; the inner `None` if there is no free one, the outer if the Node needs none.
    fn decide(&self, key: &Key) -> Option<Option<String>> {
        let mut allocation = self.allocation.lock();
        // Networks of all Nodes are known before the first one is assigned.
        if !std::mem::replace(&mut allocation.is_complete, true) {
            for node in self.nodes.store().list().iter().filter(|it| !it.spec.pod_cidr.is_empty()) {
                allocation.occupy(self.networks, &node.metadata.name, &node.spec.pod_cidr);
            }
        }
        match self.nodes.store().get_key(key) {
            None => {
                allocation.release(self.networks, &key.name);
                None
            }
            Some(node) if !node.spec.pod_cidr.is_empty() => {
                allocation.occupy(self.networks, &key.name, &node.spec.pod_cidr);
                None
            }
            Some(_) => Some(allocation.assign(self.networks, &key.name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_checked() {
        assert!(NodeNetworks::new("10.244.0.0/16", 24).is_ok());
        for (network, prefix) in
            [("10.244.0.0", 24), ("fd00::/48", 64), ("10.0.0.0/8", 25), ("10.0.0.0/16", 15), ("10.0.0.0/16", 31)]
        {
            assert!(NodeNetworks::new(network, prefix).is_err(), "{network} {prefix}");
        }
    }

    #[test]
    fn lowest_free_network_is_assigned() {
        let networks = NodeNetworks::new("10.244.0.0/22", 24).unwrap();
        let mut allocation = Allocation::default();
        allocation.occupy(networks, &"old".into(), "10.244.1.0/24");
        let assign = |allocation: &mut Allocation, node: &str| allocation.assign(networks, &node.into());
        assert_eq!(assign(&mut allocation, "a").as_deref(), Some("10.244.0.0/24"));
        assert_eq!(assign(&mut allocation, "b").as_deref(), Some("10.244.2.0/24"));
        assert_eq!(assign(&mut allocation, "a").as_deref(), Some("10.244.0.0/24"));
        allocation.occupy(networks, &"wide".into(), "10.244.3.0/25");
        assert_eq!(assign(&mut allocation, "c"), None);
        allocation.release(networks, &"old".into());
        assert_eq!(assign(&mut allocation, "c").as_deref(), Some("10.244.1.0/24"));
        // Networks outside of the cluster's block nothing.
        allocation.occupy(networks, &"else".into(), "192.168.0.0/24");
        allocation.release(networks, &"else".into());
        assert_eq!(assign(&mut allocation, "d"), None);
    }

    #[test]
    fn larger_networks_cover_several_parts() {
        let networks = NodeNetworks::new("10.244.0.0/22", 24).unwrap();
        let mut allocation = Allocation::default();
        allocation.occupy(networks, &"wide".into(), "10.244.0.0/23");
        assert_eq!(allocation.assign(networks, &"a".into()).as_deref(), Some("10.244.2.0/24"));
    }
}
