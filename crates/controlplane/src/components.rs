//! The components that run in the process of the API server: controllers, scheduler and nodes.
//!
//! They are started after the server and stopped before it, in reverse order. There is no leader election: no
//! other instance can exist.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use ::kubelet::containers::Thresholds;
use ::kubelet::slice_template::SliceTemplate;
use ::kubelet::template::Template;
use anyhow::{Context as _, Result};
use api::core::v1::Node;
use api::features::Features;
use api::json::Value;
use api::labels::Selector;
use api::storage::v1::StorageClass;
use api::well_known::GROUP_MASTERS;
use apiserver::Server;
use apiserver::identity::User;
use apiserver::server::listen::Connection;
use apiserver::serving::certificates::{Authority, Pair};
use client::Client;
use client::resources::ServedView as _;
use controllers::network::simulated_load_balancers::AddressRange;
use controllers::nodes::node_ipam::NodeNetworks;
use controllers::settings::Settings;
use futures::future::join_all;
use scheduling::config::Configuration;
use tokio::net::TcpListener;

use crate::load::{self, LoadResult};
use crate::nodes::Nodes;
use crate::ready::{self, ReadyTarget};
use crate::roles::access::Access;
use crate::roles::connections::in_process;
use crate::roles::kubelet::containerd::{CniDirectories, Containerd};
use crate::roles::kubelet::pod_network::PodNetwork;
use crate::roles::kubelet::reach::Reach;
use crate::roles::kubelet::real::RealNode;
use crate::roles::scheduler::Limits;
use crate::roles::{Role, controller_manager, dns, kubelet, proxy, scheduler, signing};
use crate::system_objects;
use ::proxy::proxier::LocalTraffic;

/// Number of nodes that are created at once.
const REGISTRATIONS: usize = 64;

/// The components to start, and their settings.
pub struct Components {
    /// Features of the API server.
    pub apiserver: Features,
    /// Features of the scheduler.
    pub scheduler: Features,
    /// Features of the controllers.
    pub controller_manager: Features,
    /// Features of the nodes.
    pub kubelet: Features,
    /// Profiles and plugins of the scheduler.
    pub scheduler_config: Configuration,
    /// Nodes to play.
    pub nodes: Nodes,
    /// Objects of another cluster to create before anything else.
    pub load: Option<Vec<Value>>,
    /// Simulated devices of each node.
    pub devices: Option<SliceTemplate>,
    /// Behavior of pods, unless their annotations override it.
    pub rules: ::kubelet::simulation::Rules,
    /// Whether each start and end of a container is recorded as an event; by default, only in small fleets.
    pub reports: Option<bool>,
    /// The labels of other Nodes that are played as well.
    pub adopted: Option<Selector>,
    /// Addresses for Services of type LoadBalancer; without, they get none.
    pub load_balancers: Option<AddressRange>,
    /// Whether CoreDNS and kube-proxy are created in `kube-system`.
    pub system_pods: bool,
    /// Source of pods that nodes run without the server.
    pub static_pods: kubelet::static_pods::StaticPods,
    /// Limits of the scheduler.
    pub limits: Limits,
    /// Controllers to run: `*` for all, `name`, `-name`.
    pub controllers: Vec<String>,
    /// Timing of the node lifecycle controller.
    pub node_lifecycle: controllers::nodes::node_lifecycle::Settings,
    /// This machine as a node, with its own containerd.
    pub machine: Option<MachineNode>,
    /// Networks of pods that are allocated to nodes; none without.
    pub node_networks: Option<NodeNetworks>,
}

/// This machine as a node.
pub struct MachineNode {
    /// The node's name.
    pub name: String,
    /// Directory for containerd, volumes and logs.
    pub directory: PathBuf,
    /// Directories of another pod network than the default one.
    pub cni: CniDirectories,
    /// Largest packet of the default pod network.
    pub mtu: Option<u32>,
    /// The service proxy; without it, pods reach the API server at its own address, and no Services.
    pub proxy: Option<proxy::Settings>,
}

