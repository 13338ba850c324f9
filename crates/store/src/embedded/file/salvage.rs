//! Recovery of intact values from a damaged file.
//!
//! As long as the page tree is intact, it is followed, and only damaged records are lost. Otherwise every page
//! of the file is scanned separately: each record contains its revision and a checksum, so that it is
//! recognized anywhere. This also finds freed pages, and with them objects that were deleted long ago: the
//! result records which method was used.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use redb::{ReadableDatabase as _, ReadableTable as _, StorageBackend};

use super::{LOG, LogEntry, LogFile, Medium, VALUES, Values, contain, decode, io_error, redb_error, value_checksum};
use crate::snapshot::KeptEntry;
use crate::{Error, Revision};

/// redb's unit of allocation: every page starts at a multiple of it.
const PAGE_BYTES: usize = 4096;
/// The first byte of a page that holds records.
const LEAF: u8 = 1;
/// No page is longer: keys and values are far below.
const LEAF_BYTES_MAX: usize = 64 << 20;

/// Contents that could be read from a damaged file.
pub struct Salvage {
    /// The last revision that was found.
    pub revision: Revision,
    /// Whether pages had to be searched one by one, so that objects may be among the result that had been deleted.
    pub is_searched: bool,
    /// Damage that is not the damage of one key.
    pub problems: Vec<String>,
    objects: std::collections::btree_map::IntoValues<Arc<str>, Vec<LogEntry>>,
    read: ReadValue,
}

/// A key, as far as it could be read.
#[derive(Debug)]
pub enum SalvagedKey {
    /// Last value.
    Whole(KeptEntry),
    /// An older value, because the last one, written at this revision, cannot be read.
    Older(KeptEntry, Revision),
    /// None of the values of this key can be read.
    Lost(Arc<str>),
}

type ReadValue = Box<dyn Fn(Revision) -> Result<Option<Bytes>, Error> + Send>;
/// Log records, the oldest first for each key.
type Histories = BTreeMap<Arc<str>, Vec<LogEntry>>;

impl Iterator for Salvage {
    type Item = SalvagedKey;

    fn next(&mut self) -> Option<SalvagedKey> {
        loop {
            let versions = self.objects.next()?;
            let mut newest_first = versions.into_iter().rev();
            let Some(newest) = newest_first.next().filter(|it| !it.deleted) else { continue };
            if let Some(kept) = self.kept(&newest) {
                return Some(SalvagedKey::Whole(kept));
            }
            // Versions before a deletion belong to another object of that name.
            let older = newest_first.take_while(|it| !it.deleted).find_map(|it| self.kept(&it));
            return Some(match older {
                Some(kept) => SalvagedKey::Older(kept, newest.revision),
                None => SalvagedKey::Lost(newest.key),
            });
        }
    }
}

impl Salvage {
    fn kept(&self, logged: &LogEntry) -> Option<KeptEntry> {
        let value = (self.read)(logged.revision).ok().flatten()?;
        let LogEntry { revision, key, expires_at_ms, .. } = logged.clone();
        (u32::try_from(value.len()) == Ok(logged.length)).then_some(KeptEntry { key, value, revision, expires_at_ms })
    }

    fn new(logged: Vec<LogEntry>, problems: Vec<String>, is_searched: bool, read: ReadValue) -> Self {
        let mut histories = Histories::new();
        let revision = logged.iter().map(|it| it.revision).max().unwrap_or_default();
        for it in logged {
            histories.entry(it.key.clone()).or_default().push(it);
        }
        for versions in histories.values_mut() {
            versions.sort_by_key(|it| it.revision);
        }
        Self { revision, is_searched, problems, objects: histories.into_values(), read }
    }
}

/// Reads all intact records. The file is not changed.
///
/// # Errors
/// [`Error::Locked`] if a process uses it, [`Error::Newer`] if a newer version has written it, [`Error::Unavailable`] if it
/// cannot be read at all.
pub(in crate::embedded) fn salvage(path: &Path, cache_bytes: usize) -> Result<Salvage, Error> {
    match follow(path, cache_bytes) {
        Err(error @ (Error::Locked { .. } | Error::Newer { .. } | Error::Unavailable(_))) => Err(error),
        Err(error) => search(path, &error),
        Ok(salvage) => Ok(salvage),
    }
}

/// Follows the pages; an error where that is not possible.
fn follow(path: &Path, cache_bytes: usize) -> Result<Salvage, Error> {
    let (file, _) = LogFile::open_for_reading(&Medium::Path(path.to_owned()), cache_bytes)?;
    let file = Arc::new(file);
    contain(|| {
        let transaction = file.database.begin_read().map_err(redb_error)?;
        let log = transaction.open_table(LOG).map_err(redb_error)?;
        let (mut logged, mut problems) = (Vec::new(), Vec::new());
        for entry in log.iter().map_err(redb_error)? {
            let (revision, record) = entry.map_err(redb_error)?;
            match decode(revision.value(), record.value()) {
                Ok(record) => logged.push(record),
                Err(error) => problems.push(super::check::chain(&error)),
            }
        }
        let values = Values { table: transaction.open_table(VALUES).map_err(redb_error)?, _file: Some(file.clone()) };
        Ok(Salvage::new(logged, problems, false, Box::new(move |revision| values.get(revision))))
    })
}

