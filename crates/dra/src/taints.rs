//! Taints of devices, and requests that tolerate them.
//!
//! Follows `resourceclaim/devicetoleration.go`. Only `NoSchedule` and `NoExecute` keep a device from being allocated.

use api::resource::v1::{DeviceTaint, DeviceToleration};

/// Whether a taint keeps a device from a request with these tolerations.
pub(crate) fn prevents(taint: &DeviceTaint, tolerations: &[DeviceToleration]) -> bool {
    matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute")
        && !tolerations.iter().any(|toleration| tolerates(toleration, taint))
}

/// Whether a toleration of a request tolerates a taint of a device.
pub(crate) fn tolerates(toleration: &DeviceToleration, taint: &DeviceTaint) -> bool {
    if !toleration.effect.is_empty() && toleration.effect != taint.effect {
        return false;
    }
    if !toleration.key.is_empty() && toleration.key != taint.key {
        return false;
    }
    match toleration.operator.as_str() {
        "" | "Equal" => toleration.value == taint.value,
        "Exists" => true,
        _ => false,
    }
}
