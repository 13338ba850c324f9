//! Options of a server, and their defaults.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ::clock::Clock;
use api::features::Features;

use super::faults::Faults;
use crate::admission::{ServicePort, SimulatedBackends};
use crate::audit::Audit;
use crate::certificates::front_proxy::FrontProxy;
use crate::identity::User;
use crate::objects::services::{AddressRange, PortRange};
use crate::resources::RuntimeConfig;

/// Options of a server.
#[derive(Debug, Clone)]
pub struct Options {
    /// Enabled features.
    pub features: Features,
    /// Source of the times in objects and tokens, and of ages in tables.
    pub clock: Clock,
    /// Tokens and the users they stand for.
    pub tokens: HashMap<String, User>,
    /// Issuer of service account tokens.
    pub issuer: String,
    /// Accepted token audiences; the issuer if empty.
    pub audiences: Vec<String>,
    /// Address of the server in discovery.
    pub address: String,
    /// A longer body is refused.
    pub body_bytes_max: usize,
    /// Number of seats for reads; flow control distributes the sum of both.
    pub reads_max: usize,
    /// Number of seats for writes.
    pub writes_max: usize,
    /// Time limit of requests other than watches.
    pub request_timeout: Duration,
    /// At most this many connections are open, and a few of administrators and nodes.
    pub connections_max: usize,
    /// Maximum number of requests and watches at a time on one HTTP/2 connection.
    pub streams_max: u32,
    /// Time from the connection of a client to its first request.
    pub first_request_timeout: Duration,
    /// Time of a client for the TLS handshake and the head of a request.
    pub head_timeout: Duration,
    /// Time until the head of the next request on an HTTP/1.1 connection.
    pub idle_timeout: Duration,
    /// Time after which a client that reads nothing is disconnected.
    pub write_timeout: Duration,
    /// Events are kept for this long.
    pub event_ttl: Duration,
    /// All events together take about this many bytes in the store; the oldest go first.
    pub event_bytes_max: u64,
    /// Memory limit for the last changes, from which watchers can resume.
    pub watch_history_bytes_max: usize,
    /// Memory limit for watch events that clients have not read yet.
    pub watch_bytes_max: usize,
    /// Memory limit for the unsent responses of one user.
    pub answer_bytes_max: usize,
    /// Name of the store in health checks.
    pub store_name: &'static str,
    /// Interval at which one of the servers on a store compacts it; `None` for a store that compacts itself.
    pub compaction_interval: Option<Duration>,
    /// Whether there is a role for fleets of simulated nodes, `celplane:node-fleet`.
    pub node_fleet: bool,
    /// Whether `metrics.k8s.io` is served, as long as no APIService names another server for it.
    pub resource_metrics: bool,
    /// Addresses that are allocated to Services.
    pub service_addresses: AddressRange,
    /// Node ports that are allocated to Services.
    pub service_ports: PortRange,
    /// Cost limit for the printer columns of one request.
    pub table_cost_max: u64,
    /// Versions of the API to serve.
    pub runtime_config: RuntimeConfig,
    /// Services that local processes stand for, and their addresses.
    pub backends: HashMap<ServicePort, String>,
    /// Calls to pods that are simulated.
    pub simulated_backends: SimulatedBackends,
    /// The identity towards aggregated API servers; one that ends with the process if none is given.
    pub front_proxy: Option<Arc<FrontProxy>>,
    /// Whether bootstrap tokens are accepted.
    pub bootstrap_tokens: bool,
    /// Admission plugins that are off by default and run nevertheless.
    pub enabled_admission_plugins: Vec<String>,
    /// Admission plugins that do not run.
    pub disabled_admission_plugins: Vec<String>,
    /// Defaults and exemptions of Pod Security admission.
    pub pod_security: registry::pod_security::Configuration,
    /// Audit log.
    pub audit: Option<Arc<Audit>>,
    /// Whether the log has a line for every request.
    pub logs_requests: bool,
    /// Failures on demand, for tests.
    pub faults: Option<Arc<Faults>>,
}

impl Options {
    /// Options for a server without controllers: nothing creates service accounts, and pods need none.
    #[must_use]
    pub fn without_controllers() -> Self {
        Self { disabled_admission_plugins: vec!["ServiceAccount".to_owned()], ..Self::default() }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            features: Features::default(),
            clock: Clock::system(),
            tokens: HashMap::new(),
            issuer: "https://kubernetes.default.svc".to_owned(),
            audiences: Vec::new(),
            address: "127.0.0.1:6443".to_owned(),
            body_bytes_max: 3 << 20,
            reads_max: 400,
            writes_max: 200,
            request_timeout: Duration::from_secs(60),
            connections_max: 10_000,
            streams_max: 1000,
            first_request_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(90),
            write_timeout: Duration::from_secs(30),
            event_ttl: Duration::from_secs(3600),
            event_bytes_max: 128 << 20,
            watch_history_bytes_max: 896 << 20,
            watch_bytes_max: 256 << 20,
            answer_bytes_max: 64 << 20,
            store_name: "store",
            compaction_interval: None,
            node_fleet: false,
            resource_metrics: false,
            service_addresses: AddressRange::default(),
            service_ports: PortRange::default(),
            table_cost_max: registry::custom_resource::printer_columns::REQUEST_COST_DEFAULT,
            runtime_config: RuntimeConfig::default(),
            backends: HashMap::new(),
            simulated_backends: SimulatedBackends::default(),
            front_proxy: None,
            bootstrap_tokens: false,
            enabled_admission_plugins: Vec::new(),
            disabled_admission_plugins: Vec::new(),
            pod_security: registry::pod_security::Configuration::default(),
            audit: None,
            logs_requests: false,
            faults: None,
        }
    }
}
