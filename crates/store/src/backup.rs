//! Backup format: the current values at one revision as a stream of bytes, complete or detectably truncated.
//!
//! A header line, then frames: a tag, the length of the content, the content, and a checksum over all three.
//! The first frame has the revision, the last one the number of entries, so that a truncated backup is
//! detected.

use std::io::{self, Read};

use crate::snapshot::KeptEntry;
use crate::{Cause, Error, Revision};

/// Header of a backup: its last character is the format, a digit.
pub const MAGIC: &[u8] = b"celplane store backup 1\n";
/// The format that is written, and the newest that is read.
const FORMAT: u64 = 1;

const HEADER: u8 = b'H';
const ENTRY: u8 = b'E';
const END: u8 = b'Z';

/// No entry is longer: keys and values are far below.
const CONTENT_BYTES_MAX: u32 = 64 << 20;

/// Begins a backup of the values at a revision.
pub fn begin(revision: Revision, into: &mut Vec<u8>) {
    into.extend_from_slice(MAGIC);
    frame(HEADER, &[&revision.to_le_bytes()], into);
}

/// Adds an entry.
pub fn add(entry: &KeptEntry, into: &mut Vec<u8>) {
    let key_length = u32::try_from(entry.key.len()).unwrap_or(u32::MAX).to_le_bytes();
    let (revision, expires) = (entry.revision.to_le_bytes(), entry.expires_at_ms.to_le_bytes());
    frame(ENTRY, &[&revision, &expires, &key_length, entry.key.as_bytes(), &entry.value], into);
}

/// Ends a backup of `count` entries.
pub fn end(count: u64, into: &mut Vec<u8>) {
    frame(END, &[&count.to_le_bytes()], into);
}

fn frame(tag: u8, parts: &[&[u8]], into: &mut Vec<u8>) {
    let length: usize = parts.iter().map(|part| part.len()).fold(0, usize::saturating_add);
    let length = u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
    let mut checksum = crc32fast::Hasher::new();
    for part in [&[tag][..], &length].into_iter().chain(parts.iter().copied()) {
        checksum.update(part);
        into.extend_from_slice(part);
    }
    into.extend_from_slice(&checksum.finalize().to_le_bytes());
}

/// Reads a backup. After an error there is nothing more.
pub struct Reader<R> {
    source: R,
    revision: Revision,
    count: u64,
    is_over: bool,
}

impl<R: Read> Reader<R> {
    /// Starts reading.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it is not a backup, [`Error::Newer`] if it is one of a newer version, [`Error::Unavailable`] if it
    /// cannot be read.
    pub fn new(mut source: R) -> Result<Self, Error> {
        let mut magic = [0; MAGIC.len()];
        match read(&mut source, &mut magic)?.then(|| format_of(&magic)).flatten() {
            Some(FORMAT) => {}
            Some(format) if format > FORMAT => return Err(Error::Newer { format, newest: FORMAT }),
            _ => return Err(damaged("it is not a backup of a store")),
        }
        let (tag, content) = read_frame(&mut source)?;
        let revision = (tag == HEADER).then(|| content.as_slice().try_into().map(u64::from_le_bytes));
        match revision {
            Some(Ok(revision)) => Ok(Self { source, revision, count: 0, is_over: false }),
            _ => Err(damaged("its first part is not what was written")),
        }
    }

    /// The revision of the store when the backup was made.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    fn entry(&mut self) -> Result<Option<KeptEntry>, Error> {
        let (tag, content) = read_frame(&mut self.source)?;
        match tag {
            ENTRY => {
                self.count = self.count.saturating_add(1);
                parse(&content).map(Some).ok_or_else(|| damaged("an entry is not what was written"))
            }
            END if content == self.count.to_le_bytes() => Ok(None),
            _ => Err(damaged("its last part does not fit the others")),
        }
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<KeptEntry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let next = self.entry().transpose();
        self.is_over = !matches!(next, Some(Ok(_)));
        next
    }
}

