//! Conversion of a search result to the status of the claims.
//!
//! Follows the end of `Allocate`: settings of classes and claims by the requests they are for, and the nodes from which
//! all devices of a claim can be used.

use std::collections::BTreeMap;

use api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use api::json::Text;
use api::resource::v1::{
    AllocationResult, DeviceAllocationConfiguration, DeviceAllocationResult, DeviceRequestAllocationResult,
};

use crate::catalog::Nodes;
use crate::claims::{Claim, Claims, RequestAlternative};
use crate::error::Error;
use crate::ids::{ClaimId, Id};
use crate::pools::NodePools;
use crate::search::{Pick, Solution};

impl Solution {
    /// An allocation for each claim, on a node that looks like the one searched. `share_id` makes ids of shares.
    ///
    /// # Errors
    /// A slice selects nodes in a way that an allocation cannot express; the search has reported that before.
    pub fn allocations(
        &self,
        claims: &Claims,
        pools: &NodePools,
        share_id: &mut dyn FnMut() -> Text,
    ) -> Result<Vec<AllocationResult>, Error> {
        let mut allocations = Vec::with_capacity(self.picks.len());
        for (position, picks) in self.picks.iter().enumerate() {
            let Some(claim) = claims.claims.get(ClaimId::new(position)) else { continue };
            let results = picks.iter().map(|pick| result(pick, claims, pools, share_id)).collect();
            let taken = self.alternatives.get(position).map(Vec::as_slice).unwrap_or_default();
            let devices = DeviceAllocationResult { results, config: configuration(claim, taken, claims) };
            let node_selector = node_selector(picks, pools).map_err(|terms| unsupported(claim, terms))?;
            allocations.push(AllocationResult { devices, node_selector, allocation_timestamp: None });
        }
        Ok(allocations)
    }
}

/// Detects early that a solution cannot be written to a claim.
pub(crate) fn check_node_selectors(solution: &Solution, pools: &NodePools, claims: &Claims) -> Result<(), Error> {
    for (picks, (_, claim)) in solution.picks.iter().zip(claims.claims.iter()) {
        node_selector(picks, pools).map_err(|terms| unsupported(claim, terms))?;
    }
    Ok(())
}

fn unsupported(claim: &Claim, terms: usize) -> Error {
    Error::NodeSelectorTerms { claim: claim.source.metadata.name.to_string(), terms }
}

fn result(
    pick: &Pick,
    claims: &Claims,
    pools: &NodePools,
    share_id: &mut dyn FnMut() -> Text,
) -> DeviceRequestAllocationResult {
    let ask = claims.asks.of(pick.ask);
    let candidate = pools.candidates.of(pick.candidate);
    let device = candidate.device();
    let conditions = |of: &[Text]| if claims.features.device_binding_and_status { of.to_vec() } else { Vec::new() };
    DeviceRequestAllocationResult {
        request: ask.full_name.clone(),
        driver: candidate.slice.driver.clone(),
        pool: candidate.slice.pool.clone(),
        device: device.name.clone(),
        admin_access: ask.admin_access.then_some(true),
        tolerations: ask.tolerations.clone(),
        binding_conditions: conditions(&device.binding_conditions),
        binding_failure_conditions: conditions(&device.binding_failure_conditions),
        share_id: pick.share.as_ref().map(|_| share_id()),
        consumed_capacity: pick.share.clone().unwrap_or_default(),
        skip_node_operations: candidate.slice.skip_node_operations.clone(),
    }
}

/// Settings of classes, each class once, then those of the claim that are for requests it has.
fn configuration(claim: &Claim, taken: &[usize], claims: &Claims) -> Vec<DeviceAllocationConfiguration> {
    let taken_asks: Vec<&RequestAlternative> = claim
        .requests
        .iter()
        .zip(taken)
        .filter_map(|(request, taken)| request.asks.get(*taken))
        .map(|ask| claims.asks.of(*ask))
        .collect();
    let names_request = |requests: &[Text], index: usize, ask: &RequestAlternative| {
        let name = claim.requests.get(index).map_or(&ask.name, |request| &request.name);
        requests.iter().any(|it| it == name || *it == ask.full_name)
    };
    let mut list: Vec<DeviceAllocationConfiguration> = Vec::new();
    let mut of_class: BTreeMap<&Text, std::ops::Range<usize>> = BTreeMap::new();
    for ask in &taken_asks {
        let Some(class) = &ask.class else { continue };
        if let Some(known) = of_class.get(&class.metadata.name) {
            for settings in list.get_mut(known.clone()).into_iter().flatten() {
                settings.requests.push(ask.full_name.clone());
            }
            continue;
        }
        let start = list.len();
        list.extend(class.spec.config.iter().map(|config| DeviceAllocationConfiguration {
            source: "FromClass".into(),
            requests: vec![ask.full_name.clone()],
            opaque: config.opaque.clone(),
        }));
        of_class.insert(&class.metadata.name, start..list.len());
    }
    for config in &claim.source.spec.devices.config {
        let mut asks = taken_asks.iter().enumerate();
        if config.requests.is_empty() || asks.any(|(index, ask)| names_request(&config.requests, index, ask)) {
            list.push(DeviceAllocationConfiguration {
                source: "FromClaim".into(),
                requests: config.requests.clone(),
                opaque: config.opaque.clone(),
            });
        }
    }
    for settings in &mut list {
        let mut asks = taken_asks.iter().enumerate();
        if asks.all(|(index, ask)| names_request(&settings.requests, index, ask)) {
            // No request means all of them.
            settings.requests.clear();
        }
    }
    list
}

/// The nodes from which all devices can be used; nothing means all nodes.
fn node_selector(picks: &[Pick], pools: &NodePools) -> Result<Option<NodeSelector>, usize> {
    let mut term = NodeSelectorTerm::default();
    for pick in picks {
        let candidate = pools.candidates.of(pick.candidate);
        let nodes = candidate.slice.nodes_of(candidate.device());
        if candidate.device().binds_to_node || matches!(nodes, Nodes::One(_)) {
            let name = NodeSelectorRequirement {
                key: "metadata.name".into(),
                operator: "In".into(),
                values: Some(vec![pools.node.clone()]),
            };
            let term = NodeSelectorTerm { match_fields: vec![name], ..NodeSelectorTerm::default() };
            return Ok(Some(NodeSelector { node_selector_terms: vec![term] }));
        }
        let Nodes::Selected(selected) = nodes else { continue };
        match selected.selector.node_selector_terms.as_slice() {
            [] => {}
            [one] => {
                add_new(&mut term.match_fields, &one.match_fields);
                add_new(&mut term.match_expressions, &one.match_expressions);
            }
            several => return Err(several.len()),
        }
    }
    let is_everywhere = term.match_fields.is_empty() && term.match_expressions.is_empty();
    Ok((!is_everywhere).then(|| NodeSelector { node_selector_terms: vec![term] }))
}

fn add_new(to: &mut Vec<NodeSelectorRequirement>, from: &[NodeSelectorRequirement]) {
    for requirement in from {
        let is_known = to.iter().any(|known| {
            known.key == requirement.key
                && known.operator == requirement.operator
                && same_values(known.values.as_deref(), requirement.values.as_deref())
        });
        if !is_known {
            to.push(requirement.clone());
        }
    }
}

/// Whether two lists are equal as sets.
fn same_values(left: Option<&[Text]>, right: Option<&[Text]>) -> bool {
    let (left, right) = (left.unwrap_or_default(), right.unwrap_or_default());
    left.iter().all(|it| right.contains(it)) && right.iter().all(|it| left.contains(it))
}
