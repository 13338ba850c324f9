//! Services, as far as controllers look into them.

use crate::int_or_string::IntOrString;
use crate::json::Text;
use crate::meta::v1::StringMap;
use crate::view::{object, view};

object! {
    /// A name for a set of pods.
    pub struct Service("", "v1") {
        pub spec: ServiceSpec,
    }
}

view! {
    /// Pods of a service, and its addresses and ports.
    pub struct ServiceSpec {
        pub ports: Vec<ServicePort>,
        pub selector: StringMap,
        #[serde(rename = "clusterIP")]
        pub cluster_ip: Text,
        #[serde(rename = "type")]
        pub service_type: Text,
        pub publish_not_ready_addresses: bool,
        pub ip_families: Vec<Text>,
        pub allocate_load_balancer_node_ports: Option<bool>,
        pub traffic_distribution: Option<Text>,
    }

    /// A port of a service.
    pub struct ServicePort {
        pub name: Text,
        pub protocol: Text,
        pub app_protocol: Option<Text>,
        pub port: i32,
        pub target_port: Option<IntOrString>,
    }
}
