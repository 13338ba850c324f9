//! From the fuzzer's bytes to the values that a target needs.

/// Takes the first four bytes as a number; zeros stand in for bytes that are not there.
pub(crate) fn take_u32(data: &[u8]) -> (u32, &[u8]) {
    let (head, rest) = data.split_at(data.len().min(4));
    let mut number = [0; 4];
    number[..head.len()].copy_from_slice(head);
    (u32::from_le_bytes(number), rest)
}

/// The bytes as text; what is not UTF-8 becomes a replacement character.
pub(crate) fn text(data: &[u8]) -> String {
    String::from_utf8_lossy(data).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_input_counts_as_filled_with_zeros() {
        assert_eq!(take_u32(&[1, 2]), (0x0201, &[][..]));
        assert_eq!(take_u32(&[1, 0, 0, 0, 9]), (1, &[9][..]));
    }
}
