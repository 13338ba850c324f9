//! Random names, identifiers and numbers.

use std::cell::RefCell;

use ring::rand::{SecureRandom, SystemRandom};

/// Number of bytes to request from the system at a time: every request has an identifier, and the system call
/// would cost more than the rest of it.
const POOL_BYTES: usize = 1024;

thread_local! {
    /// Unused random bytes.
    static POOL: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Random bytes.
///
/// # Panics
/// The system has none: identifiers would repeat. TLS has drawn from the same source before any request is served.
#[expect(clippy::panic, reason = "a request that cannot have an identifier must not be served")]
fn bytes<const N: usize>() -> [u8; N] {
    POOL.with_borrow_mut(|pool| {
        if pool.len() < N {
            pool.resize(POOL_BYTES.max(N), 0);
            if SystemRandom::new().fill(pool).is_err() {
                pool.clear();
                panic!("the system has no random bytes");
            }
        }
        let start = pool.len().saturating_sub(N);
        let Some(given) = pool.get(start..).and_then(|rest| rest.try_into().ok()) else {
            panic!("the pool holds at least {N} bytes");
        };
        pool.truncate(start);
        given
    })
}

/// A random identifier, RFC 4122 version 4.
#[must_use]
#[expect(clippy::expect_used, reason = "the text is digits and hyphens")]
pub(crate) fn uid() -> String {
    String::from_utf8(uid_text()).expect("ASCII")
}

/// The characters of a random identifier.
pub(crate) fn uid_text() -> Vec<u8> {
    let [first, second, third, fourth] = [(); 4].map(|()| u32::from_be_bytes(bytes()));
    let (second, third) = (second & 0xffff_0fff | 0x4000, third & 0x3fff_ffff | 0x8000_0000);
    let [first, second, third, fourth] = [first, second, third, fourth].map(hex_digits);
    let ((a, b), (c, d)) = (second.split_at(4), third.split_at(4));
    [&first, b"-".as_slice(), a, b"-", b, b"-", c, b"-", d, &fourth].concat()
}

/// The digits of a number: each half of a byte becomes a separate byte, and all become letters at once.
fn hex_digits(number: u32) -> [u8; 8] {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    let mut halves = u64::from(number);
    for (shift, mask) in [(16, 0x0000_ffff_0000_ffff), (8, 0x00ff_00ff_00ff_00ff), (4, 0x0f0f_0f0f_0f0f_0f0f)] {
        halves = (halves | halves << shift) & mask;
    }
    // Halves above nine carry when six is added, and are shifted by the offset of the letters.
    let letters = (halves.wrapping_add(ONES.wrapping_mul(6)) >> 4) & ONES;
    let distance = u64::from(b'a'.wrapping_sub(b'0').wrapping_sub(10));
    let digits = halves.wrapping_add(ONES.wrapping_mul(u64::from(b'0')));
    digits.wrapping_add(letters.wrapping_mul(distance)).to_be_bytes()
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
    fn digits_are_those_that_are_printed() {
        for number in [0, 0x0123_4567, 0x89ab_cdef, u32::MAX, 0xa0b1_c9d8] {
            assert_eq!(hex_digits(number), format!("{number:08x}").as_bytes());
        }
    }

    #[test]
    fn identifiers_have_their_form() {
        let uid = uid();
        assert_eq!(uid.len(), 36);
        assert_eq!(uid.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
        assert_eq!(uid.chars().nth(14), Some('4'));
        assert!(uid.chars().nth(19).is_some_and(|it| "89ab".contains(it)), "{uid}");
        let many: std::collections::HashSet<String> = (0..1000).map(|_| super::uid()).collect();
        assert_eq!(many.len(), 1000);
        assert_eq!(suffix().len(), 5);
        assert!(below(3) < 3);
        assert_eq!(below(0), 0);
    }
}
