//! Classes of devices, and selectors of devices.

use super::OpaqueDeviceConfiguration;
use crate::json::Text;
use crate::view::{object, view};

object! {
    /// Devices that are asked for by one name.
    pub struct DeviceClass("resource.k8s.io", "v1") {
        pub spec: DeviceClassSpec,
    }
}

view! {
    /// Which devices belong to a class.
    pub struct DeviceClassSpec {
        pub selectors: Vec<DeviceSelector>,
        pub config: Vec<DeviceClassConfiguration>,
        pub extended_resource_name: Option<Text>,
    }

    /// Settings for the devices of a class.
    pub struct DeviceClassConfiguration {
        pub opaque: Option<OpaqueDeviceConfiguration>,
    }

    /// A condition that one device must meet.
    pub struct DeviceSelector {
        pub cel: Option<CelDeviceSelector>,
    }

    /// An expression over `device`.
    pub struct CelDeviceSelector {
        pub expression: Text,
    }
}
