//! Random names, identifiers and numbers.

use ring::rand::{SecureRandom, SystemRandom};

/// Random bytes.
///
/// # Panics
/// Never: without the system's generator nothing could have been started, and then zeros are given.
fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // TLS has drawn from the same source before any request is served.
    let _ = SystemRandom::new().fill(&mut bytes);
    bytes
}

/// A random identifier, RFC 4122 version 4.
#[must_use]
pub(crate) fn uid() -> String {
    let mut bytes: [u8; 16] = bytes();
    if let Some(byte) = bytes.get_mut(6) {
        *byte = (*byte & 0x0f) | 0x40;
    }
    if let Some(byte) = bytes.get_mut(8) {
        *byte = (*byte & 0x3f) | 0x80;
    }
    let hex = |byte: &u8| {
        [byte >> 4, byte & 0x0f].map(|digit| if digit < 10 { b'0' | digit } else { b'W'.wrapping_add(digit) })
    };
    let mut text = Vec::with_capacity(36);
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push(b'-');
        }
        text.extend_from_slice(&hex(byte));
    }
    String::from_utf8(text).unwrap_or_default()
}

/// Five characters behind a generated name; without vowels, so that no words appear.
#[must_use]
pub(crate) fn suffix() -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let bytes: [u8; 5] = bytes();
    let letter = |byte: u8| {
        let at = usize::from(byte).checked_rem(LETTERS.len()).unwrap_or_default();
        LETTERS.get(at).copied().map_or('b', char::from)
    };
    bytes.into_iter().map(letter).collect()
}

/// A number below `bound`.
#[must_use]
pub(crate) fn below(bound: u64) -> u64 {
    u64::from_le_bytes(bytes()).checked_rem(bound).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_have_their_form() {
        let uid = uid();
        assert_eq!(uid.len(), 36);
        assert_eq!(uid.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
        assert_eq!(uid.chars().nth(14), Some('4'));
        assert_eq!(suffix().len(), 5);
        assert!(below(3) < 3);
        assert_eq!(below(0), 0);
    }
}
