//! Tables of declared names: quick to ask, because most of checking is asking.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::syntax::ast::Name;

/// Declarations by name.
pub(super) type NameMap<V> = HashMap<Name, V, BuildHasherDefault<NameHasher>>;

/// Mixes eight octets at a time. It need not resist collision attacks, because the authors of expressions
/// cannot add names to a table.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NameHasher(u64);

impl NameHasher {
    fn mix(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        self.0 = (product as u64) ^ (product.wrapping_shr(64) as u64);
    }
}

impl Hasher for NameHasher {
    fn write(&mut self, octets: &[u8]) {
        let (words, rest) = octets.as_chunks::<8>();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        for (to, from) in last.iter_mut().zip(rest) {
            *to = *from;
        }
        self.mix(u64::from_le_bytes(last) ^ octets.len() as u64);
    }

    fn write_u8(&mut self, _end_of_text: u8) {
        // The text's length is mixed in already.
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Approximate set of the first parts of qualified names: a part that is not in the set begins no name.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Roots(u64);

impl Roots {
    /// Adds the first part of a name that has several.
    pub(super) fn insert(&mut self, name: &str) {
        if let Some((root, _)) = name.split_once('.') {
            self.0 |= bit(root);
        }
    }

    /// Whether a name may begin with this part.
    pub(super) fn may_contain(self, root: &str) -> bool {
        self.0 & bit(root) != 0
    }
}

fn bit(root: &str) -> u64 {
    let octets = root.as_bytes();
    let sum = |octet: Option<&u8>| octet.map_or(0, |octet| u32::from(*octet));
    let mixed = sum(octets.first()).wrapping_add(sum(octets.last()).wrapping_mul(7));
    1_u64.wrapping_shl(mixed.wrapping_add(u32::try_from(octets.len()).unwrap_or(0).wrapping_mul(5)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_contain_added_names() {
        let mut roots = Roots::default();
        roots.insert("math.abs");
        roots.insert("size");
        assert!(roots.may_contain("math"));
        assert!(!roots.may_contain("size"));
    }

    #[test]
    fn names_are_found_again() {
        let names = ["", "a", "abcdefgh", "abcdefghi", "google.protobuf.Timestamp", "_==_"];
        let table: NameMap<usize> = names.iter().enumerate().map(|(index, name)| (Name::from(*name), index)).collect();
        for (index, name) in names.iter().enumerate() {
            assert_eq!(table.get(*name), Some(&index));
        }
        assert_eq!(table.get("abcdefgj"), None);
    }
}
