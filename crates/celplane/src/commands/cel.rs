//! `celplane cel`: expressions at the command line.

mod expression;
pub(crate) mod schema;

use std::process::ExitCode;

/// Evaluate and check expressions of the Common Expression Language.
#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

impl Arguments {
    /// Runs the subcommand.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        self.command.run()
    }
}

super::subcommands! {
    Eval => eval,
    Check => check,
    Cost => cost,
    Ast => ast,
    Batch => batch,
}
