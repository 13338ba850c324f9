//! `cargo xtask verify`: everything a change must pass; reads the tree, never writes to it.
//!
//! Warnings are errors here and nowhere else. The tests come last, because they take longest;
//! `--skip-tests` leaves them to a separate `cargo xtask test`.

use crate::command::{cargo, run as run_command};
use crate::{generate, reject_unknown_flags, test, tidy};
use anyhow::Result;

pub(crate) const ABOUT: &str =
    "format, tidy, clippy, docs, fuzz build, crate archives, tests; warnings are errors [--skip-tests]";

/// The crates for a registry, each after those that it needs.
const PUBLISHED: [&str; 4] = ["celplane-locks", "celplane-api", "celplane-cel", "celplane-cel-kubernetes"];

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    reject_unknown_flags(arguments, &["--skip-tests"])?;
    run_command(&mut cargo(["fmt", "--all", "--check"]))?;
    run_command(&mut cargo(["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"]))?;
    tidy::run(&[])?;
    generate::run(&["--check".to_owned()])?;
    run_command(&mut cargo(["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"]))?;
    fuzz_targets()?;
    run_command(
        cargo(["doc", "--no-deps", "--locked"])
            .args(["--workspace", "--exclude", "celplane-bench", "--exclude", "celplane-peers"])
            .env("RUSTDOCFLAGS", "-D warnings"),
    )?;
    archives()?;
    if arguments.is_empty() { test::run(&[]) } else { Ok(()) }
}

/// The crates that can be used on their own (`docs/packages.md`) have all that an archive for a registry needs. The archives are
/// not compiled: the workspace is.
fn archives() -> Result<()> {
    let mut command = cargo(["package", "--no-verify", "--offline", "--quiet"]);
    // What a change has not committed yet is checked, too.
    command.arg("--allow-dirty");
    run_command(command.args(PUBLISHED.iter().flat_map(|name| ["--package", *name])))
}

/// The fuzz targets are plain functions of a library, so stable Rust can check and test them.
fn fuzz_targets() -> Result<()> {
    let fuzz = |arguments: [&str; 2]| {
        let mut command = cargo(arguments);
        command.args(["--manifest-path", "fuzz/Cargo.toml"]);
        if std::env::var_os("CARGO_TARGET_DIR").is_none() {
            // Beside the workspace's own artifacts, so that one folder holds all that was built.
            command.args(["--target-dir", "target"]);
        }
        command
    };
    run_command(fuzz(["clippy", "--lib"]).args(["--tests", "--", "-D", "warnings"]))?;
    run_command(&mut fuzz(["test", "--lib"]))
}
