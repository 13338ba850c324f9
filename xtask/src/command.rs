//! Running cargo and other programs from the workspace root.
//!
//! Every command is printed before it runs; a failure names it again, with its exit status.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The workspace root: the folder above `xtask`.
pub(crate) fn root() -> PathBuf {
    let manifest_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest_dir.parent().unwrap_or(manifest_dir).to_owned()
}

/// The cargo that started this task, with the given arguments.
pub(crate) fn cargo<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(arguments: I) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(arguments).current_dir(root());
    command
}

/// Any other program, with the given arguments.
pub(crate) fn program<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(name: &str, arguments: I) -> Command {
    let mut command = Command::new(name);
    command.args(arguments).current_dir(root());
    command
}

/// Runs the command to its end, its output going where ours goes.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = display(command);
    eprintln!("$ {shown}");
    let status = command.status().with_context(|| format!("cannot run `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed: {status}");
    }
    Ok(())
}

/// Runs the command and returns what it printed; its error output is shown only when it fails.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let shown = display(command);
    let output = command.output().with_context(|| format!("cannot run `{shown}`"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("`{shown}` failed: {}\n{}", output.status, stderr.trim_end());
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{shown}` printed text that is not UTF-8"))
}

fn display(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(command.get_program());
    let mut text = name.to_string_lossy().into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_holds_the_workspace_manifest() {
        assert!(root().join("Cargo.toml").is_file());
        assert!(root().join("xtask").is_dir());
    }

    #[test]
    fn a_failing_command_names_itself_and_what_it_said() {
        let error = output(&mut program("sh", ["-c", "echo broken >&2; exit 3"])).unwrap_err().to_string();
        assert!(error.starts_with("`sh -c echo broken >&2; exit 3` failed: exit status: 3"), "{error}");
        assert!(error.ends_with("\nbroken"), "{error}");
    }

    #[test]
    fn a_missing_program_is_an_error() {
        let error = run(&mut program("no-such-program-anywhere", ["x"])).unwrap_err().to_string();
        assert_eq!(error, "cannot run `no-such-program-anywhere x`");
    }
}
