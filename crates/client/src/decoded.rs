//! Objects that are decoded once, however many components of a process follow them.
//!
//! Every component opens its own watches, under its own identity: what it may not see, it does not hear of. What it hears
//! of is the same object for all, known by its uid and version, and so they share what the first of them made of it. An
//! object is kept here only as long as somebody else keeps it. The same holds for the [parts](api::shared) that different
//! objects have in common.

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use api::shared::Pool;

use crate::informer::Anything;

/// How many objects of a type are kept before it is looked for those that nobody uses any more.
const SWEEP_MIN: usize = 64;

/// What tells one state of an object from all others of one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Id {
    uid: u128,
    version: u64,
}

impl Id {
    /// None if it is not as servers write it: then nothing is shared.
    pub(crate) fn parse(uid: &str, version: &str) -> Option<Self> {
        let fits = |(at, byte): (usize, u8)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        };
        if uid.len() != 36 || !uid.bytes().enumerate().all(fits) {
            return None;
        }
        let uid = u128::from_str_radix(&uid.replace('-', ""), 16).ok()?;
        Some(Self { uid, version: version.parse().ok()? })
    }
}

struct Entry {
    version: u64,
    object: Weak<Anything>,
}

/// The objects of one type, by uid.
struct Table {
    objects: HashMap<u128, Entry>,
    sweep_at: usize,
}

/// How many objects were decoded, and how many were not because they were known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Decoded.
    pub decoded: u64,
    /// Found decoded.
    pub shared: u64,
}

/// What the components of a process have decoded of one server's objects.
#[derive(Default)]
pub struct Decoded {
    tables: Mutex<HashMap<TypeId, Table>>,
    pool: Arc<Pool>,
    decoded: AtomicU64,
    shared: AtomicU64,
}

impl std::fmt::Debug for Decoded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoded").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

impl Decoded {
    /// How often it helped.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counts { decoded: read(&self.decoded), shared: read(&self.shared) }
    }

    /// How many objects of a type are kept, some of them perhaps no longer used.
    #[must_use]
    pub fn kept<T: Send + Sync + 'static>(&self) -> usize {
        self.tables().get(&TypeId::of::<T>()).map_or(0, |table| table.objects.len())
    }

    fn tables(&self) -> MutexGuard<'_, HashMap<TypeId, Table>> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The parts of all objects.
    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    pub(crate) fn count_decoded(&self) {
        self.decoded.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_shared(&self) {
        self.shared.fetch_add(1, Ordering::Relaxed);
    }

    /// The object, if somebody has it.
    pub(crate) fn get<T: Send + Sync + 'static>(&self, id: Id) -> Option<Arc<T>> {
        self.get_any(TypeId::of::<T>(), id)?.downcast().ok()
    }

    pub(crate) fn get_any(&self, form: TypeId, id: Id) -> Option<Arc<Anything>> {
        let tables = self.tables();
        let entry = tables.get(&form)?.objects.get(&id.uid)?;
        if entry.version != id.version {
            return None;
        }
        entry.object.upgrade()
    }

    /// Keeps an object for others. Gives back the one to use: another may have been faster.
    pub(crate) fn put<T: Send + Sync + 'static>(&self, id: Id, object: Arc<T>) -> Arc<T> {
        self.put_any(TypeId::of::<T>(), id, object.clone()).downcast().unwrap_or(object)
    }

    /// As [`put`](Self::put), for an object of the type `form`.
    pub(crate) fn put_any(&self, form: TypeId, id: Id, object: Arc<Anything>) -> Arc<Anything> {
        let mut tables = self.tables();
        let empty = || Table { objects: HashMap::new(), sweep_at: SWEEP_MIN };
        let table = tables.entry(form).or_insert_with(empty);
        if let Some(entry) = table.objects.get(&id.uid)
            && let Some(known) = entry.object.upgrade()
        {
            if entry.version == id.version {
                return known;
            }
            // Who is behind comes to what the others have.
            if entry.version > id.version {
                return object;
            }
        }
        table.objects.insert(id.uid, Entry { version: id.version, object: Arc::downgrade(&object) });
        if table.objects.len() >= table.sweep_at {
            table.objects.retain(|_, entry| entry.object.strong_count() > 0);
            table.sweep_at = table.objects.len().saturating_mul(2).max(SWEEP_MIN);
        }
        object
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn id(number: u32, version: &str) -> Id {
        Id::parse(&format!("{number:08x}-aaaa-4bbb-8ccc-0123456789ab"), version).unwrap()
    }

    #[test]
    fn only_what_servers_write_is_an_identity() {
        assert_ne!(id(1, "7"), id(2, "7"));
        assert_ne!(id(1, "7"), id(1, "8"));
        assert_eq!(id(1, "7"), id(1, "7"));
        let uid = "00000001-aaaa-4bbb-8ccc-0123456789ab";
        for (uid, version) in [("", "7"), ("n1", "7"), (uid, ""), (uid, "x"), (&uid.replace('-', "0"), "7")] {
            assert_eq!(Id::parse(uid, version), None, "{uid} {version}");
        }
        assert_eq!(Id::parse("00000001-aaaa-4bbb-8ccc-0123456789ag", "7"), None);
        assert_eq!(Id::parse("0-00000001aaaa-4bbb-8ccc-0123456789a", "7"), None);
    }

    #[test]
    fn the_first_of_a_version_is_shared_and_an_older_one_does_not_replace_a_newer() {
        let decoded = Decoded::default();
        let first = decoded.put(id(1, "7"), Arc::new("first"));
        assert!(Arc::ptr_eq(&first, &decoded.put(id(1, "7"), Arc::new("second"))));
        assert!(decoded.get::<&str>(id(1, "6")).is_none() && decoded.get::<u8>(id(1, "7")).is_none());
        assert_eq!(*decoded.put(id(1, "6"), Arc::new("older")), "older");
        assert!(Arc::ptr_eq(&first, &decoded.get(id(1, "7")).unwrap()));
        let newer = decoded.put(id(1, "8"), Arc::new("newer"));
        assert!(decoded.get::<&str>(id(1, "7")).is_none());
        drop(newer);
        assert!(decoded.get::<&str>(id(1, "8")).is_none(), "nobody has it any more");
    }

    #[test]
    fn what_nobody_uses_goes() {
        let decoded = Decoded::default();
        let kept: Vec<Arc<u32>> = (0..100).map(|number| decoded.put(id(number, "1"), Arc::new(number))).collect();
        for number in 1000..20_000 {
            drop(decoded.put(id(number, "1"), Arc::new(number)));
        }
        assert!(decoded.kept::<u32>() <= 2 * kept.len() + SWEEP_MIN, "{}", decoded.kept::<u32>());
        assert!(
            kept.iter().zip(0..).all(|(object, number)| Arc::ptr_eq(object, &decoded.get(id(number, "1")).unwrap()))
        );
    }
}
