//! Usable pools of one node, and their devices in the order in which they are tried.
//!
//! Follows `pools_experimental.go`. Slices of older generations are left out; pools whose slices are not all there, or
//! contradict each other, are kept as such: nothing is allocated from them. Pools stand by driver and name, those with
//! binding conditions last; slices by name; devices as they are listed. Claims with an expression over the set try
//! devices in canonical order instead: driver, pool and name as text.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use api::json::Text;

use crate::catalog::{Catalog, Device, Nodes, Slice};
use crate::counters::{Consumption, Counters};
use crate::device::{DeviceId, Model};
use crate::error::Error;
use crate::features::Features;
use crate::ids::{CandidateId, PoolId, Table};

/// The node for which devices are wanted.
#[derive(Debug, Clone, Copy)]
pub struct Target<'n> {
    /// Name and labels of the node.
    pub node: &'n matching::Node,
    /// Whether the node's agent can skip the operations that a slice names: it declares
    /// `DRAOptionalNodeOperations`.
    pub optional_node_operations: bool,
}

impl<'n> Target<'n> {
    /// A node, and the features that it declares.
    pub fn new(node: &'n matching::Node, declared_features: &[Text]) -> Self {
        Target { node, optional_node_operations: declared_features.iter().any(|it| it == "DRAOptionalNodeOperations") }
    }
}

/// Pools that can be used from one node.
#[derive(Debug)]
pub struct NodePools {
    pub(crate) node: Text,
    pub(crate) optional_node_operations: bool,
    pub(crate) pools: Table<PoolId, Pool>,
    pub(crate) candidates: Table<CandidateId, Candidate>,
    /// Candidates as Kubernetes tries them.
    pub(crate) listed: Vec<CandidateId>,
    /// Candidates by driver, pool and name.
    pub(crate) canonical: Vec<CandidateId>,
    /// Position of a candidate in the canonical order.
    pub(crate) rank: Table<CandidateId, usize>,
}

/// A pool, as far as it can be used from the node.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) driver: Text,
    pub(crate) name: Text,
    pub(crate) state: State,
    pub(crate) counters: Counters,
    pub(crate) candidates: Vec<CandidateId>,
    /// Devices that take of the counters and cannot be used from here.
    pub(crate) elsewhere: Vec<(Text, Consumption)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Usable,
    /// Slices are missing.
    Incomplete,
    /// Slices contradict each other.
    Invalid,
}

/// A device that can be used from the node.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) pool: PoolId,
    pub(crate) slice: Arc<Slice>,
    index: usize,
    pub(crate) consumption: Consumption,
    /// Whether the device can be used from the node, if slices delegate the node selection to devices.
    pub(crate) is_reachable: Result<bool, Error>,
}

impl Candidate {
    #[expect(clippy::indexing_slicing, reason = "the index was taken from this slice's devices")]
    pub(crate) fn device(&self) -> &Device {
        &self.slice.devices[self.index]
    }

    pub(crate) fn model(&self) -> &Arc<Model> {
        &self.device().model
    }

    pub(crate) fn id(&self) -> DeviceId {
        DeviceId {
            driver: self.slice.driver.clone(),
            pool: self.slice.pool.clone(),
            device: self.device().name.clone(),
        }
    }

    fn canonical_key(&self) -> (&str, &str, &str) {
        (&self.slice.driver, &self.slice.pool, &self.device().name)
    }
}

impl Pool {
    pub(crate) fn id(&self) -> String {
        format!("{}/{}", self.driver, self.name)
    }
}

