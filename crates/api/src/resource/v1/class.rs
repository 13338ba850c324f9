//! Classes of devices, and selectors of devices.

use super::OpaqueDeviceConfiguration;
use crate::json::Text;
use crate::view::{object, view};

object! {
    /// A named class of devices.
    pub struct DeviceClass("resource.k8s.io", "v1") {
        pub spec: DeviceClassSpec,
    }
}

view! {
    /// Selectors of the devices of a class.
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

/// Prefix of the extended resource that every device class has; the rest is the name of the class.
pub const IMPLICIT_RESOURCE_PREFIX: &str = "deviceclass.resource.kubernetes.io/";

impl DeviceClass {
    /// Whether pods can request devices of the class by this extended resource.
    #[must_use]
    pub fn serves(&self, resource: &str) -> bool {
        self.spec.extended_resource_name.as_deref() == Some(resource)
            || resource.strip_prefix(IMPLICIT_RESOURCE_PREFIX) == Some(self.metadata.name.as_str())
    }

    /// Returns the class that serves an extended resource. Of several, Kubernetes takes the newest, and of equally
    /// old ones the first by name.
    pub fn serving<'c>(classes: impl Iterator<Item = &'c DeviceClass>, resource: &str) -> Option<&'c DeviceClass> {
        let age = |class: &&DeviceClass| {
            let metadata = &class.metadata;
            (metadata.creation_timestamp, std::cmp::Reverse(metadata.name.clone()))
        };
        classes.filter(|class| class.serves(resource)).max_by_key(age)
    }
}
