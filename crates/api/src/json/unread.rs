//! Names of fields that are passed over while a text is read.

/// A set of names that excludes most other names quickly.
#[derive(Debug, Clone, Copy)]
pub struct NameFilter {
    names: &'static [&'static str],
    /// A bit for each length with first and last letter.
    marks: [u64; 4],
}

impl NameFilter {
    /// These names.
    #[must_use]
    #[expect(clippy::indexing_slicing, reason = "the indexes are below the lengths, and this runs at compile time")]
    pub const fn new(names: &'static [&'static str]) -> Self {
        let mut marks = [0; 4];
        let mut at = 0;
        while at < names.len() {
            let (word, bit) = mark(names[at].as_bytes());
            marks[word] |= bit;
            at = at.saturating_add(1);
        }
        Self { names, marks }
    }

    /// Whether this is one of the names.
    pub(super) fn contains(&self, key: &[u8]) -> bool {
        let (word, bit) = mark(key);
        self.marks.get(word).is_some_and(|marks| marks & bit != 0) && self.names.iter().any(|it| it.as_bytes() == key)
    }
}

/// Returns the index of the word, and the bit in it.
const fn mark(key: &[u8]) -> (usize, u64) {
    let (first, last) = match key {
        [first, .., last] => (*first as usize, *last as usize),
        _ => (0, 0),
    };
    let mark = key.len() ^ first.wrapping_mul(7) ^ last.wrapping_mul(29);
    ((mark >> 6) & 3, 1 << (mark & 63))
}
