//! The devices that drivers publish.

use std::collections::BTreeMap;

use crate::core::v1::NodeSelector;
use crate::json::{Text, Value};
use crate::quantity::Quantity;
use crate::time::Timestamp;
use crate::view::{object, view};

object! {
    /// A part of the devices of a pool.
    pub struct ResourceSlice("resource.k8s.io", "v1") {
        pub spec: ResourceSliceSpec,
    }
}

view! {
    /// Devices, and the nodes from which they can be used.
    pub struct ResourceSliceSpec {
        pub driver: Text,
        pub pool: ResourcePool,
        pub node_name: Option<Text>,
        pub node_selector: Option<NodeSelector>,
        pub all_nodes: Option<bool>,
        pub devices: Vec<Device>,
        pub per_device_node_selection: Option<bool>,
        pub shared_counters: Vec<CounterSet>,
        pub partition_type_attribute: Option<Text>,
        pub skip_node_operations: Vec<Text>,
    }

    /// The pool, and its number of slices.
    pub struct ResourcePool {
        pub name: Text,
        pub generation: i64,
        pub resource_slice_count: i64,
    }

    /// A device.
    pub struct Device {
        pub name: Text,
        pub attributes: BTreeMap<Text, DeviceAttribute>,
        pub capacity: BTreeMap<Text, DeviceCapacity>,
        pub consumes_counters: Vec<DeviceCounterConsumption>,
        pub node_name: Option<Text>,
        pub node_selector: Option<NodeSelector>,
        pub all_nodes: Option<bool>,
        pub taints: Vec<DeviceTaint>,
        pub binds_to_node: Option<bool>,
        pub binding_conditions: Vec<Text>,
        pub binding_failure_conditions: Vec<Text>,
        pub allow_multiple_allocations: Option<bool>,
        pub node_allocatable_resources: BTreeMap<Text, Value>,
    }

    /// A value; exactly one is set.
    pub struct DeviceAttribute {
        pub int: Option<i64>,
        pub bool: Option<bool>,
        pub string: Option<Text>,
        pub version: Option<Text>,
        pub ints: Vec<i64>,
        pub bools: Vec<bool>,
        pub strings: Vec<Text>,
        pub versions: Vec<Text>,
    }

    /// An amount, and how it may be divided.
    pub struct DeviceCapacity {
        pub value: Quantity,
        pub request_policy: Option<CapacityRequestPolicy>,
    }

    /// Permitted shares of a capacity.
    pub struct CapacityRequestPolicy {
        pub default: Option<Quantity>,
        pub valid_values: Vec<Quantity>,
        pub valid_range: Option<CapacityRequestPolicyRange>,
    }

    /// From, to, in steps of.
    pub struct CapacityRequestPolicyRange {
        pub min: Option<Quantity>,
        pub max: Option<Quantity>,
        pub step: Option<Quantity>,
    }

    /// Counters that devices of a pool share.
    pub struct CounterSet {
        pub name: Text,
        pub counters: BTreeMap<Text, Counter>,
    }

    /// An amount that is shared.
    pub struct Counter {
        pub value: Quantity,
    }

    /// Consumption of shared counters by a device.
    pub struct DeviceCounterConsumption {
        pub counter_set: Text,
        pub counters: BTreeMap<Text, Counter>,
        pub compatibility_groups: Vec<Text>,
    }

    /// Keeps claims away that do not tolerate it.
    pub struct DeviceTaint {
        pub key: Text,
        pub value: Text,
        pub effect: Text,
        pub time_added: Option<Timestamp>,
    }
}
