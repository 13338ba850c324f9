//! Which parts of dynamic resource allocation may be used.

use api::features::Gate;

/// Which parts of dynamic resource allocation may be used. What a claim uses and may not is an error that names it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Features {
    /// `adminAccess` of a request.
    pub admin_access: bool,
    /// `compatibilityGroups` of what a device takes of a counter set.
    pub compatibility_groups: bool,
    /// `capacity` of a request, and devices that several claims share.
    pub consumable_capacity: bool,
    /// `derivedAttributes` of a request.
    pub derived_attributes: bool,
    /// Devices with binding conditions.
    pub device_binding_and_status: bool,
    /// Taints of devices.
    pub device_taints: bool,
    /// Parts of a capacity that are not whole numbers.
    pub fractional_capacity_range: bool,
    /// Attributes that are lists.
    pub list_type_attributes: bool,
    /// `skipNodeOperations` of a slice.
    pub optional_node_operations: bool,
    /// Counters that devices share, and devices with nodes of their own.
    pub partitionable_devices: bool,
    /// `firstAvailable` of a request.
    pub prioritized_list: bool,
    /// `cel` of a constraint (KEP-5254).
    pub cel_constraints: bool,
}

impl Features {
    /// Everything may be used.
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