/// Scans every page separately.
fn search(path: &Path, why: &Error) -> Result<Salvage, Error> {
    let file = OpenOptions::new().read(true).write(true).open(path).map_err(io_error)?;
    let backend =
        redb::backends::FileBackend::new(file).map_err(|error| Medium::Path(path.to_owned()).cannot_open(error))?;
    let length = backend.len().map_err(io_error)?;
    let mut found = FoundRecord::default();
    let step = u64::try_from(PAGE_BYTES).unwrap_or(u64::MAX);
    let mut offset = 0_u64;
    while offset < length {
        if let Some(page) = read_leaf(&backend, offset, length) {
            found.add(&page, offset);
        }
        offset = offset.saturating_add(step);
    }
    let problems = vec![format!("the pages could not be followed: {}", super::check::chain(why))];
    let FoundRecord { logged, values } = found;
    let read = move |revision: Revision| {
        let Some((at, length)) = values.get(&revision).copied() else { return Ok(None) };
        let mut value = vec![0; length];
        backend.read(at, &mut value).map_err(io_error)?;
        Ok(Some(Bytes::from(value)))
    };
    Ok(Salvage::new(logged.into_values().collect(), problems, true, Box::new(read)))
}

/// The bytes of a page that may hold records; none if it does not look like one.
fn read_leaf(backend: &dyn StorageBackend, offset: u64, length: u64) -> Option<Vec<u8>> {
    let left = usize::try_from(length.saturating_sub(offset)).unwrap_or(usize::MAX);
    let mut page = vec![0; PAGE_BYTES.min(left)];
    backend.read(offset, &mut page).ok()?;
    let count = leaf_count(&page)?;
    // The table of ends is in the first page, or in those behind it if there are many records.
    let table_end = entry_end_at(count.checked_sub(1)?).checked_add(size_of::<u32>())?;
    if table_end > page.len() {
        page.resize(table_end.min(left), 0);
        backend.read(offset, &mut page).ok()?;
    }
    let end = entry_end(&page, count.checked_sub(1)?)?;
    if end > LEAF_BYTES_MAX.min(left) {
        return None;
    }
    if end > page.len() {
        page.resize(end, 0);
        backend.read(offset, &mut page).ok()?;
    }
    Some(page)
}

fn leaf_count(page: &[u8]) -> Option<usize> {
    let [LEAF, _, low, high, ..] = page else { return None };
    Some(usize::from(u16::from_le_bytes([*low, *high]))).filter(|count| *count > 0)
}

/// Offset of the end of a record.
fn entry_end_at(index: usize) -> usize {
    index.saturating_mul(size_of::<u32>()).saturating_add(4)
}

fn entry_end(page: &[u8], index: usize) -> Option<usize> {
    let (end, _) = page.get(entry_end_at(index)..)?.split_first_chunk()?;
    usize::try_from(u32::from_le_bytes(*end)).ok()
}

/// Records that were found, by revision. A revision is written once: copies of it are equal.
#[derive(Default)]
struct FoundRecord {
    logged: BTreeMap<Revision, LogEntry>,
    /// Place and length in the file.
    values: BTreeMap<Revision, (u64, usize)>,
}

impl FoundRecord {
    /// Takes the records of a page: a head, the ends of all records, their revisions, the records.
    fn add(&mut self, page: &[u8], offset: u64) -> Option<()> {
        let count = leaf_count(page)?;
        let revisions = entry_end_at(count);
        let mut start = revisions.checked_add(count.checked_mul(size_of::<u64>())?)?;
        for index in 0..count {
            let at = revisions.checked_add(index.checked_mul(size_of::<u64>())?)?;
            let (revision, _) = page.get(at..)?.split_first_chunk()?;
            let end = entry_end(page, index)?;
            if let Some(record) = page.get(start..end) {
                self.add_record(Revision::from_le_bytes(*revision), record, offset, start);
            }
            start = end;
        }
        Some(())
    }

    fn add_record(&mut self, revision: Revision, record: &[u8], offset: u64, start: usize) -> Option<()> {
        let (checksum, rest) = record.split_first_chunk()?;
        if u32::from_le_bytes(*checksum) != value_checksum(revision, rest) {
            return None;
        }
        // Both tables have the same form. A record of the log begins with its flags, and its key with a slash; a value
        // ends with JSON, which has quotes.
        let logged = decode(revision, record).ok().filter(|it| it.key.starts_with('/') && !it.key.contains('"'));
        match logged.filter(|_| rest.first().is_some_and(|flags| *flags <= super::DELETED)) {
            Some(logged) => {
                self.logged.insert(revision, logged);
            }
            None => {
                let at = u64::try_from(start.checked_add(size_of::<u32>())?).ok()?;
                self.values.insert(revision, (offset.checked_add(at)?, rest.len()));
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_are_no_leaves_yield_nothing() {
        let mut found = FoundRecord::default();
        for page in [&[][..], &[1, 0, 0, 0], &[1, 0, 255, 255, 1, 2, 3], &[2, 0, 1, 0, 9, 0, 0, 0], &[1; 5000]] {
            found.add(page, 0);
        }
        assert!(found.logged.is_empty() && found.values.is_empty());
    }
}
