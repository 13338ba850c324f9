//! The order in which nodes are evaluated: alternating between zones.
//!
//! When a search ends early, the evaluated nodes are thus from all zones. Follows `node_tree.go`.

use api::well_known::{LABEL_TOPOLOGY_REGION, LABEL_TOPOLOGY_ZONE};
use std::collections::BTreeMap;

use super::node::NodeId;

/// Labels that name a zone, newest first.
const ZONES: [&str; 2] = [LABEL_TOPOLOGY_ZONE, "failure-domain.beta.kubernetes.io/zone"];
const REGIONS: [&str; 2] = [LABEL_TOPOLOGY_REGION, "failure-domain.beta.kubernetes.io/region"];

/// Region and zone of a node; empty where it has none.
pub(crate) fn zone(labels: &matching::node::Labels) -> (String, String) {
    let first = |keys: [&str; 2]| keys.iter().find_map(|key| labels.get(key)).unwrap_or_default().to_owned();
    (first(REGIONS), first(ZONES))
}

/// All nodes, in order.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) nodes: Vec<NodeId>,
    /// Position of each node, by its ID.
    pub(super) positions: Vec<u32>,
}

impl Order {
    pub(super) fn new(nodes: Vec<NodeId>, places: usize) -> Self {
        let mut positions = vec![u32::MAX; places];
        for (position, node) in (0_u32..).zip(&nodes) {
            if let Some(slot) = positions.get_mut(node.index()) {
                *slot = position;
            }
        }
        Order { nodes, positions }
    }
}

/// One node of each zone at a time.
pub(super) fn interleave<'n>(nodes: impl Iterator<Item = (NodeId, &'n matching::node::Labels)>) -> Vec<NodeId> {
    let mut zones: BTreeMap<(String, String), Vec<NodeId>> = BTreeMap::new();
    let mut count: usize = 0;
    for (id, labels) in nodes {
        zones.entry(zone(labels)).or_default().push(id);
        count = count.saturating_add(1);
    }
    let mut order = Vec::with_capacity(count);
    let mut round = 0;
    while order.len() < count {
        order.extend(zones.values().filter_map(|zone| zone.get(round)));
        round = round.saturating_add(1);
    }
    order
}
