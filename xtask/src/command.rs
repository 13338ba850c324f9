//! Running cargo and other programs from the workspace root.
//!
//! Every command is printed before it runs; a failure names it again, with its exit status.

use anyhow::{Context, Result, bail};
use std::ffi::{OsStr, OsString};
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
    for (name, _) in std::env::vars_os() {
        if is_own(&name.to_string_lossy()) {
            command.env_remove(name);
        }
    }
    if let Some(paths) = std::env::var_os(LIBRARIES) {
        match foreign_libraries(&paths) {
            Some(paths) => command.env(LIBRARIES, paths),
            None => command.env_remove(LIBRARIES),
        };
    }
    command
}

/// The search path of libraries, to which `cargo run` adds its own folders.
const LIBRARIES: &str = "LD_LIBRARY_PATH";

/// Whether cargo set a variable for this program. Build scripts that read it would run again whenever a plain `cargo`
/// alternates with this program, and everything above them would be built again.
fn is_own(variable: &str) -> bool {
    const PREFIXES: [&str; 5] = ["CARGO_BIN_", "CARGO_CRATE_", "CARGO_MANIFEST_", "CARGO_PKG_", "CARGO_PRIMARY_"];
    PREFIXES.iter().any(|prefix| variable.starts_with(prefix)) || variable == "OUT_DIR"
}

/// The search path without the folders of cargo and rustc; none if nothing else is left.
fn foreign_libraries(paths: &OsStr) -> Option<OsString> {
    let is_foreign = |path: &PathBuf| {
        let text = path.to_string_lossy();
        let is_build = text.ends_with("/deps") || text.contains("/build/") || text.contains("/toolchains/");
        !is_build && !text.ends_with("/debug") && !text.ends_with("/release") && !text.is_empty()
    };
    let rest: Vec<PathBuf> = std::env::split_paths(paths).filter(is_foreign).collect();
    if rest.is_empty() { None } else { std::env::join_paths(rest).ok() }
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
    fn cargo_does_not_inherit_variables_of_this_package() {
        let removed: Vec<String> = cargo(["check"])
            .get_envs()
            .filter(|(_, value)| value.is_none())
            .map(|(name, _)| name.to_string_lossy().into_owned())
            .collect();
        // Cargo sets these for every test.
        for name in ["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME", "CARGO_PKG_VERSION"] {
            assert!(removed.iter().any(|it| it == name), "{name} of {removed:?}");
        }
        assert!(!is_own("CARGO_TARGET_DIR") && !is_own("CARGO_BUILD_JOBS") && !is_own("CARGO_HOME"));
        let paths = OsStr::new("/opt/lib:/t/debug/deps:/t/debug:/home/u/.rustup/toolchains/stable/lib");
        assert_eq!(foreign_libraries(paths).as_deref(), Some(OsStr::new("/opt/lib")));
        assert_eq!(foreign_libraries(OsStr::new("/t/debug/deps")), None);
    }

    #[test]
    fn failing_command_reports_its_name_and_output() {
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
