//! Hashes by which clients recognize documents that they have.

use ring::digest::{SHA512, digest};

/// SHA-512 in capital hexadecimal digits.
pub(crate) fn hash(bytes: &[u8]) -> String {
    digest(&SHA512, bytes).as_ref().iter().map(|byte| format!("{byte:02X}")).collect()
}
