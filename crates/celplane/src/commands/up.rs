//! `celplane up`: the control plane in one process, with the proposals' features on.

use std::process::ExitCode;

use api::features::Features;

use crate::control_plane::{Beside, ServerArguments};

/// Run the control plane in one process, with all features on and simulated nodes
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    server: ServerArguments,
    #[command(flatten)]
    beside: Beside,
}

impl Arguments {
    /// Runs until a signal comes.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        self.server.run(Features::all_proposals(), Some(self.beside))?;
        Ok(ExitCode::SUCCESS)
    }
}
