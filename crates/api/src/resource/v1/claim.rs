//! Claims to devices: what is asked for, and what was given.

use std::collections::BTreeMap;

use super::DeviceSelector;
use crate::core::v1::NodeSelector;
use crate::json::{Text, Value};
use crate::meta::v1::{Condition, ObjectMeta};
use crate::quantity::Quantity;
use crate::time::Timestamp;
use crate::view::{object, view};

object! {
    /// A claim to devices.
    pub struct ResourceClaim("resource.k8s.io", "v1") {
        pub spec: ResourceClaimSpec,
        pub status: ResourceClaimStatus,
    }

    /// Claims that are made for pods.
    pub struct ResourceClaimTemplate("resource.k8s.io", "v1") {
        pub spec: ResourceClaimTemplateSpec,
    }
}

view! {
    /// A claim to be.
    pub struct ResourceClaimTemplateSpec {
        pub metadata: ObjectMeta,
        pub spec: ResourceClaimSpec,
    }

    /// What is asked for.
    pub struct ResourceClaimSpec {
        pub devices: DeviceClaim,
    }

    /// Devices, and what they must have in common.
    pub struct DeviceClaim {
        pub requests: Vec<DeviceRequest>,
        pub constraints: Vec<DeviceConstraint>,
        pub config: Vec<DeviceClaimConfiguration>,
    }

    /// Some devices: exactly these, or the first of several that can be had.
    pub struct DeviceRequest {
        pub name: Text,
        pub exactly: Option<ExactDeviceRequest>,
        pub first_available: Vec<DeviceSubRequest>,
    }

    /// Devices of a class that meet all selectors.
    pub struct ExactDeviceRequest {
        pub device_class_name: Text,
        pub selectors: Vec<DeviceSelector>,
        pub allocation_mode: Text,
        pub count: i64,
        pub admin_access: Option<bool>,
        pub tolerations: Vec<DeviceToleration>,
        pub capacity: Option<CapacityRequirements>,
        pub derived_attributes: Vec<DeviceDerivedAttribute>,
    }

    /// One of several alternatives.
    pub struct DeviceSubRequest {
        pub name: Text,
        pub device_class_name: Text,
        pub selectors: Vec<DeviceSelector>,
        pub allocation_mode: Text,
        pub count: i64,
        pub tolerations: Vec<DeviceToleration>,
        pub capacity: Option<CapacityRequirements>,
        pub derived_attributes: Vec<DeviceDerivedAttribute>,
    }

    /// An attribute that constraints see and no driver publishes: what an expression over `device` says.
    pub struct DeviceDerivedAttribute {
        pub name: Text,
        pub expression: Text,
    }

    /// How much of a device that is shared.
    pub struct CapacityRequirements {
        pub requests: BTreeMap<Text, Quantity>,
    }

    /// A taint of a device that can be lived with.
    pub struct DeviceToleration {
        pub key: Text,
        pub operator: Text,
        pub value: Text,
        pub effect: Text,
        pub toleration_seconds: Option<i64>,
    }

    /// What the devices of some requests must have in common; exactly one of the three is set.
    pub struct DeviceConstraint {
        pub requests: Vec<Text>,
        pub match_attribute: Option<Text>,
        pub distinct_attribute: Option<Text>,
        pub cel: Option<CelDeviceConstraint>,
    }

    /// An expression over `devices`.
    pub struct CelDeviceConstraint {
        pub expression: Text,
    }

    /// Settings for the devices of some requests.
    pub struct DeviceClaimConfiguration {
        pub requests: Vec<Text>,
        pub opaque: Option<OpaqueDeviceConfiguration>,
    }

    /// Settings that only a driver understands.
    pub struct OpaqueDeviceConfiguration {
        pub driver: Text,
        pub parameters: Value,
    }

    /// What was given, to whom, and how it is doing.
    pub struct ResourceClaimStatus {
        pub allocation: Option<AllocationResult>,
        pub reserved_for: Vec<ResourceClaimConsumerReference>,
        pub devices: Vec<AllocatedDeviceStatus>,
    }

    /// What was given, and where it can be used.
    pub struct AllocationResult {
        pub devices: DeviceAllocationResult,
        pub node_selector: Option<NodeSelector>,
        pub allocation_timestamp: Option<Timestamp>,
    }

    /// The devices, and their settings.
    pub struct DeviceAllocationResult {
        pub results: Vec<DeviceRequestAllocationResult>,
        pub config: Vec<DeviceAllocationConfiguration>,
    }

    /// A device for a request.
    pub struct DeviceRequestAllocationResult {
        pub request: Text,
        pub driver: Text,
        pub pool: Text,
        pub device: Text,
        pub admin_access: Option<bool>,
        pub tolerations: Vec<DeviceToleration>,
        pub binding_conditions: Vec<Text>,
        pub binding_failure_conditions: Vec<Text>,
        #[serde(rename = "shareID")]
        pub share_id: Option<Text>,
        pub consumed_capacity: BTreeMap<Text, Quantity>,
        pub skip_node_operations: Vec<Text>,
    }

    /// Settings, and whether class or claim brought them.
    pub struct DeviceAllocationConfiguration {
        pub source: Text,
        pub requests: Vec<Text>,
        pub opaque: Option<OpaqueDeviceConfiguration>,
    }

    /// Who uses a claim.
    pub struct ResourceClaimConsumerReference {
        pub api_group: Text,
        pub resource: Text,
        pub name: Text,
        pub uid: Text,
    }

    /// What a driver says about a device.
    pub struct AllocatedDeviceStatus {
        pub driver: Text,
        pub pool: Text,
        pub device: Text,
        #[serde(rename = "shareID")]
        pub share_id: Option<Text>,
        pub conditions: Vec<Condition>,
        pub data: Option<Value>,
        pub network_data: Option<Value>,
    }
}
