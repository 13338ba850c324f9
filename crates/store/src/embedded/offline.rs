//! Operations on a file that no process uses: check it, shrink it, or create one from a backup.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::file::{LogFile, Medium, Position, Record, Report, Salvage};
use super::{EmbeddedStore, Options, file};
use crate::backup::Reader;
use crate::{Cause, Error, KeptEntry, Snapshot};

/// About this many bytes of a backup are written in one commit.
const COMMIT_BYTES: usize = 4 << 20;

impl EmbeddedStore {
    /// Reads a whole file and reports damage. `judge` returns the problem of an intact value.
    ///
    /// A file that was not closed is repaired first, as a start would do.
    ///
    /// # Errors
    /// As [`EmbeddedStore::open`]: damage that keeps the file from being opened is an error, all other damage is in the report.
    pub fn check(path: impl AsRef<Path>, judge: impl FnMut(&str, &Bytes) -> Option<String>) -> Result<Report, Error> {
        must_exist(path.as_ref())?;
        LogFile::check(path.as_ref(), Options::default().cache_bytes, judge)
    }

    /// Returns the current values of a file, for a backup. The file is not changed.
    ///
    /// # Errors
    /// As [`EmbeddedStore::open`].
    pub fn snapshot_of(path: impl AsRef<Path>) -> Result<Snapshot, Error> {
        must_exist(path.as_ref())?;
        let medium = Medium::Path(path.as_ref().to_owned());
        let (file, _) = LogFile::open_for_reading(&medium, Options::default().cache_bytes)?;
        let file = Arc::new(file);
        let snapshot = file.snapshot()?;
        // The file is open as long as it is read.
        Ok(Snapshot::new(snapshot.revision(), snapshot.inspect(move |_| drop(file.clone()))))
    }

    /// Reads all intact values of a damaged file. The file is not changed.
    ///
    /// # Errors
    /// [`Error::Locked`], [`Error::Newer`] or [`Error::Unavailable`], as [`EmbeddedStore::open`]. Damage is no error here.
    pub fn salvage(path: impl AsRef<Path>) -> Result<Salvage, Error> {
        must_exist(path.as_ref())?;
        file::salvage(path.as_ref(), Options::default().cache_bytes)
    }

    /// Removes all history from a file and shrinks it in place as far as possible. Returns its length before
    /// and after.
    ///
    /// # Errors
    /// As [`EmbeddedStore::open`].
    pub fn shrink(path: impl AsRef<Path>) -> Result<(u64, u64), Error> {
        must_exist(path.as_ref())?;
        file::compact(path.as_ref(), Options::default().cache_bytes)
    }

    /// Makes a file from a backup; how many keys it has. There must be none under this name.
    ///
    /// The store continues `skip` revisions after the backup's. The skipped range should cover all revisions
    /// that clients may have seen since the backup: then no client mistakes an old revision for a new one, and
    /// all clients list again.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the backup is not whole, [`Error::Refused`] if the file exists, or as [`EmbeddedStore::open`]. There is
    /// no file then.
    pub fn restore<R: Read>(path: impl AsRef<Path>, backup: Reader<R>, skip: u64) -> Result<u64, Error> {
        let path = path.as_ref();
        let revision = backup.revision().saturating_add(skip);
        LogFile::make(path, Options::default().cache_bytes, |file| {
            let position = Position { revision, compacted: revision };
            let mut count = 0_u64;
            let mut some: Vec<KeptEntry> = Vec::new();
            let mut bytes = 0_usize;
            for entry in backup {
                let entry = entry?;
                if entry.revision > revision {
                    let cause = format!("`{}` is of a revision after that of the backup", entry.key);
                    return Err(Error::Damaged(Cause::new(cause)));
                }
                bytes = bytes.saturating_add(entry.value.len());
                some.push(entry);
                count = count.saturating_add(1);
                if bytes > COMMIT_BYTES {
                    write(file, &some, position)?;
                    some.clear();
                    bytes = 0;
                }
            }
            write(file, &some, position)?;
            Ok(count)
        })
    }
}

fn write(file: &LogFile, entries: &[KeptEntry], position: Position) -> Result<(), Error> {
    let records: Vec<Record<'_>> = entries
        .iter()
        .map(|entry| Record {
            revision: entry.revision,
            key: &entry.key,
            value: Some(&entry.value),
            expires_at_ms: entry.expires_at_ms,
        })
        .collect();
    file.commit(&records, &[], position)
}

/// Looking at a file must not make one.
fn must_exist(path: &Path) -> Result<(), Error> {
    match path.try_exists() {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::Refused(Cause::new(format!("there is no file `{}`", path.display())))),
        Err(error) => Err(Error::Unavailable(Cause::new(error))),
    }
}
