//! The endpoints that a node uses for a port of a Service.
//!
//! Follows `CategorizeEndpoints` in `pkg/proxy/topology.go` of Kubernetes.

use crate::endpoint::{Endpoint, Facts};

/// The node on which the rules apply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeTopology {
    /// The node's name.
    pub name: String,
    /// The label `topology.kubernetes.io/zone`.
    pub zone: String,
}

/// Endpoints by traffic policy.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Categories<'a> {
    /// Usable endpoints of the traffic policy `Cluster`.
    pub cluster: Vec<&'a Endpoint>,
    /// Usable endpoints of the traffic policy `Local`.
    pub local: Vec<&'a Endpoint>,
    /// Union of both.
    pub reachable: Vec<&'a Endpoint>,
    /// Whether any node has a usable endpoint, even if this node reaches none.
    pub has_any: bool,
}

/// Subset of ready endpoints that hints select.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Preference {
    All,
    SameZone,
    SameNode,
}

/// Sorts endpoints into categories. Ready endpoints are usable; if there are none, terminating ones that still serve are, separately
/// for each policy.
#[must_use]
pub fn categorize<'a>(
    endpoints: &'a [Endpoint],
    node: &NodeTopology,
    uses_cluster: bool,
    uses_local: bool,
) -> Categories<'a> {
    let mut found = Categories::default();
    let select = |is_usable: &dyn Fn(&Facts) -> bool| -> Vec<&'a Endpoint> {
        endpoints.iter().filter(|it| is_usable(&it.facts)).collect()
    };
    let is_last_resort = |it: &Facts| it.is_serving && it.is_terminating;
    if uses_cluster {
        let preference = preference(endpoints, node);
        found.cluster = select(&|it| it.is_ready && is_preferred(it, preference, node));
        if found.cluster.is_empty() {
            found.cluster = select(&is_last_resort);
        }
        found.has_any = !found.cluster.is_empty();
    }
    if uses_local {
        found.has_any |= endpoints.iter().any(|it| it.facts.is_ready || is_last_resort(&it.facts));
        found.local = select(&|it| it.is_local && it.is_ready);
        if found.local.is_empty() {
            found.local = select(&|it| it.is_local && !it.is_ready && is_last_resort(it));
        }
    }
    found.reachable = found.cluster.iter().chain(&found.local).copied().collect();
    found.reachable.sort_by_key(|it| it.address);
    found.reachable.dedup_by_key(|it| it.address);
    found
}

/// Hints count only if every ready endpoint has one, and at least one names this node or its zone.
fn preference(endpoints: &[Endpoint], node: &NodeTopology) -> Preference {
    let ready = || endpoints.iter().map(|it| &it.facts).filter(|it| it.is_ready);
    if ready().next().is_none() {
        return Preference::All;
    }
    let is_same = |it: &Facts, preference| is_preferred(it, preference, node);
    if ready().all(|it| !it.nodes.is_empty()) && ready().any(|it| is_same(it, Preference::SameNode)) {
        return Preference::SameNode;
    }
    if ready().all(|it| !it.zones.is_empty()) && ready().any(|it| is_same(it, Preference::SameZone)) {
        return Preference::SameZone;
    }
    Preference::All
}

fn is_preferred(endpoint: &Facts, preference: Preference, node: &NodeTopology) -> bool {
    match preference {
        Preference::All => true,
        Preference::SameNode => endpoint.nodes.iter().any(|it| *it == node.name),
        Preference::SameZone => endpoint.zones.iter().any(|it| *it == node.zone),
    }
}

#[cfg(test)]
mod tests;
