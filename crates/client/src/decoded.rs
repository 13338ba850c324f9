//! Objects that are decoded once, however many components of a process follow them.
//!
//! Every component opens its own watches under its own identity, and receives only the objects that it may
//! read. The objects themselves are the same for all, identified by UID and version, so components share the
//! decoded form. An object is kept here only as long as a component uses it. The same applies to the
//! [parts](api::shared) that different objects have in common.

use locks::{Mutex, MutexGuard};
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use api::shared::Pool;

/// An object of a type that is known where it is read.
pub(crate) type AnyObject = dyn Any + Send + Sync;

/// Number of objects of a type above which unused ones are removed.
const SWEEP_MIN: usize = 64;

/// Identity of one state of an object, unique on one server.
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
    object: Weak<AnyObject>,
}

/// The objects of one type, by uid.
struct Table {
    objects: HashMap<u128, Entry>,
    sweep_at: usize,
}

/// Number of objects that were decoded, and number of those that were shared instead.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Decoded.
    pub decoded: u64,
    /// Found decoded.
    pub shared: u64,
}

/// Decoded objects of one server, shared by the components of a process.
#[derive(Default)]
pub struct DecodedObjects {
    tables: Mutex<HashMap<TypeId, Table>>,
    pool: Arc<Pool>,
    decoded: AtomicU64,
    shared: AtomicU64,
}

impl std::fmt::Debug for DecodedObjects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DecodedObjects").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

impl DecodedObjects {
    /// Counters of the cache.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counts { decoded: read(&self.decoded), shared: read(&self.shared) }
    }

    /// Number of objects of a type in the cache, possibly including unused ones.
    #[must_use]
    pub fn kept<T: Send + Sync + 'static>(&self) -> usize {
        self.tables().get(&TypeId::of::<T>()).map_or(0, |table| table.objects.len())
    }

    fn tables(&self) -> MutexGuard<'_, HashMap<TypeId, Table>> {
        self.tables.lock()
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

    /// Returns the object, if it is cached.
    pub(crate) fn get<T: Send + Sync + 'static>(&self, id: Id) -> Option<Arc<T>> {
        self.get_any(TypeId::of::<T>(), id)?.downcast().ok()
    }

    pub(crate) fn get_any(&self, form: TypeId, id: Id) -> Option<Arc<AnyObject>> {
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

    /// Like [`put`](Self::put), for an object of the type `form`.
    pub(crate) fn put_any(&self, form: TypeId, id: Id, object: Arc<AnyObject>) -> Arc<AnyObject> {
        let mut tables = self.tables();
        let empty = || Table { objects: HashMap::new(), sweep_at: SWEEP_MIN };
        let table = tables.entry(form).or_insert_with(empty);
        if let Some(entry) = table.objects.get(&id.uid)
            && let Some(known) = entry.object.upgrade()
        {
            if entry.version == id.version {
                return known;
            }
            // A component that is behind catches up to the same state.
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
    fn only_server_identities_are_parsed() {
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
        let decoded = DecodedObjects::default();
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
    fn unused_objects_are_removed() {
        let decoded = DecodedObjects::default();
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
