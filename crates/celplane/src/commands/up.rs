//! `celplane up`: the control plane in one process, with the proposals' features on.

use std::process::ExitCode;

use api::features::Features;

use super::gates;
use crate::background;
use crate::control_plane::{ComponentArguments, ServerArguments};
use crate::remembered_flags::Flag;

/// Run the control plane in one process, with all features enabled and simulated nodes
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Return once the control plane is ready and leave it running in the background; `celplane down` stops it
    #[arg(long)]
    wait: bool,
    /// Ignore the flags that were stored with the data by the last start
    #[arg(long)]
    forget_flags: bool,
    /// Internal: this process is the one in the background
    #[arg(long, hide = true, conflicts_with = "wait")]
    detached: bool,
    #[command(flatten, next_help_heading = "Nodes, scheduler and controllers")]
    component_arguments: ComponentArguments,
    #[command(flatten, next_help_heading = "API server")]
    server: ServerArguments,
}

impl Arguments {
    /// Keeps these flags with the data, for starts without them.
    pub(crate) fn remember(&mut self, flags: Vec<Flag>) {
        self.server.remember(flags);
    }

    /// Runs until a signal is received.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        if self.server.asks_for_gates() {
            crate::output::show(&gates::table());
            return Ok(ExitCode::SUCCESS);
        }
        if self.wait && !self.server.is_dry_run() {
            return background::start("--wait", "--detached", &self.server.data_dir());
        }
        if self.detached {
            background::detach();
        }
        self.server.run(Features::all_proposals(), Some(self.component_arguments), self.detached)?;
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[track_caller]
    fn check(command: &str, flag: &str, heading: Option<&str>) {
        let all = crate::Arguments::command();
        let command = all.find_subcommand(command).unwrap();
        let found = command.get_arguments().find(|argument| argument.get_long() == Some(flag)).unwrap();
        assert_eq!(found.get_help_heading(), heading, "--{flag}");
    }

    #[test]
    fn help_lists_flags_under_their_own_heading() {
        check("up", "wait", None);
        check("up", "nodes", Some("Nodes, scheduler and controllers"));
        check("up", "cni-bin-dir", Some("Pod network of real nodes"));
        for flag in ["port", "feature-gates", "event-ttl", "dry-run", "v"] {
            check("up", flag, Some("API server"));
            check("apiserver", flag, None);
        }
        check("up", "token-auth-file", Some("Identities and certificates"));
        check("apiserver", "etcd-servers", Some("etcd"));
        check("apiserver", "audit-log-path", Some("Audit log"));
    }
}
