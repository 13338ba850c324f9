//! Room on the file system that is taken while there is plenty, and given back when there is none.
//!
//! Other processes may fill a disk to its last byte. Deletes free space in the end, but need a little first: a
//! file next to the store reserves it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::file::{Medium, beside};

/// Bytes that are held. A batch of deletes needs a few pages.
const BYTES: u64 = 8 << 20;
/// The smallest reserve. It is larger than the ballast: a store that has given its ballast back still counts as full.
pub(super) const RESERVE_MIN: u64 = 2 * BYTES;
/// With less room than this, the ballast is given back.
const NEEDED: u64 = 1 << 20;

/// The file that holds the room.
pub(super) struct Ballast {
    path: PathBuf,
    is_held: bool,
}

impl Ballast {
    /// The ballast of a store that is a file; none for others.
    pub(super) fn of(medium: &Medium) -> Option<Self> {
        let Medium::Path(store) = medium else { return None };
        let path = beside(store, "ballast");
        let is_held = path.metadata().is_ok_and(|file| file.len() == BYTES);
        Some(Self { path, is_held })
    }

    /// Reserves or releases the space, by the number of free bytes. `reserve` is the space that writes must
    /// leave.
    pub(super) fn settle(&mut self, free: u64, reserve: u64) {
        if self.is_held && free < NEEDED {
            // Where it cannot be removed, deletes fail as they would without it.
            let _ = std::fs::remove_file(&self.path);
            self.is_held = false;
        } else if !self.is_held && free > reserve.max(RESERVE_MIN).saturating_add(BYTES) {
            self.is_held = take(&self.path).is_ok();
            if !self.is_held {
                let _ = std::fs::remove_file(&self.path);
            }
        }
    }
}

/// Creates the file, and makes sure that its blocks exist.
fn take(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path)?;
    #[cfg(target_os = "linux")]
    if rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, BYTES).is_ok() {
        return Ok(());
    }
    fill(file)
}

/// For file systems that cannot reserve blocks.
fn fill(mut file: File) -> io::Result<()> {
    let zeros = vec![0; 1 << 20];
    let mut left = BYTES;
    while left > 0 {
        file.write_all(&zeros)?;
        left = left.saturating_sub(1 << 20);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ballast_is_given_back_on_a_full_disk_and_taken_again_later() {
        let directory = tempfile::tempdir().unwrap();
        let medium = Medium::Path(directory.path().join("store"));
        let length = || std::fs::metadata(directory.path().join("store.ballast")).map_or(0, |file| file.len());
        let mut ballast = Ballast::of(&medium).unwrap();
        ballast.settle(BYTES, 0);
        assert_eq!(length(), 0, "too little room to take any");
        ballast.settle(1 << 30, 0);
        assert_eq!(length(), BYTES);
        ballast.settle(NEEDED, 0);
        assert_eq!(length(), BYTES);
        let mut ballast = Ballast::of(&medium).unwrap();
        ballast.settle(0, 0);
        assert_eq!(length(), 0);
        ballast.settle(BYTES, 0);
        assert_eq!(length(), 0, "what was given back is for deletes");
        ballast.settle(1 << 30, 0);
        assert_eq!(length(), BYTES);
    }
}
