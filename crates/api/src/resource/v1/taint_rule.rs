//! Taints that administrators put on devices of others.

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
    /// What became of a rule.
    pub struct DeviceTaintRuleStatus {
        pub conditions: Vec<Condition>,
    }

    /// Which devices, and what taint.
    pub struct DeviceTaintRuleSpec {
        pub device_selector: Option<DeviceTaintSelector>,
        pub taint: DeviceTaint,
    }

    /// Which devices; what is not given selects all.
    pub struct DeviceTaintSelector {
        pub driver: Option<Text>,
        pub pool: Option<Text>,
        pub device: Option<Text>,
    }
}
