//! `celplane`: one binary, one subcommand per role and tool.

// These panic where nothing can be written; `output` has others.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod arguments;
mod background;
mod commands;
mod compile_cache;
mod connection;
mod console;
mod control_plane;
mod dry_run;
mod envtest;
mod gated_uses;
mod input;
mod input_file;
mod kubeconfigs;
mod language;
mod literal;
mod live;
mod manifests;
mod output;
mod remembered_flags;
mod scheduling_objects;
mod separate;
mod style;
mod table;
mod time_limit;
mod waiting_time;

use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use controlplane::data_directory;

/// Requests make and drop many small values on several threads, which this does faster than the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Kubernetes control plane with CEL in scheduling, device allocation and printer columns.
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
    let command = command();
    let given = match envtest::start(std::env::args_os().collect(), &command) {
        Ok(envtest::Start::Arguments(given)) => given,
        Ok(envtest::Start::Finished(code)) => return code,
        Err(error) if is_broken_pipe(&error) => return ExitCode::SUCCESS,
        Err(error) => {
            output::complain(&error);
            return ExitCode::FAILURE;
        }
    };
    let matches = with_remembered_flags(command.clone().get_matches_from(given.clone()), &command, given);
    let matches = match matches {
        Ok(matches) => matches,
        Err(error) => return fail(&error),
    };
    let arguments = Arguments::from_arg_matches(&matches);
    let mut arguments = arguments.unwrap_or_else(|error| error.exit());
    if let (commands::Command::Up(up), Some(("up", given))) = (&mut arguments.command, matches.subcommand()) {
        up.remember(remembered_flags::given(given));
    }
    let done = arguments.command.run().and_then(|code| {
        // What was printed without a line end is still held back.
        output::stdout().flush()?;
        Ok(code)
    });
    match done {
        Ok(code) => code,
        Err(error) => {
            // A closed pipe, as with `celplane cel batch | head`, is not a failure of ours.
            if is_broken_pipe(&error) {
                return ExitCode::SUCCESS;
            }
            // Contradictory arguments are a usage error, too.
            if let Some(usage) = error.downcast_ref::<clap::Error>() {
                usage.exit();
            }
            fail(&error)
        }
    }
}

/// Reports an error; its exit code.
fn fail(error: &anyhow::Error) -> ExitCode {
    output::complain(error);
    if is_missing_file(error) { ExitCode::from(2) } else { ExitCode::FAILURE }
}

/// The matches of `celplane up` with the flags of the last start on its data, where they are not given now.
fn with_remembered_flags(
    matches: clap::ArgMatches,
    command: &clap::Command,
    line: Vec<std::ffi::OsString>,
) -> anyhow::Result<clap::ArgMatches> {
    let Some(("up", up)) = matches.subcommand() else { return Ok(matches) };
    let is_on = |flag: &str| up.get_flag(flag);
    if is_on("ephemeral") || is_on("forget_flags") {
        return Ok(matches);
    }
    let directory = up.get_one::<std::path::PathBuf>("data_dir").cloned();
    let name = up.get_one::<String>("name").map(String::as_str);
    let directory = directory.unwrap_or_else(|| data_directory::path_of(name));
    let remembered = remembered_flags::read(&directory)?;
    let given = remembered_flags::given(up);
    let (line, note) = remembered_flags::complete(line, &given, &remembered)?;
    let Some(note) = note else { return Ok(matches) };
    // The one in the background was started by one that has printed it.
    if !is_on("detached") {
        output::note(&note);
    }
    Ok(command.clone().get_matches_from(line))
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
