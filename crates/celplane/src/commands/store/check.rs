//! `celplane store check`: is everything in the store, or in a backup, what was written?

use std::path::PathBuf;
use std::process::ExitCode;

use store::Embedded;

use super::{Place, backup, explain};

/// Read everything in the store, or in a backup, and say what is wrong
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: Place,
    /// A backup to check instead
    #[arg(long, value_name = "FILE")]
    backup: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        if let Some(path) = &self.backup {
            let (revision, count) = backup::verify(path)?;
            println!("The backup is whole: {count} objects as of revision {revision}");
            return Ok(ExitCode::SUCCESS);
        }
        let path = self.place.existing_file()?;
        let judge = |key: &str, value: &bytes::Bytes| match apiserver::storage::stored::document(value) {
            None if key.starts_with("/registry/") && key.matches('/').count() > 3 => {
                Some("it is not an object".to_owned())
            }
            _ => None,
        };
        let report = Embedded::check(&path, judge).map_err(|error| explain(error, "check the store"))?;
        println!("{}", path.display());
        println!("  revision       {} (history since {})", report.revision, report.compacted);
        println!("  objects        {} in {} bytes", report.keys, report.bytes);
        println!("  history        {} bytes", report.history_bytes);
        println!("  file           {} bytes", report.file_bytes);
        for problem in &report.problems {
            println!("  problem        {problem}");
        }
        match report.problems.len() {
            0 => {
                println!("Everything is what was written");
                Ok(ExitCode::SUCCESS)
            }
            count => {
                println!("{count} problems; `celplane store restore` makes a new store from a backup");
                Ok(ExitCode::FAILURE)
            }
        }
    }
}
