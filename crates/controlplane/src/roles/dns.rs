//! The cluster's DNS server as a role, and the objects by which pods find it.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use api::core::v1::Node;
use api::discovery::v1::EndpointSlice;
use api::features::Features;
use api::json::Value;
use api::well_known::NAMESPACE_SYSTEM;
use client::objects::{Patch, Selection};
use client::resources::ServedView as _;
use client::{Client, Informer, Resource};
use dns::Sockets;
use locks::RwLock;
use proxy::network::Network;
use telemetry::logs::chain;
use tokio::sync::Notify;
use tracing::warn;

use super::{Role, Setting};

/// Name in metrics and logs.
pub const NAME: &str = "dns";
/// User of the server in the process of the API server.
pub const IDENTITY: &str = "system:celplane:dns";
/// Its role and binding.
const ROLE: &str = "celplane:dns";
/// The port of DNS.
pub const PORT: u16 = 53;
/// The Service, under the name that Kubernetes' tools look for.
const SERVICE: &str = "kube-dns";
/// The EndpointSlice with the address of the server.
const SLICE: &str = "kube-dns-celplane";
/// Distance of the Service's address from that of the API server's Service: 10.96.0.1 and 10.96.0.10, as in kubeadm.
const ADDRESS_DISTANCE: u32 = 9;

/// Annotations of the Service with the network of all pods, and whether nodes have routes to the pods of others: machines that join read them.
const POD_NETWORK: &str = "celplane.dev/pod-network";
const NODE_ROUTES: &str = "celplane.dev/node-routes";
/// Interval at which the addresses of this machine are read again, and shortest time between two readings.
const ADDRESS_INTERVAL: Duration = Duration::from_secs(10);
const ADDRESS_INTERVAL_MIN: Duration = Duration::from_secs(1);

const SERVICES: Resource = Resource::new("", "v1", "services", "Service");
const CLUSTER_ROLES: Resource = Resource::new("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole");
const CLUSTER_ROLE_BINDINGS: Resource =
    Resource::new("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding");

/// Settings of the server.
#[derive(Debug)]
pub struct Settings {
    /// The port.
    pub sockets: Sockets,
    /// The cluster's domain.
    pub cluster_domain: String,
    /// File with the servers for names outside of the domain.
    pub resolv_conf: PathBuf,
}

/// Takes the port of a DNS server.
///
/// # Errors
/// The port cannot be used.
pub fn bind(address: SocketAddr) -> Result<Sockets> {
    Sockets::bind(address).with_context(|| format!("cannot listen on {address} for DNS"))
}

/// Starts the server. `client` may list and watch Services, EndpointSlices and Namespaces.
#[must_use]
pub fn start(client: Client, settings: Settings) -> Role {
    Role::start(NAME, Features::default(), move |setting| run(client, settings, setting))
}

/// Settings of the server on the default pod network of a machine.
#[derive(Debug)]
pub struct MachineSettings {
    /// Publishes the address of the server, and reads the Node.
    pub admin: Client,
    /// The machine's Node.
    pub node: String,
    /// The cluster's domain.
    pub cluster_domain: String,
    /// File with the servers for names outside of the domain.
    pub resolv_conf: PathBuf,
    /// The network of all pods.
    pub pods: Option<Network>,
}

/// Starts the server of a machine. It listens on the address of the pods' bridge, once the Node has its `podCIDR`. Neighbors of the machine
/// can reach that address, too, by a route: only pods, nodes and the machine itself are answered.
#[must_use]
pub fn start_on_machine(client: Client, settings: MachineSettings) -> Role {
    Role::start(NAME, Features::default(), move |setting| async move {
        let MachineSettings { admin, node, cluster_domain, resolv_conf, pods } = settings;
        let gateway = tokio::select! {
            () = setting.shutdown.requested() => return Ok(()),
            gateway = gateway_of(&admin, &node) => gateway,
        };
        let machines = Arc::new(RwLock::new(BTreeSet::new()));
        let known = machines.clone();
        let sockets = bind(SocketAddr::from((gateway, PORT)))?;
        let sockets = sockets.only_for(move |source| is_client(source, pods, &known.read()));
        publish_address(&admin, sockets.address()).await?;
        let followed = tokio::spawn(follow_machines(admin, machines));
        let ended = run(client, Settings { sockets, cluster_domain, resolv_conf }, setting).await;
        followed.abort();
        ended
    })
}

/// Whether queries of an address are answered.
fn is_client(source: IpAddr, pods: Option<Network>, machines: &BTreeSet<Ipv4Addr>) -> bool {
    let IpAddr::V4(source) = source else { return false };
    source.is_loopback() || pods.is_some_and(|it| it.contains(source)) || machines.contains(&source)
}

