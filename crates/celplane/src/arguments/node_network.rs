//! Flags of the pod network and the service proxy of real nodes.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use controlplane::roles::kubelet::containerd::CniDirectories;
use controlplane::roles::proxy::Settings;
use proxy::network::Network;
use proxy::nft::Table;
use proxy::proxier::{Configuration, LocalTraffic, NodePortChoice};

use crate::waiting_time;

/// Length of a node's network of pods.
pub(crate) const NODE_PREFIX: u8 = 24;

/// Flags of a service proxy, under kube-proxy's names where it has them.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ProxyArguments {
    /// Networks whose addresses of this machine accept node ports, or `primary` for the node's own address
    #[arg(long, value_name = "NETWORKS", value_delimiter = ',', default_value = "primary")]
    nodeport_addresses: Vec<String>,
    /// Masquerade all traffic to Services
    #[arg(long)]
    masquerade_all: bool,
    /// Name of the proxy's table in nftables; agents that share a kernel's network need different ones
    #[arg(long, value_name = "NAME", default_value_t)]
    proxy_table: Table,
    /// Set a route to the pods of every other node through its address, for machines that share a network segment
    #[arg(long)]
    node_routes: bool,
}

impl ProxyArguments {
    /// The settings of a proxy on a node. Pods are in `pods`.
    pub(crate) fn settings(&self, node: String, pods: Option<Network>) -> Result<Settings> {
        let node_ports = match self.nodeport_addresses.as_slice() {
            [one] if one == "primary" => NodePortChoice::Primary,
            several if several.iter().any(|it| it == "primary") => {
                bail!("--nodeport-addresses: `primary` cannot be combined with networks")
            }
            networks => NodePortChoice::Networks(networks.iter().map(|it| it.parse()).collect::<Result<_, _>>()?),
        };
        if self.node_routes && pods.is_none() {
            bail!("--node-routes requires --cluster-cidr");
        }
        let configuration = Configuration {
            local_traffic: LocalTraffic::Cluster(pods),
            node_ports,
            masquerade_all: self.masquerade_all,
            pod_masquerade: pods.filter(|_| self.node_routes),
            table: self.proxy_table.clone(),
            ..Configuration::new(node)
        };
        Ok(Settings { configuration, node_routes: self.node_routes })
    }

    /// The proxy's table.
    pub(crate) fn table(&self) -> &Table {
        &self.proxy_table
    }
}

/// Flags of a proxy's timing and marks.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ProxyTiming {
    /// Shortest time between two changes of the rules
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = waiting_time::parse)]
    min_sync_period: Duration,
    /// Interval at which the rules are checked
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = waiting_time::parse)]
    sync_period: Duration,
    /// Bit of the packet mark that requests masquerading
    #[arg(long, value_name = "BIT", default_value_t = 14, value_parser = clap::value_parser!(u8).range(0..=31))]
    masquerade_bit: u8,
}

impl ProxyTiming {
    /// Changes the settings of a proxy.
    pub(crate) fn apply(&self, configuration: &mut Configuration) {
        configuration.min_sync_period = self.min_sync_period;
        configuration.sync_period = self.sync_period;
        configuration.masquerade_bit = self.masquerade_bit;
    }
}

/// Flags of the pod network of `celplane up --runtime containerd`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct PodNetworkArguments {
    /// IPv4 network of all pods of real nodes; each node gets a part
    #[arg(long, value_name = "NETWORK", default_value = "10.244.0.0/16")]
    pub(crate) cluster_cidr: Network,
    /// Length of the prefix of each node's network of pods
    #[arg(long, value_name = "BITS", default_value_t = NODE_PREFIX)]
    pub(crate) node_cidr_mask_size: u8,
    /// Directory of network configurations; without it, a bridge is configured
    #[arg(long, value_name = "DIRECTORY")]
    cni_conf_dir: Option<PathBuf>,
    /// Directory of CNI plugins; by default those of the distribution
    #[arg(long, value_name = "DIRECTORY")]
    cni_bin_dir: Option<PathBuf>,
    /// Largest packet of the pod network; by default that of the machine's default route
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(576..=65535))]
    pub(crate) pod_mtu: Option<u32>,
    /// Service proxy of the machine
    #[arg(long, value_name = "MODE", value_parser = ["nftables", "none"], default_value = "nftables")]
    proxy_mode: String,
    #[command(flatten)]
    proxy: ProxyArguments,
}

impl PodNetworkArguments {
    /// Directories of a pod network other than the default one.
    pub(crate) fn cni(&self) -> CniDirectories {
        CniDirectories { configurations: self.cni_conf_dir.clone(), plugins: self.cni_bin_dir.clone() }
    }

    /// Whether Services are translated.
    pub(crate) fn has_proxy(&self) -> bool {
        self.proxy_mode == "nftables"
    }

    /// The settings of the proxy, unless there is none.
    pub(crate) fn proxy(&self, node: String) -> Result<Option<Settings>> {
        self.has_proxy().then(|| self.proxy.settings(node, Some(self.cluster_cidr))).transpose()
    }
}
