//! A small generator for ties: seeded by the caller, so that a run can be repeated.

/// A generator of numbers.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A generator that begins at a seed.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One of the items.
    pub fn choose<'i, T>(&mut self, items: &'i [T]) -> Option<&'i T> {
        let index = self.next().checked_rem(items.len() as u64)?;
        items.get(usize::try_from(index).ok()?)
    }

    /// A number below `end`; zero where that is zero.
    pub fn below(&mut self, end: usize) -> usize {
        let number = self.next().checked_rem(end as u64).unwrap_or(0);
        usize::try_from(number).unwrap_or(0)
    }
}
