//! A ResourceSlice, read once.

use std::sync::Arc;

use api::core::v1::{NodeSelector, NodeSelectorRequirement};
use api::json::Text;
use api::resource::v1::{self, CounterSet, DeviceCounterConsumption, DeviceTaint, DeviceTaintRule};
use matching::CompileCache;

use crate::device::{Model, Models};
use crate::taints;

/// A ResourceSlice.
#[derive(Debug, Clone)]
pub(crate) struct Slice {
    pub(crate) name: Text,
    pub(crate) driver: Text,
    pub(crate) pool: Text,
    pub(crate) generation: i64,
    /// Number of slices of a complete pool.
    pub(crate) slice_count: i64,
    pub(crate) nodes: Nodes,
    pub(crate) devices: Vec<Device>,
    pub(crate) counter_sets: Vec<CounterSet>,
    pub(crate) skip_node_operations: Vec<Text>,
    /// Whether it requires partitionable devices.
    pub(crate) is_partitioned: bool,
    pub(crate) uses_compatibility_groups: bool,
}

/// A device of a slice.
#[derive(Debug, Clone)]
pub(crate) struct Device {
    pub(crate) name: Text,
    pub(crate) model: Arc<Model>,
    pub(crate) consumes: Vec<DeviceCounterConsumption>,
    /// Node selection of the device, if slices delegate it.
    pub(crate) nodes: Nodes,
    /// Taints of the device, then those of rules.
    pub(crate) taints: Vec<DeviceTaint>,
    own_taints: usize,
    pub(crate) binds_to_node: bool,
    pub(crate) binding_conditions: Vec<Text>,
    pub(crate) binding_failure_conditions: Vec<Text>,
}

/// Nodes from which a device can be used.
#[derive(Debug, Clone)]
pub(crate) enum Nodes {
    One(Text),
    All,
    Selected(ParsedSelector),
    /// Selected by each device.
    PerDevice,
    /// No known selection.
    Unknown,
}

/// A selector of nodes.
#[derive(Debug, Clone)]
pub(crate) struct ParsedSelector {
    pub(crate) selector: NodeSelector,
    /// Parsed selector, or its error.
    parsed: Result<Arc<matching::node_selector::NodeSelector>, String>,
}

impl Slice {
    pub(crate) fn new(slice: &v1::ResourceSlice, models: &Models, cache: &CompileCache) -> Self {
        let spec = &slice.spec;
        let is_per_device = spec.per_device_node_selection == Some(true);
        let nodes = Nodes::new(&spec.node_name, &spec.node_selector, spec.all_nodes, cache);
        let device = |device: &v1::Device| Device {
            name: device.name.clone(),
            model: models.intern(&spec.driver, device),
            consumes: device.consumes_counters.clone(),
            nodes: if is_per_device {
                Nodes::new(&device.node_name, &device.node_selector, device.all_nodes, cache)
            } else {
                Nodes::Unknown
            },
            taints: device.taints.clone(),
            own_taints: device.taints.len(),
            binds_to_node: device.binds_to_node == Some(true),
            binding_conditions: device.binding_conditions.clone(),
            binding_failure_conditions: device.binding_failure_conditions.clone(),
        };
        Slice {
            name: slice.metadata.name.clone(),
            driver: spec.driver.clone(),
            pool: spec.pool.name.clone(),
            generation: spec.pool.generation,
            slice_count: spec.pool.resource_slice_count,
            nodes: if matches!(nodes, Nodes::Unknown) && is_per_device { Nodes::PerDevice } else { nodes },
            devices: spec.devices.iter().map(device).collect(),
            counter_sets: spec.shared_counters.clone(),
            skip_node_operations: spec.skip_node_operations.clone(),
            is_partitioned: spec.per_device_node_selection.is_some() || !spec.shared_counters.is_empty(),
            uses_compatibility_groups: spec
                .devices
                .iter()
                .flat_map(|device| &device.consumes_counters)
                .any(|consumption| !consumption.compatibility_groups.is_empty()),
        }
    }

    /// Sets the taints of these rules on the devices, and removes those of other rules.
    pub(crate) fn taint<'r>(&mut self, rules: impl Iterator<Item = &'r DeviceTaintRule> + Clone) {
        for device in &mut self.devices {
            device.taints.truncate(device.own_taints);
            let selects = |rule: &&DeviceTaintRule| taints::selects(rule, &self.driver, &self.pool, &device.name);
            device.taints.extend(rules.clone().filter(selects).map(|rule| rule.spec.taint.clone()));
        }
    }

    pub(crate) fn has_binding_conditions(&self) -> bool {
        self.devices.iter().any(|device| !device.binding_conditions.is_empty())
    }

    /// Nodes from which a device of this slice can be used.
    pub(crate) fn nodes_of<'s>(&'s self, device: &'s Device) -> &'s Nodes {
        match &self.nodes {
            Nodes::PerDevice => &device.nodes,
            nodes => nodes,
        }
    }
}

impl Nodes {
    fn new(name: &Option<Text>, selector: &Option<NodeSelector>, all: Option<bool>, cache: &CompileCache) -> Self {
        match (name, selector) {
            (Some(name), _) if !name.is_empty() => Nodes::One(name.clone()),
            _ if all == Some(true) => Nodes::All,
            (_, Some(selector)) => Nodes::Selected(ParsedSelector::new(selector, cache)),
            _ => Nodes::Unknown,
        }
    }

    /// Whether a node is among them.
    ///
    /// # Errors
    /// The selector cannot be read.
    pub(crate) fn contains(&self, node: &matching::Node) -> Result<bool, String> {
        match self {
            Nodes::One(name) => Ok(node.name == *name),
            Nodes::All => Ok(true),
            Nodes::Selected(selected) => match &selected.parsed {
                Ok(selector) => Ok(selector.matches(node)),
                Err(problem) => Err(problem.clone()),
            },
            Nodes::PerDevice | Nodes::Unknown => Ok(false),
        }
    }
}

impl ParsedSelector {
    fn new(selector: &NodeSelector, cache: &CompileCache) -> Self {
        // Slices take neither expressions nor versions, whatever pods may.
        let parsed = matching::node_selector::NodeSelector::new(selector, cache, &matching::Features::default());
        let errors = parsed.errors();
        let parsed = if errors.is_empty() {
            Ok(Arc::new(parsed))
        } else {
            Err(format!("failed to parse node selector {}: {}", shown(selector), errors.message()))
        };
        ParsedSelector { selector: selector.clone(), parsed }
    }
}

/// A selector as Kubernetes prints it in messages.
fn shown(selector: &NodeSelector) -> String {
    let requirement = |it: &NodeSelectorRequirement| {
        let values = it.values.as_deref().unwrap_or_default().join(" ");
        format!("NodeSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},", it.key, it.operator)
    };
    let list = |requirements: &[NodeSelectorRequirement]| requirements.iter().map(requirement).collect::<String>();
    let terms = selector.node_selector_terms.iter().map(|term| {
        format!(
            "NodeSelectorTerm{{MatchExpressions:[]NodeSelectorRequirement{{{}}},MatchFields:[]NodeSelectorRequirement{{{}}},}},",
            list(&term.match_expressions),
            list(&term.match_fields)
        )
    });
    format!("&NodeSelector{{NodeSelectorTerms:[]NodeSelectorTerm{{{}}},}}", terms.collect::<String>())
}
