//! Index of keys, and of their kept revisions.
//!
//! In memory and without I/O: a version records the location of its value, which may be on disk. Superseded
//! versions are queued in the order in which they were superseded, so the cost of compaction is proportional to
//! the removed versions.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use crate::Revision;

/// Value of a key from one revision on.
#[derive(Debug, Clone)]
pub(super) struct Version {
    pub(super) revision: Revision,
    pub(super) content: Content,
}

/// Location of a version's value.
#[derive(Debug, Clone)]
pub(super) enum Content {
    /// The key was deleted.
    Deleted,
    /// In memory.
    Resident(Bytes),
    /// In the file, under the version's revision.
    OnDisk { length: u32 },
}

impl Content {
    /// Bytes of the value.
    pub(super) fn length(&self) -> u64 {
        match self {
            Self::Deleted => 0,
            Self::Resident(value) => u64::try_from(value.len()).unwrap_or(u64::MAX),
            Self::OnDisk { length } => u64::from(*length),
        }
    }

    fn is_deleted(&self) -> bool {
        matches!(self, Self::Deleted)
    }
}

#[derive(Debug)]
struct Versions {
    latest: Version,
    /// Ascending by revision; empty for most keys.
    older: Vec<Version>,
}

impl Versions {
    fn at(&self, revision: Revision) -> Option<&Version> {
        if self.latest.revision <= revision {
            return Some(&self.latest);
        }
        let after = self.older.partition_point(|version| version.revision <= revision);
        self.older.get(after.checked_sub(1)?)
    }
}

/// A version that is not visible to reads at `since` or later.
#[derive(Debug)]
struct SupersededVersion {
    since: Revision,
    key: Arc<str>,
    revision: Revision,
    bytes: u64,
}

/// Approximate overhead of a superseded version besides its value.
const VERSION_OVERHEAD_BYTES: u64 = 128;

/// A live entry of the index.
#[derive(Debug)]
pub(super) struct FoundEntry {
    pub(super) key: Arc<str>,
    pub(super) revision: Revision,
    pub(super) content: Content,
}

#[derive(Debug, Default)]
pub(super) struct Index {
    keys: BTreeMap<Arc<str>, Versions>,
    // INVARIANT: ascending by `since`.
    superseded: VecDeque<SupersededVersion>,
    superseded_bytes: u64,
    live: u64,
    live_bytes: u64,
}

impl Index {
    /// Current version of `key`.
    pub(super) fn latest(&self, key: &str) -> Option<(&Arc<str>, &Version)> {
        let (key, versions) = self.keys.get_key_value(key)?;
        (!versions.latest.content.is_deleted()).then_some((key, &versions.latest))
    }

    /// Version of `key` just before `revision`.
    pub(super) fn before(&self, key: &str, revision: Revision) -> Option<&Version> {
        let version = self.keys.get(key)?.at(revision.checked_sub(1)?)?;
        (!version.content.is_deleted()).then_some(version)
    }

    /// The live entries at `revision` in key order: keys with the prefix, greater than `after_key`.
    pub(super) fn range<'a>(
        &'a self,
        prefix: &'a str,
        after_key: Option<&str>,
        revision: Revision,
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a Version)> {
        let start = match after_key {
            Some(key) if key >= prefix => Bound::Excluded(key),
            _ => Bound::Included(prefix),
        };
        self.keys
            .range::<str, _>((start, Bound::Unbounded))
            .take_while(move |(key, _)| key.starts_with(prefix))
            .filter_map(move |(key, versions)| Some((key, versions.at(revision)?)))
            .filter(|(_, version)| !version.content.is_deleted())
    }

    /// Adds the newest version of a key. Its revision is greater than all before.
    pub(super) fn insert(&mut self, key: &Arc<str>, version: Version) {
        let since = version.revision;
        let deleted = version.content.is_deleted();
        let bytes = version.content.length().saturating_add(VERSION_OVERHEAD_BYTES);
        if let Some(versions) = self.keys.get_mut(key) {
            let old = std::mem::replace(&mut versions.latest, version);
            if !old.content.is_deleted() {
                // A deleted version has been queued when it came.
                let superseded = SupersededVersion {
                    since,
                    key: key.clone(),
                    revision: old.revision,
                    bytes: old.content.length().saturating_add(VERSION_OVERHEAD_BYTES),
                };
                self.superseded_bytes = self.superseded_bytes.saturating_add(superseded.bytes);
                self.live_bytes = self.live_bytes.saturating_sub(superseded.bytes);
                self.superseded.push_back(superseded);
                self.live = self.live.saturating_sub(1);
            }
            versions.older.push(old);
        } else {
            self.keys.insert(key.clone(), Versions { latest: version, older: Vec::new() });
        }
        if deleted {
            self.superseded.push_back(SupersededVersion {
                since,
                key: key.clone(),
                revision: since,
                bytes: VERSION_OVERHEAD_BYTES,
            });
            self.superseded_bytes = self.superseded_bytes.saturating_add(VERSION_OVERHEAD_BYTES);
        } else {
            self.live = self.live.saturating_add(1);
            self.live_bytes = self.live_bytes.saturating_add(bytes);
        }
    }

    /// Returns up to `limit` versions that are not visible to reads at `compacted` or later.
    pub(super) fn garbage(&self, compacted: Revision, limit: usize) -> Vec<Revision> {
        self.superseded
            .iter()
            .take_while(|superseded| superseded.since <= compacted)
            .take(limit)
            .map(|superseded| superseded.revision)
            .collect()
    }

    /// Removes the first `count` versions that [`Index::garbage`] returned.
    pub(super) fn forget(&mut self, count: usize) {
        for SupersededVersion { key, revision, bytes, .. } in self.superseded.drain(..count.min(self.superseded.len()))
        {
            self.superseded_bytes = self.superseded_bytes.saturating_sub(bytes);
            let Some(versions) = self.keys.get_mut(&key) else {
                continue;
            };
            if let Ok(position) = versions.older.binary_search_by_key(&revision, |version| version.revision) {
                versions.older.remove(position);
                if versions.older.is_empty() {
                    versions.older = Vec::new();
                }
            } else if versions.latest.revision == revision {
                // Only a deletion is queued while it is the latest, and everything before it has been dropped by now.
                self.keys.remove(&key);
            }
        }
    }

    /// Returns the revision to compact at so that superseded versions take at most `bytes`.
    pub(super) fn compaction_for(&self, bytes: u64) -> Option<Revision> {
        let mut rest = self.superseded_bytes;
        if rest <= bytes {
            return None;
        }
        let mut target = None;
        for superseded in &self.superseded {
            if rest <= bytes {
                break;
            }
            rest = rest.saturating_sub(superseded.bytes);
            target = Some(superseded.since);
        }
        target
    }

    /// Number of live keys.
    pub(super) fn live(&self) -> u64 {
        self.live
    }

    /// About how many bytes everything takes.
    pub(super) fn bytes(&self) -> u64 {
        self.live_bytes.saturating_add(self.superseded_bytes)
    }

    /// About how many bytes superseded versions take.
    pub(super) fn superseded_bytes(&self) -> u64 {
        self.superseded_bytes
    }
}
