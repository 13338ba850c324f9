//! Files that users hand to offline commands, read up to a limit.
//!
//! Devices are refused: `/dev/zero` has no end. The limit is far above any manifest, and a dump of a large cluster fits.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Bytes of a file, or of standard input, that are read at most.
pub(crate) const BYTES_MAX: u64 = 256 << 20;

/// Reads a file, or a named pipe to its end.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if is_device(&metadata) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a device, not a file"));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len().min(BYTES_MAX)).unwrap_or_default());
    read_limited(file, BYTES_MAX, &mut bytes)?;
    Ok(bytes)
}

/// Reads a file of text.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    into_text(read(path)?)
}

/// Reads standard input.
pub(crate) fn read_standard_input() -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    read_limited(io::stdin().lock(), BYTES_MAX, &mut bytes)?;
    Ok(bytes)
}

/// Checks that bytes are text.
pub(crate) fn into_text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

fn read_limited(input: impl Read, limit: u64, bytes: &mut Vec<u8>) -> io::Result<()> {
    input.take(limit.saturating_add(1)).read_to_end(bytes)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > limit {
        let message = format!("it holds more than {} MiB, which is the limit", limit >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(())
}

#[cfg(unix)]
fn is_device(metadata: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    metadata.file_type().is_char_device() || metadata.file_type().is_block_device()
}

#[cfg(not(unix))]
fn is_device(_: &std::fs::Metadata) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_stops_behind_the_limit() {
        let mut bytes = Vec::new();
        let error = read_limited(io::repeat(b'x'), 3 << 20, &mut bytes).unwrap_err();
        assert_eq!(error.to_string(), "it holds more than 3 MiB, which is the limit");
        assert_eq!(bytes.len(), (3 << 20) + 1);
        let mut bytes = Vec::new();
        read_limited(io::repeat(b'x').take(5), 5, &mut bytes).unwrap();
        assert_eq!(bytes, b"xxxxx");
    }

    #[cfg(unix)]
    #[test]
    fn devices_are_refused() {
        assert_eq!(read(Path::new("/dev/zero")).unwrap_err().to_string(), "it is a device, not a file");
    }
}
