//! A node whose containers run, as a role: one machine, one runtime.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use api::features::Features;
use api::json::Value;
use client::Client;
use kubelet::containers::{self, Containers, Dns, Thresholds};
use kubelet::template::Template;
use kubelet::{Fleet, Options};
use matching::CompileCache;
use telemetry::metrics::Registry;
use tokio::time::Instant;

use super::NAME;
use super::machine::Machine;
use super::pod_network::PodNetwork;
use super::static_pods::StaticPods;
use crate::roles::Role;

/// Time limit of the start for the runtime.
const RUNTIME_TIMEOUT: Duration = Duration::from_secs(30);
const RUNTIME_LOOK: Duration = Duration::from_millis(200);
/// The port of a node agent.
pub const PORT: u16 = 10250;
/// Maximum number of compiled expressions of each kind.
const EXPRESSIONS_MAX: NonZeroUsize = NonZeroUsize::new(1000).unwrap();

/// The agent of this process, set once its role has started it.
pub type SharedAgent = Arc<OnceLock<Agent>>;

/// A running agent.
#[derive(Clone)]
pub struct Agent {
    /// Node and pods.
    pub fleet: Fleet<Containers>,
    /// Container runtime.
    pub containers: Containers,
    /// The address and port that the agent listens on.
    pub endpoint: SocketAddr,
}

/// Settings of one real node.
#[derive(Debug, Clone)]
pub struct RealNode {
    /// The node's name.
    pub name: String,
    /// The runtime: `unix:///path`.
    pub runtime_endpoint: String,
    /// Directory for volumes and other files of pods.
    pub root: PathBuf,
    /// Directory for log files of containers.
    pub logs: PathBuf,
    /// Parent cgroup of the cgroups of pods.
    pub cgroup_root: String,
    /// Addresses of the cluster's DNS servers.
    pub cluster_dns: Vec<std::net::IpAddr>,
    /// The cluster's DNS domain.
    pub cluster_domain: String,
    /// Resolver configuration for pods that use the node's.
    pub resolv_conf: PathBuf,
    /// Address and port of the API server for pods, instead of those of its Service.
    pub pod_api_server: Option<SocketAddr>,
    /// The Node manifest: labels, taints and other fields that the machine does not determine.
    pub node: Value,
    /// Source of pods that the node runs without the server.
    pub static_pods: StaticPods,
    /// The address and port of the agent.
    pub endpoint: SocketAddr,
    /// Amounts of memory and disk below which pods are evicted.
    pub thresholds: Thresholds,
    /// The default pod network, if the runtime has no other.
    pub pod_network: Option<PodNetwork>,
}

impl RealNode {
    /// Starts the agent. `client` has the node's identity.
    #[must_use]
    pub fn start(self, client: Client, features: Features) -> (Role, SharedAgent) {
        let shared = SharedAgent::default();
        let known = shared.clone();
        let role = Role::start(NAME, features, move |setting| async move {
            let followed = client.clone();
            let (name, ended, pod_network) = (self.name.clone(), setting.shutdown.clone(), self.pod_network.clone());
            let network = tokio::spawn(async move {
                if let Some(pod_network) = pod_network {
                    pod_network.follow(&followed, &name, &ended).await;
                }
            });
            let machine = Machine::read(&self.root);
            let containers = self.connect(&client, &machine, &setting.registry).await?;
            let mut document = self.node;
            machine.complete(&mut document, &containers.version());
            if let Some(status) = document.get_mut("status").and_then(Value::as_object_mut) {
                let has_policy = containers.has_supplemental_groups_policy();
                status.get_or_insert("features", || api::json!({"supplementalGroupsPolicy": has_policy}));
            }
            let started = Instant::now();
            let cache = CompileCache::new(EXPRESSIONS_MAX, Arc::new(move || started.elapsed()))?;
            let counted = cache.clone();
            setting.registry.counters("kubelet_cel", move || counted.samples());
            let writes = client.clone();
            let options = Options {
                nodes: vec![self.name],
                template: Template::new(document).context("invalid node template")?,
                adopts: false,
                adopted: None,
                devices: None,
                clock: client.clock().clone(),
                client,
                client_for: Arc::new(move |_| writes.clone()),
                cache: Arc::new(cache),
                features: setting.features.into(),
                endpoint: Some(self.endpoint),
                reports: None,
                static_pods: self.static_pods.options(setting.features)?,
            };
            let fleet = Fleet::new(options, containers.clone());
            let fleet = known.get_or_init(|| Agent { fleet, containers, endpoint: self.endpoint }).fleet.clone();
            let watched = fleet.clone();
            setting.health.add("informers", move || watched.health());
            let shutdown = setting.shutdown;
            fleet.run(async move { shutdown.requested().await }).await;
            network.abort();
            Ok(())
        });
        (role, shared)
    }

    async fn connect(&self, client: &Client, machine: &Machine, registry: &Registry) -> Result<Containers> {
        let endpoint = self.runtime_endpoint.as_str();
        let (root, logs) = (std::path::absolute(&self.root)?, std::path::absolute(&self.logs)?);
        for directory in [&root, &logs] {
            std::fs::create_dir_all(directory).with_context(|| format!("cannot create `{}`", directory.display()))?;
        }
        let options = || -> Result<containers::Options> {
            Ok(containers::Options {
                node: self.name.clone(),
                runtime: cri::Client::new(endpoint)?,
                client: client.clone(),
                root: root.clone(),
                logs: logs.clone(),
                cgroup_root: self.cgroup_root.clone(),
                dns: Dns {
                    cluster_servers: self.cluster_dns.iter().map(ToString::to_string).collect(),
                    cluster_domain: self.cluster_domain.clone(),
                    resolv_conf: std::fs::read_to_string(&self.resolv_conf).unwrap_or_default(),
                },
                api_server: self.pod_api_server.map(|it| (it.ip().to_string(), it.port())),
                // Without root nothing can be mounted; a runtime that needs no root is played by tests.
                can_mount: rustix::process::geteuid().is_root(),
                address: self.endpoint.ip().to_string(),
                memory: machine.memory,
                cpu_milli: machine.cpu_milli,
                thresholds: self.thresholds.clone(),
                clock: client.clock().clone(),
                registry: registry.clone(),
            })
        };
        let begun = Instant::now();
        loop {
            match Containers::connect(options()?).await {
                Ok(containers) => return Ok(containers),
                Err(status) if begun.elapsed() > RUNTIME_TIMEOUT => {
                    bail!("the container runtime at {endpoint} does not answer: {}", status.message());
                }
                Err(_) => tokio::time::sleep(RUNTIME_LOOK).await,
            }
        }
    }
}
