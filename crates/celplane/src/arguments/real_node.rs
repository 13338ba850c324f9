//! Flags of a node whose containers run.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use api::json::Value;
use controlplane::roles::kubelet::machine;
use controlplane::roles::kubelet::pod_network::PodNetwork;
use controlplane::roles::kubelet::real::{PORT, RealNode};
use controlplane::roles::kubelet::static_pods::StaticPods;
use controlplane::roles::proxy::{self as proxy_role, Settings};
use kubelet::containers::{ThresholdFlags, Thresholds};
use kubelet::fleet::shutdown::ShutdownPeriods;
use proxy::network::Network;

use crate::arguments::node_network::ProxyArguments;
use crate::waiting_time;

/// Flags for a node that runs containers.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct RealNodeArguments {
    /// Endpoint of the container runtime that runs the containers, instead of simulation:
    /// unix:///run/containerd/containerd.sock
    #[arg(long, value_name = "ENDPOINT", requires = "hostname_override", conflicts_with_all = ["devices", "log_port"])]
    pub(crate) container_runtime_endpoint: Option<String>,
    /// Directory for volumes and other files of pods
    #[arg(long, value_name = "DIRECTORY", default_value = "/var/lib/celplane-kubelet")]
    pub(crate) root_dir: PathBuf,
    /// Directory for log files of containers
    #[arg(long, value_name = "DIRECTORY", default_value = "/var/log/pods")]
    pod_logs_dir: PathBuf,
    /// Address of the node; by default the one from which it reaches other machines
    #[arg(long, value_name = "ADDRESS")]
    node_ip: Option<IpAddr>,
    /// Port of the agent for logs, exec, attach, port-forward and statistics
    #[arg(long, value_name = "PORT", default_value_t = PORT)]
    pub(crate) port: u16,
    /// Parent cgroup of all pods
    #[arg(long, value_name = "CGROUP", default_value = "/")]
    cgroup_root: String,
    /// Addresses of the cluster's DNS servers
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',')]
    cluster_dns: Vec<IpAddr>,
    /// DNS domain of the cluster
    #[arg(long, value_name = "DOMAIN", default_value = "cluster.local")]
    cluster_domain: String,
    /// Resolver configuration for pods with the DNS policy Default
    #[arg(long, value_name = "FILE", default_value = "/etc/resolv.conf")]
    resolv_conf: PathBuf,
    /// Address and port of the API server for pods, instead of those of its Service
    #[arg(long, value_name = "ADDRESS:PORT")]
    pod_api_server: Option<SocketAddr>,
    /// Amounts below which pods are evicted; signals that are not named are not checked
    #[arg(
        long,
        value_name = "THRESHOLDS",
        default_value = "memory.available<100Mi,nodefs.available<10%,nodefs.inodesFree<5%"
    )]
    eviction_hard: String,
    /// Amounts below which pods are evicted after a grace period
    #[arg(long, value_name = "THRESHOLDS", default_value = "", requires = "eviction_soft_grace_period")]
    eviction_soft: String,
    /// Grace periods of soft thresholds: memory.available=1m30s
    #[arg(long, value_name = "PERIODS", value_delimiter = ',')]
    eviction_soft_grace_period: Vec<String>,
    /// Longest grace period in seconds of pods that are evicted for a soft threshold
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    eviction_max_pod_grace_period: i64,
    /// Amounts to reclaim beyond a threshold once it was met: memory.available=100Mi
    #[arg(long, value_name = "AMOUNTS", default_value = "")]
    eviction_minimum_reclaim: String,
    /// Time for which the node reports pressure after its end
    #[arg(long, value_name = "DURATION", default_value = "5m0s")]
    eviction_pressure_transition_period: String,
    /// Time for ending pods before the machine shuts down; 0s leaves them to the machine
    #[arg(long, value_name = "DURATION", default_value = "0s")]
    shutdown_grace_period: String,
    /// Part of the shutdown grace period for critical pods, which end last
    #[arg(long, value_name = "DURATION", default_value = "0s")]
    shutdown_grace_period_critical_pods: String,
    /// Directory in which the agent writes the configuration of a bridge with the node's podCIDR, for the runtime to read; without it,
    /// the runtime needs a pod network of its own
    #[arg(long, value_name = "DIRECTORY", requires = "container_runtime_endpoint")]
    cni_conf_dir: Option<PathBuf>,
    /// Largest packet of that network; by default that of the machine's default route
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(576..=65535), requires = "cni_conf_dir")]
    pod_mtu: Option<u32>,
    /// Service proxy of the machine, in the agent's process
    #[arg(long, value_name = "MODE", value_parser = ["nftables", "none"], default_value = "none")]
    proxy_mode: String,
    /// Loopback port for health checks and metrics of the proxy; 0 disables them
    #[arg(long, value_name = "PORT", default_value_t = proxy_role::PORT)]
    pub(crate) proxy_healthz_port: u16,
    /// IPv4 network of all pods: traffic from other addresses to Services is masqueraded
    #[arg(long, value_name = "NETWORK")]
    cluster_cidr: Option<Network>,
    #[command(flatten)]
    proxy: ProxyArguments,
}

