//! What can be done with a file that no process uses: check it, make it smaller, or make one from a backup.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::file::{LogFile, Medium, Position, Record, Report};
use super::{Embedded, Options, file};
use crate::backup::Reader;
use crate::{Cause, Error, Kept, Snapshot};

/// About this many bytes of a backup are written in one commit.
const COMMIT_BYTES: usize = 4 << 20;

impl Embedded {
    /// Reads everything in a file and says what is wrong. `judge` says what is wrong with a value that is what was written.
    ///
    /// A file that was not closed is repaired first, as a start would do.
    ///
    /// # Errors
    /// As [`Embedded::open`]: damage that keeps the file from being opened is an error, all other damage is in the report.
    pub fn check(path: impl AsRef<Path>, judge: impl FnMut(&str, &Bytes) -> Option<String>) -> Result<Report, Error> {
        must_exist(path.as_ref())?;
        LogFile::check(path.as_ref(), Options::default().cache_bytes, judge)
    }

    /// What a file holds, for a backup. The file stays as it is.
    ///
    /// # Errors
    /// As [`Embedded::open`].
    pub fn snapshot_of(path: impl AsRef<Path>) -> Result<Snapshot, Error> {
        must_exist(path.as_ref())?;
        let medium = Medium::Path(path.as_ref().to_owned());
        let (file, _) = LogFile::open_for_reading(&medium, Options::default().cache_bytes)?;
        let file = Arc::new(file);
        let snapshot = file.snapshot()?;
        // The file is open as long as it is read.
        Ok(Snapshot::new(snapshot.revision(), snapshot.inspect(move |_| drop(file.clone()))))
    }

    /// Forgets all history in a file and makes it as small as it can be, in its place. Its length before and after.
    ///
    /// # Errors
    /// As [`Embedded::open`].
    pub fn shrink(path: impl AsRef<Path>) -> Result<(u64, u64), Error> {
        must_exist(path.as_ref())?;
        file::compact(path.as_ref(), Options::default().cache_bytes)
    }

    /// Makes a file from a backup; how many keys it has. There must be none under this name.
    ///
    /// The store goes on `skip` revisions after the backup's. All that clients may have seen since the backup was made should
    /// lie within: then nobody takes an old revision for a new one, and everybody reads anew.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the backup is not whole, [`Error::Refused`] if the file exists, or as [`Embedded::open`]. There is
    /// no file then.
    pub fn restore<R: Read>(path: impl AsRef<Path>, backup: Reader<R>, skip: u64) -> Result<u64, Error> {
        let path = path.as_ref();
        let revision = backup.revision().saturating_add(skip);
        LogFile::make(path, Options::default().cache_bytes, |file| {
            let position = Position { revision, compacted: revision };
            let mut count = 0_u64;
            let mut some: Vec<Kept> = Vec::new();
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

fn write(file: &LogFile, entries: &[Kept], position: Position) -> Result<(), Error> {
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
