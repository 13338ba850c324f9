//! Enabled parts of dynamic resource allocation.

use api::features::Gate;

/// The enabled parts of dynamic resource allocation. The use of a disabled part is an error that names it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Features {
    /// Whether `adminAccess` of a request is enabled.
    pub admin_access: bool,
    /// Whether `compatibilityGroups` of a counter consumption are enabled.
    pub compatibility_groups: bool,
    /// Whether `capacity` of a request, and devices shared by several claims, are enabled.
    pub consumable_capacity: bool,
    /// Whether `derivedAttributes` of a request are enabled.
    pub derived_attributes: bool,
    /// Whether devices with binding conditions are enabled.
    pub device_binding_and_status: bool,
    /// Whether device taints are enabled.
    pub device_taints: bool,
    /// Whether fractional capacities are enabled.
    pub fractional_capacity_range: bool,
    /// Whether list attributes are enabled.
    pub list_type_attributes: bool,
    /// Whether `skipNodeOperations` of a slice is enabled.
    pub optional_node_operations: bool,
    /// Whether shared counters, and node selection per device, are enabled.
    pub partitionable_devices: bool,
    /// Whether `firstAvailable` of a request is enabled.
    pub prioritized_list: bool,
    /// Whether `cel` of a constraint (KEP-5254) is enabled.
    pub cel_constraints: bool,
}

impl Features {
    /// Everything is enabled.
    pub const ALL: Features = Features {
        admin_access: true,
        compatibility_groups: true,
        consumable_capacity: true,
        derived_attributes: true,
        device_binding_and_status: true,
        device_taints: true,
        fractional_capacity_range: true,
        list_type_attributes: true,
        optional_node_operations: true,
        partitionable_devices: true,
        prioritized_list: true,
        cel_constraints: true,
    };
}

impl From<api::features::Features> for Features {
    fn from(gates: api::features::Features) -> Self {
        Features { cel_constraints: gates.enabled(Gate::DRACELDeviceConstraint), ..Features::ALL }
    }
}
