//! Flags of the components that `celplane up` runs in the process of the API server.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use ::kubelet::slice_template::SliceTemplate;
use anyhow::{Context as _, Result, bail};
use api::features::Features;
use api::json::Value;
use api::labels::Selector;
use controllers::nodes::node_ipam::NodeNetworks;
use controlplane::components::{Components, MachineNode};
use controlplane::roles::kubelet::machine;

use super::nodes;
use crate::arguments::node_lifecycle::NodeLifecycle;
use crate::arguments::node_network::PodNetworkArguments;
use crate::arguments::nodes::{StaticPodArguments, parse_selector, rules};
use crate::arguments::scheduler::{LimitArguments, read_configuration};
use crate::manifests;

/// Flags of the components that run in the server's process.
#[derive(clap::Args)]
pub(crate) struct ComponentArguments {
    /// Number of simulated nodes; defaults to 3, or to 0 if this machine runs containers
    #[arg(long, value_name = "COUNT")]
    nodes: Option<usize>,
    /// Node manifests: a Node without a name is the template for --nodes, Nodes with names are added
    #[arg(long, value_name = "FILE")]
    node_template: Option<PathBuf>,
    /// Run containers on this machine as a node, with its own containerd in the data directory; requires root
    #[arg(long, value_name = "RUNTIME", value_parser = ["containerd", "simulated"], default_value = "simulated")]
    runtime: String,
    /// Serve the console too and print its URL
    #[arg(long)]
    console: bool,
    /// The port of the console, on 127.0.0.1; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 0, requires = "console")]
    console_port: u16,
    /// File or directory with the output of `kubectl get nodes,pods,… -A -o yaml` of another cluster, which is
    /// simulated
    #[arg(long, value_name = "FILE")]
    load: Option<PathBuf>,
    /// Simulation defaults for pods without annotations: start-seconds, run-seconds, failure-rate and so on
    #[arg(long, value_name = "FILE")]
    simulation: Option<PathBuf>,
    /// Record an event for each start and end of a container; by default only with up to 100 nodes
    #[arg(long, value_name = "BOOL")]
    container_events: Option<bool>,
    /// Simulated devices of each node: ring:8, grid:4x4, torus:2x4x4, numa:2x4, pcie:2x4x1
    #[arg(long, value_name = "TEMPLATE")]
    devices: Option<SliceTemplate>,
    /// Addresses for Services of type LoadBalancer: a network, FIRST-LAST, or `none`
    #[arg(long, value_name = "ADDRESSES", default_value = "198.51.100.0/24")]
    load_balancer_range: String,
    /// Create the workloads that clients look for in kube-system: CoreDNS and kube-proxy, simulated
    #[arg(long)]
    system_pods: bool,
    /// Label selector: also simulate other Nodes with these labels, regardless of their creator
    #[arg(long, value_name = "SELECTOR", value_parser = parse_selector)]
    adopt_nodes: Option<Selector>,
    #[command(flatten)]
    static_pods: StaticPodArguments,
    #[command(flatten)]
    limits: LimitArguments,
    /// Controllers to run: `*` for all, `name`, or `-name` for all others
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "*", allow_hyphen_values = true)]
    controllers: Vec<String>,
    #[command(flatten)]
    node_lifecycle: NodeLifecycle,
    /// Feature gates of the API server only, in addition to `--feature-gates`
    #[arg(long, value_name = "GATES", default_value = "")]
    apiserver_feature_gates: String,
    /// Feature gates of the scheduler only
    #[arg(long, value_name = "GATES", default_value = "")]
    scheduler_feature_gates: String,
    /// KubeSchedulerConfiguration file of the scheduler
    #[arg(long, value_name = "FILE")]
    scheduler_config: Option<PathBuf>,
    /// Feature gates of the controllers only
    #[arg(long, value_name = "GATES", default_value = "")]
    controller_manager_feature_gates: String,
    /// Feature gates of the nodes only
    #[arg(long, value_name = "GATES", default_value = "")]
    kubelet_feature_gates: String,
    // Last: in the help, a heading applies to all flags below it.
    #[command(flatten, next_help_heading = "Pod network of real nodes")]
    network: PodNetworkArguments,
}

impl ComponentArguments {
    /// Whether containers run instead of being simulated.
    pub(super) fn runs_containers(&self) -> bool {
        self.runtime == "containerd"
    }

    /// Describes how containers reach Services; nothing if none run.
    pub(super) fn services_text(&self, api_server: Ipv4Addr) -> Option<String> {
        self.runs_containers().then(|| match self.network.has_proxy() {
            true => format!("by nftables; pods reach the API server at {api_server}"),
            false => "none (--proxy-mode none); pods reach the API server at its own address".to_owned(),
        })
    }

    /// The port of the console, if one is served.
    pub(super) fn console_port(&self) -> Option<u16> {
        self.console.then_some(self.console_port)
    }

    /// Validates the flags. `shared` are the gates of all components.
    pub(super) fn check(mut self, shared: Features, data: &Path) -> Result<Components> {
        let (mut machine, mut node_networks) = (None, None);
        if self.runs_containers() {
            let (name, network) = (machine::name(), &self.network);
            let parts = NodeNetworks::new(&network.cluster_cidr.to_string(), network.node_cidr_mask_size);
            node_networks = Some(parts.context("cannot use --cluster-cidr with --node-cidr-mask-size")?);
            machine = Some(MachineNode {
                cni: network.cni(),
                mtu: network.pod_mtu,
                proxy: network.proxy(name.clone())?,
                name,
                directory: data.to_owned(),
            });
        }
        if machine.is_some() && self.nodes.is_none() {
            self.nodes = Some(0);
        }
        controllers::manager::check_selection(&self.controllers)?;
        let scheduler = shared.with_flag(&self.scheduler_feature_gates)?;
        let scheduler_config = self.scheduler_config.as_deref().map(|path| read_configuration(path, scheduler));
        Ok(Components {
            apiserver: shared.with_flag(&self.apiserver_feature_gates)?,
            scheduler,
            controller_manager: shared.with_flag(&self.controller_manager_feature_gates)?,
            kubelet: shared.with_flag(&self.kubelet_feature_gates)?,
            scheduler_config: scheduler_config.transpose()?.unwrap_or_default(),
            nodes: nodes::plan(self.nodes, self.node_template.as_deref(), self.load.is_some())?,
            load: self.load.map(|path| objects(&path.display().to_string())).transpose()?,
            devices: self.devices,
            rules: rules(self.simulation.as_deref())?,
            reports: self.container_events,
            adopted: self.adopt_nodes,
            load_balancers: (self.load_balancer_range != "none")
                .then(|| self.load_balancer_range.parse())
                .transpose()
                .context("cannot use --load-balancer-range")?,
            system_pods: self.system_pods,
            static_pods: self.static_pods.into(),
            limits: self.limits.into(),
            controllers: self.controllers,
            node_lifecycle: self.node_lifecycle.settings(),
            machine,
            node_networks,
        })
    }
}

/// The objects of a file or directory.
fn objects(path: &str) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for source in manifests::sources(&[path.to_owned()])? {
        objects.extend(manifests::readable(source.read()?)?.into_iter().map(|manifest| manifest.value));
    }
    if objects.is_empty() {
        bail!("`{path}` contains no objects");
    }
    Ok(objects)
}
