//! `celplane scheduler`: the scheduler alone, over a kubeconfig.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use api::features::Features;
use ::scheduler::profile::Profiler;

use crate::output::to_yaml;
use crate::roles::scheduler::Limits;
use crate::roles::{self, scheduler, status};
use crate::separate::SeparateArguments;

/// Schedule pods of the cluster that a kubeconfig names
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    role: SeparateArguments,
    /// A file with a KubeSchedulerConfiguration: profiles, plugins and their arguments, leader election
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Write the configuration with its defaults to a file, and end
    #[arg(long, value_name = "FILE")]
    write_config_to: Option<PathBuf>,
    /// Contend for a lease, so that several can run; as the configuration says unless given
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    leader_elect: Option<bool>,
    #[command(flatten)]
    limits: Limits,
}

impl Arguments {
    /// Runs until a signal comes.
    pub(crate) fn run(mut self) -> anyhow::Result<ExitCode> {
        let features = Features::default().with_flag(&self.role.feature_gates)?;
        let mut configuration =
            self.config.as_deref().map(scheduler::read_configuration).transpose()?.unwrap_or_default();
        if let Some(leader_elect) = self.leader_elect {
            configuration.leader_election.leader_elect = leader_elect;
        }
        if self.role.kubeconfig.is_none() && !configuration.client_connection.kubeconfig.is_empty() {
            self.role.kubeconfig = Some(PathBuf::from(configuration.client_connection.kubeconfig.as_str()));
        }
        let written = configuration.with_defaults()?.write()?;
        if let Some(path) = &self.write_config_to {
            let text = to_yaml(&written);
            std::fs::write(path, text).with_context(|| format!("cannot write `{}`", path.display()))?;
            return Ok(ExitCode::SUCCESS);
        }
        let election = &configuration.leader_election;
        let lease = election.leader_elect.then(|| scheduler::configured_lease(election)).transpose()?;
        let profiler = Profiler::default();
        self.role.block_on(async |role| {
            let client = role.connect(scheduler::NAME).await?;
            let place = role.place(10259, &client)?;
            if role.dry_run.is_on() {
                return role.rehearse(scheduler::NAME, features, Some(lease.is_some()), place.as_ref()).await;
            }
            let shown = configuration.enable_profiling.then(|| profiler.clone());
            let role = scheduler::start(client, features, self.limits, configuration.clone(), profiler, lease);
            let page = status::Page {
                registry: role.registry.clone(),
                health: role.health.clone(),
                profiler: shown,
                configuration: Some(api::json::to_string(&written)),
            };
            roles::run_showing(role, place, page).await
        })
    }
}
