//! Shapes of nodes: a search on one node is valid for all equivalent ones.
//!
//! The first part of a shape is the usable devices of a node, the second their allocation. Names of nodes,
//! slices and pools are not part of it if a pool belongs to one node alone: searches use positions, and the
//! result is written for the chosen node.

use std::fmt::Write as _;

use crate::allocated::AllocatedState;
use crate::catalog::{Nodes, Slice};
use crate::pools::{Candidate, NodePools, Pool, State};

/// Returns the usable devices of a node as text: equal texts mean equal searches.
pub(crate) fn usable(pools: &NodePools) -> String {
    let mut text = String::new();
    let mut write = |part: std::fmt::Arguments<'_>| {
        // Writing to a text cannot fail.
        let _ = text.write_fmt(part);
    };
    write(format_args!("{};", pools.optional_node_operations));
    for (_, pool) in pools.pools.iter() {
        let name = if is_local(pool, pools) { "" } else { pool.name.as_str() };
        let state = match pool.state {
            State::Usable => 'u',
            State::Incomplete => 'i',
            State::Invalid => 'x',
        };
        write(format_args!("{state} {:?} {name:?} {:?} {:?};", pool.driver, pool.counters, pool.elsewhere));
        for id in &pool.candidates {
            let candidate = pools.candidates.of(*id);
            let device = candidate.device();
            write(format_args!(
                "{:?} {} {} {:?} {:?} {:?} {:?} {:?} {:?};",
                device.name,
                candidate.model().id,
                pools.rank.of(*id),
                device.consumes,
                device.taints,
                device.binding_conditions,
                candidate.is_reachable,
                selector(candidate),
                candidate.slice.skip_node_operations,
            ));
        }
    }
    text
}

/// Whether only this node can use the pool: equivalent nodes have an equivalent pool.
fn is_local(pool: &Pool, pools: &NodePools) -> bool {
    let is_own = |slice: &Slice| matches!(slice.nodes, Nodes::One(_));
    pool.elsewhere.is_empty() && pool.candidates.iter().all(|id| is_own(&pools.candidates.of(*id).slice))
}

/// The node selector for the allocation; with too many terms the search itself fails.
fn selector(candidate: &Candidate) -> Option<&api::core::v1::NodeSelector> {
    match candidate.slice.nodes_of(candidate.device()) {
        Nodes::Selected(selected) => Some(&selected.selector),
        _ => None,
    }
}

/// Returns the allocation of the usable devices as text.
pub(crate) fn taken(pools: &NodePools, state: &AllocatedState) -> String {
    let mut text = String::new();
    for (_, pool) in pools.pools.iter() {
        let Some(used) = state.pool(&pool.driver, &pool.name) else {
            text.push(';');
            continue;
        };
        for id in &pool.candidates {
            let device = &pools.candidates.of(*id).device().name;
            text.push(if used.is_dedicated(device) { '1' } else { '0' });
            if let Some(shares) = used.shares(device) {
                // The IDs of shares are random; their amounts are not.
                let mut amounts: Vec<String> = shares.values().map(|amounts| format!("{amounts:?}")).collect();
                amounts.sort();
                let _ = write!(text, "{amounts:?}");
            }
        }
        for (device, _) in pool.elsewhere.iter().filter(|(device, _)| used.is_used(device)) {
            let _ = write!(text, "{device:?}");
        }
        text.push(';');
    }
    text
}
