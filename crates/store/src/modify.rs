//! Read, change, write, and start over if someone else was faster.

use crate::{Change, Entry, Error, Guard, Outcome, Revision, Store, Write};

/// Result of [`modify`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModifyResult {
    /// The change was written.
    Written {
        /// The revision it made.
        revision: Revision,
    },
    /// The decision was to leave things as they are.
    Kept,
}

/// Applies `decide` to the value of `key` until the result can be written without losing another client's
/// change.
///
/// `known` is the value that the caller expects, for example from a cache: it saves a read, and a stale one
/// does no harm. If `decide` fails on it or keeps it, the decision is repeated on the stored value. `decide`
/// receives the entry (`None`: the key does not exist) and returns the change to make, or `None` for no change.
///
/// # Errors
/// Those of the store, turned into `E`, and those of `decide`.
pub async fn modify<E: From<Error>>(
    store: &dyn Store,
    key: &str,
    known: Option<Entry>,
    mut decide: impl FnMut(Option<&Entry>) -> Result<Option<Change>, E>,
) -> Result<ModifyResult, E> {
    let mut fresh = known.is_none();
    let mut current = match known {
        Some(entry) => Some(entry),
        None => store.get(key, 0).await?.entry,
    };
    loop {
        let change = match decide(current.as_ref()) {
            // A missing key need not be deleted.
            Ok(Some(Change::Delete)) if current.is_none() => return Ok(ModifyResult::Kept),
            Ok(Some(change)) => change,
            Ok(None) if fresh => return Ok(ModifyResult::Kept),
            Err(error) if fresh => return Err(error),
            // The cached entry may have been out of date: only the store's own answer may end this without a write.
            Ok(None) | Err(_) => {
                current = store.get(key, 0).await?.entry;
                fresh = true;
                continue;
            }
        };
        let guard = current.as_ref().map_or(Guard::Absent, |entry| Guard::Unchanged(entry.revision));
        match store.write(Write { key: key.to_owned(), guard, change }).await? {
            Outcome::Done { revision } => return Ok(ModifyResult::Written { revision }),
            Outcome::Conflict { current: now } => {
                current = now;
                fresh = true;
            }
        }
    }
}
