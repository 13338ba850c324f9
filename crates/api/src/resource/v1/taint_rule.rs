//! Taints that administrators set on devices of drivers.

use super::slice::DeviceTaint;
use crate::json::Text;
use crate::meta::v1::Condition;
use crate::view::{object, view};

object! {
    /// A taint on all devices that it selects.
    pub struct DeviceTaintRule("resource.k8s.io", "v1") {
        pub spec: DeviceTaintRuleSpec,
        pub status: DeviceTaintRuleStatus,
    }
}

view! {
    /// Observed state of a rule.
    pub struct DeviceTaintRuleStatus {
        pub conditions: Vec<Condition>,
    }

    /// Selected devices, and their taint.
    pub struct DeviceTaintRuleSpec {
        pub device_selector: Option<DeviceTaintSelector>,
        pub taint: DeviceTaint,
    }

    /// Device selector; unset fields match all devices.
    pub struct DeviceTaintSelector {
        pub driver: Option<Text>,
        pub pool: Option<Text>,
        pub device: Option<Text>,
    }
}
