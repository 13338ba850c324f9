//! `celplane store check`: is everything in the store, or in a backup, what was written?

use std::path::PathBuf;
use std::process::ExitCode;

use store::EmbeddedStore;

use super::{Place, backup, explain};
use crate::output::print_line;

/// Read the whole store, or a backup, and report damage
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: Place,
    /// Backup to check instead of the store
    #[arg(long, value_name = "FILE")]
    backup: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        if let Some(path) = &self.backup {
            let (revision, count) = backup::verify(path)?;
            print_line!("The backup is complete: {count} objects as of revision {revision}")?;
            return Ok(ExitCode::SUCCESS);
        }
        let path = self.place.existing_file()?;
        let judge = |key: &str, value: &bytes::Bytes| match cache::stored::document(value) {
            None if key.starts_with("/registry/") && key.matches('/').count() > 3 => {
                Some("it is not an object".to_owned())
            }
            _ => None,
        };
        let report = EmbeddedStore::check(&path, judge).map_err(|error| explain(error, "check the store"))?;
        print_line!("{}", path.display())?;
        print_line!("  revision       {} (history since {})", report.revision, report.compacted)?;
        print_line!("  objects        {} in {} bytes", report.keys, report.bytes)?;
        print_line!("  history        {} bytes", report.history_bytes)?;
        print_line!("  file           {} bytes", report.file_bytes)?;
        for problem in &report.problems {
            print_line!("  problem        {problem}")?;
        }
        match report.problems.len() {
            0 => {
                print_line!("No damage found")?;
                Ok(ExitCode::SUCCESS)
            }
            count => {
                print_line!(
                    "{count} problems; `celplane store restore` creates a new store from a backup, and `celplane store salvage` writes all readable objects to a backup"
                )?;
                Ok(ExitCode::FAILURE)
            }
        }
    }
}
