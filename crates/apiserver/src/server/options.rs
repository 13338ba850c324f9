//! How a server behaves, and how it does by default.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::features::Features;

use crate::audit::Audit;
use crate::identity::User;
use crate::objects::services::{AddressRange, PortRange};
use crate::resources::RuntimeConfig;

/// How a server behaves.
#[derive(Debug, Clone)]
pub struct Options {
    /// Which features are on.
    pub features: Features,
    /// Tokens and the users they stand for.
    pub tokens: HashMap<String, User>,
    /// Who signs service account tokens.
    pub issuer: String,
    /// Whom tokens must be meant for; the issuer if empty.
    pub audiences: Vec<String>,
    /// Where clients find the server, as discovery says it.
    pub address: String,
    /// A longer body is refused.
    pub body_bytes_max: usize,
    /// How many seats for requests there are, shared out by flow control: those of requests that read,
    pub reads_max: usize,
    /// and those of requests that write.
    pub writes_max: usize,
    /// Other requests than watches end after this long.
    pub request_timeout: Duration,
    /// At most this many connections are open, and a few of administrators and nodes.
    pub connections_max: usize,
    /// A client has this long until its first request,
    pub first_request_timeout: Duration,
    /// of that this long for its certificates,
    pub head_timeout: Duration,
    /// and over HTTP/1.1 this long until the head of each further request is there.
    pub idle_timeout: Duration,
    /// A client that takes nothing of what it is sent for this long is cut off.
    pub write_timeout: Duration,
    /// Events are kept for this long.
    pub event_ttl: Duration,
    /// All events together take about this many bytes in the store; the oldest go first.
    pub event_bytes_max: u64,
    /// What the last changes, which watchers can go on from, may take in memory.
    pub watch_history_bytes_max: usize,
    /// What watches may hold in memory for clients that have not read it yet.
    pub watch_bytes_max: usize,
    /// What the health checks call the store.
    pub store_name: &'static str,
    /// How often one of the servers on a store makes it forget; not at all for a store that forgets by itself.
    pub compaction_interval: Option<Duration>,
    /// Whether there is a role for fleets of simulated nodes, `celplane:node-fleet`.
    pub node_fleet: bool,
    /// The addresses that services can have,
    pub service_addresses: AddressRange,
    /// and the ports on all nodes.
    pub service_ports: PortRange,
    /// What the expressions of printer columns may cost in one request.
    pub table_cost_max: u64,
    /// Which versions of the API are served.
    pub runtime_config: RuntimeConfig,
    /// Admission plugins that are passed over: of those, `ServiceAccount` can be.
    pub disabled_admission_plugins: Vec<String>,
    /// Who did what is written here.
    pub audit: Option<Arc<Audit>>,
    /// Whether the log has a line for every request.
    pub logs_requests: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            features: Features::default(),
            tokens: HashMap::new(),
            issuer: "https://kubernetes.default.svc".to_owned(),
            audiences: Vec::new(),
            address: "127.0.0.1:6443".to_owned(),
            body_bytes_max: 3 << 20,
            reads_max: 400,
            writes_max: 200,
            request_timeout: Duration::from_secs(60),
            connections_max: 10_000,
            first_request_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(90),
            write_timeout: Duration::from_secs(30),
            event_ttl: Duration::from_secs(3600),
            event_bytes_max: 128 << 20,
            watch_history_bytes_max: 896 << 20,
            watch_bytes_max: 256 << 20,
            store_name: "store",
            compaction_interval: None,
            node_fleet: false,
            service_addresses: AddressRange::default(),
            service_ports: PortRange::default(),
            table_cost_max: registry::custom_resource::printer_columns::REQUEST_COST_DEFAULT,
            runtime_config: RuntimeConfig::default(),
            disabled_admission_plugins: Vec::new(),
            audit: None,
            logs_requests: false,
        }
    }
}
