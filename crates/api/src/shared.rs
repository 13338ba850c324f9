//! Parts of objects that many objects have in common, kept once.
//!
//! The pods of one workload differ in their names and their state, and hardly in anything else. A view can hold the other
//! fields as a [`Shared`] part: they are read as if they were its own, a change makes a copy first, and a [`Pool`] makes
//! parts that are alike one. The pool keeps nothing alive.

mod alike;

use std::any::Any;
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError, Weak};

pub use alike::Alike;

/// How many parts are known before it is looked for those that nobody uses any more.
const SWEEP_MIN: usize = 64;

/// What can be a part of several objects.
pub trait Part: Alike + Clone + Default + PartialEq + Send + Sync + 'static {
    /// The part that has nothing in it.
    fn nothing() -> &'static Self;
}

/// A part that other objects may have, too. Clones are the same part until one of them is changed.
#[derive(Clone)]
pub struct Shared<T>(
    /// None if nothing is in it.
    Option<Arc<T>>,
);

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Part> From<T> for Shared<T> {
    fn from(part: T) -> Self {
        Self((part != *T::nothing()).then(|| Arc::new(part)))
    }
}

impl<T: Part> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.0 {
            Some(part) => part,
            None => T::nothing(),
        }
    }
}

impl<T: Part> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(self.0.get_or_insert_default())
    }
}

impl<T: Part> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other) || **self == **other
    }
}

impl<T: Part + std::fmt::Debug> std::fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> Shared<T> {
    /// Whether both are one.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(left), Some(right)) => Arc::ptr_eq(left, right),
            (left, right) => left.is_none() && right.is_none(),
        }
    }
}

impl<T: Part> Alike for Shared<T> {
    fn feed<H: Hasher>(&self, hasher: &mut H) {
        (**self).feed(hasher);
    }

    fn is_alike(&self, other: &Self) -> bool {
        self.is_same(other) || (**self).is_alike(other)
    }

    fn share(&mut self, parts: &mut Parts) {
        parts.share(self);
    }
}

/// All parts that are in use, to find one that is alike.
#[derive(Default)]
pub struct Pool(Mutex<Parts>);

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("known", &self.known()).finish()
    }
}

impl Pool {
    /// Replaces the parts of an object by those of earlier ones that are alike.
    pub fn share(&self, object: &mut impl Alike) {
        object.share(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// How many parts are known, some of them perhaps no longer used.
    #[must_use]
    pub fn known(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).known.len()
    }
}

/// The parts of a [`Pool`].
pub struct Parts {
    /// By hash. Of two that have the same, only the later is known.
    known: HashMap<u64, Weak<dyn Any + Send + Sync>, BuildHasherDefault<Mixer>>,
    seed: u64,
    sweep_at: usize,
}

impl Default for Parts {
    fn default() -> Self {
        Self { known: HashMap::default(), seed: RandomState::new().hash_one(0), sweep_at: SWEEP_MIN }
    }
}

/// A fast hash: who makes parts collide gets them not shared, and nothing else.
#[derive(Default)]
struct Mixer(u64);

impl Mixer {
    fn mix(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
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
        self.mix(number as u64);
    }
}

impl Parts {
    fn share<T: Part>(&mut self, shared: &mut Shared<T>) {
        let Some(part) = &mut shared.0 else { return };
        let mut hasher = Mixer(self.seed);
        part.feed(&mut hasher);
        let hash = hasher.finish();
        let known = self.known.get(&hash).and_then(Weak::upgrade).and_then(|known| known.downcast::<T>().ok());
        if let Some(known) = known.filter(|known| part.is_alike(known)) {
            *part = known;
            return;
        }
        // What is inside is shared only now: most often the whole is known.
        if let Some(inside) = Arc::get_mut(part) {
            inside.share(self);
        }
        let part: Arc<dyn Any + Send + Sync> = part.clone();
        self.known.insert(hash, Arc::downgrade(&part));
        if self.known.len() >= self.sweep_at {
            self.known.retain(|_, part| part.strong_count() > 0);
            self.sweep_at = self.known.len().saturating_mul(2).max(SWEEP_MIN);
        }
    }
}

#[cfg(test)]
mod tests;
