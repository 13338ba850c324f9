//! The file: three redb tables, and their errors.
//!
//! `log` records the change of each revision, `values` holds the written bytes, `meta` the two numbers that
//! must survive. Both tables are keyed by revision, so new data is always appended and one commit touches few
//! pages. Every record has a checksum, because redb verifies its own only after a crash.

mod check;
mod copy;
mod overlay;
mod salvage;
mod snapshot;

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use redb::{
    Database, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition,
};

pub use self::check::Report;
pub(super) use self::copy::{Copy, compact};
use self::overlay::Overlay;
pub(super) use self::salvage::salvage;
pub use self::salvage::{Salvage, SalvagedKey};
use super::containment::contain;
use crate::{Cause, Error, Revision};

const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");
const VALUES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("values");
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");

const FORMAT: &str = "format";
const FORMAT_VERSION: u64 = 1;
const REVISION: &str = "revision";
const COMPACTED: &str = "compacted";

/// The revision of a store that has never been written to.
pub(super) const FIRST_REVISION: Revision = 1;

/// Makes a backend for redb; called again when the store recovers from a failed one.
pub(super) type BackendFactory = Arc<dyn Fn() -> io::Result<Box<dyn StorageBackend>> + Send + Sync>;

/// Location of the data.
#[derive(Clone)]
pub(super) enum Medium {
    Path(PathBuf),
    Backend(BackendFactory),
}

impl Medium {
    /// Free space of the file system in bytes, if known.
    pub(super) fn free_bytes(&self) -> Option<u64> {
        let Self::Path(path) = self else { return None };
        let statistics = rustix::fs::statvfs(path).ok()?;
        Some(statistics.f_bavail.saturating_mul(statistics.f_frsize))
    }

    /// Like [`Self::free_bytes`], also if the file does not exist yet.
    pub(super) fn free_bytes_beside(&self) -> Option<u64> {
        let Self::Path(path) = self else { return None };
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Self::Path(directory.to_owned()).free_bytes()
    }

    /// Maps an error of opening.
    fn cannot_open(&self, error: redb::DatabaseError) -> Error {
        match (error, self) {
            (redb::DatabaseError::DatabaseAlreadyOpen, Self::Path(path)) => Error::Locked { path: path.clone() },
            (other, _) => redb_error(other),
        }
    }

    /// Length of the file, if there is one.
    pub(super) fn file_bytes(&self) -> Option<u64> {
        let Self::Path(path) = self else { return None };
        Some(path.metadata().ok()?.len())
    }
}

/// The change of one revision.
#[derive(Debug, Clone)]
pub(super) struct Record<'a> {
    pub(super) revision: Revision,
    pub(super) key: &'a str,
    /// `None`: the key was deleted.
    pub(super) value: Option<&'a Bytes>,
    /// Expiry in milliseconds since 1970; 0: never.
    pub(super) expires_at_ms: u64,
}

/// The log entry of one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LogEntry {
    pub(super) revision: Revision,
    pub(super) key: Arc<str>,
    pub(super) deleted: bool,
    pub(super) length: u32,
    pub(super) expires_at_ms: u64,
}

/// The numbers that survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) revision: Revision,
    pub(super) compacted: Revision,
}

/// An open file.
pub(super) struct LogFile {
    database: Database,
}

impl LogFile {
    /// Opens the data, or creates it.
    pub(super) fn open(medium: &Medium, cache_bytes: usize) -> Result<(Self, Position), Error> {
        contain(|| {
            let mut builder = Database::builder();
            builder.set_cache_size(cache_bytes);
            let database = match medium {
                Medium::Path(path) => {
                    if !path.try_exists().map_err(io_error)? {
                        match Self::make(path, cache_bytes, |_| Ok(())) {
                            // Another process created it first.
                            Err(Error::Refused(_)) => {}
                            made => made?,
                        }
                    }
                    let database = builder.open(path).map_err(|error| medium.cannot_open(error))?;
                    // Left by a process that ended while it shrank the file; it would hold the lock otherwise.
                    let _ = std::fs::remove_file(beside(path, copy::SUFFIX));
                    database
                }
                Medium::Backend(factory) => {
                    let backend = factory().map_err(io_error)?;
                    builder.create_with_backend(BoxedBackend(backend)).map_err(redb_error)?
                }
            };
            let file = Self { database };
            let position = match file.position()? {
                Some(position) => position,
                None => file.initialize()?,
            };
            Ok((file, position))
        })
    }

