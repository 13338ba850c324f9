//! The service proxy of a real node as a role.

mod health_ports;

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Context as _;
use api::features::Features;
use client::Client;
use proxy::proxier::{self, Configuration, HealthChecks, Options};
use telemetry::logs::chain;
use tokio::sync::watch;
use tracing::warn;

use super::Role;
use super::status::{self, Page, Place};

pub use proxier::{IDENTITY, NAME};

/// Port for health checks and metrics.
pub const PORT: u16 = 10256;

/// Settings of the role.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Settings of the proxy.
    pub configuration: Configuration,
    /// Whether routes to the pods of other Nodes are set.
    pub node_routes: bool,
}

/// Starts the proxy. `client` may read Services, EndpointSlices, Nodes and ServiceCIDRs.
#[must_use]
pub fn start(client: Client, settings: Settings, features: Features) -> Role {
    Role::start(NAME, features, move |setting| async move {
        client.publish_connections(&setting.registry);
        warn_without_bridge_filter();
        let (sender, health_checks) = watch::channel(HealthChecks::default());
        let ports = tokio::spawn(health_ports::serve(settings.configuration.address, health_checks));
        let (own, shutdown) = (settings.configuration.node.clone(), setting.shutdown.clone());
        let period = settings.configuration.sync_period;
        let routes = async {
            if settings.node_routes {
                proxy::routes::run(&client, &own, period, &shutdown).await;
            }
            Ok(())
        };
        let options = Options {
            client: client.clone(),
            configuration: settings.configuration,
            registry: setting.registry,
            health: setting.health,
            shutdown: setting.shutdown,
            health_checks: sender,
        };
        let proxied = tokio::try_join!(proxier::run(options), routes);
        ports.abort();
        proxied.context("the proxy needs nft and root; on Debian: apt-get install nftables conntrack")?;
        Ok(())
    })
}

impl Role {
    /// Serves health and metrics of a proxy in another component's process, on a loopback port of this machine.
    ///
    /// # Errors
    /// The port is in use.
    pub async fn serve_status(&self, port: u16) -> anyhow::Result<()> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let page =
            Page { registry: self.registry.clone(), health: self.health.clone(), profiler: None, configuration: None };
        status::serve(Place { address, access: None }, page).await
    }
}

/// Removes the rules of a proxy that was killed.
///
/// # Errors
/// `nft` cannot be run.
pub async fn clean_up(table: &proxy::nft::Table) -> anyhow::Result<()> {
    proxy::table::KernelTable::remove(table).await.context("cannot remove the table")?;
    proxy::routes::apply(&Default::default()).await.context("cannot remove the routes")
}

/// Responses between pods on one bridge pass no rules without the filter, so that their source is not translated back.
fn warn_without_bridge_filter() {
    let file = "/proc/sys/net/bridge/bridge-nf-call-iptables";
    match std::fs::read_to_string(file) {
        Ok(text) if text.trim() == "1" => {}
        Ok(_) => {
            warn!(path = file, "Services of pods on the same machine fail: set net.bridge.bridge-nf-call-iptables to 1")
        }
        Err(error) => {
            warn!(path = file, err = %chain(&error), "Services of pods on the same machine fail: load the kernel module br_netfilter");
        }
    }
}
