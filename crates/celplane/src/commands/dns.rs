//! `celplane dns`: the DNS server of a cluster, over a kubeconfig.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use api::features::Features;
use controlplane::roles::{self, dns};

use crate::separate::SeparateArguments;

/// Port of health checks and metrics, as in CoreDNS.
const STATUS_PORT: u16 = 9153;

/// Serve DNS for the cluster named by a kubeconfig, on --bind-address: names of Services, and others by forwarding
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    role: SeparateArguments,
    /// Port of DNS, for UDP and TCP; 0 selects a free port
    #[arg(long, value_name = "PORT", default_value_t = dns::PORT)]
    port: u16,
    /// DNS domain of the cluster
    #[arg(long, value_name = "DOMAIN", default_value = "cluster.local", value_parser = domain)]
    cluster_domain: String,
    /// File with the name servers for names outside of the cluster's domain
    #[arg(long, value_name = "FILE", default_value = "/etc/resolv.conf")]
    resolv_conf: PathBuf,
}

/// Checks a domain.
fn domain(text: &str) -> Result<String, ::dns::zone::InvalidDomain> {
    ::dns::zone::Zone::new(text).map(|_| text.trim_end_matches('.').to_owned())
}

impl Arguments {
    /// Runs until a signal is received.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let features = Features::default().with_flag(&self.role.feature_gates)?;
        self.role.block_on(async |role| {
            let client = role.connect(dns::NAME).await?;
            let place = role.open_place(STATUS_PORT);
            let sockets = dns::bind(SocketAddr::new(role.bind_address(), self.port))?;
            if role.dry_run.is_on() {
                return role.rehearse(dns::NAME, features, None, place.as_ref()).await;
            }
            role.announce(dns::NAME, &client, None);
            let settings =
                dns::Settings { sockets, cluster_domain: self.cluster_domain, resolv_conf: self.resolv_conf };
            roles::run_alone(dns::start(client, settings), place).await
        })
    }
}