/// Keeps the addresses of this machine and of all Nodes.
async fn follow_machines(client: Client, machines: Arc<RwLock<BTreeSet<Ipv4Addr>>>) {
    let (nodes, wake) = (Informer::<Node>::start(&client, Selection::default()), Arc::new(Notify::new()));
    let notified = wake.clone();
    nodes.on_change(move |_, _| notified.notify_one());
    loop {
        let mut found = proxy::machine::addresses();
        for node in nodes.store().list() {
            let internal = node.status.addresses.iter().filter(|it| it.address_type == "InternalIP");
            found.extend(internal.filter_map(|it| it.address.parse::<Ipv4Addr>().ok()));
        }
        *machines.write() = found;
        tokio::time::sleep(ADDRESS_INTERVAL_MIN).await;
        tokio::select! {
            () = wake.notified() => {}
            () = tokio::time::sleep(ADDRESS_INTERVAL) => {}
        }
    }
}

async fn run(client: Client, settings: Settings, setting: Setting) -> Result<()> {
    let Settings { sockets, cluster_domain, resolv_conf } = settings;
    client.publish_connections(&setting.registry);
    let options = dns::Options {
        client,
        sockets,
        cluster_domain,
        resolv_conf,
        registry: setting.registry,
        health: setting.health,
        shutdown: setting.shutdown,
    };
    Ok(dns::run(options).await?)
}

/// The address of the pods' bridge on a node, once its network is allocated.
async fn gateway_of(client: &Client, node: &str) -> Ipv4Addr {
    let own = Selection { fields: format!("metadata.name={node}"), ..Selection::default() };
    let nodes = Informer::<Node>::start(client, own);
    let mut changes = nodes.changes();
    loop {
        let (_, change) = changes.next().await;
        let network: Option<Network> = change.newest().spec.pod_cidr.parse().ok();
        if let Some(gateway) = network.and_then(Network::gateway) {
            return gateway;
        }
    }
}

/// The network of a cluster, as far as its DNS Service names it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClusterNetwork {
    /// Address of the DNS server.
    pub dns: Option<IpAddr>,
    /// The network of all pods.
    pub pods: Option<Network>,
    /// Whether nodes have routes to the pods of others.
    pub has_routes: bool,
}

impl ClusterNetwork {
    /// Reads the DNS Service of a cluster; everything is unknown if there is none.
    ///
    /// # Errors
    /// The Service cannot be read.
    pub async fn read(client: &Client) -> Result<Self> {
        match client.documents(SERVICES).get(NAMESPACE_SYSTEM, SERVICE).await {
            Err(error) if error.is_not_found() => Ok(Self::default()),
            service => Ok(Self::of(&service.context("cannot read the Service of the DNS server")?)),
        }
    }

    fn of(service: &Value) -> Self {
        let annotation = |name: &str| service.text_at(&["metadata", "annotations", name]);
        Self {
            dns: service.text_at(&["spec", "clusterIP"]).parse().ok(),
            pods: annotation(POD_NETWORK).parse().ok(),
            has_routes: annotation(NODE_ROUTES) == "true",
        }
    }
}

/// Creates the permissions of the server and its Service, with the network for machines that join. Returns the address of the Service, if it
/// has one.
///
/// # Errors
/// Objects that the API server rejects.
pub(crate) async fn ensure_service(client: &Client, pods: Option<Network>, has_routes: bool) -> Result<Option<IpAddr>> {
    for (resource, object) in permissions() {
        create(client, resource, "", &object).await.context("cannot create the permissions of the DNS server")?;
    }
    let service = find_or_create_service(client).await.context("cannot create the Service of the DNS server")?;
    let known = ClusterNetwork::of(&service);
    let wanted = ClusterNetwork { dns: known.dns, pods, has_routes };
    if known != wanted {
        let network = pods.map_or(Value::Null, |it| it.to_string().into());
        let annotations = api::json!({POD_NETWORK: network, NODE_ROUTES: (has_routes.to_string())});
        let patch = api::json!({"metadata": {"annotations": annotations}});
        let patched = client.documents(SERVICES).patch(NAMESPACE_SYSTEM, SERVICE, "", Patch::Merge, &patch).await;
        patched.context("cannot annotate the Service of the DNS server")?;
    }
    Ok(wanted.dns)
}

/// Creates the EndpointSlice of the Service with the address on which the server listens. A Service with pods of its own is left alone.
///
/// # Errors
/// Objects that the API server rejects.
async fn publish_address(client: &Client, listening: SocketAddr) -> Result<()> {
    let service = find_or_create_service(client).await.context("cannot create the Service of the DNS server")?;
    let slices = client.documents(EndpointSlice::RESOURCE);
    if service.object_at(&["spec", "selector"]).is_some_and(|selector| selector.iter().next().is_some()) {
        match slices.delete(NAMESPACE_SYSTEM, SLICE, &Default::default()).await {
            Err(error) if !error.is_not_found() => return Err(error).context("cannot delete the old address of DNS"),
            _ => return Ok(()),
        }
    }
    let wanted = slice(listening);
    match slices.create(NAMESPACE_SYSTEM, &wanted).await {
        Err(error) if error.is_already_exists() => {
            let updated = slices.update(NAMESPACE_SYSTEM, SLICE, &wanted).await;
            updated.context("cannot update the address of the DNS server")?;
        }
        created => drop(created.context("cannot create the address of the DNS server")?),
    }
    Ok(())
}

