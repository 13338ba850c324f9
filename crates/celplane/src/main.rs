//! `celplane`: one binary, one subcommand per role and tool.

mod background;
mod commands;
mod compile_cache;
mod connection;
mod control_plane;
mod data_directory;
mod dry_run;
mod file_limit;
mod gated_uses;
mod input;
mod language;
mod literal;
mod live;
mod manifests;
mod output;
mod replicas;
mod roles;
mod rotation;
mod scheduling_objects;
mod separate;
mod style;
mod table;
mod waiting_time;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser};

/// Requests make and drop many small values on several threads, which this does faster than the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A Kubernetes control plane in which placement speaks CEL.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: commands::Command,
}

/// The program's flags; under the name by which it was called, where that is the one of a plugin of `kubectl`.
fn command() -> clap::Command {
    let program = std::env::args_os().next().unwrap_or_default();
    let is_plugin = std::path::Path::new(&program).file_stem().is_some_and(|name| name == "kubectl-celplane");
    if is_plugin { Arguments::command().bin_name("kubectl celplane") } else { Arguments::command() }
}

fn main() -> ExitCode {
    // What is damaged in a store is an error with a sentence, not a panic.
    store::quiet_contained_panics();
    // Usage errors end here, with exit code 2.
    let arguments = Arguments::from_arg_matches(&command().get_matches());
    let arguments = arguments.unwrap_or_else(|error| error.exit());
    match arguments.command.run() {
        Ok(code) => code,
        Err(error) => {
            // A closed pipe, as with `celplane cel batch | head`, is not a failure of ours.
            if is_broken_pipe(&error) {
                return ExitCode::SUCCESS;
            }
            // What the arguments say together makes no sense: a usage error too.
            if let Some(usage) = error.downcast_ref::<clap::Error>() {
                usage.exit();
            }
            output::complain(&error);
            if is_missing_file(&error) { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

/// A file that was named and is not there is a usage error.
fn is_missing_file(error: &anyhow::Error) -> bool {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<std::io::Error>());
    causes.any(|cause| cause.kind() == std::io::ErrorKind::NotFound)
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    kind == Some(std::io::ErrorKind::BrokenPipe)
}