    /// Opens data that cannot be written to, for reading.
    pub(super) fn open_for_reading(medium: &Medium, cache_bytes: usize) -> Result<(Self, Position), Error> {
        contain(|| {
            let backend: Box<dyn StorageBackend> = match medium {
                Medium::Path(path) => {
                    let file = OpenOptions::new().read(true).write(true).open(path).map_err(io_error)?;
                    Box::new(redb::backends::FileBackend::new(file).map_err(|error| medium.cannot_open(error))?)
                }
                Medium::Backend(factory) => factory().map_err(io_error)?,
            };
            let mut builder = Database::builder();
            builder.set_cache_size(cache_bytes);
            let overlay = Overlay::new(backend).map_err(io_error)?;
            let database = builder.create_with_backend(overlay).map_err(|error| medium.cannot_open(error))?;
            let file = Self { database };
            let position = file.position()?.ok_or_else(Error::full)?;
            Ok((file, position))
        })
    }

    /// Makes a new file and fills it before it appears under its name, readable by its owner only.
    pub(super) fn make<T>(
        path: &Path,
        cache_bytes: usize,
        fill: impl FnOnce(&Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let unfinished = beside(path, &format!("new-{}", std::process::id()));
        let made = contain(|| {
            let mut builder = Database::builder();
            builder.set_cache_size(cache_bytes);
            let file = Self { database: builder.create_file(private_file(&unfinished)?).map_err(redb_error)? };
            file.initialize()?;
            let filled = fill(&file)?;
            drop(file);
            // A link fails if there is a file by now, where a rename would replace it.
            match std::fs::hard_link(&unfinished, path) {
                Ok(()) => Ok(filled),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(Error::Refused(Cause::new(error))),
                Err(error) => Err(io_error(error)),
            }
        });
        let removed = std::fs::remove_file(&unfinished).map_err(io_error);
        let made = made?;
        removed?;
        sync_directory(path)?;
        Ok(made)
    }

    fn position(&self) -> Result<Option<Position>, Error> {
        position(&self.database.begin_read().map_err(redb_error)?)
    }

    fn initialize(&self) -> Result<Position, Error> {
        let transaction = self.database.begin_write().map_err(redb_error)?;
        {
            transaction.open_table(LOG).map_err(redb_error)?;
            transaction.open_table(VALUES).map_err(redb_error)?;
            let mut meta = transaction.open_table(META).map_err(redb_error)?;
            meta.insert(FORMAT, FORMAT_VERSION).map_err(redb_error)?;
            meta.insert(REVISION, FIRST_REVISION).map_err(redb_error)?;
            meta.insert(COMPACTED, 0).map_err(redb_error)?;
        }
        transaction.commit().map_err(redb_error)?;
        Ok(Position { revision: FIRST_REVISION, compacted: 0 })
    }

    /// Writes records, removes unneeded ones, and advances the numbers: atomic, and durable on return.
    pub(super) fn commit(&self, records: &[Record<'_>], forget: &[Revision], position: Position) -> Result<(), Error> {
        contain(|| {
            let transaction = self.database.begin_write().map_err(redb_error)?;
            {
                let mut log = transaction.open_table(LOG).map_err(redb_error)?;
                let mut values = transaction.open_table(VALUES).map_err(redb_error)?;
                let mut buffer = Vec::with_capacity(256);
                for record in records {
                    encode(record, &mut buffer);
                    log.insert(record.revision, buffer.as_slice()).map_err(redb_error)?;
                    if let Some(value) = record.value {
                        let length = value.len().saturating_add(size_of::<u32>());
                        let mut slot = values.insert_reserve(record.revision, length).map_err(redb_error)?;
                        let (checksum, rest) = slot.as_mut().split_at_mut(size_of::<u32>());
                        checksum.copy_from_slice(&value_checksum(record.revision, value).to_le_bytes());
                        rest.copy_from_slice(value);
                    }
                }
                for revision in forget {
                    log.remove(revision).map_err(redb_error)?;
                    values.remove(revision).map_err(redb_error)?;
                }
                let mut meta = transaction.open_table(META).map_err(redb_error)?;
                for (name, number) in [(REVISION, position.revision), (COMPACTED, position.compacted)] {
                    if meta.get(name).map_err(redb_error)?.map(|old| old.value()) != Some(number) {
                        meta.insert(name, number).map_err(redb_error)?;
                    }
                }
            }
            transaction.commit().map_err(redb_error)
        })
    }

    /// Passes the changes from `first` on to `each`, in order, until `each` returns false.
    pub(super) fn scan(&self, first: Revision, mut each: impl FnMut(LogEntry) -> bool) -> Result<(), Error> {
        contain(|| {
            let transaction = self.database.begin_read().map_err(redb_error)?;
            let log = transaction.open_table(LOG).map_err(redb_error)?;
            for entry in log.range(first..).map_err(redb_error)? {
                let (revision, record) = entry.map_err(redb_error)?;
                if !each(decode(revision.value(), record.value())?) {
                    break;
                }
            }
            Ok(())
        })
    }

    /// Starts reading values, all as of the last commit. The file stays open as long.
    pub(super) fn values(self: &Arc<Self>) -> Result<Values, Error> {
        contain(|| {
            let transaction = self.database.begin_read().map_err(redb_error)?;
            let table = transaction.open_table(VALUES).map_err(redb_error)?;
            Ok(Values { table, _file: Some(self.clone()) })
        })
    }
}

/// The numbers as one transaction sees them; `None` in a file that has never been used.
fn position(transaction: &ReadTransaction) -> Result<Option<Position>, Error> {
    let meta = match transaction.open_table(META) {
        Ok(meta) => meta,
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
        Err(error) => return Err(redb_error(error)),
    };
    let number = |name: &str| -> Result<u64, Error> {
        let number = meta.get(name).map_err(redb_error)?;
        Ok(number.ok_or_else(|| damaged(format!("`{name}` is missing")))?.value())
    };
    let format = number(FORMAT)?;
    match format {
        FORMAT_VERSION => {}
        0 => return Err(damaged("there is no format 0".to_owned())),
        _ => return Err(Error::Newer { format, newest: FORMAT_VERSION }),
    }
    Ok(Some(Position { revision: number(REVISION)?, compacted: number(COMPACTED)? }))
}

/// Reads values by the revision that wrote them.
pub(super) struct Values {
    table: ReadOnlyTable<u64, &'static [u8]>,
    /// Keeps the file open: redb closes it when the database is dropped, even with active readers.
    _file: Option<Arc<LogFile>>,
}

impl Values {
    /// Returns the value; `None` if it was compacted.
    pub(super) fn get(&self, revision: Revision) -> Result<Option<Bytes>, Error> {
        contain(|| {
            let Some(record) = self.table.get_owned(revision).map_err(redb_error)? else {
                return Ok(None);
            };
            let (checksum, value) = record
                .value()
                .split_first_chunk()
                .ok_or_else(|| damaged(format!("the value of revision {revision} is cut off")))?;
            if u32::from_le_bytes(*checksum) != value_checksum(revision, value) {
                return Err(damaged(format!("the value of revision {revision} has a wrong checksum")));
            }
            Ok(Some(Bytes::copy_from_slice(value)))
        })
    }
}

/// A name for another file in the directory of the store.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{suffix}"));
    PathBuf::from(name)
}

/// An empty file that only its owner can read.
fn private_file(path: &Path) -> Result<File, Error> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map_err(io_error)
}

