//! `discovery.k8s.io/v1`: the addresses behind services.

use crate::json::Text;
use crate::view::object;

object! {
    /// Some of the addresses behind a service.
    pub struct EndpointSlice("discovery.k8s.io", "v1") {
        pub address_type: Text,
    }
}