impl Components {
    /// All components with the same gates, and only nodes that request simulation.
    #[must_use]
    pub fn without_nodes(features: Features) -> Self {
        let nodes = Nodes { numbered: 0, template: Template::default(), named: Vec::new() };
        Components {
            apiserver: features,
            scheduler: features,
            controller_manager: features,
            kubelet: features,
            scheduler_config: Configuration::default(),
            nodes,
            load: None,
            devices: None,
            rules: ::kubelet::simulation::Rules::default(),
            reports: None,
            adopted: None,
            load_balancers: None,
            system_pods: false,
            static_pods: kubelet::static_pods::StaticPods::default(),
            limits: Limits::default(),
            controllers: vec!["*".to_owned()],
            node_lifecycle: Default::default(),
            machine: None,
            node_networks: None,
        }
    }
}

/// Components at work, in the order in which they were started.
pub struct RunningComponents {
    roles: Vec<Role>,
    wanted: ReadyTarget,
    admin: Client,
    /// Ends after the roles.
    containerd: Option<Containerd>,
}

impl Components {
    /// The gates of each component.
    #[must_use]
    pub fn gates(&self) -> Vec<(&'static str, Features)> {
        vec![
            ("kube-apiserver", self.apiserver),
            (scheduler::NAME, self.scheduler),
            (controller_manager::NAME, self.controller_manager),
            (kubelet::NAME, self.kubelet),
        ]
    }

    /// Whether a start creates objects that a user has chosen.
    #[must_use]
    pub fn creates(&self) -> bool {
        self.load.is_some() || !self.nodes.named.is_empty()
    }

    /// Describes the simulated nodes in one line of text.
    #[must_use]
    pub fn nodes_text(&self) -> String {
        let numbered = match self.nodes.numbered {
            0 => None,
            1 => Some("node-0".to_owned()),
            count => Some(format!("node-0 to node-{}", count.saturating_sub(1))),
        };
        let named =
            self.nodes.named.iter().filter_map(|node| node.str_at(&["metadata", "name"])).map(ToOwned::to_owned);
        let all: Vec<String> = numbered.into_iter().chain(named).collect();
        if all.is_empty() { "only those that ask to be played".to_owned() } else { all.join(", ") }
    }

