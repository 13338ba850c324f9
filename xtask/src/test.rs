//! `cargo xtask test`: finds or fetches what the tests need, then runs all of them.
//!
//! With every tool present, `CELPLANE_REQUIRE_TOOLS=1` makes a test that needs one fail instead of
//! skip. With `--require-tools`, or that variable already set, a missing tool is an error at once.
//! `CEL_SPEC_DIR`, where set, reaches the tests as any other variable does.

use crate::command::{cargo, root, run as run_command};
use crate::{reject_unknown_flags, tools};
use anyhow::{Result, bail};
use std::process::Command;

pub(crate) const ABOUT: &str = "fetch what the tests need, then run them all [--require-tools]";

/// Tells tests that need an outside tool to fail when they do not find it.
const REQUIRE_TOOLS: &str = "CELPLANE_REQUIRE_TOOLS";

/// The crates under test: all but the benchmarks, which pull in the engines we compare with.
const CRATES: [&str; 3] = ["--workspace", "--exclude", "celplane-bench"];

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    reject_unknown_flags(arguments, &["--require-tools"])?;
    let required = !arguments.is_empty() || std::env::var(REQUIRE_TOOLS).is_ok_and(|value| value == "1");
    let found = tools::provide(&root());
    for missing in &found.missing {
        eprintln!("{missing}");
    }
    if required && !found.missing.is_empty() {
        bail!("tests need tools that are not here");
    }
    if std::env::var_os("CEL_SPEC_DIR").is_none() {
        eprintln!("CEL_SPEC_DIR is not set: the CEL conformance suite is skipped");
    }
    let in_environment = |command: &mut Command| -> Result<()> {
        command.env("PATH", &found.path);
        if found.missing.is_empty() {
            command.env(REQUIRE_TOOLS, "1");
        }
        run_command(command)
    };
    if has_nextest() {
        in_environment(cargo(["nextest", "run", "--no-fail-fast"]).args(CRATES))?;
    } else {
        in_environment(cargo(["test", "--no-fail-fast", "--lib", "--bins", "--tests"]).args(CRATES))?;
    }
    in_environment(cargo(["test", "--doc"]).args(CRATES))
}

fn has_nextest() -> bool {
    cargo(["nextest", "--version"]).output().is_ok_and(|output| output.status.success())
}
