//! A fast hash for tables whose keys are not chosen by an attacker, or whose collisions harm only their author.

use std::hash::Hasher;

/// A hasher with a seed.
#[derive(Debug, Default, Clone, Copy)]
pub struct Mixer(pub u64);

/// From the fractional part of the golden ratio: an odd number without pattern.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

impl Mixer {
    fn mix(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word).wrapping_mul(u128::from(MULTIPLIER));
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }
}

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        match bytes.last_chunk::<8>() {
            _ if rest.is_empty() => {}
            Some(last) => self.mix(u64::from_le_bytes(*last)),
            None => self.mix(rest.iter().fold(0, |word, byte| (word << 8) | u64::from(*byte))),
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.mix(u64::from(number));
    }

    fn write_u32(&mut self, number: u32) {
        self.mix(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.mix(number);
    }

    fn write_usize(&mut self, number: usize) {
        // Never zero, so that a length changes the state.
        self.mix(number as u64 | 1 << 63);
    }
}