impl NodePools {
    pub(crate) fn gather(catalog: &Catalog, target: Target<'_>, features: &Features) -> Result<Self, Error> {
        let mut gathered: BTreeMap<(&Text, &Text), Vec<&Arc<Slice>>> = BTreeMap::new();
        for slice in catalog.slices_for(&target.node.name) {
            if is_understood(slice, features) && is_relevant(slice, target.node)? {
                add_to_generation(gathered.entry((&slice.driver, &slice.pool)).or_default(), slice);
            }
        }
        let mut built: Vec<PoolDraft> = Vec::with_capacity(gathered.len());
        for ((driver, name), slices) in gathered {
            built.extend(PoolDraft::new(catalog, driver, name, slices, features));
        }
        // INVARIANT: sorted by driver and name, as the map was; this keeps that order within both halves.
        built.sort_by_key(|pool| pool.has_binding_conditions);
        Ok(NodePools::new(target, built))
    }

    fn new(target: Target<'_>, built: Vec<PoolDraft>) -> Self {
        let mut pools = Table::new();
        let mut candidates: Table<CandidateId, Candidate> = Table::new();
        for PoolDraft { mut pool, devices, .. } in built {
            let id = PoolId::from_table(&pools);
            for (slice, index, consumption) in devices {
                let mut candidate = Candidate { pool: id, slice, index, consumption, is_reachable: Ok(true) };
                if matches!(candidate.slice.nodes, Nodes::PerDevice) {
                    let contains = candidate.device().nodes.contains(target.node);
                    candidate.is_reachable = contains.map_err(Error::DeviceNodeSelection);
                }
                pool.candidates.push(candidates.push(candidate));
            }
            pools.push(pool);
        }
        let listed: Vec<CandidateId> = candidates.ids().collect();
        let mut canonical = listed.clone();
        canonical
            .sort_by(|left, right| candidates.of(*left).canonical_key().cmp(&candidates.of(*right).canonical_key()));
        let mut rank = Table::filled(candidates.len(), || 0);
        for (position, id) in canonical.iter().enumerate() {
            *rank.of_mut(*id) = position;
        }
        NodePools {
            node: target.node.name.clone(),
            optional_node_operations: target.optional_node_operations,
            pools,
            candidates,
            listed,
            canonical,
            rank,
        }
    }

    /// Devices as messages about failures list them: the first few, so that the cause still fits behind them.
    pub(crate) fn few_names(&self, devices: &[CandidateId]) -> String {
        const FEW: usize = 4;
        match devices.split_at_checked(FEW) {
            Some((first, rest)) if !rest.is_empty() => format!("{} and {} more", self.names(first), rest.len()),
            _ => self.names(devices),
        }
    }

    /// All devices by name.
    pub(crate) fn names(&self, devices: &[CandidateId]) -> String {
        let names: Vec<String> = devices.iter().map(|id| self.candidates.of(*id).id().to_string()).collect();
        names.join(", ")
    }

    /// Number of usable devices.
    #[must_use]
    pub fn device_count(&self) -> usize {
        self.candidates.len()
    }
}

impl PoolId {
    /// The id that the next pool will have.
    fn from_table(pools: &Table<PoolId, Pool>) -> Self {
        crate::ids::Id::new(pools.len())
    }
}

/// A pool before its devices have ids.
struct PoolDraft {
    pool: Pool,
    devices: Vec<(Arc<Slice>, usize, Consumption)>,
    has_binding_conditions: bool,
}

impl PoolDraft {
    /// Builds a pool; `None` if it is outdated by newer slices for other nodes.
    fn new(
        catalog: &Catalog,
        driver: &Text,
        name: &Text,
        mut slices: Vec<&Arc<Slice>>,
        features: &Features,
    ) -> Option<PoolDraft> {
        let first = slices.first()?;
        let (generation, expected) = (first.generation, first.slice_count);
        let mut elsewhere: Vec<&Arc<Slice>> = Vec::new();
        if !is_count(slices.len(), expected) {
            let mut all = 0_usize;
            for slice in catalog.slices_of_pool(driver, name) {
                if slice.generation > generation {
                    return None;
                }
                let counts = features.compatibility_groups || !slice.uses_compatibility_groups;
                if slice.generation == generation && counts {
                    all = all.saturating_add(1);
                    if !slices.iter().any(|it| it.name == slice.name) {
                        elsewhere.push(slice);
                    }
                }
            }
            if !is_count(all, expected) {
                return Some(PoolDraft::unusable(driver, name, State::Incomplete));
            }
        }
        slices.sort_by(|left, right| left.name.cmp(&right.name));
        Some(
            PoolDraft::usable(driver, name, &slices, &elsewhere, features)
                .unwrap_or_else(|_| PoolDraft::unusable(driver, name, State::Invalid)),
        )
    }