impl RealNodeArguments {
    /// The node that the flags describe, if they name a runtime.
    pub(crate) fn node(&self, name: String, node: Value, static_pods: StaticPods) -> Result<Option<RealNode>> {
        let Some(endpoint) = self.container_runtime_endpoint.clone() else { return Ok(None) };
        let address = self.node_ip.unwrap_or_else(|| machine::own_address(None));
        Ok(Some(RealNode {
            name,
            runtime_endpoint: endpoint,
            root: self.root_dir.clone(),
            logs: self.pod_logs_dir.clone(),
            cgroup_root: self.cgroup_root.clone(),
            cluster_dns: self.cluster_dns.clone(),
            cluster_domain: self.cluster_domain.clone(),
            resolv_conf: self.resolv_conf.clone(),
            pod_api_server: self.pod_api_server,
            node,
            static_pods,
            endpoint: SocketAddr::new(address, self.port),
            thresholds: self.thresholds()?,
            pod_network: self.pod_network(address)?,
        }))
    }

    fn thresholds(&self) -> Result<Thresholds> {
        let mut soft_grace = Vec::new();
        for pair in &self.eviction_soft_grace_period {
            let (signal, period) = pair.split_once('=').with_context(|| format!("`{pair}` is not SIGNAL=DURATION"))?;
            soft_grace.push((signal.to_owned(), waiting_time::parse(period)?));
        }
        let flags = ThresholdFlags {
            hard: self.eviction_hard.clone(),
            soft: self.eviction_soft.clone(),
            soft_grace,
            min_reclaim: self.eviction_minimum_reclaim.clone(),
            max_pod_grace: self.eviction_max_pod_grace_period,
            transition: waiting_time::parse(&self.eviction_pressure_transition_period)?,
        };
        Thresholds::new(&flags).map_err(anyhow::Error::msg)
    }

    /// The time for ending pods before the machine shuts down.
    pub(crate) fn shutdown_periods(&self) -> Result<ShutdownPeriods> {
        let parse = |text: &str| match text {
            "0" | "0s" => Ok(Duration::ZERO),
            text => waiting_time::parse(text),
        };
        let (total, critical) =
            (parse(&self.shutdown_grace_period)?, parse(&self.shutdown_grace_period_critical_pods)?);
        ShutdownPeriods { total, critical }.check().map_err(anyhow::Error::msg)
    }

    fn pod_network(&self, address: IpAddr) -> Result<Option<PodNetwork>> {
        let Some(directory) = &self.cni_conf_dir else { return Ok(None) };
        Ok(Some(PodNetwork {
            directory: std::path::absolute(directory)?,
            addresses: std::path::absolute(self.root_dir.join("pod-addresses"))?,
            masquerades: self.proxy(String::new(), address)?.is_none_or(|it| it.configuration.pod_masquerade.is_none()),
            mtu: self.pod_mtu,
        }))
    }

    /// The settings of the proxy of a node, unless there is none.
    pub(crate) fn proxy(&self, node: String, address: IpAddr) -> Result<Option<Settings>> {
        if self.proxy_mode != "nftables" {
            return Ok(None);
        }
        let mut settings = self.proxy.settings(node, self.cluster_cidr)?;
        match address {
            IpAddr::V4(address) => settings.configuration.address = Some(address),
            IpAddr::V6(_) => {
                bail!("the proxy does not support IPv6: use an IPv4 address with --node-ip, or --proxy-mode none")
            }
        }
        Ok(Some(settings))
    }
}
