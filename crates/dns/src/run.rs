//! The server as a component: it follows Services, EndpointSlices and Namespaces of an API server.

use locks::RwLock;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::core::v1::{Namespace, Service};
use api::discovery::v1::EndpointSlice;
use client::informer::Change;
use client::objects::Selection;
use client::resources::ServedView as _;
use client::{Client, Health, Informer, Shutdown};
use telemetry::metrics::Registry;
use tokio::task::JoinSet;
use tracing::info;

use crate::forward::Forwarder;
use crate::listen::Sockets;
use crate::metrics::Metrics;
use crate::server::{self, Server};
use crate::zone::{self, InvalidDomain, Zone};

/// Interval at which `resolv.conf` is read again.
const RELOAD_INTERVAL: Duration = Duration::from_secs(10);

/// Settings of the server.
pub struct Options {
    /// A client that may list and watch Services, EndpointSlices and Namespaces.
    pub client: Client,
    /// The port.
    pub sockets: Sockets,
    /// The cluster's domain, such as `cluster.local`.
    pub cluster_domain: String,
    /// File with the servers for other names.
    pub resolv_conf: PathBuf,
    /// The registry of its metrics.
    pub registry: Arc<Registry>,
    /// Health checks.
    pub health: Health,
    /// The signal to end.
    pub shutdown: Shutdown,
}

/// The objects that the zone follows.
struct FollowedObjects {
    namespaces: Informer<()>,
    services: Informer<zone::Service>,
    slices: Informer<zone::Slice>,
}

impl FollowedObjects {
    fn start(client: &Client, zone: &Arc<RwLock<Zone>>) -> Self {
        let all = Selection::default;
        let namespaces = Informer::decoding(client, Namespace::RESOURCE, all(), |_| Ok(()));
        let services = Informer::decoding(client, Service::RESOURCE, all(), |value| zone::Service::read(&value));
        let slices = Informer::decoding(client, EndpointSlice::RESOURCE, all(), |value| zone::Slice::read(&value));
        let clock = client.clock().clone();
        let serial = move || u32::try_from(clock.now().seconds).unwrap_or_default();
        let (known, now) = (zone.clone(), serial.clone());
        namespaces.on_change(move |key, change| {
            let mut zone = known.write();
            zone.set_namespace(&key.name, !matches!(change, Change::Deleted(_)));
            zone.set_serial(now());
        });
        let (known, now) = (zone.clone(), serial.clone());
        services.on_change(move |key, change| {
            let service = match change {
                Change::Added(service) | Change::Updated { new: service, .. } => Some(service.clone()),
                Change::Deleted(_) => None,
            };
            let mut zone = known.write();
            zone.set_service(&key.namespace, &key.name, service);
            zone.set_serial(now());
        });
        let known = zone.clone();
        slices.on_change(move |key, change| {
            let (old, new) = match change {
                Change::Added(new) => (None, Some(new.clone())),
                Change::Updated { old, new } => (Some(old), Some(new.clone())),
                Change::Deleted(old) => (Some(old), None),
            };
            let mut zone = known.write();
            zone.set_slice(&key.namespace, &key.name, old.map(|old| &**old), new);
            zone.set_serial(serial());
        });
        Self { namespaces, services, slices }
    }

    async fn synced(&self) {
        self.namespaces.synced().await;
        self.services.synced().await;
        self.slices.synced().await;
    }
}

/// Serves until shutdown is requested.
///
/// # Errors
/// The domain is not a name.
pub async fn run(options: Options) -> Result<(), InvalidDomain> {
    let Options { client, sockets, cluster_domain, resolv_conf, registry, health, shutdown } = options;
    let zone = Arc::new(RwLock::new(Zone::new(&cluster_domain)?));
    let address = sockets.address();
    let metrics = Metrics::new(&registry, address.port(), &cluster_domain);
    let forwarder = Forwarder::new(Vec::new(), metrics.clone());
    let cached = forwarder.clone();
    metrics.publish_cache(&registry, move || cached.cache().sizes().entries);
    let server = Server::new(zone.clone(), forwarder.clone(), metrics);
    let known = zone.clone();
    // As CoreDNS: once complete, it stays ready. Without the API server, names keep their last records.
    health.add("kubernetes", move || match known.read().has_synced() {
        true => Ok(()),
        false => Err("Services, EndpointSlices and Namespaces are not complete yet".to_owned()),
    });
    let mut tasks = JoinSet::new();
    let followed = FollowedObjects::start(&client, &zone);
    tasks.spawn(server::serve(sockets, server));
    tasks.spawn(async move { follow_servers(&forwarder, resolv_conf, address).await });
    info!(address = %address, domain = cluster_domain, "Serving DNS");
    tokio::select! {
        () = followed.synced() => zone.write().set_synced(),
        () = shutdown.requested() => return Ok(()),
    }
    info!("DNS records are complete");
    shutdown.requested().await;
    Ok(())
}

/// Reads the servers for other names, whenever they change.
async fn follow_servers(forwarder: &Forwarder, resolv_conf: PathBuf, own: SocketAddr) {
    let mut last = None;
    loop {
        if forwarder.reload(&resolv_conf, &[own], &mut last) {
            forwarder.probe().await;
        }
        tokio::time::sleep(RELOAD_INTERVAL).await;
    }
}
