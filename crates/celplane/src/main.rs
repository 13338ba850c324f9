//! `celplane`: one binary, one subcommand per role and tool.

mod commands;
mod compile_cache;
mod control_plane;
mod file_limit;
mod gated_uses;
mod input;
mod language;
mod literal;
mod live;
mod manifests;
mod output;
mod roles;
mod rotation;
mod scheduling_objects;
mod separate;
mod style;

use std::process::ExitCode;

use clap::Parser;

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

fn main() -> ExitCode {
    // What is damaged in a store is an error with a sentence, not a panic.
    store::quiet_contained_panics();
    // Usage errors end here, with exit code 2.
    let arguments = Arguments::parse();
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
            eprintln!("error: {error:#}");
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
