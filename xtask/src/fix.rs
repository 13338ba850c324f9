//! `cargo xtask fix`: writes what a machine can mend, formatting and clippy's suggestions.

use crate::command::{cargo, run as run_command};
use crate::reject_unknown_flags;
use anyhow::Result;

pub(crate) const ABOUT: &str = "format the code and apply clippy's suggestions";

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    reject_unknown_flags(arguments, &[])?;
    run_command(&mut cargo(["clippy", "--workspace", "--all-targets", "--fix", "--allow-dirty", "--allow-staged"]))?;
    run_command(&mut cargo(["fmt", "--all"]))?;
    run_command(&mut cargo(["fmt", "--manifest-path", "fuzz/Cargo.toml"]))
}
