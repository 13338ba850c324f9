//! A cluster in one process: server, controllers, a scheduler that only binds, and simulated nodes.

use std::sync::Arc;
use std::time::Duration;

use apiserver::identity::User;
use apiserver::server::listen::Connection;
use apiserver::{Options, Server};
use client::controller::Runtime;
use client::informer::Change;
use client::{Client, Health, Informer, Resource, Shutdown};
use serde_json::{Value, json};
use store::{Embedded, Store};

use super::kubelet::Kubelet;
use super::nodes::Nodes;
use super::record::{Log, Recording};

/// How many equal nodes there are.
const NODES: usize = 5;

/// What is published as `kube-root-ca.crt`.
const ROOT_CA: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

pub(crate) const PODS: Resource = Resource::new("", "v1", "pods", "Pod");
pub(crate) const NODE: Resource = Resource::new("", "v1", "nodes", "Node");

/// A running cluster.
pub(crate) struct Cluster {
    pub(crate) server: Arc<Server>,
    pub(crate) log: Log,
    pub(crate) kubelet: Kubelet,
    pub(crate) nodes: Nodes,
    stop: std::sync::Mutex<Option<client::Stop>>,
}

/// The groups that a user of this name has.
fn user(name: &str) -> User {
    match name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':')) {
        Some((namespace, _)) => {
            User::authenticated(name, &["system:serviceaccounts", &format!("system:serviceaccounts:{namespace}")])
        }
        None if name == "admin" => User::authenticated(name, &["system:masters"]),
        None => User::authenticated(name, &[]),
    }
}

impl Cluster {
    /// Starts everything.
    pub(crate) async fn start() -> Arc<Self> {
        let store: Arc<dyn Store> = Arc::new(Embedded::in_memory(store::Options::default()).unwrap());
        let server = Server::start(store, Options::default()).await.unwrap();
        let log = Log::default();
        let agent = connect(&server, &log, "admin-of-nodes");
        let nodes = Nodes::start(&agent);
        for number in 0..NODES {
            let name = format!("sim-{number}");
            nodes.add(&name, &json!({"ip": format!("192.168.0.{}", number + 1)})).await;
        }
        let kubelet = Kubelet::start(&agent, NODES);
        bind(&connect(&server, &log, "system:kube-scheduler"));
        let cluster = Arc::new(Self { server, log, kubelet, nodes, stop: std::sync::Mutex::new(None) });
        cluster.start_controllers();
        cluster
    }

    /// Starts the controllers anew, as after a crash.
    pub(crate) fn start_controllers(&self) {
        let (stop, shutdown) = Shutdown::channel();
        let (server, log) = (self.server.clone(), self.log.clone());
        let options = controllers::manager::Options {
            clients: Arc::new(move |name| connect(&server, &log, name)),
            controllers: vec!["*".to_owned()],
            features: api::features::Features::default(),
            settings: settings(),
            runtime: Runtime::new(&telemetry::metrics::Registry::new(), Health::new(), shutdown),
        };
        tokio::spawn(controllers::manager::run(options));
        *self.stop.lock().unwrap() = Some(stop);
    }

    pub(crate) fn client(&self, name: &str) -> Client {
        connect(&self.server, &self.log, name)
    }
}

/// The flags that the recordings had.
fn settings() -> controllers::settings::Settings {
    let seconds = Duration::from_secs;
    let mut settings = controllers::settings::Settings { root_ca: ROOT_CA.to_owned(), ..Default::default() };
    settings.node_lifecycle.period = seconds(1);
    settings.node_lifecycle.grace.running = seconds(12);
    settings.node_lifecycle.rates.normal = 100.0;
    settings
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

/// Binds every pod that wants a node, to one node after the other.
fn bind(client: &Client) {
    let pods = Informer::of_documents(client, PODS, client::objects::Selection::default());
    let mut changes = pods.changes();
    let client = client.clone();
    tokio::spawn(async move {
        let mut next = 0;
        loop {
            let (key, change) = changes.next().await;
            let _keep = &pods;
            let Change::Added(pod) = change else { continue };
            let is_bound = pod.str_at(&["spec", "nodeName"]).is_some();
            if is_bound || pod.at(&["spec", "schedulingGates"]).is_some() {
                continue;
            }
            // A daemon pod names its node.
            let named = pod.at(&["spec", "affinity", "nodeAffinity"]).map(from_value);
            let named = named.and_then(|it| {
                let required = &it["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
                required[0]["matchFields"][0]["values"][0].as_str().map(ToOwned::to_owned)
            });
            let node = named.unwrap_or_else(|| {
                next += 1;
                format!("sim-{}", (next - 1) % NODES)
            });
            let binding = to_value(&json!({"apiVersion": "v1", "kind": "Binding",
                "metadata": {"name": key.name.as_str()}, "target": {"apiVersion": "v1", "kind": "Node", "name": node}}));
            // It may be gone by now.
            let _ = client.documents(PODS).post(&key.namespace, &key.name, "binding", &binding).await;
        }
    });
}

/// A document as the client takes it.
pub(crate) fn to_value(value: &Value) -> api::json::Value {
    api::json::parse(value.to_string().as_bytes()).unwrap()
}

/// A document as tests read it.
pub(crate) fn from_value(value: &api::json::Value) -> Value {
    serde_json::from_str(&api::json::to_string(value)).unwrap()
}
