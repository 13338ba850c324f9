//! `coordination.k8s.io/v1`: leases.

use crate::json::Text;
use crate::time::MicroTime;
use crate::view::{object, view};

object! {
    /// A lease, for leader election or node heartbeats.
    pub struct Lease("coordination.k8s.io", "v1") {
        pub spec: LeaseSpec,
    }
}

view! {
    /// Holder of a lease, and its times.
    pub struct LeaseSpec {
        pub holder_identity: Option<Text>,
        pub lease_duration_seconds: Option<i32>,
        pub acquire_time: Option<MicroTime>,
        pub renew_time: Option<MicroTime>,
        pub lease_transitions: Option<i32>,
        pub strategy: Option<Text>,
        pub preferred_holder: Option<Text>,
    }
}
