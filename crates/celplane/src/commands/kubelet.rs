//! `celplane kubelet`: simulated nodes, or one whose containers run, over a kubeconfig.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use ::kubelet::slice_template::SliceTemplate;
use api::features::Features;
use controlplane::roles::connections::groups_of;
use controlplane::roles::kubelet::{agent, listener};
use controlplane::roles::{self, EndSignal, kubelet, proxy};

use crate::arguments::node_certificates::{NodeCertificateArguments, NodeCertificates};
use crate::arguments::nodes::NodeArguments;
use crate::arguments::real_node::RealNodeArguments;
use crate::separate::SeparateArguments;

/// Run nodes for the cluster named by a kubeconfig: simulated ones, or this machine with a container runtime
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    role: SeparateArguments,
    /// Node name; the kubeconfig's user must then be that node
    #[arg(long, value_name = "NAME", conflicts_with = "nodes")]
    hostname_override: Option<String>,
    /// Number of nodes; the kubeconfig's user must be allowed to impersonate them
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    nodes: usize,
    #[command(flatten)]
    like: NodeArguments,
    /// Port of this machine from which the API server reads logs; without it logs are unavailable
    #[arg(long, value_name = "PORT")]
    log_port: Option<u16>,
    /// Simulated devices of each node: ring:8, grid:4x4, torus:2x4x4, numa:2x4, pcie:2x4x1
    #[arg(long, value_name = "TEMPLATE")]
    devices: Option<SliceTemplate>,
    #[command(flatten)]
    real: RealNodeArguments,
    #[command(flatten)]
    certificates: NodeCertificateArguments,
}

impl Arguments {
    /// Runs until a signal is received.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let features = Features::default().with_flag(&self.role.feature_gates)?;
        self.role.block_on(async |role| {
            let name = self.hostname_override.clone().unwrap_or_default();
            let certificates = NodeCertificates {
                flags: &self.certificates,
                node: &name,
                root: &self.real.root_dir,
                kubeconfig: role.kubeconfig.as_deref(),
            };
            if !role.dry_run.is_on() {
                certificates.bootstrap().await?;
            }
            let own = role.connect(kubelet::NAME).await?;
            if let Some(mut node) = self.real.node(name.clone(), self.like.document()?, self.like.static_pods())? {
                let place = role.open_place(10248);
                if role.dry_run.is_on() {
                    return role.rehearse(kubelet::NAME, features, None, place.as_ref()).await;
                }
                let periods = self.real.shutdown_periods()?;
                certificates.rotate_client(&own).await?;
                role.announce(kubelet::NAME, &own, None);
                let address = SocketAddr::new(node.endpoint.ip(), self.real.port);
                let access = Arc::new(role.node_access(&own, address.ip())?);
                certificates.rotate_serving(&own, &access, address.ip(), role.serving_certificate()?)?;
                let listener = roles::status::listen(address).await?;
                node.endpoint = listener.local_addr()?;
                let name = node.name.clone();
                let proxy = self.real.proxy(name.clone(), node.endpoint.ip())?;
                let proxy = proxy.map(|settings| proxy::start(own.clone(), settings, features));
                if let Some(proxy) = proxy.as_ref().filter(|_| self.real.proxy_healthz_port != 0) {
                    proxy.serve_status(self.real.proxy_healthz_port).await?;
                }
                let (running, agent) = node.start(own, features);
                agent::serve(listener, access, name, agent.clone(), running.registry.clone());
                let before_end = async move |signal: EndSignal| {
                    if !periods.total.is_zero()
                        && is_machine_stopping(signal).await
                        && let Some(agent) = agent.get()
                    {
                        agent.fleet.shut_down(periods).await;
                    }
                };
                let ended = roles::run_ending(running, place, before_end).await;
                if let Some(proxy) = proxy {
                    proxy.end().await;
                }
                return ended;
            }
            let names = match &self.hostname_override {
                Some(name) => vec![name.clone()],
                None => kubelet::names(self.nodes),
            };
            let listener = match self.log_port {
                Some(port) => Some(listener::bind(port).await?),
                None => None,
            };
            let place = role.open_place(10248);
            let nodes = self.like.nodes(names, listener.as_ref().map(|(_, address)| *address), self.devices)?;
            if role.dry_run.is_on() {
                return role.rehearse(kubelet::NAME, features, None, place.as_ref()).await;
            }
            role.announce(kubelet::NAME, &own, None);
            let (reads, is_node) = (own.clone(), self.hostname_override.is_some());
            let client_for = Arc::new(move |node: &str| {
                let user = format!("system:node:{node}");
                let groups = groups_of(&user);
                let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
                // The names of nodes can stand in headers.
                if is_node { own.clone() } else { own.impersonating(&user, &groups).unwrap_or_else(|_| own.clone()) }
            });
            let (running, fleet) = kubelet::start(nodes, reads, client_for, features);
            if let Some((listener, _)) = listener {
                listener::serve(listener, fleet);
            }
            roles::run_alone(running, place).await
        })
    }
}

/// Whether a signal means that the machine shuts down: SIGPWR does, and SIGTERM while systemd stops the machine. Otherwise
/// the agent alone ends, and its containers run on.
async fn is_machine_stopping(signal: EndSignal) -> bool {
    match signal {
        EndSignal::Power => true,
        EndSignal::Interrupt => false,
        EndSignal::Terminate => {
            let state = tokio::process::Command::new("systemctl").arg("is-system-running").output().await;
            state.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).trim() == "stopping")
        }
    }
}
