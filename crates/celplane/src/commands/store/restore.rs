//! `celplane store restore`: a new store from a backup.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, anyhow};
use store::Embedded;
use store::backup::Reader;

use super::{Place, explain};
use crate::dry_run::{DryRun, NOTHING_DONE};

/// Make a store from a backup
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: Place,
    /// Move a store that is there to `store.redb.replaced` first
    #[arg(long)]
    replace: bool,
    /// How many revisions to skip: more than were written since the backup, so that clients notice and read anew
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000)]
    skip_revisions: u64,
    #[command(flatten)]
    dry_run: DryRun,
    /// The backup
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
                println!("Would move the store that is there to {}", aside.display());
            }
            println!(
                "Would restore {count} objects of revision {revision} to {}; it would go on at revision {next}",
                path.display()
            );
            println!("{NOTHING_DONE}");
            return Ok(ExitCode::SUCCESS);
        }
        std::fs::create_dir_all(&self.place.data_dir)
            .with_context(|| format!("cannot create `{}`", self.place.data_dir.display()))?;
        if let Some(aside) = aside {
            std::fs::rename(&path, &aside)?;
            println!("Moved the store that was there to {}", aside.display());
        }
        let file = File::open(&self.backup).with_context(|| format!("cannot read `{}`", self.backup.display()))?;
        let reader = Reader::new(BufReader::new(file)).context("cannot read the backup")?;
        let count = Embedded::restore(&path, reader, self.skip_revisions)
            .map_err(|error| explain(error, "restore the store"))?;
        println!(
            "Restored {count} objects of revision {revision} to {}; it goes on at revision {next}",
            path.display()
        );
        Ok(ExitCode::SUCCESS)
    }

    /// Where a store that is there goes, if there is one and it may be moved.
    fn aside(&self, path: &Path) -> anyhow::Result<Option<PathBuf>> {
        if !path.try_exists()? {
            return Ok(None);
        }
        if !self.replace {
            return Err(anyhow!("`{}` exists: `--replace` moves it aside", path.display()));
        }
        let mut aside = path.as_os_str().to_owned();
        aside.push(".replaced");
        let aside = PathBuf::from(aside);
        if aside.try_exists()? {
            return Err(anyhow!("`{}` exists: it is of an earlier restore", aside.display()));
        }
        if let Err(error @ store::Error::Locked { .. }) = Embedded::snapshot_of(path).map(drop) {
            return Err(explain(error, "replace the store"));
        }
        Ok(Some(aside))
    }
}
