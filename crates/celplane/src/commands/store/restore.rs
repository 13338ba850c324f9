//! `celplane store restore`: a new store from a backup.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, anyhow};
use store::Embedded;
use store::backup::Reader;

use super::{Place, explain};

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
    /// The backup
    #[arg(value_name = "FILE")]
    backup: PathBuf,
}

impl Arguments {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        super::backup::verify(&self.backup)?;
        let path = self.place.file();
        std::fs::create_dir_all(&self.place.data_dir)
            .with_context(|| format!("cannot create `{}`", self.place.data_dir.display()))?;
        if path.try_exists()? {
            if !self.replace {
                return Err(anyhow!("`{}` exists: `--replace` moves it aside", path.display()));
            }
            let mut aside = path.clone().into_os_string();
            aside.push(".replaced");
            let aside = PathBuf::from(aside);
            if aside.try_exists()? {
                return Err(anyhow!("`{}` exists: it is of an earlier restore", aside.display()));
            }
            if let Err(error @ store::Error::Locked { .. }) = Embedded::snapshot_of(&path).map(drop) {
                return Err(explain(error, "replace the store"));
            }
            std::fs::rename(&path, &aside)?;
            println!("Moved the store that was there to {}", aside.display());
        }
        let file = File::open(&self.backup).with_context(|| format!("cannot read `{}`", self.backup.display()))?;
        let reader = Reader::new(BufReader::new(file)).context("cannot read the backup")?;
        let revision = reader.revision();
        let count = Embedded::restore(&path, reader, self.skip_revisions)
            .map_err(|error| explain(error, "restore the store"))?;
        println!(
            "Restored {count} objects of revision {revision} to {}; it goes on at revision {}",
            path.display(),
            revision.saturating_add(self.skip_revisions)
        );
        Ok(ExitCode::SUCCESS)
    }
}
