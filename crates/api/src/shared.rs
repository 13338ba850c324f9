//! Parts of objects that many objects have in common, kept once.
//!
//! The pods of one workload differ in their names and their state, and hardly in anything else. A view can hold the other
//! fields as a [`SharedPart`] part: they are read as if they were its own, a change makes a copy first, and a [`Pool`] makes
//! parts that are alike one. The pool keeps nothing alive.

mod alike;

use locks::Mutex;
use std::any::Any;
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Weak};

use crate::hash::Mixer;

pub use alike::Shareable;

/// Number of known parts above which unused ones are removed.
const SWEEP_MIN: usize = 64;

/// A value that several objects can share.
pub trait Part: Shareable + Clone + Default + PartialEq + Send + Sync + 'static {
    /// The part that has nothing in it.
    fn nothing() -> &'static Self;
}

/// A part that other objects may have, too. Clones are the same part until one of them is changed.
#[derive(Clone)]
pub struct SharedPart<T>(
    /// None if nothing is in it.
    Option<Arc<T>>,
);

impl<T> Default for SharedPart<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Part> From<T> for SharedPart<T> {
    fn from(part: T) -> Self {
        Self((part != *T::nothing()).then(|| Arc::new(part)))
    }
}

impl<T: Part> Deref for SharedPart<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.0 {
            Some(part) => part,
            None => T::nothing(),
        }
    }
}

impl<T: Part> DerefMut for SharedPart<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(self.0.get_or_insert_default())
    }
}

impl<T: Part> PartialEq for SharedPart<T> {
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other) || **self == **other
    }
}

impl<T: Part + std::fmt::Debug> std::fmt::Debug for SharedPart<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> SharedPart<T> {
    /// Whether both are one.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(left), Some(right)) => Arc::ptr_eq(left, right),
            (left, right) => left.is_none() && right.is_none(),
        }
    }
}

impl<T: Part> Shareable for SharedPart<T> {
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

/// All parts in use, for finding an identical one.
#[derive(Default)]
pub struct Pool(Mutex<Parts>);

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("known", &self.known()).finish()
    }
}

impl Pool {
    /// Replaces the parts of an object by identical ones of earlier objects.
    pub fn share(&self, object: &mut impl Shareable) {
        object.share(&mut self.0.lock());
    }

    /// Number of known parts, possibly including unused ones.
    #[must_use]
    pub fn known(&self) -> usize {
        self.0.lock().known.len()
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

impl Parts {
    fn share<T: Part>(&mut self, shared: &mut SharedPart<T>) {
        let Some(part) = &mut shared.0 else { return };
        let mut hasher = Mixer(self.seed);
        part.feed(&mut hasher);
        let hash = hasher.finish();
        let known = self.known.get(&hash).and_then(Weak::upgrade).and_then(|known| known.downcast::<T>().ok());
        if let Some(known) = known.filter(|known| part.is_alike(known)) {
            *part = known;
            return;
        }
        // Inner parts are shared only now: most often the whole part is known.
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
