//! A smaller file with the same content, and making a file smaller in its place.
//!
//! redb returns space to the file system only at the end of the file. So the current data is copied into a new
//! file while the old one is used, later changes are added, and then the new one replaces the old.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use redb::{Database, ReadTransaction, ReadableDatabase as _};

use super::{
    COMPACTED, LOG, LogEntry, LogFile, META, Medium, Position, REVISION, VALUES, beside, contain, damaged, io_error,
    position, private_file, redb_error, sync_directory,
};
use crate::{Cause, Error, Revision};

/// The unfinished copy has the name of the store and this.
pub(super) const SUFFIX: &str = "shrinking";

/// About this many bytes are copied in one commit.
const COMMIT_BYTES: usize = 4 << 20;

/// A copy that has not taken the place of the file yet. It is removed if it never does.
pub(in crate::embedded) struct Copy {
    file: LogFile,
    /// Up to where it has everything.
    revision: Revision,
    unfinished: UnfinishedFile,
}

/// The name of a file that is not complete; the file is removed with it.
struct UnfinishedFile(PathBuf);

impl Drop for UnfinishedFile {
    fn drop(&mut self) {
        // The name no longer exists once the copy has replaced the original.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl LogFile {
    /// Copies the contents of the file at `path` into a new file next to it, until `stop` is set.
    pub(in crate::embedded) fn copy(&self, path: &Path, cache_bytes: usize, stop: &AtomicBool) -> Result<Copy, Error> {
        contain(|| {
            let source = self.database.begin_read().map_err(redb_error)?;
            let position = position(&source)?.ok_or_else(|| damaged("the numbers are missing".to_owned()))?;
            let unfinished = UnfinishedFile(beside(path, SUFFIX));
            let mut builder = Database::builder();
            builder.set_cache_size(cache_bytes);
            let database = builder.create_file(private_file(&unfinished.0)?).map_err(redb_error)?;
            let copy = Copy { file: Self { database }, revision: position.revision, unfinished };
            copy.file.initialize()?;
            let mut next = Some(0);
            while let Some(first) = next {
                if stop.load(Ordering::Relaxed) {
                    return Err(Error::Closed);
                }
                next = copy.file.take_over(&source, first, &[], position)?;
            }
            Ok(copy)
        })
    }

    /// Copies records from `first` on in one commit; the first revision that remains, if any.
    fn take_over(
        &self,
        source: &ReadTransaction,
        first: Revision,
        forget: &[Revision],
        position: Position,
    ) -> Result<Option<Revision>, Error> {
        let from_log = source.open_table(LOG).map_err(redb_error)?;
        let from_values = source.open_table(VALUES).map_err(redb_error)?;
        let transaction = self.database.begin_write().map_err(redb_error)?;
        let mut next = None;
        {
            let mut log = transaction.open_table(LOG).map_err(redb_error)?;
            let mut values = transaction.open_table(VALUES).map_err(redb_error)?;
            let mut bytes = 0_usize;
            for entry in from_log.range(first..).map_err(redb_error)? {
                let (revision, record) = entry.map_err(redb_error)?;
                if bytes > COMMIT_BYTES {
                    next = Some(revision.value());
                    break;
                }
                log.insert(revision.value(), record.value()).map_err(redb_error)?;
                bytes = bytes.saturating_add(record.value().len());
                if let Some(value) = from_values.get(revision.value()).map_err(redb_error)? {
                    values.insert(revision.value(), value.value()).map_err(redb_error)?;
                    bytes = bytes.saturating_add(value.value().len());
                }
            }
            for revision in forget {
                log.remove(revision).map_err(redb_error)?;
                values.remove(revision).map_err(redb_error)?;
            }
            let mut meta = transaction.open_table(META).map_err(redb_error)?;
            meta.insert(REVISION, position.revision).map_err(redb_error)?;
            meta.insert(COMPACTED, position.compacted).map_err(redb_error)?;
        }
        transaction.commit().map_err(redb_error)?;
        Ok(next)
    }

    /// Adds later changes to a copy, and renames it to this file's name, at `path`.
    pub(in crate::embedded) fn finish(&self, copy: Copy, forgotten: &[Revision], path: &Path) -> Result<Self, Error> {
        contain(|| {
            let source = self.database.begin_read().map_err(redb_error)?;
            let position = position(&source)?.ok_or_else(|| damaged("the numbers are missing".to_owned()))?;
            let mut next = Some(copy.revision.saturating_add(1));
            while let Some(first) = next {
                next = copy.file.take_over(&source, first, forgotten, position)?;
            }
            std::fs::rename(&copy.unfinished.0, path).map_err(io_error)?;
            // The rename has happened, durable or not: both files hold the same.
            let _ = sync_directory(path);
            Ok(copy.file)
        })
    }
}

/// Removes all history from a file that is not in use, and shrinks it as far as possible; returns its length
/// before and after.
pub(in crate::embedded) fn compact(path: &Path, cache_bytes: usize) -> Result<(u64, u64), Error> {
    let length = || path.metadata().map(|data| data.len()).map_err(io_error);
    let before = length()?;
    let (mut file, position) = LogFile::open(&Medium::Path(path.to_owned()), cache_bytes)?;
    contain(|| {
        let mut newest = std::collections::HashMap::new();
        let mut old: Vec<Revision> = Vec::new();
        file.scan(0, |logged| {
            let LogEntry { revision, key, deleted, .. } = logged;
            if deleted {
                old.push(revision);
                old.extend(newest.remove(&key));
            } else {
                old.extend(newest.insert(key, revision));
            }
            true
        })?;
        for some in old.chunks(2048) {
            file.commit(&[], some, Position { compacted: position.revision, ..position })?;
        }
        file.database.compact().map_err(|error| Error::Unavailable(Cause::new(error)))?;
        Ok(())
    })?;
    drop(file);
    Ok((before, length()?))
}
