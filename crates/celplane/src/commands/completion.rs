//! `celplane completion`: what a shell needs to complete commands and flags, made from the flags themselves.

use std::io::Write as _;
use std::process::ExitCode;

use clap_complete::Shell;

/// Print a shell completion script: `source <(celplane completion bash)`
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Shell to print the script for
    #[arg(value_enum)]
    shell: Shell,
}

impl Arguments {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        // The generator panics where it cannot write.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut crate::command(), "celplane", &mut script);
        crate::output::stdout().write_all(&script)?;
        Ok(ExitCode::SUCCESS)
    }
}