/// Syncs the directory of `path`.
fn sync_directory(path: &Path) -> Result<(), Error> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(io_error)
}

// Log record: checksum of the rest and of the revision, flags, length of the value, time of expiry, key.
const CHECKSUM: usize = size_of::<u32>();
const DELETED: u8 = 1;

fn encode(record: &Record<'_>, into: &mut Vec<u8>) {
    into.clear();
    into.extend_from_slice(&[0; CHECKSUM]);
    into.push(if record.value.is_none() { DELETED } else { 0 });
    let length = record.value.map_or(0, |value| u32::try_from(value.len()).unwrap_or(u32::MAX));
    into.extend_from_slice(&length.to_le_bytes());
    into.extend_from_slice(&record.expires_at_ms.to_le_bytes());
    into.extend_from_slice(record.key.as_bytes());
    if let Some((checksum, rest)) = into.split_first_chunk_mut::<CHECKSUM>() {
        *checksum = value_checksum(record.revision, rest).to_le_bytes();
    }
}

fn decode(revision: Revision, record: &[u8]) -> Result<LogEntry, Error> {
    let parse = || {
        let (checksum, rest) = record.split_first_chunk::<CHECKSUM>()?;
        if u32::from_le_bytes(*checksum) != value_checksum(revision, rest) {
            return None;
        }
        let (flags, rest) = rest.split_first()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (expires_at_ms, key) = rest.split_first_chunk()?;
        Some(LogEntry {
            revision,
            key: std::str::from_utf8(key).ok()?.into(),
            deleted: flags & DELETED != 0,
            length: u32::from_le_bytes(*length),
            expires_at_ms: u64::from_le_bytes(*expires_at_ms),
        })
    };
    parse().ok_or_else(|| damaged(format!("the log entry of revision {revision} is not what was written")))
}