/// The format that the first line of a backup names.
fn format_of(line: &[u8]) -> Option<u64> {
    let [name @ .., format, b'\n'] = line else { return None };
    let [known @ .., _, b'\n'] = MAGIC else { return None };
    (name == known && format.is_ascii_digit()).then(|| u64::from(format.wrapping_sub(b'0')))
}

fn parse(content: &[u8]) -> Option<KeptEntry> {
    let (revision, rest) = content.split_first_chunk()?;
    let (expires, rest) = rest.split_first_chunk()?;
    let (key_length, rest) = rest.split_first_chunk()?;
    let (key, value) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*key_length)).ok()?)?;
    Some(KeptEntry {
        key: std::str::from_utf8(key).ok()?.into(),
        value: bytes::Bytes::copy_from_slice(value),
        revision: u64::from_le_bytes(*revision),
        expires_at_ms: u64::from_le_bytes(*expires),
    })
}

fn read_frame(source: &mut impl Read) -> Result<(u8, Vec<u8>), Error> {
    let mut head = [0; 5];
    if !read(source, &mut head)? {
        return Err(damaged("it ends too early"));
    }
    let [tag, length @ ..] = head;
    let length = u32::from_le_bytes(length);
    if length > CONTENT_BYTES_MAX {
        return Err(damaged("an entry has an impossible length"));
    }
    let mut content = vec![0; usize::try_from(length).unwrap_or_default()];
    let mut checksum = [0; 4];
    if !read(source, &mut content)? || !read(source, &mut checksum)? {
        return Err(damaged("it ends too early"));
    }
    let mut expected = crc32fast::Hasher::new();
    expected.update(&head);
    expected.update(&content);
    if u32::from_le_bytes(checksum) != expected.finalize() {
        return Err(damaged("an entry has a wrong checksum"));
    }
    Ok((tag, content))
}

/// Fills a buffer; false if there is not enough.
fn read(source: &mut impl Read, into: &mut [u8]) -> Result<bool, Error> {
    match source.read_exact(into) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(Error::Unavailable(Cause::new(error))),
    }
}

fn damaged(what: &str) -> Error {
    Error::Damaged(Cause::new(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backup() -> (Vec<u8>, Vec<KeptEntry>) {
        let entry = |key: &str, length, revision, expires_at_ms| KeptEntry {
            key: key.into(),
            value: vec![b'x'; length].into(),
            revision,
            expires_at_ms,
        };
        let entries = vec![entry("/a", 0, 2, 0), entry("/b", 10, 3, 1), entry("/c", 20, 4, 2)];
        let mut bytes = Vec::new();
        begin(7, &mut bytes);
        entries.iter().for_each(|entry| add(entry, &mut bytes));
        end(3, &mut bytes);
        (bytes, entries)
    }

    #[test]
    fn written_backup_round_trips() {
        let (bytes, entries) = backup();
        let reader = Reader::new(bytes.as_slice()).unwrap();
        assert_eq!(reader.revision(), 7);
        assert_eq!(reader.map(Result::unwrap).collect::<Vec<_>>(), entries);
    }

    #[test]
    fn newer_backup_is_distinguished_from_invalid_data() {
        let newer = Reader::new(&b"celplane store backup 2\n"[..]).err();
        assert!(matches!(newer, Some(Error::Newer { format: 2, newest: FORMAT })), "{newer:?}");
        for none in [&b"celplane store backup x\n"[..], b"celplane store backup 0\n", b"", b"a file of another program"]
        {
            let error = Reader::new(none).err();
            assert!(matches!(error, Some(Error::Damaged(_))), "{error:?}");
        }
    }

    #[test]
    fn a_backup_that_was_cut_off_or_changed_is_not_taken_for_whole() {
        let (bytes, _) = backup();
        let is_whole = |bytes: &[u8]| Reader::new(bytes).is_ok_and(|mut reader| reader.all(|entry| entry.is_ok()));
        assert!(is_whole(&bytes));
        for length in 0..bytes.len() {
            assert!(!is_whole(&bytes[..length]), "cut to {length}");
        }
        for position in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[position] ^= 1 << bit;
                assert!(!is_whole(&changed), "byte {position}, bit {bit}");
            }
        }
    }
}
