//! `celplane store salvage`: a backup of everything that can still be read of a damaged store, and a list of the rest.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use store::{EmbeddedStore, Salvage, SalvagedKey, backup};

use super::{Place, explain};
use crate::output::print_line;

/// Write all readable objects of a damaged store, including Secrets, to a backup, and list the unreadable ones
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: Place,
    /// Backup to write; must not exist
    #[arg(value_name = "FILE")]
    backup: PathBuf,
}

/// Objects that are not in the backup as they were last written.
#[derive(Default)]
struct Losses {
    /// Keys of which nothing could be read.
    lost: Vec<String>,
    /// Keys whose last value could not be read: that revision, and the one that was kept instead.
    older: Vec<(String, u64, u64)>,
}

impl Arguments {
    /// Copies all readable objects. Exit code 0 if everything was read, 1 if unreadable parts were listed.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let path = self.place.existing_file()?;
        let mut salvage = EmbeddedStore::salvage(&path).map_err(|error| explain(error, "read the store"))?;
        let (losses, revision, count) = super::backup::create(&self.backup, |to| write(&mut salvage, to))?;
        print_line!("Wrote {count} objects as of revision {revision} to {}", self.backup.display())?;
        for problem in &salvage.problems {
            print_line!("  damaged        {problem}")?;
        }
        for (key, unreadable, kept) in &losses.older {
            print_line!("  older          {key}: revision {unreadable} cannot be read, revision {kept} was kept")?;
        }
        for key in &losses.lost {
            print_line!("  lost           {key}")?;
        }
        if salvage.is_searched {
            print_line!("All pages were scanned: the backup may contain deleted objects")?;
        }
        print_line!("`celplane store restore --replace {}` creates a new store from it", self.backup.display())?;
        let is_whole = salvage.problems.is_empty() && losses.older.is_empty() && losses.lost.is_empty();
        Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn write(salvage: &mut Salvage, to: &Path) -> anyhow::Result<Losses> {
    let context = || format!("cannot write `{}`", to.display());
    let mut file = super::backup::create_private(to).with_context(context)?;
    let mut piece = Vec::new();
    backup::begin(salvage.revision, &mut piece);
    let (mut losses, mut count) = (Losses::default(), 0_u64);
    for object in salvage {
        let kept = match object {
            SalvagedKey::Whole(kept) => kept,
            SalvagedKey::Older(kept, unreadable) => {
                losses.older.push((kept.key.to_string(), unreadable, kept.revision));
                kept
            }
            SalvagedKey::Lost(key) => {
                losses.lost.push(key.to_string());
                continue;
            }
        };
        backup::add(&kept, &mut piece);
        count = count.saturating_add(1);
        if piece.len() > 1 << 20 {
            file.write_all(&piece).with_context(context)?;
            piece.clear();
        }
    }
    backup::end(count, &mut piece);
    file.write_all(&piece).and_then(|()| file.sync_all()).with_context(context)?;
    Ok(losses)
}
