//! `celplane store compact`: drops history, and gives room back to the file system.

use std::path::Path;
use std::process::ExitCode;

use store::EmbeddedStore;

use super::{Place, explain};
use crate::dry_run::{DryRun, NOTHING_DONE};
use crate::output::print_line;

/// Delete all history and shrink the file as far as possible; a running server does this automatically after
/// many deletes
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    dry_run: DryRun,
}

impl Arguments {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let path = self.place.existing_file()?;
        if self.dry_run.is_on() {
            let text = rehearse(&path).map_err(|error| explain(error, "compact the store"))?;
            print_line!("{text}\n{NOTHING_DONE}")?;
            return Ok(ExitCode::SUCCESS);
        }
        let (before, after) = EmbeddedStore::shrink(&path).map_err(|error| explain(error, "compact the store"))?;
        print_line!("{}: {before} bytes before, {after} bytes now", path.display())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Describes what would be kept. The file stays as it is.
fn rehearse(path: &Path) -> Result<String, store::Error> {
    let (mut count, mut bytes) = (0_u64, 0_usize);
    for entry in EmbeddedStore::snapshot_of(path)? {
        let entry = entry?;
        count = count.saturating_add(1);
        bytes = bytes.saturating_add(entry.key.len()).saturating_add(entry.value.len());
    }
    let file_bytes = path.metadata().map_err(|error| store::Error::Unavailable(store::Cause::new(error)))?.len();
    let path = path.display();
    Ok(format!("{path}: {file_bytes} bytes; would keep {count} objects in {bytes} bytes and drop all history"))
}
