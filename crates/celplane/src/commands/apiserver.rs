//! `celplane apiserver`: the API server alone.

use std::process::ExitCode;

use api::features::Features;

use crate::control_plane::ServerArguments;

/// Serve the Kubernetes API
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    server: ServerArguments,
}

impl Arguments {
    /// Serves until a signal is received.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        self.server.run(Features::default(), None, false)?;
        Ok(ExitCode::SUCCESS)
    }
}
