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

/// Decisions, read from the bytes one by one; zeros once they are used up.
pub(crate) struct Choices<'d> {
    rest: &'d [u8],
}

impl<'d> Choices<'d> {
    pub(crate) fn new(data: &'d [u8]) -> Self {
        Choices { rest: data }
    }

    /// All bytes are used up.
    pub(crate) fn is_over(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        match self.rest.split_first() {
            Some((first, rest)) => {
                self.rest = rest;
                *first
            }
            None => 0,
        }
    }

    pub(crate) fn is_odd(&mut self) -> bool {
        self.byte() % 2 == 1
    }

    /// A number below `count`, which is at most 256.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count.max(1)
    }

    pub(crate) fn pick(&mut self, words: &[&'static str]) -> &'static str {
        words[self.below(words.len())]
    }

    pub(crate) fn number(&mut self) -> u64 {
        let (head, rest) = self.rest.split_at(self.rest.len().min(8));
        self.rest = rest;
        let mut number = [0; 8];
        number[..head.len()].copy_from_slice(head);
        u64::from_le_bytes(number)
    }

    /// The next bytes, at most this many.
    pub(crate) fn take(&mut self, count: usize) -> &'d [u8] {
        let (head, rest) = self.rest.split_at(self.rest.len().min(count));
        self.rest = rest;
        head
    }

    /// All bytes that are left.
    pub(crate) fn rest(self) -> &'d [u8] {
        self.rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_input_counts_as_filled_with_zeros() {
        assert_eq!(take_u32(&[1, 2]), (0x0201, &[][..]));
        assert_eq!(take_u32(&[1, 0, 0, 0, 9]), (1, &[9][..]));
        let mut choices = Choices::new(&[7]);
        assert_eq!((choices.byte(), choices.byte(), choices.number()), (7, 0, 0));
    }
}
