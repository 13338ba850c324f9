//! A file that is only read: redb's writes on opening stay in memory.
//!
//! redb marks a file as open, and repairs one that was not closed. On a full disk neither can be written, but
//! the contents can still be read.

use locks::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Bound;

use redb::{BackendError, StorageBackend};

const BLOCK: usize = 4096;

/// A backend with changes in memory.
pub(super) struct Overlay {
    base: Box<dyn StorageBackend>,
    changes: Mutex<Changes>,
}

struct Changes {
    blocks: BTreeMap<u64, Box<[u8; BLOCK]>>,
    length: u64,
    /// Length of the backend's data to use.
    base_length: u64,
}

impl Overlay {
    pub(super) fn new(base: Box<dyn StorageBackend>) -> io::Result<Self> {
        let length = base.len()?;
        Ok(Self { base, changes: Mutex::new(Changes { blocks: BTreeMap::new(), length, base_length: length }) })
    }

    fn changes(&self) -> MutexGuard<'_, Changes> {
        self.changes.lock()
    }

    /// Reads from the backend; zeros beyond its end.
    fn read_base(&self, base_length: u64, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let there = usize::try_from(base_length.saturating_sub(offset)).unwrap_or(usize::MAX).min(out.len());
        let (there, rest) = out.split_at_mut(there);
        rest.fill(0);
        if there.is_empty() { Ok(()) } else { self.base.read(offset, there) }
    }
}

/// The blocks that a range touches: number, where in the block it begins, where in the range, and how much.
fn touched(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let block_bytes = u64::try_from(BLOCK).unwrap_or(u64::MAX);
    let mut done = 0_usize;
    std::iter::from_fn(move || {
        let left = length.checked_sub(done).filter(|left| *left > 0)?;
        let at = offset.checked_add(u64::try_from(done).ok()?)?;
        let within = usize::try_from(at.checked_rem(block_bytes)?).ok()?;
        let count = BLOCK.saturating_sub(within).min(left);
        let touched = (at.checked_div(block_bytes)?, within, done, count);
        done = done.saturating_add(count);
        Some(touched)
    })
}

/// `count` bytes of a slice.
fn part(of: &mut [u8], from: usize, count: usize) -> &mut [u8] {
    of.get_mut(from..from.saturating_add(count)).unwrap_or_default()
}

impl StorageBackend for Overlay {
    fn len(&self) -> io::Result<u64> {
        Ok(self.changes().length)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut changes = self.changes();
        self.read_base(changes.base_length, offset, out)?;
        for (number, within, done, count) in touched(offset, out.len()) {
            if let Some(block) = changes.blocks.get_mut(&number) {
                part(out, done, count).copy_from_slice(part(&mut **block, within, count));
            }
        }
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut changes = self.changes();
        let block_bytes = u64::try_from(BLOCK).unwrap_or(u64::MAX);
        if length < changes.length {
            let first = length.div_ceil(block_bytes);
            changes.blocks.split_off(&first);
            changes.base_length = changes.base_length.min(length);
        }
        changes.length = length;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut changes = self.changes();
        let base_length = changes.base_length;
        for (number, within, done, count) in touched(offset, data.len()) {
            let block = match changes.blocks.entry(number) {
                std::collections::btree_map::Entry::Occupied(block) => block.into_mut(),
                std::collections::btree_map::Entry::Vacant(place) => {
                    let mut block = Box::new([0; BLOCK]);
                    let start = number.saturating_mul(u64::try_from(BLOCK).unwrap_or(u64::MAX));
                    self.read_base(base_length, start, &mut *block)?;
                    place.insert(block)
                }
            };
            let source = data.get(done..done.saturating_add(count)).unwrap_or_default();
            part(&mut **block, within, count).copy_from_slice(source);
        }
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        self.base.close()
    }

    // Readers lock the file exclusively, as writers do.

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.base.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.base.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.base.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.base.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.base.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.base.query_lock_range(start, end)
    }
}

impl fmt::Debug for Overlay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Overlay").field("base", &self.base).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redb::backends::InMemoryBackend;

    #[test]
    fn overlay_writes_are_read_and_the_base_stays() {
        let base = InMemoryBackend::new();
        base.set_len(10_000).unwrap();
        base.write(0, &[1; 10_000]).unwrap();
        let overlay = Overlay::new(Box::new(base)).unwrap();
        let mut expected = vec![1; 10_000];
        for (offset, data) in [(0, vec![2; 5]), (4090, vec![3; 20]), (9_000, vec![4; 1_000]), (100, vec![5; 9_000])] {
            overlay.write(offset as u64, &data).unwrap();
            expected[offset..offset + data.len()].copy_from_slice(&data);
            let mut read = vec![0; 10_000];
            overlay.read(0, &mut read).unwrap();
            assert!(read == expected, "after a write at {offset}");
        }
        overlay.set_len(50).unwrap();
        overlay.set_len(9_000).unwrap();
        let mut read = vec![7; 8_000];
        overlay.read(1_000, &mut read).unwrap();
        assert!(read.iter().skip(4096).all(|byte| *byte == 0), "what was cut off is gone");
        let mut base = vec![0; 10_000];
        overlay.base.read(0, &mut base).unwrap();
        assert!(base == [1; 10_000]);
    }
}
