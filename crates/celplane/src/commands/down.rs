//! `celplane down`: ends the control plane that `celplane up --wait` has left running.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};

use controlplane::data_directory;
use crate::output::print_line;
use crate::dry_run::{DryRun, NOTHING_DONE};

/// Time limit for the control plane to stop.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Stop the background control plane (data is kept)
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Data directory; defaults to that of `celplane up`
    #[arg(long, value_name = "DIRECTORY")]
    data_dir: Option<PathBuf>,
    /// Name that was given to `celplane up --name`
    #[arg(long, value_name = "NAME", value_parser = data_directory::parse_name, conflicts_with = "data_dir")]
    name: Option<String>,
    #[command(flatten)]
    dry_run: DryRun,
}

impl Arguments {
    /// Ends it, and waits until it has ended.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let path = self.data_dir.unwrap_or_else(|| data_directory::path_of(self.name.as_deref()));
        let Some(process) = data_directory::holder(&path)? else {
            print_line!("No control plane is running on {}.", path.display())?;
            return Ok(ExitCode::SUCCESS);
        };
        if self.dry_run.is_on() {
            print_line!("Would stop process {process}, which runs on {}.\n{NOTHING_DONE}", path.display())?;
            return Ok(ExitCode::SUCCESS);
        }
        let id = Pid::from_raw(process).with_context(|| format!("{process} is not a process ID"))?;
        kill_process(id, Signal::TERM).with_context(|| format!("cannot stop process {process}"))?;
        let started = Instant::now();
        while data_directory::holder(&path)?.is_some() {
            if started.elapsed() > TIMEOUT {
                bail!("process {process} has not exited after {} s", TIMEOUT.as_secs());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // A cluster in memory leaves certificates and a log, and no objects.
        let kept = if path.join(controlplane::settings::STORE_FILE).exists() { "Its data is" } else { "Certificates and log are" };
        print_line!("Stopped process {process}. {kept} in {}.", path.display())?;
        Ok(ExitCode::SUCCESS)
    }
}
