//! A cluster in one process: server, controllers, scheduler, and simulated nodes.

use std::sync::Arc;
use std::time::Duration;

use api::x509::request::Request;
use apiserver::identity::{User, legacy_tokens};
use apiserver::server::listen::Connection;
use apiserver::serving::certificates::Authority;
use apiserver::serving::certificates::issue::Terms;
use apiserver::{Options, Server};
use client::controller::Runtime;
use client::{Client, Health, Resource, Shutdown};
use controllers::settings::{CertificateSigner, Order, TokenSource, TokenSubject};
use serde_json::{Value, json};
use store::{EmbeddedStore, Store};

use super::kubelet::Kubelet;
use super::nodes::Nodes;
use super::record::{Log, Recording};

/// Number of equal nodes.
const NODES: usize = 5;

/// The certificate that the recordings' requests were made with.
const ADMIN_CREDENTIAL: &str = "X509SHA256=d73ab2e1a1b0f635b7a2305b1cf955d75ef9170a1740951cab4eea79e3edf1e2";

pub(crate) const PODS: Resource = Resource::new("", "v1", "pods", "Pod");
pub(crate) const NODE: Resource = Resource::new("", "v1", "nodes", "Node");

/// A running cluster.
pub(crate) struct Cluster {
    pub(crate) server: Arc<Server>,
    pub(crate) log: Log,
    pub(crate) kubelet: Kubelet,
    pub(crate) nodes: Nodes,
    authority: Arc<Authority>,
    stop: std::sync::Mutex<Option<client::Stop>>,
    _scheduler: client::Stop,
}

/// The groups that a user of this name has.
fn user(name: &str) -> User {
    match name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':')) {
        Some((namespace, _)) => {
            User::authenticated(name, &["system:serviceaccounts", &format!("system:serviceaccounts:{namespace}")])
        }
        None if name == "admin" => {
            let mut admin = User::authenticated("kubernetes-admin", &["system:masters"]);
            let credential = vec![ADMIN_CREDENTIAL.to_owned()];
            admin.extra.insert("authentication.kubernetes.io/credential-id".to_owned(), credential);
            admin
        }
        None => User::authenticated(name, &[]),
    }
}

impl Cluster {
    /// Starts everything.
    pub(crate) async fn start() -> Arc<Self> {
        Self::start_with(Options::default()).await
    }

    /// Starts everything, with these options of the server.
    pub(crate) async fn start_with(options: Options) -> Arc<Self> {
        let store: Arc<dyn Store> = Arc::new(EmbeddedStore::in_memory(store::Options::default()).unwrap());
        let server = Server::start(store, options).await.unwrap();
        let log = Log::default();
        let agent = connect(&server, &log, "admin-of-nodes");
        let nodes = Nodes::start(&agent);
        for number in 0..NODES {
            let name = format!("sim-{number}");
            // Scenarios leave their pods behind: there is room for all of them.
            nodes.add(&name, &json!({"ip": format!("192.168.0.{}", number + 1), "pods": "1000", "cpu": "64"})).await;
        }
        let kubelet = Kubelet::start(&agent, NODES);
        let scheduler = schedule(connect(&server, &log, "system:kube-scheduler"));
        let authority = Arc::new(Authority::generate().unwrap());
        let stop = std::sync::Mutex::new(None);
        let cluster = Arc::new(Self { server, log, kubelet, nodes, authority, stop, _scheduler: scheduler });
        cluster.start_controllers();
        cluster
    }

    /// Restarts the controllers, as after a crash.
    pub(crate) fn start_controllers(&self) {
        let (stop, shutdown) = Shutdown::channel();
        let (server, log) = (self.server.clone(), self.log.clone());
        let options = controllers::manager::Options {
            clients: Arc::new(move |name| connect(&server, &log, name)),
            controllers: vec!["*".to_owned()],
            features: api::features::Features::default(),
            settings: self.settings(),
            runtime: Runtime::new(&telemetry::metrics::Registry::new(), Health::new(), shutdown),
        };
        tokio::spawn(controllers::manager::run(options));
        *self.stop.lock().unwrap() = Some(stop);
    }

    /// The flags that the recordings had.
    fn settings(&self) -> controllers::settings::Settings {
        let seconds = Duration::from_secs;
        let signer = Arc::new(Signer { server: self.server.clone(), authority: self.authority.clone() });
        let mut settings = controllers::settings::Settings {
            root_ca: self.authority.certificate().to_owned(),
            tokens: Some(signer.clone()),
            signer: Some(signer),
            binder_period: seconds(3),
            ..Default::default()
        };
        settings.node_lifecycle.period = seconds(1);
        settings.node_lifecycle.grace.running = seconds(12);
        settings.node_lifecycle.rates.normal = 100.0;
        settings
    }

    pub(crate) fn client(&self, name: &str) -> Client {
        connect(&self.server, &self.log, name)
    }
}

/// Signs for the controllers.
struct Signer {
    server: Arc<Server>,
    authority: Arc<Authority>,
}

impl CertificateSigner for Signer {
    fn sign(&self, request: &Request<'_>, order: &Order<'_>) -> Result<String, String> {
        let terms = Terms { usages: order.usages, seconds: order.seconds, now: order.now };
        self.authority.issue(request, &terms).map_err(|error| error.to_string())
    }
}

impl TokenSource for Signer {
    fn token(&self, it: &TokenSubject<'_>) -> Option<String> {
        let TokenSubject { namespace, account, account_uid, secret } = *it;
        let subject = legacy_tokens::Subject { namespace, account, account_uid, secret };
        legacy_tokens::issue(self.server.keys().signing(), &subject)
    }
}

/// A client of the server as a user; its writes are noted.
fn connect(server: &Arc<Server>, log: &Log, name: &str) -> Client {
    // The nodes' agent may do everything: what it may is another test's question.
    let is_admin = name == "admin-of-nodes";
    let user = if is_admin { user("admin") } else { user(name) };
    let connection = Connection::new(server.clone(), Some(user));
    let who = name.strip_prefix("system:serviceaccount:kube-system:").or(name.strip_prefix("system:")).unwrap_or(name);
    Client::in_process(Recording { connection, who: who.into(), log: log.clone() }, who)
}

/// Runs the scheduler.
fn schedule(client: Client) -> client::Stop {
    let (stop, shutdown) = Shutdown::channel();
    let options = scheduler::Options {
        device_cost_limit: dra::Budget::COST_LIMIT,
        client,
        features: api::features::Features::default(),
        registry: Arc::new(telemetry::metrics::Registry::new()),
        health: Health::new(),
        shutdown,
        leadership: client::election::Leadership::uncontested(),
        seed: 7,
        configuration: Default::default(),
        profiler: Default::default(),
        has_placement_annotations: false,
    };
    tokio::spawn(scheduler::run(options));
    stop
}

/// A document as the client takes it.
pub(crate) fn to_value(value: &Value) -> api::json::Value {
    api::json::parse(value.to_string().as_bytes()).unwrap()
}

/// A document as tests read it.
pub(crate) fn from_value(value: &api::json::Value) -> Value {
    serde_json::from_str(&api::json::to_string(value)).unwrap()
}
