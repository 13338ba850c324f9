//! Amounts of resources, and claims to devices.

use crate::json::Text;
use crate::quantity::Quantity;
use crate::sorted_map::SortedMap;
use crate::view::view;

/// Amounts by resource name.
pub type ResourceList = SortedMap<Text, Quantity>;

view! {
    /// Resource requests and limits of a container or pod.
    pub struct ResourceRequirements {
        pub limits: ResourceList,
        pub requests: ResourceList,
        pub claims: Vec<ResourceClaim>,
    }

    /// One of the pod's claims, or one request of it.
    pub struct ResourceClaim {
        pub name: Text,
        pub request: Text,
    }
}
