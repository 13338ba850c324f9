//! Tables read by the ids they hand out.

use std::marker::PhantomData;

/// A position in a typed table.
pub(crate) trait Id: Copy {
    fn new(position: usize) -> Self;
    fn position(self) -> usize;
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
            pub(crate) struct $name(u32);

            impl Id for $name {
                fn new(position: usize) -> Self {
                    $name(u32::try_from(position).unwrap_or(u32::MAX))
                }

                fn position(self) -> usize {
                    self.0 as usize
                }
            }
        )*
    };
}

ids! {
    /// A device that can be used from the node in question.
    CandidateId,
    /// A pool of such devices.
    PoolId,
    /// A claim of the pod in question.
    ClaimId,
    /// A request, or one of its alternatives.
    AskId,
}

/// One value for each id.
#[derive(Debug, Clone)]
pub(crate) struct Table<K, V> {
    values: Vec<V>,
    key: PhantomData<K>,
}

impl<K: Id, V> Table<K, V> {
    pub(crate) fn new() -> Self {
        Table { values: Vec::new(), key: PhantomData }
    }

    /// A value for each of the first ids.
    pub(crate) fn filled(count: usize, value: impl Fn() -> V) -> Self {
        Table { values: std::iter::repeat_with(value).take(count).collect(), key: PhantomData }
    }

    pub(crate) fn push(&mut self, value: V) -> K {
        self.values.push(value);
        K::new(self.values.len().saturating_sub(1))
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = K> + use<K, V> {
        (0..self.values.len()).map(K::new)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        self.values.iter().enumerate().map(|(position, value)| (K::new(position), value))
    }

    /// The value of an id that a table of this length has handed out.
    #[expect(clippy::indexing_slicing, reason = "ids are handed out by tables of the same length")]
    pub(crate) fn of(&self, id: K) -> &V {
        &self.values[id.position()]
    }

    #[expect(clippy::indexing_slicing, reason = "ids are handed out by tables of the same length")]
    pub(crate) fn of_mut(&mut self, id: K) -> &mut V {
        &mut self.values[id.position()]
    }

    pub(crate) fn get(&self, id: K) -> Option<&V> {
        self.values.get(id.position())
    }
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Table { values: Vec::new(), key: PhantomData }
    }
}

impl<K, V> FromIterator<V> for Table<K, V> {
    fn from_iter<T: IntoIterator<Item = V>>(values: T) -> Self {
        Table { values: values.into_iter().collect(), key: PhantomData }
    }
}
