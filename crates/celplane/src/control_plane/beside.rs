//! The components that `celplane up` runs beside the API server, in its process.
//!
//! They are started after the server and ended before it, in the opposite order. No lease is contended for: nobody else
//! can be there.

use std::path::PathBuf;
use std::sync::Arc;

use ::kubelet::slice_template::SliceTemplate;
use anyhow::Result;
use api::features::Features;
use apiserver::Server;
use apiserver::serving::certificates::Authority;
use controllers::settings::Settings;
use scheduling::config::Configuration;

use crate::roles::connections::in_process;
use crate::roles::scheduler::Limits;
use crate::roles::{Role, controller_manager, kubelet, scheduler, signing};

/// Flags of the components beside the server.
#[derive(clap::Args)]
pub(crate) struct Beside {
    /// How many simulated nodes there are
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    nodes: usize,
    /// Which simulated devices each node has: ring:8, grid:4x4, torus:2x4x4, numa:2x4, pcie:2x4x1
    #[arg(long, value_name = "TEMPLATE")]
    devices: Option<SliceTemplate>,
    #[command(flatten)]
    limits: Limits,
    /// Which controllers run: `*` for all, `name`, `-name` for all but that one
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "*", allow_hyphen_values = true)]
    controllers: Vec<String>,
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
    nodes: usize,
    devices: Option<SliceTemplate>,
    limits: Limits,
    controllers: Vec<String>,
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
            nodes: self.nodes,
            devices: self.devices,
            limits: self.limits,
            controllers: self.controllers,
        })
    }
}

/// Components at work, in the order in which they were started.
pub(super) struct Running(Vec<Role>);

impl Checked {
    /// Starts controllers, scheduler and nodes. By its `authority` pods know the server, and users get certificates.
    pub(super) fn start(self, server: &Arc<Server>, authority: Authority) -> Running {
        let settings = Settings {
            root_ca: authority.certificate().to_owned(),
            tokens: Some(Arc::new(signing::Tokens::Server(server.clone()))),
            signer: Some(Arc::new(signing::Certificates(authority))),
            ..Settings::default()
        };
        let connect = in_process(server.clone());
        let for_controllers = connect.clone();
        let clients = Arc::new(move |user: &str| for_controllers(user, controller_manager::NAME));
        let own = clients(controllers::manager::IDENTITY);
        let mut roles =
            vec![controller_manager::start(own, clients, self.controllers, settings, self.controller_manager, false)];
        let for_scheduler = connect(::scheduler::IDENTITY, scheduler::NAME);
        let profiler = Default::default();
        roles.push(scheduler::start(for_scheduler, self.scheduler, self.limits, self.scheduler_config, profiler, None));
        if self.nodes > 0 {
            let reads = connect(kubelet::FLEET, kubelet::NAME);
            let client_for = Arc::new(move |node: &str| connect(&format!("system:node:{node}"), kubelet::NAME));
            roles.push(kubelet::start(kubelet::names(self.nodes), self.devices, reads, client_for, self.kubelet));
        }
        for role in &roles {
            server.add_component(role.name, role.registry.clone(), Box::new(role.failures()));
        }
        Running(roles)
    }
}

impl Running {
    /// Ends them, the last one first.
    pub(super) async fn end(self) {
        for role in self.0.into_iter().rev() {
            role.end().await;
        }
    }
}
