//! `cargo xtask`: development tasks, one file each.
//!
//! A task is one line in [`TASKS`]. What a task needs from outside (cargo, git, test tools) goes
//! through [`command`], so that a failing step always names the command that failed.

mod bench;
mod browser;
mod command;
mod containers;
#[cfg(feature = "descriptions")]
mod descriptions;
mod dist;
mod fix;
mod generate;
mod graph;
mod modules;
mod test;
mod tidy;
mod tools;
mod types;
mod upstream;
mod verify;

use anyhow::{Result, bail};
use std::process::ExitCode;

/// One subcommand: its name, what it does in one line, and the function that does it.
struct Task {
    name: &'static str,
    about: &'static str,
    run: fn(&[String]) -> Result<()>,
}

const TASKS: &[Task] = &[
    Task { name: "test", about: test::ABOUT, run: test::run },
    Task { name: "verify", about: verify::ABOUT, run: verify::run },
    Task { name: "fix", about: fix::ABOUT, run: fix::run },
    Task { name: "tidy", about: tidy::ABOUT, run: tidy::run },
    Task { name: "graph", about: graph::ABOUT, run: graph::run },
    Task { name: "bench", about: bench::ABOUT, run: bench::run },
    Task { name: "dist", about: dist::ABOUT, run: dist::run },
    Task { name: "screenshots", about: browser::ABOUT, run: browser::run },
    Task { name: "upstream", about: upstream::ABOUT, run: upstream::run },
    Task { name: "generate", about: generate::ABOUT, run: generate::run },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(arguments: &[String]) -> Result<()> {
    let Some((name, rest)) = arguments.split_first() else {
        bail!("no task given\n\n{}", usage());
    };
    if matches!(name.as_str(), "help" | "--help" | "-h") {
        print!("{}", usage());
        return Ok(());
    }
    match TASKS.iter().find(|task| task.name == name) {
        Some(task) => (task.run)(rest),
        None => bail!("no task `{name}`\n\n{}", usage()),
    }
}

fn usage() -> String {
    let mut text = String::from("usage: cargo xtask <task> [options]\n\n");
    for task in TASKS {
        text.push_str(&format!("  {:<13}{}\n", task.name, task.about));
    }
    text
}

/// Fails on the first argument that is not among `known`, so that a misspelt flag is never ignored.
fn reject_unknown_flags(arguments: &[String], known: &[&str]) -> Result<()> {
    match arguments.iter().find(|argument| !known.contains(&argument.as_str())) {
        Some(unknown) if known.is_empty() => bail!("unexpected argument `{unknown}`"),
        Some(unknown) => bail!("unexpected argument `{unknown}`, expected {}", known.join(" or ")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_names_every_task() {
        let text = usage();
        for task in TASKS {
            assert!(text.contains(&format!("  {} ", task.name)), "{text}");
        }
    }

    #[test]
    fn misspelt_flag_error_lists_known_flags() {
        let arguments = ["--chekc".to_owned()];
        let error = reject_unknown_flags(&arguments, &["--check"]).unwrap_err().to_string();
        assert_eq!(error, "unexpected argument `--chekc`, expected --check");
        assert!(reject_unknown_flags(&["--check".to_owned()], &["--check"]).is_ok());
    }
}
