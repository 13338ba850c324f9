//! `celplane scheduler`: the scheduler alone, over a kubeconfig.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use controlplane::roles::{self, scheduler, status};
use ::scheduler::profile::Profiler;

use crate::output::to_yaml;
use crate::arguments::second_scheduler::SecondSchedulerArguments;
use crate::arguments::scheduler::{LimitArguments, read_configuration};
use crate::separate::SeparateArguments;

/// Schedule the pods of the cluster named by a kubeconfig
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    role: SeparateArguments,
    /// KubeSchedulerConfiguration file: profiles, plugins and their arguments, leader election
    #[arg(long, visible_alias = "scheduler-config", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Write the configuration with its defaults to a file and exit
    #[arg(long, value_name = "FILE")]
    write_config_to: Option<PathBuf>,
    /// Run only while holding the leader election lease, so that several instances can run; overrides the
    /// configuration
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    leader_elect: Option<bool>,
    #[command(flatten)]
    limits: LimitArguments,
    #[command(flatten, next_help_heading = "Existing clusters")]
    beside: SecondSchedulerArguments,
}

impl Arguments {
    /// Runs until a signal is received.
    pub(crate) fn run(mut self) -> anyhow::Result<ExitCode> {
        let features = self.beside.default_features().with_flag(&self.role.feature_gates)?;
        let read = |path| read_configuration(path, features);
        let mut configuration = self.config.as_deref().map(read).transpose()?.unwrap_or_default();
        self.beside.configure(&mut configuration)?;
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
            let client = self.beside.merging(role.connect(scheduler::NAME).await?, features)?;
            let place = role.place(10259, &client)?;
            if role.dry_run.is_on() {
                return role.rehearse(scheduler::NAME, features, Some(lease.is_some()), place.as_ref()).await;
            }
            let named = lease.as_ref().map(|lease| (lease.namespace.clone(), lease.name.clone()));
            role.announce(scheduler::NAME, &client, named);
            let shown = configuration.enable_profiling.then(|| profiler.clone());
            let limits = self.limits.into();
            let has_annotations = self.beside.has_annotations();
            let role =
                scheduler::start(client, features, limits, configuration.clone(), profiler, lease, has_annotations);
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
