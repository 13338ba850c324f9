//! Random names, identifiers and numbers.

use std::cell::RefCell;

use ring::rand::{SecureRandom, SystemRandom};

/// The system is asked for this many bytes at a time: every request has an identifier, and a call of the system costs more
/// than all the rest of it.
const POOL_BYTES: usize = 1024;

thread_local! {
    /// Bytes that nobody has been given yet.
    static POOL: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Random bytes; zeros if the system has none. TLS has drawn from the same source before any request is served.
fn bytes<const N: usize>() -> [u8; N] {
    POOL.with_borrow_mut(|pool| {
        if pool.len() < N {
            pool.resize(POOL_BYTES.max(N), 0);
            if SystemRandom::new().fill(pool).is_err() {
                pool.clear();
            }
        }
        let start = pool.len().saturating_sub(N);
        let given = pool.get(start..).and_then(|rest| rest.try_into().ok()).unwrap_or([0; N]);
        pool.truncate(start);
        given
    })
}

/// A random identifier, RFC 4122 version 4.
#[must_use]
pub(crate) fn uid() -> String {
    uid_text().into_iter().map(char::from).collect()
}

/// The characters of a random identifier.
pub(crate) fn uid_text() -> [u8; 36] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let number = u128::from_be_bytes(bytes()) & !(0xf000 << 64) & !(0xc000 << 48) | 0x4000 << 64 | 0x8000 << 48;
    let mut shift = 128_u32;
    std::array::from_fn(|at| {
        if matches!(at, 8 | 13 | 18 | 23) {
            return b'-';
        }
        shift = shift.saturating_sub(4);
        let digit = usize::try_from(number.unbounded_shr(shift) & 0xf).unwrap_or_default();
        DIGITS.get(digit).copied().unwrap_or(b'0')
    })
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
        assert!(uid.chars().nth(19).is_some_and(|it| "89ab".contains(it)), "{uid}");
        let many: std::collections::HashSet<String> = (0..1000).map(|_| super::uid()).collect();
        assert_eq!(many.len(), 1000);
        assert_eq!(suffix().len(), 5);
        assert!(below(3) < 3);
        assert_eq!(below(0), 0);
    }
}
