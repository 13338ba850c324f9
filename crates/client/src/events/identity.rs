//! Identities of events: 128 bits instead of the texts that they are made of.
//!
//! A busy component remembers tens of thousands of events; their texts would take a kilobyte each. The hash has random
//! keys, so that users cannot choose names with equal identities.

use std::hash::{BuildHasher as _, RandomState};

/// The identity of an event among those of one [`Identities`].
pub(super) type Identity = [u64; 2];

/// Makes identities of texts.
#[derive(Default)]
pub(super) struct Identities([RandomState; 2]);

impl Identities {
    /// The identity of a list of texts.
    pub(super) fn of(&self, texts: &[&str]) -> Identity {
        self.0.each_ref().map(|keys| keys.hash_one(texts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighboring_texts_are_kept_apart() {
        let identities = Identities::default();
        assert_eq!(identities.of(&["a", "bc"]), identities.of(&["a", "bc"]));
        assert_ne!(identities.of(&["a", "bc"]), identities.of(&["ab", "c"]));
        assert_ne!(identities.of(&["a", ""]), identities.of(&["a"]));
    }
}
