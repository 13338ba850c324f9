//! `resource.k8s.io/v1`: devices, and claims to them.
//!
//! `cel` of a constraint is the field of KEP-5254.

mod claim;
mod class;
mod slice;
mod taint_rule;

pub use claim::{
    AllocatedDeviceStatus, AllocationResult, CapacityRequirements, CelDeviceConstraint, DeviceAllocationConfiguration,
    DeviceAllocationResult, DeviceClaim, DeviceClaimConfiguration, DeviceConstraint, DeviceDerivedAttribute,
    DeviceRequest, DeviceRequestAllocationResult, DeviceSubRequest, DeviceToleration, EXTENDED_RESOURCE_CLAIM,
    ExactDeviceRequest, OpaqueDeviceConfiguration, ResourceClaim, ResourceClaimConsumerReference, ResourceClaimSpec,
    ResourceClaimStatus, ResourceClaimTemplate, ResourceClaimTemplateSpec,
};
pub use class::{
    CelDeviceSelector, DeviceClass, DeviceClassConfiguration, DeviceClassSpec, DeviceSelector, IMPLICIT_RESOURCE_PREFIX,
};
pub use slice::{
    CapacityRequestPolicy, CapacityRequestPolicyRange, Counter, CounterSet, Device, DeviceAttribute, DeviceCapacity,
    DeviceCounterConsumption, DeviceTaint, ResourcePool, ResourceSlice, ResourceSliceSpec,
};
pub use taint_rule::{DeviceTaintRule, DeviceTaintRuleSpec, DeviceTaintSelector};
