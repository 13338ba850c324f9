//! `celplane doctor`: checks whether containers can run on this machine.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use controlplane::roles::kubelet::doctor::{Check, Doctor, Verdict};
use controlplane::roles::kubelet::real::PORT;

use crate::output::Output;

/// Check whether containers can run on this machine, and print what to do if not
///
/// Checks cgroups, programs, CNI plugins, the container runtime, the kernel, ports, disk and the clock. Exits with 1 if a
/// check fails; warnings do not count.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Endpoint of the container runtime
    #[arg(long, value_name = "ENDPOINT", default_value = "unix:///run/containerd/containerd.sock")]
    container_runtime_endpoint: String,
    /// Ports that must be free
    #[arg(long, value_name = "PORTS", value_delimiter = ',', default_values_t = [PORT])]
    ports: Vec<u16>,
    /// Directory for volumes and other files of pods
    #[arg(long, value_name = "DIRECTORY", default_value = "/var/lib/celplane-kubelet")]
    root_dir: PathBuf,
    #[command(flatten)]
    output: Output,
}

impl Arguments {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let doctor = Doctor {
            root: PathBuf::from("/"),
            runtime_endpoint: self.container_runtime_endpoint,
            ports: self.ports,
            directory: self.root_dir,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start threads")?;
        let checks = runtime.block_on(doctor.checks());
        self.output.print(&shown(&checks), || {
            let rows = checks.iter().map(|it| {
                let (verdict, finding) = (it.verdict.name(), it.finding.as_str());
                api::json!({"name": (it.name), "verdict": verdict, "finding": finding, "remedy": (it.remedy.as_str())})
            });
            api::json!({"checks": (rows.collect::<Vec<_>>())})
        })?;
        let failed = checks.iter().any(|it| it.verdict == Verdict::Failure);
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

fn shown(checks: &[Check]) -> String {
    let mut lines = Vec::new();
    for check in checks {
        lines.push(format!("{:8} {}: {}", check.verdict.name(), check.name, check.finding));
        if !check.remedy.is_empty() {
            lines.push(format!("{:8} → {}", "", check.remedy));
        }
    }
    let count = |verdict| checks.iter().filter(|it| it.verdict == verdict).count();
    let (failures, warnings) = (count(Verdict::Failure), count(Verdict::Warning));
    lines.push(match (failures, warnings) {
        (0, 0) => "Containers can run on this machine.".to_owned(),
        (0, warnings) => format!("Containers can run on this machine, with {warnings} warning(s)."),
        (failures, _) => format!("Containers cannot run on this machine: {failures} check(s) failed."),
    });
    lines.join("\n")
}
