//! `celplane store restore`: a new store from a backup.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, anyhow};
use store::EmbeddedStore;
use store::backup::Reader;

use super::{Place, explain};
use crate::dry_run::{DryRun, NOTHING_DONE};
use crate::output::print_line;

/// Create a store from a backup
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: Place,
    /// Move an existing store to `store.redb.replaced` first
    #[arg(long)]
    replace: bool,
    /// Number of revisions to skip: more than were written since the backup, so that clients detect the change
    /// and list again
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000)]
    skip_revisions: u64,
    #[command(flatten)]
    dry_run: DryRun,
    /// Backup to restore
    #[arg(value_name = "FILE")]
    backup: PathBuf,
}

impl Arguments {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let (revision, count) = super::backup::verify(&self.backup)?;
        let path = self.place.file()?;
        let aside = self.aside(&path)?;
        let next = revision.saturating_add(self.skip_revisions);
        if self.dry_run.is_on() {
            if let Some(aside) = aside {
                print_line!("Would move the existing store to {}", aside.display())?;
            }
            print_line!(
                "Would restore {count} objects of revision {revision} to {}; it would continue at revision {next}",
                path.display()
            )?;
            print_line!("{NOTHING_DONE}")?;
            return Ok(ExitCode::SUCCESS);
        }
        std::fs::create_dir_all(&self.place.data_dir)
            .with_context(|| format!("cannot create `{}`", self.place.data_dir.display()))?;
        if let Some(aside) = &aside {
            std::fs::rename(&path, aside)?;
        }
        let file = File::open(&self.backup).with_context(|| format!("cannot read `{}`", self.backup.display()))?;
        let reader = Reader::new(BufReader::new(file)).context("cannot read the backup")?;
        let count = EmbeddedStore::restore(&path, reader, self.skip_revisions)
            .map_err(|error| explain(error, "restore the store"))?;
        // Only now: an output that cannot be written must not end the work half way.
        if let Some(aside) = aside {
            print_line!("Moved the existing store to {}", aside.display())?;
        }
        print_line!(
            "Restored {count} objects of revision {revision} to {}; it continues at revision {next}",
            path.display()
        )?;
        Ok(ExitCode::SUCCESS)
    }

    /// Returns the new path of an existing store, if it may be moved.
    fn aside(&self, path: &Path) -> anyhow::Result<Option<PathBuf>> {
        if !path.try_exists()? {
            return Ok(None);
        }
        if !self.replace {
            return Err(anyhow!("`{}` exists: use `--replace` to move it away", path.display()));
        }
        let mut aside = path.as_os_str().to_owned();
        aside.push(".replaced");
        let aside = PathBuf::from(aside);
        if aside.try_exists()? {
            return Err(anyhow!("`{}` exists: it was left by an earlier restore", aside.display()));
        }
        if let Err(error @ store::Error::Locked { .. }) = EmbeddedStore::snapshot_of(path).map(drop) {
            return Err(explain(error, "replace the store"));
        }
        Ok(Some(aside))
    }
}
