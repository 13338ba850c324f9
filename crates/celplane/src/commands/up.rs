//! `celplane up`: the control plane in one process, with the proposals' features on.

use std::process::ExitCode;

use api::features::Features;

use crate::background;
use crate::control_plane::{Beside, ServerArguments};

/// Run the control plane in one process, with all features on and simulated nodes
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    server: ServerArguments,
    #[command(flatten)]
    beside: Beside,
    /// Return when it is ready and leave it running in the background; `celplane down` ends it
    #[arg(long)]
    wait: bool,
    /// This is the one in the background
    #[arg(long, hide = true, conflicts_with = "wait")]
    detached: bool,
}

impl Arguments {
    /// Runs until a signal comes.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        if self.wait && !self.server.is_dry_run() {
            return background::start("--wait", "--detached", &self.server.data_dir());
        }
        if self.detached {
            background::detach();
        }
        self.server.run(Features::all_proposals(), Some(self.beside), self.detached)?;
        Ok(ExitCode::SUCCESS)
    }
}
