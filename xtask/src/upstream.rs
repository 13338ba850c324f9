//! `cargo xtask upstream`: the annotations of `docs/existing-clusters.md` against upstream's programs.
//!
//! Starts etcd, kube-apiserver, kube-controller-manager and kube-scheduler with throwaway certificates in a network and
//! process namespace of their own, joins simulated nodes, installs the manifests of `celplane webhook install`, and runs
//! scheduler, resolver and webhook under the accounts of these manifests. Then it plays the stories of the proposals in
//! annotation form, measures the races that the page describes, and removes everything. The programs must be built
//! already; nothing outside of the namespaces is changed.

mod alone;
mod cluster;
mod devices;
mod measurements;
mod refusals;
mod stories;

use crate::command::root;
use anyhow::{Context, Result, bail, ensure};
use cluster::Cluster;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

pub(crate) const ABOUT: &str =
    "play the proposals on upstream's programs: --bin-dir DIR [--celplane FILE] [--only NAME] [-- COMMAND]";

/// Set for the process inside of the namespaces: its directory for files.
const DIRECTORY: &str = "CELPLANE_UPSTREAM_DIRECTORY";

/// Addresses of Services, which all lead to this machine, and an address for the API server that is not loopback: the
/// endpoints of a Service may not be loopback addresses.
const SETUP: &str = "ip link set lo up && ip route add local 10.96.0.0/24 dev lo && \
                     ip addr add 198.18.0.1/32 dev lo && exec \"$0\" \"$@\"";

/// The flags of the task.
struct Flags {
    programs: PathBuf,
    celplane: PathBuf,
    /// Run only the part with this name.
    only: Option<String>,
    /// A command to run with `KUBECONFIG` set, instead of the stories.
    command: Vec<String>,
}

fn parse(arguments: &[String]) -> Result<Flags> {
    let (mut programs, mut celplane, mut only, mut command) = (None, None, None, Vec::new());
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().cloned().with_context(|| format!("`{argument}` needs a value"));
        match argument.as_str() {
            "--bin-dir" => programs = Some(PathBuf::from(value()?)),
            "--celplane" => celplane = Some(PathBuf::from(value()?)),
            "--only" => only = Some(value()?),
            "--" => command = rest.by_ref().cloned().collect(),
            other => bail!("unexpected argument `{other}`, expected --bin-dir, --celplane, --only or --"),
        }
    }
    let programs = programs.context(
        "--bin-dir is required: the directory of kube-apiserver, kube-controller-manager and kube-scheduler",
    )?;
    let built = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let celplane = celplane.unwrap_or_else(|| built.join("debug").join("celplane"));
    for name in ["kube-apiserver", "kube-controller-manager", "kube-scheduler"] {
        ensure!(programs.join(name).is_file(), "{} has no {name}", programs.display());
    }
    ensure!(celplane.is_file(), "{} does not exist: build it, or give --celplane FILE", celplane.display());
    if let Some(name) = only.as_ref().filter(|name| !PARTS.iter().any(|part| part.name == name.as_str())) {
        bail!("no part `{name}`, expected {}", PARTS.iter().map(|part| part.name).collect::<Vec<_>>().join(", "));
    }
    Ok(Flags { programs, celplane, only, command })
}

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let flags = parse(arguments)?;
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        return inside(&flags, Path::new(&directory));
    }
    for tool in ["etcd", "kubectl", "openssl", "unshare", "ip"] {
        let found = Command::new("sh").args(["-c", "command -v \"$0\"", tool]).output()?;
        ensure!(found.status.success(), "install `{tool}`");
    }
    let directory = std::env::temp_dir().join(format!("celplane-upstream-{}", std::process::id()));
    std::fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let program = std::env::current_exe()?;
    // The namespace of processes ends everything with this program, however it ends.
    let status = Command::new("unshare")
        .args([
            "--user",
            "--map-root-user",
            "--net",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "sh",
            "-c",
            SETUP,
        ])
        .arg(program)
        .arg("upstream")
        .args(arguments)
        .env(DIRECTORY, &directory)
        .status()
        .context("cannot run `unshare`")?;
    if status.success() {
        std::fs::remove_dir_all(&directory).with_context(|| format!("cannot delete {}", directory.display()))?;
        return Ok(());
    }
    bail!("failed: {status}; logs are in {}", directory.display())
}

/// A group of stories that can be run alone.
struct Part {
    name: &'static str,
    run: fn(&Cluster, &mut Report) -> Result<()>,
}

const PARTS: &[Part] = &[
    Part { name: "stories", run: stories::play },
    Part { name: "columns", run: stories::columns },
    Part { name: "no-execute", run: stories::no_execute },
    Part { name: "refusals", run: refusals::play },
    Part { name: "shared-devices", run: devices::shared },
    Part { name: "race", run: measurements::race },
    Part { name: "load", run: measurements::load },
    Part { name: "webhook-deleted", run: measurements::webhook_deleted },
    Part { name: "all-controllers", run: measurements::all_controllers },
    Part { name: "alone", run: alone::play },
];

/// The findings, as rows of a table.
#[derive(Default)]
struct Report {
    rows: Vec<(String, String)>,
    failures: usize,
}

impl Report {
    /// Adds one row: the finding, or the error.
    fn story(&mut self, name: &str, play: impl FnOnce() -> Result<String>) {
        let started = Instant::now();
        let finding = play().unwrap_or_else(|error| {
            self.failures = self.failures.saturating_add(1);
            format!("**failed**: {error:#}")
        });
        eprintln!("{name}: {finding} ({:.1} s)", started.elapsed().as_secs_f64());
        self.rows.push((name.to_owned(), finding));
    }
}

fn inside(flags: &Flags, directory: &Path) -> Result<()> {
    let cluster = Cluster::start(&flags.programs, &flags.celplane, directory)?;
    if let Some((program, arguments)) = flags.command.split_first() {
        cluster.install()?;
        let status = Command::new(program).args(arguments).env("KUBECONFIG", cluster.kubeconfig("admin")).status();
        let status = status.with_context(|| format!("cannot run `{program}`"))?;
        ensure!(status.success(), "`{program}` failed: {status}");
        return Ok(());
    }
    let mut report = Report::default();
    report.story("installation by `kubectl apply`", || cluster.install());
    for part in PARTS.iter().filter(|part| flags.only.as_ref().is_none_or(|name| name == part.name)) {
        if let Err(error) = (part.run)(&cluster, &mut report) {
            report.story(part.name, || Err(error));
        }
    }
    if flags.only.is_none() {
        report.story("removal by `kubectl delete`", || cluster.remove());
    }
    println!("\n| story | {} |\n|---|---|", cluster.version()?);
    for (story, finding) in &report.rows {
        println!("| {story} | {finding} |");
    }
    ensure!(report.failures == 0, "{} of {} stories failed", report.failures, report.rows.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(arguments: &[&str]) -> String {
        let arguments: Vec<String> = arguments.iter().map(|it| (*it).to_owned()).collect();
        parse(&arguments).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn wrong_flags_are_errors() {
        assert!(refused(&[]).starts_with("--bin-dir is required"));
        assert_eq!(refused(&["--bin-dir"]), "`--bin-dir` needs a value");
        assert!(refused(&["--bindir", "x"]).starts_with("unexpected argument `--bindir`"));
        assert_eq!(refused(&["--bin-dir", "/nowhere"]), "/nowhere has no kube-apiserver");
    }
}
