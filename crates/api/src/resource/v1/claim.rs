//! Device claims: requests and allocations.

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

    /// Requested devices.
    pub struct ResourceClaimSpec {
        pub devices: DeviceClaim,
    }

    /// Requested devices, and their constraints.
    pub struct DeviceClaim {
        pub requests: Vec<DeviceRequest>,
        pub constraints: Vec<DeviceConstraint>,
        pub config: Vec<DeviceClaimConfiguration>,
    }

    /// A request for devices: exactly these, or the first available of several alternatives.
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

    /// An attribute for constraints that is not published by the driver, but computed by an expression over
    /// `device`.
    pub struct DeviceDerivedAttribute {
        pub name: Text,
        pub expression: Text,
    }

    /// Requested share of a shared device.
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

    /// A constraint on the devices of some requests; exactly one of the three fields is set.
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

    /// Allocation, consumers and device status of a claim.
    pub struct ResourceClaimStatus {
        pub allocation: Option<AllocationResult>,
        pub reserved_for: Vec<ResourceClaimConsumerReference>,
        pub devices: Vec<AllocatedDeviceStatus>,
    }

    /// Allocated devices, and the nodes on which they can be used.
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

    /// Consumer of a claim.
    pub struct ResourceClaimConsumerReference {
        pub api_group: Text,
        pub resource: Text,
        pub name: Text,
        pub uid: Text,
    }

    /// Device status as reported by a driver.
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

/// Annotation of a claim that the scheduler created for the extended resources of a pod.
pub const EXTENDED_RESOURCE_CLAIM: &str = "resource.kubernetes.io/extended-resource-claim";

impl ResourceClaim {
    /// Returns the UID of the pod for whose extended resources the claim was created; `None` for other claims.
    #[must_use]
    pub fn extended_resources_of(&self) -> Option<&Text> {
        let is_extended = self.metadata.annotations.get(EXTENDED_RESOURCE_CLAIM).is_some_and(|it| it == "true");
        let owner = self.metadata.controller().filter(|owner| is_extended && owner.kind == "Pod")?;
        Some(&owner.uid)
    }
}