    /// Starts controllers, scheduler and nodes. The `authority` is published to pods and signs certificates of users.
    /// Agents outside of this process are contacted as `reach` allows.
    ///
    /// # Errors
    /// Objects that cannot be created, or a server that cannot be reached.
    pub async fn start(
        self,
        server: &Arc<Server>,
        authority: Authority,
        reach: Reach,
        address: Option<SocketAddr>,
    ) -> Result<(RunningComponents, Option<LoadResult>)> {
        let user = User::authenticated("celplane", &[GROUP_MASTERS]);
        let admin = Client::in_process(Connection::new(server.clone(), Some(user)), "celplane");
        let loaded = match self.load {
            Some(objects) => Some(load::load(&admin, objects).await?),
            None => None,
        };
        ensure_storage_class(&admin).await?;
        if self.system_pods {
            system_objects::ensure(&admin).await?;
        }
        register(&admin, &self.nodes.named).await?;
        let machine = match self.machine {
            Some(machine) => Some(MachineParts::prepare(machine, &admin, &authority, address).await?),
            None => None,
        };
        let settings = Settings {
            root_ca: authority.certificate().to_owned(),
            tokens: Some(Arc::new(signing::Tokens::Server(server.clone()))),
            signer: Some(Arc::new(signing::Certificates(authority))),
            node_lifecycle: self.node_lifecycle,
            simulated_volumes: true,
            load_balancers: self.load_balancers,
            node_networks: self.node_networks,
            ..Settings::default()
        };
        let connect = in_process(server.clone());
        let for_controllers = connect.clone();
        let clients = Arc::new(move |user: &str| for_controllers(user, controller_manager::NAME));
        let own = clients(controllers::manager::IDENTITY);
        let all_controllers = self.controllers == ["*"];
        let mut roles =
            vec![controller_manager::start(own, clients, self.controllers, settings, self.controller_manager, false)];
        let for_scheduler = connect(::scheduler::IDENTITY, scheduler::NAME);
        let profiler = Default::default();
        roles.push(scheduler::start(
            for_scheduler,
            self.scheduler,
            self.limits,
            self.scheduler_config,
            profiler,
            None,
            false,
        ));
        let reads = connect(kubelet::FLEET, kubelet::NAME);
        let for_machine = connect.clone();
        let client_for = Arc::new(move |node: &str| connect(&format!("system:node:{node}"), kubelet::NAME));
        let nodes = kubelet::Nodes {
            names: kubelet::names(self.nodes.numbered),
            template: self.nodes.template,
            adopts: true,
            adopted: self.adopted,
            rules: self.rules,
            devices: self.devices,
            endpoint: None,
            reports: self.reports,
            static_pods: self.static_pods,
        };
        let (role, fleet) = kubelet::start(nodes, reads, client_for, self.kubelet);
        roles.push(role);
        let (mut real, mut containerd) = (None, None);
        let machines = usize::from(machine.is_some());
        if let Some(mut machine) = machine {
            let proxy = machine.proxy.take();
            if let Some(settings) = machine.dns.take() {
                roles.push(dns::start_on_machine(for_machine(dns::IDENTITY, dns::NAME), settings));
            }
            let client = for_machine(&format!("system:node:{}", machine.node.name), kubelet::NAME);
            let access = Access::signed(client.clone(), &machine.serving, &machine.authority)?;
            let name = machine.node.name.clone();
            let (role, agent) = machine.node.start(client, self.kubelet);
            kubelet::agent::serve(machine.listener, access, name, agent.clone(), role.registry.clone());
            roles.push(role);
            if let Some(settings) = proxy {
                system_objects::ensure_node_proxier(&admin).await?;
                roles.push(proxy::start(for_machine(proxy::IDENTITY, proxy::NAME), settings, self.kubelet));
            }
            (real, containerd) = (Some(agent), Some(machine.containerd));
        }
        server.set_kubelets(Arc::new(Reach { own: Some(fleet), real, ..reach }));
        for role in &roles {
            server.add_component(role.name, role.registry.clone(), Box::new(role.failures()));
        }
        let played = admin.objects::<Node>().list(&Default::default()).await?;
        let is_numbered = |name: &str| {
            name.strip_prefix("node-")
                .is_some_and(|number| number.parse::<usize>().is_ok_and(|number| number < self.nodes.numbered))
        };
        let adopted = played.items.iter().filter(|node| {
            ::kubelet::annotations::get(&node.metadata.annotations, "node").is_some()
                && !is_numbered(&node.metadata.name)
        });
        let wanted = ReadyTarget {
            nodes: self.nodes.numbered.saturating_add(adopted.count()).saturating_add(machines),
            all_controllers,
        };
        Ok((RunningComponents { roles, wanted, admin, containerd }, loaded))
    }
}

/// The parts of a machine's node that are prepared before its agent starts.
struct MachineParts {
    node: RealNode,
    containerd: Containerd,
    dns: Option<dns::MachineSettings>,
    listener: TcpListener,
    serving: Pair,
    authority: String,
    proxy: Option<proxy::Settings>,
}

