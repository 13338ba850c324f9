//! `celplane down`: ends the control plane that `celplane up --wait` has left running.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::data_directory;
use crate::dry_run::{DryRun, NOTHING_DONE};

/// So long a control plane has to finish what it is doing.
const TIMEOUT: Duration = Duration::from_secs(60);

/// End the control plane that runs in the background; its data stays
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Its data directory; by default that of `celplane up`
    #[arg(long, value_name = "DIRECTORY")]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    dry_run: DryRun,
}

impl Arguments {
    /// Ends it, and waits until it has ended.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let path = self.data_dir.unwrap_or_else(data_directory::default_path);
        let Some(process) = data_directory::holder(&path)? else {
            println!("No control plane runs on {}.", path.display());
            return Ok(ExitCode::SUCCESS);
        };
        if self.dry_run.is_on() {
            println!("Would end process {process}, which runs on {}.\n{NOTHING_DONE}", path.display());
            return Ok(ExitCode::SUCCESS);
        }
        let id = Pid::from_raw(process).with_context(|| format!("{process} is not the number of a process"))?;
        kill_process(id, Signal::TERM).with_context(|| format!("cannot end process {process}"))?;
        let started = Instant::now();
        while data_directory::holder(&path)?.is_some() {
            if started.elapsed() > TIMEOUT {
                bail!("process {process} has not ended after {} s", TIMEOUT.as_secs());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        println!("Ended process {process}. The data is in {}.", path.display());
        Ok(ExitCode::SUCCESS)
    }
}
