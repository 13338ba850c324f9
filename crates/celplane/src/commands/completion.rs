//! `celplane completion`: what a shell needs to complete commands and flags, made from the flags themselves.

use std::process::ExitCode;

use clap_complete::Shell;

/// Print the completion script of a shell: `source <(celplane completion bash)`
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Arguments {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        clap_complete::generate(self.shell, &mut crate::command(), "celplane", &mut std::io::stdout());
        Ok(ExitCode::SUCCESS)
    }
}
