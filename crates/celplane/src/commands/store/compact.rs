//! `celplane store compact`: drops history, and gives room back to the file system.

use std::path::Path;
use std::process::ExitCode;

use store::Embedded;

use super::{Place, explain};
use crate::dry_run::{DryRun, NOTHING_DONE};

/// Drop all history and make the file as small as it can be. A running server does this by itself when much is deleted
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
            return say(&path).map_err(|error| explain(error, "compact the store"));
        }
        let (before, after) = Embedded::shrink(&path).map_err(|error| explain(error, "compact the store"))?;
        println!("{}: {before} bytes before, {after} bytes now", path.display());
        Ok(ExitCode::SUCCESS)
    }
}

/// Says what there is to be kept. The file stays as it is.
fn say(path: &Path) -> Result<ExitCode, store::Error> {
    let (mut count, mut bytes) = (0_u64, 0_usize);
    for entry in Embedded::snapshot_of(path)? {
        let entry = entry?;
        count = count.saturating_add(1);
        bytes = bytes.saturating_add(entry.key.len()).saturating_add(entry.value.len());
    }
    let file_bytes = path.metadata().map_err(|error| store::Error::Unavailable(store::Cause::new(error)))?.len();
    println!("{}: {file_bytes} bytes; would keep {count} objects in {bytes} bytes and drop all history", path.display());
    println!("{NOTHING_DONE}");
    Ok(ExitCode::SUCCESS)
}