    fn usable(
        driver: &Text,
        name: &Text,
        here: &[&Arc<Slice>],
        elsewhere: &[&Arc<Slice>],
        features: &Features,
    ) -> Result<PoolDraft, String> {
        let holds_counters = |slice: &Slice| features.partitionable_devices && !slice.counter_sets.is_empty();
        let with_devices: Vec<&Arc<Slice>> = here.iter().copied().filter(|slice| !holds_counters(slice)).collect();
        let mut names = HashSet::new();
        for device in with_devices.iter().flat_map(|slice| &slice.devices) {
            if !names.insert(&device.name) {
                return Err(format!("duplicate device name {}", device.name));
            }
        }
        let mut built = PoolDraft::unusable(driver, name, State::Usable);
        built.has_binding_conditions = with_devices.iter().any(|slice| slice.has_binding_conditions());
        if features.partitionable_devices {
            let all = here.iter().chain(elsewhere);
            let sets = all.filter(|slice| holds_counters(slice)).flat_map(|slice| &slice.counter_sets);
            built.pool.counters = Counters::new(sets)?;
        }
        for slice in with_devices {
            for (index, device) in slice.devices.iter().enumerate() {
                let consumption = if features.partitionable_devices {
                    built.pool.counters.consumption(&device.consumes)?
                } else {
                    Consumption::default()
                };
                built.devices.push((slice.clone(), index, consumption));
            }
        }
        if features.partitionable_devices {
            let others = elsewhere.iter().filter(|slice| !holds_counters(slice));
            for device in others.flat_map(|slice| &slice.devices).filter(|device| !device.consumes.is_empty()) {
                let consumption = built.pool.counters.consumption(&device.consumes)?;
                built.pool.elsewhere.push((device.name.clone(), consumption));
            }
        }
        Ok(built)
    }

    fn unusable(driver: &Text, name: &Text, state: State) -> PoolDraft {
        let pool = Pool {
            driver: driver.clone(),
            name: name.clone(),
            state,
            counters: Counters::default(),
            candidates: Vec::new(),
            elsewhere: Vec::new(),
        };
        PoolDraft { pool, devices: Vec::new(), has_binding_conditions: false }
    }
}

fn is_count(found: usize, expected: i64) -> bool {
    i64::try_from(found) == Ok(expected)
}

/// Whether all features of a slice are enabled. Other slices are ignored, which makes their pool incomplete.
fn is_understood(slice: &Slice, features: &Features) -> bool {
    (features.partitionable_devices || !slice.is_partitioned)
        && (features.compatibility_groups || !slice.uses_compatibility_groups)
}

fn is_relevant(slice: &Slice, node: &matching::Node) -> Result<bool, Error> {
    let Nodes::PerDevice = slice.nodes else {
        let of = || format!("slice {}", slice.name);
        return slice.nodes.contains(node).map_err(|problem| Error::NodeSelection { of: of(), problem });
    };
    for device in &slice.devices {
        let matches = device.nodes.contains(node).map_err(|problem| Error::NodeSelection {
            of: format!("device {} in slice {}", device.name, slice.name),
            problem,
        })?;
        if matches {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The newest generation wins.
fn add_to_generation<'s>(slices: &mut Vec<&'s Arc<Slice>>, slice: &'s Arc<Slice>) {
    match slices.first() {
        Some(first) if slice.generation < first.generation => return,
        Some(first) if slice.generation > first.generation => slices.clear(),
        _ => {}
    }
    slices.push(slice);
}
