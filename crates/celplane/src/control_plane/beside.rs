//! The components that `celplane up` runs beside the API server, in its process.
//!
//! They are started after the server and ended before it, in the opposite order. No lease is contended for: nobody else
//! can be there.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use ::kubelet::slice_template::SliceTemplate;
use ::kubelet::template::Template;
use anyhow::{Context as _, Result};
use api::core::v1::Node;
use api::features::Features;
use api::json::Value;
use apiserver::Server;
use apiserver::identity::User;
use apiserver::server::listen::Connection;
use apiserver::serving::certificates::Authority;
use client::Client;
use client::resources::Served as _;
use controllers::settings::Settings;
use futures::future::join_all;
use scheduling::config::Configuration;

use super::load;
use super::nodes::Nodes;
use super::ready::{self, Wanted};
use crate::roles::connections::in_process;
use crate::roles::node_lifecycle::NodeLifecycle;
use crate::roles::scheduler::Limits;
use crate::roles::{Role, controller_manager, kubelet, scheduler, signing};

/// How many nodes are created at once.
const REGISTRATIONS: usize = 64;

/// Flags of the components beside the server.
#[derive(clap::Args)]
pub(crate) struct Beside {
    /// How many simulated nodes there are; 3 if nothing else is said
    #[arg(long, value_name = "COUNT")]
    nodes: Option<usize>,
    /// What the nodes are like: a Node without a name for those of --nodes, Nodes with names for more
    #[arg(long, value_name = "FILE")]
    node_template: Option<PathBuf>,
    /// Play what `kubectl get nodes,pods,… -A -o yaml` of another cluster gave: a file or directory
    #[arg(long, value_name = "FILE")]
    load: Option<PathBuf>,
    /// How pods are played unless their annotations say otherwise: start-seconds, run-seconds, failure-rate and so on
    #[arg(long, value_name = "FILE")]
    simulation: Option<PathBuf>,
    /// Whether events tell of each start and end of a container; without this flag, up to 100 nodes do
    #[arg(long, value_name = "BOOL")]
    container_events: Option<bool>,
    /// Which simulated devices each node has: ring:8, grid:4x4, torus:2x4x4, numa:2x4, pcie:2x4x1
    #[arg(long, value_name = "TEMPLATE")]
    devices: Option<SliceTemplate>,
    #[command(flatten)]
    static_pods: kubelet::static_pods::StaticPodArguments,
    #[command(flatten)]
    limits: Limits,
    /// Which controllers run: `*` for all, `name`, `-name` for all but that one
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "*", allow_hyphen_values = true)]
    controllers: Vec<String>,
    #[command(flatten)]
    node_lifecycle: NodeLifecycle,
    /// Features of the API server alone, beyond `--feature-gates`
    #[arg(long, value_name = "GATES", default_value = "")]
    apiserver_feature_gates: String,
    /// Features of the scheduler alone
    #[arg(long, value_name = "GATES", default_value = "")]
    scheduler_feature_gates: String,
    /// A file with a KubeSchedulerConfiguration for the scheduler
    #[arg(long, value_name = "FILE")]
    scheduler_config: Option<PathBuf>,
    /// Features of the controllers alone
    #[arg(long, value_name = "GATES", default_value = "")]
    controller_manager_feature_gates: String,
    /// Features of the nodes alone
    #[arg(long, value_name = "GATES", default_value = "")]
    kubelet_feature_gates: String,
}

/// The flags, understood.
pub(super) struct Checked {
    pub(super) apiserver: Features,
    scheduler: Features,
    controller_manager: Features,
    kubelet: Features,
    scheduler_config: Configuration,
    pub(super) nodes: Nodes,
    pub(super) load: Option<PathBuf>,
    devices: Option<SliceTemplate>,
    rules: ::kubelet::simulation::Rules,
    tells: Option<bool>,
    static_pods: kubelet::static_pods::StaticPodArguments,
    limits: Limits,
    controllers: Vec<String>,
    node_lifecycle: controllers::node_lifecycle::Settings,
}

impl Checked {
    /// Everything with the same gates, and only nodes that ask to be played.
    pub(super) fn without_nodes(features: Features) -> Self {
        let nodes = Nodes { numbered: 0, template: Template::default(), named: Vec::new() };
        Checked {
            apiserver: features,
            scheduler: features,
            controller_manager: features,
            kubelet: features,
            scheduler_config: Configuration::default(),
            nodes,
            load: None,
            devices: None,
            rules: ::kubelet::simulation::Rules::default(),
            tells: None,
            static_pods: kubelet::static_pods::StaticPodArguments::default(),
            limits: Limits::default(),
            controllers: vec!["*".to_owned()],
            node_lifecycle: Default::default(),
        }
    }
}

