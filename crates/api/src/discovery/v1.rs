//! `discovery.k8s.io/v1`: the addresses behind services.

use crate::json::Text;
use crate::view::object;

object! {
    /// A part of the endpoints of a service.
    pub struct EndpointSlice("discovery.k8s.io", "v1") {
        pub address_type: Text,
    }
}
