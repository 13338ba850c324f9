//! Services and replication controllers, as far as others ask which pods they select.

use crate::meta::v1::StringMap;
use crate::view::{object, view};

object! {
    /// Pods that are reached under one name.
    pub struct Service("", "v1") {
        pub spec: ServiceSpec,
    }

    /// Keeps a number of pods, the old way.
    pub struct ReplicationController("", "v1") {
        pub spec: ReplicationControllerSpec,
    }
}

view! {
    /// Which pods.
    pub struct ServiceSpec {
        pub selector: StringMap,
    }

    /// How many pods, and which.
    pub struct ReplicationControllerSpec {
        pub replicas: Option<i32>,
        pub selector: StringMap,
    }
}