impl Beside {
    /// Understands the flags. `shared` are the gates of all components.
    pub(super) fn check(self, shared: Features) -> Result<Checked> {
        controllers::manager::check_selection(&self.controllers)?;
        let scheduler_config = self.scheduler_config.as_deref().map(scheduler::read_configuration);
        Ok(Checked {
            apiserver: shared.with_flag(&self.apiserver_feature_gates)?,
            scheduler: shared.with_flag(&self.scheduler_feature_gates)?,
            controller_manager: shared.with_flag(&self.controller_manager_feature_gates)?,
            kubelet: shared.with_flag(&self.kubelet_feature_gates)?,
            scheduler_config: scheduler_config.transpose()?.unwrap_or_default(),
            nodes: Nodes::plan(self.nodes, self.node_template.as_deref(), self.load.is_some())?,
            load: self.load,
            devices: self.devices,
            rules: kubelet::rules(self.simulation.as_deref())?,
            tells: self.container_events,
            static_pods: self.static_pods,
            limits: self.limits,
            controllers: self.controllers,
            node_lifecycle: self.node_lifecycle.settings(),
        })
    }
}

/// Components at work, in the order in which they were started.
pub(super) struct Running {
    roles: Vec<Role>,
    wanted: Wanted,
    admin: Client,
}

impl Checked {
    /// Which gates each component has.
    pub(super) fn gates(&self) -> Vec<(&'static str, Features)> {
        vec![
            ("kube-apiserver", self.apiserver),
            (scheduler::NAME, self.scheduler),
            (controller_manager::NAME, self.controller_manager),
            (kubelet::NAME, self.kubelet),
        ]
    }

    /// Whether a start creates objects that a user has chosen.
    pub(super) fn creates(&self) -> bool {
        self.load.is_some() || !self.nodes.named.is_empty()
    }

    /// Which nodes are played, for people.
    pub(super) fn nodes_text(&self) -> String {
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

    /// Starts controllers, scheduler and nodes. By its `authority` pods know the server, and users get certificates.
    pub(super) async fn start(self, server: &Arc<Server>, authority: Authority) -> Result<Running> {
        let user = User::authenticated("celplane", &["system:masters"]);
        let admin = Client::in_process(Connection::new(server.clone(), Some(user)), "celplane");
        if let Some(path) = &self.load {
            let loaded = load::load(&admin, path).await?;
            // Nobody needs to read this: a closed standard error is not a failure.
            let _ = write!(std::io::stderr(), "{}", loaded.text("Loaded"));
        }
        register(&admin, &self.nodes.named).await?;
        let settings = Settings {
            root_ca: authority.certificate().to_owned(),
            tokens: Some(Arc::new(signing::Tokens::Server(server.clone()))),
            signer: Some(Arc::new(signing::Certificates(authority))),
            node_lifecycle: self.node_lifecycle,
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
        roles.push(scheduler::start(for_scheduler, self.scheduler, self.limits, self.scheduler_config, profiler, None));
        let reads = connect(kubelet::FLEET, kubelet::NAME);
        let client_for = Arc::new(move |node: &str| connect(&format!("system:node:{node}"), kubelet::NAME));
        let nodes = kubelet::Nodes {
            names: kubelet::names(self.nodes.numbered),
            template: self.nodes.template,
            adopts: true,
            rules: self.rules,
            devices: self.devices,
            endpoint: None,
            tells: self.tells,
            static_pods: self.static_pods,
        };
        let (role, fleet) = kubelet::start(nodes, reads, client_for, self.kubelet);
        roles.push(role);
        server.set_kubelets(Arc::new(kubelet::reach::Reach { own: Some(fleet) }));
        for role in &roles {
            server.add_component(role.name, role.registry.clone(), Box::new(role.failures()));
        }
        let played = admin.objects::<Node>().list(&Default::default()).await?;
        let is_numbered = |name: &str| {
            name.strip_prefix("node-")
                .is_some_and(|number| number.parse::<usize>().is_ok_and(|number| number < self.nodes.numbered))
        };
        let adopted = played.items.iter().filter(|node| {
            node.metadata.annotations.contains_key(::kubelet::fleet::PLAYED) && !is_numbered(&node.metadata.name)
        });
        let wanted = Wanted { nodes: self.nodes.numbered.saturating_add(adopted.count()), all_controllers };
        Ok(Running { roles, wanted, admin })
    }
}

/// Creates nodes that have names of their own, unless they are there.
pub(super) async fn register(client: &Client, nodes: &[Value]) -> Result<()> {
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

impl Running {
    /// A connection that may do everything.
    pub(super) fn admin(&self) -> &Client {
        &self.admin
    }

    /// Waits until everything works; how many nodes are ready then.
    pub(super) async fn ready(&self) -> Result<usize> {
        ready::wait(&self.admin, self.wanted).await
    }

    /// Ends them, the last one first.
    pub(super) async fn end(self) {
        for role in self.roles.into_iter().rev() {
            role.end().await;
        }
    }
}
