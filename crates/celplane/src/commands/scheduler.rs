//! `celplane scheduler`: the scheduler alone, over a kubeconfig.

use std::process::ExitCode;

use api::features::Features;

use crate::roles::scheduler::Limits;
use crate::roles::{self, scheduler};
use crate::separate::SeparateArguments;

/// Schedule pods of the cluster that a kubeconfig names
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    role: SeparateArguments,
    /// Contend for a lease, so that several can run
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    leader_elect: bool,
    #[command(flatten)]
    limits: Limits,
}

impl Arguments {
    /// Runs until a signal comes.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let features = Features::default().with_flag(&self.role.feature_gates)?;
        self.role.block_on(async |role| {
            let client = role.connect(scheduler::NAME).await?;
            roles::run_alone(scheduler::start(client, features, self.limits, self.leader_elect), role.address(10259)?).await
        })
    }
}
