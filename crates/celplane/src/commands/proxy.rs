//! `celplane proxy`: the service proxy of this machine alone, over a kubeconfig.

use std::net::Ipv4Addr;
use std::process::ExitCode;

use ::proxy::network::Network;
use ::proxy::proxier::LocalTraffic;
use api::features::Features;
use controlplane::roles::kubelet::machine;
use controlplane::roles::{self, proxy};

use crate::arguments::node_network::{ProxyArguments, ProxyTiming};
use crate::separate::SeparateArguments;

/// Translate the addresses of Services to those of pods on this machine, with nftables; requires root
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    role: SeparateArguments,
    /// Node name; by default the machine's
    #[arg(long, value_name = "NAME")]
    hostname_override: Option<String>,
    /// Address of the node; by default that of the Node object
    #[arg(long, value_name = "ADDRESS")]
    node_ip: Option<Ipv4Addr>,
    /// IPv4 network of all pods: traffic from other addresses to Services is masqueraded
    #[arg(long, value_name = "NETWORK")]
    cluster_cidr: Option<Network>,
    /// Recognition of traffic from pods: by --cluster-cidr, or by the node's own podCIDR
    #[arg(long, value_name = "MODE", value_parser = ["ClusterCIDR", "NodeCIDR"], default_value = "ClusterCIDR")]
    detect_local_mode: String,
    #[command(flatten)]
    proxy: ProxyArguments,
    #[command(flatten)]
    timing: ProxyTiming,
    /// Remove the rules and routes of a proxy that was killed, and exit
    #[arg(long)]
    cleanup: bool,
}

impl Arguments {
    /// Runs until a signal comes, then removes the rules.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let features = Features::default().with_flag(&self.role.feature_gates)?;
        let node = self.hostname_override.clone().unwrap_or_else(machine::name);
        let mut settings = self.proxy.settings(node, self.cluster_cidr)?;
        settings.configuration.address = self.node_ip;
        if self.detect_local_mode == "NodeCIDR" {
            settings.configuration.local_traffic = LocalTraffic::Node;
        }
        self.timing.apply(&mut settings.configuration);
        self.role.block_on(async |role| {
            if self.cleanup {
                return proxy::clean_up(self.proxy.table()).await;
            }
            let client = role.connect(proxy::NAME).await?;
            let place = role.open_place(proxy::PORT);
            if role.dry_run.is_on() {
                return role.rehearse(proxy::NAME, features, None, place.as_ref()).await;
            }
            role.announce(proxy::NAME, &client, None);
            roles::run_alone(proxy::start(client, settings, features), place).await
        })
    }
}