/// Covers the revision too: an intact record in the wrong place is damage as well.
fn value_checksum(revision: Revision, data: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&revision.to_le_bytes());
    hasher.update(data);
    hasher.finalize()
}

pub(super) fn damaged(what: String) -> Error {
    Error::Damaged(Cause::new(what))
}

fn io_error(error: io::Error) -> Error {
    use io::ErrorKind::{FileTooLarge, InvalidData, QuotaExceeded, StorageFull, UnexpectedEof};
    match error.kind() {
        StorageFull | QuotaExceeded | FileTooLarge => Error::full(),
        InvalidData | UnexpectedEof => Error::Damaged(Cause::new(error)),
        _ => Error::Unavailable(Cause::new(error)),
    }
}

fn redb_error(error: impl Into<redb::Error>) -> Error {
    match error.into() {
        redb::Error::Io(error) => io_error(error),
        error @ (redb::Error::PreviousIo | redb::Error::DatabaseClosed) => Error::Unavailable(Cause::new(error)),
        error => Error::Damaged(Cause::new(error)),
    }
}

/// A backend chosen at run time.
struct BoxedBackend(Box<dyn StorageBackend>);

impl fmt::Debug for BoxedBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl StorageBackend for BoxedBackend {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.0.close()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_records_round_trip_and_notice_any_flipped_bit() {
        let value = Bytes::from_static(b"value");
        let mut buffer = Vec::new();
        encode(&Record { revision: 7, key: "/a", value: Some(&value), expires_at_ms: 9 }, &mut buffer);
        let expected = LogEntry { revision: 7, key: "/a".into(), deleted: false, length: 5, expires_at_ms: 9 };
        assert_eq!(decode(7, &buffer).ok(), Some(expected));
        assert!(decode(8, &buffer).is_err());
        for position in 0..buffer.len() {
            for bit in 0..8 {
                let mut flipped = buffer.clone();
                if let Some(byte) = flipped.get_mut(position) {
                    *byte ^= 1 << bit;
                }
                assert!(decode(7, &flipped).is_err(), "byte {position}, bit {bit}");
            }
        }
        for length in 0..buffer.len() {
            assert!(buffer.get(..length).is_some_and(|short| decode(7, short).is_err()));
        }
    }
}