impl MachineParts {
    /// Starts containerd, takes the agent's port and signs its certificate. Without a proxy, pods find the API server at `address`, and
    /// names with the machine's own servers.
    async fn prepare(
        machine: MachineNode,
        admin: &Client,
        authority: &Authority,
        address: Option<SocketAddr>,
    ) -> Result<Self> {
        let MachineNode { name, directory, cni, mtu, mut proxy } = machine;
        let own = address.map(|it| it.ip()).filter(|it| !it.is_loopback() && !it.is_unspecified());
        let own = own.unwrap_or_else(|| kubelet::machine::own_address(None));
        let listener = crate::roles::status::listen(SocketAddr::new(own, kubelet::real::PORT)).await?;
        let files = std::path::absolute(directory.join("containerd"))?;
        let containerd = Containerd::start(&files, &cni).await?;
        if let (Some(proxy), std::net::IpAddr::V4(own)) = (&mut proxy, own) {
            proxy.configuration.node.clone_from(&name);
            proxy.configuration.address = Some(own);
        }
        // The proxy masquerades if pods of other machines are to see the addresses of pods.
        let masquerades = proxy.as_ref().is_none_or(|it| it.configuration.pod_masquerade.is_none());
        let pod_network = cni.configurations.is_none().then(|| PodNetwork {
            directory: cni.configurations(&files),
            addresses: files.join("addresses"),
            masquerades,
            mtu,
        });
        let cluster_domain = "cluster.local".to_owned();
        let resolv_conf = PathBuf::from("/etc/resolv.conf");
        // Pods reach the server through its Service, and it listens on the bridge of the default network.
        let mut cluster_dns = Vec::new();
        let mut dns = None;
        if let Some(proxy) = proxy.as_ref().filter(|_| pod_network.is_some()) {
            let pods = match proxy.configuration.local_traffic {
                LocalTraffic::Cluster(pods) => pods,
                LocalTraffic::Node => None,
            };
            cluster_dns.extend(dns::ensure_service(admin, pods, proxy.node_routes).await?);
            let (cluster_domain, resolv_conf) = (cluster_domain.clone(), resolv_conf.clone());
            let (admin, node) = (admin.clone(), name.clone());
            dns = Some(dns::MachineSettings { admin, node, cluster_domain, resolv_conf, pods });
        }
        let node = RealNode {
            name: name.clone(),
            runtime_endpoint: containerd.endpoint().to_owned(),
            root: directory.join("kubelet"),
            logs: directory.join("pod-logs"),
            cgroup_root: format!("/celplane-{name}"),
            cluster_dns,
            cluster_domain,
            resolv_conf,
            pod_api_server: address.filter(|_| proxy.is_none()),
            node: Value::object(),
            static_pods: Default::default(),
            endpoint: listener.local_addr()?,
            // The disks of developers are often nearly full.
            thresholds: Thresholds::hard("memory.available<100Mi,nodefs.available<1%,nodefs.inodesFree<1%")
                .map_err(anyhow::Error::msg)?,
            pod_network,
        };
        let serving = authority.node(&name, &[own])?;
        let authority = authority.certificate().to_owned();
        Ok(Self { node, containerd, dns, listener, serving, authority, proxy })
    }
}

/// Creates the default storage class in a cluster that has none.
async fn ensure_storage_class(client: &Client) -> Result<()> {
    if !client.objects::<StorageClass>().list(&Default::default()).await?.items.is_empty() {
        return Ok(());
    }
    let class = controllers::storage::simulated_volumes::default_class();
    match client.documents(StorageClass::RESOURCE).create("", &class).await {
        Err(error) if !error.is_already_exists() => Err(error).context("cannot create the default storage class"),
        _ => Ok(()),
    }
}

/// Creates nodes with fixed names, unless they exist.
///
/// # Errors
/// Nodes that the server rejects.
pub async fn register(client: &Client, nodes: &[Value]) -> Result<()> {
    let create = |node: &Value| {
        let (nodes, node) = (client.documents(Node::RESOURCE), node.clone());
        async move { nodes.create("", &node).await }
    };
    for some in nodes.chunks(REGISTRATIONS) {
        for answer in join_all(some.iter().map(create)).await {
            match answer {
                Err(error) if !error.is_already_exists() => {
                    return Err(error).context("cannot create the nodes of the template");
                }
                _ => {}
            }
        }
    }
    Ok(())
}

impl RunningComponents {
    /// A connection that may do everything.
    #[must_use]
    pub fn admin(&self) -> &Client {
        &self.admin
    }

    /// Waits until everything works, and returns the number of ready nodes. `progress` receives what is still missing.
    ///
    /// # Errors
    /// The time is up.
    pub async fn ready(&self, progress: &mut (dyn FnMut(&str) + Send)) -> Result<usize> {
        ready::wait(&self.admin, self.wanted, progress).await
    }

    /// Ends them, the last one first.
    pub async fn end(self) {
        for role in self.roles.into_iter().rev() {
            role.end().await;
        }
        drop(self.containerd);
    }
}