fn permissions() -> [(Resource, Value); 2] {
    let verbs = || api::json!(["list", "watch"]);
    let role = api::json!({
        "metadata": {"name": ROLE},
        "rules": [
            {"apiGroups": [""], "resources": ["namespaces", "services"], "verbs": (verbs())},
            {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": (verbs())},
        ],
    });
    let binding = api::json!({
        "metadata": {"name": ROLE},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": IDENTITY}],
    });
    [(CLUSTER_ROLES, role), (CLUSTER_ROLE_BINDINGS, binding)]
}

/// Creates an object, unless it exists.
async fn create(client: &Client, resource: Resource, namespace: &str, object: &Value) -> Result<(), client::Error> {
    match client.documents(resource).create(namespace, object).await {
        Err(error) if !error.is_already_exists() => Err(error),
        _ => Ok(()),
    }
}

/// The Service; created with the tenth address of the service network, or with another one if that is taken.
async fn find_or_create_service(client: &Client) -> Result<Value, client::Error> {
    let services = client.documents(SERVICES);
    match services.get(NAMESPACE_SYSTEM, SERVICE).await {
        Err(error) if error.is_not_found() => {}
        found => return found,
    }
    let api_server = services.get("default", "kubernetes").await?;
    let address: Option<Ipv4Addr> = api_server.text_at(&["spec", "clusterIP"]).parse().ok();
    let address = address.and_then(|it| it.to_bits().checked_add(ADDRESS_DISTANCE)).map(Ipv4Addr::from_bits);
    let address = address.map(|it| it.to_string()).unwrap_or_default();
    match services.create(NAMESPACE_SYSTEM, &service(&address)).await {
        Err(error) if !address.is_empty() && !error.is_already_exists() => {
            warn!(address, err = %chain(&error), "Could not use the default address for the DNS Service");
            services.create(NAMESPACE_SYSTEM, &service("")).await
        }
        created => created,
    }
}

fn service(address: &str) -> Value {
    let mut service = api::json!({
        "metadata": {"name": SERVICE, "labels": {"k8s-app": SERVICE, "kubernetes.io/name": "CoreDNS"}},
        "spec": {"ports": [
            {"name": "dns", "port": (i64::from(PORT)), "protocol": "UDP"},
            {"name": "dns-tcp", "port": (i64::from(PORT)), "protocol": "TCP"},
        ]},
    });
    if let Some(spec) = service.get_mut("spec").and_then(Value::as_object_mut).filter(|_| !address.is_empty()) {
        spec.insert("clusterIP", address);
    }
    service
}

fn slice(listening: SocketAddr) -> Value {
    let port = i64::from(listening.port());
    let family = if listening.is_ipv4() { "IPv4" } else { "IPv6" };
    api::json!({
        "metadata": {"name": SLICE, "labels": {
            "kubernetes.io/service-name": SERVICE, "endpointslice.kubernetes.io/managed-by": "celplane",
        }},
        "addressType": family,
        "endpoints": [{"addresses": [(listening.ip().to_string())], "conditions": {"ready": true}}],
        "ports": [{"name": "dns", "port": port, "protocol": "UDP"}, {"name": "dns-tcp", "port": port, "protocol": "TCP"}],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbors_of_the_machine_are_no_clients() {
        let machines = BTreeSet::from([Ipv4Addr::new(192, 168, 77, 1), Ipv4Addr::new(192, 168, 77, 2)]);
        let check = |source: &str| is_client(source.parse().unwrap(), "10.244.0.0/16".parse().ok(), &machines);
        assert!(["10.244.0.7", "10.244.9.1", "127.0.0.1", "192.168.77.1", "192.168.77.2"].into_iter().all(check));
        assert!(!["192.168.77.3", "10.245.0.1", "198.51.100.1", "fe80::1"].into_iter().any(check));
    }

    #[test]
    fn network_is_read_from_the_service() {
        let service = api::json!({
            "metadata": {"annotations": {"celplane.dev/pod-network": "10.1.0.0/16", "celplane.dev/node-routes": "true"}},
            "spec": {"clusterIP": "10.96.0.10"},
        });
        let found = ClusterNetwork::of(&service);
        assert_eq!(found.dns, "10.96.0.10".parse().ok());
        assert_eq!((found.pods, found.has_routes), ("10.1.0.0/16".parse().ok(), true));
        // Texts that are no addresses do not become parts of commands.
        let foreign = api::json!({
            "metadata": {"annotations": {"celplane.dev/pod-network": "10.1.0.0/16; reboot"}}, "spec": {"clusterIP": "None"},
        });
        assert_eq!(ClusterNetwork::of(&foreign), ClusterNetwork::default());
    }
}
