//! Flags of a node whose containers run.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use anyhow::Result;
use api::json::Value;
use controlplane::roles::kubelet::machine;
use controlplane::roles::kubelet::real::{PORT, RealNode};
use controlplane::roles::kubelet::static_pods::StaticPods;
use kubelet::containers::Thresholds;

/// Flags for a node that runs containers.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct RealNodeArguments {
    /// Endpoint of the container runtime that runs the containers, instead of simulation:
    /// unix:///run/containerd/containerd.sock
    #[arg(long, value_name = "ENDPOINT", requires = "hostname_override", conflicts_with_all = ["devices", "log_port"])]
    pub(crate) container_runtime_endpoint: Option<String>,
    /// Directory for volumes and other files of pods
    #[arg(long, value_name = "DIRECTORY", default_value = "/var/lib/celplane-kubelet")]
    root_dir: PathBuf,
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
    eviction_hard: Thresholds,
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
            thresholds: self.eviction_hard,
        }))
    }
}
