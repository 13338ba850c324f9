//! The loop under every write to an object that exists: read, decide, write, start over if someone else was faster.

use std::sync::Arc;

use api::json::Value;
use store::{Change, Guard, Outcome, Write};

use super::Call;
use crate::admission::{self, unenforced};
use crate::http::status::{Failure, Result};
use crate::objects::services;
use crate::storage::stored::Served;

/// What to do with an object.
pub(super) enum Decision {
    /// Write it. The document is in the stored version.
    Put(Value),
    /// Write it, then decide again about what was written.
    PutThenDelete(Value),
    /// Remove it; the document is what the client is told.
    Delete(Value),
    /// Leave it as it is.
    Keep,
}

impl Decision {
    /// What a user should know about what is written.
    pub(super) fn warnings(&self, call: &Call<'_>, old: &Value, subresource: &str) -> Vec<String> {
        match self {
            Decision::Put(value) => {
                let mut warnings = call.server.meaning.warnings(call.resource, value, Some(old), subresource);
                if subresource.is_empty() {
                    warnings.extend(unenforced::warnings(call.resource, value, Some(old)));
                }
                warnings
            }
            _ => Vec::new(),
        }
    }
}

/// How it ended.
pub(super) enum Done {
    /// The object as it is now.
    Stored(Arc<Served>),
    /// The object as it was when it went.
    Deleted(Value),
    /// What would have been stored.
    Dry(Value),
}

/// Applies `decide` to the object of a call until the result can be written without losing anyone else's change.
///
/// `decide` gets the stored document, which has its version in `metadata.resourceVersion`.
pub(super) async fn modify(
    call: &Call<'_>,
    dry_run: bool,
    mut decide: impl FnMut(&Value) -> Result<Decision>,
) -> Result<Done> {
    let key = call.key();
    // No write checks what a dry run was based on.
    let mut fresh = dry_run;
    let mut current = if dry_run { load(call, &key).await? } else { call.cache().get(&key) };
    // What this request wrote before it could delete it.
    let mut ending: Option<Value> = None;
    loop {
        if current.is_none()
            && fresh
            && let Some(last) = ending.take()
        {
            // Kubernetes: who else deletes it in between does what was asked for.
            return Ok(Done::Deleted(last));
        }
        let Some(object) = current.clone() else {
            if fresh {
                return Err(Failure::not_found(call.resource, &call.target.name));
            }
            (current, fresh) = (load(call, &key).await?, true);
            continue;
        };
        let old = call.decode(&object);
        // A cached object may be out of date: only the store's own answer may end this without a write.
        let decision = match decide(&old) {
            Ok(Decision::Keep) | Err(_) if !fresh && load_changed(call, &key, &mut current, &object).await? => {
                fresh = true;
                continue;
            }
            decision => decision?,
        };
        let (mut value, deletes) = match decision {
            Decision::Keep => return Ok(Done::Stored(object)),
            Decision::Delete(value) if dry_run => return Ok(Done::Deleted(value)),
            Decision::Put(mut value) | Decision::PutThenDelete(mut value) if dry_run => {
                charge(call, &value, &old, true).await?;
                services::reserve(call.server, call.resource, &mut value, Some(&old), true).await?;
                return Ok(Done::Dry(value));
            }
            Decision::Put(value) => (value, false),
            Decision::PutThenDelete(value) => (value, true),
            Decision::Delete(value) => {
                let write = Write::delete(key.as_str(), object.revision);
                match call.server.store.write(write).await? {
                    Outcome::Done { .. } => {
                        services::settle(call.server, call.resource, &old, None).await;
                        return Ok(Done::Deleted(value));
                    }
                    Outcome::Conflict { current: now } => {
                        (current, fresh) = (served(now), true);
                        continue;
                    }
                }
            }
        };
        if !deletes {
            charge(call, &value, &old, false).await?;
        }
        let reserved = services::reserve(call.server, call.resource, &mut value, Some(&old), false).await?;
        let bytes = call.encode(&mut value).ok_or_else(|| Failure::internal("the object has no metadata"))?;
        if object.json == Served::new(&bytes, object.revision).map(|it| it.json).unwrap_or_default() {
            // Nothing changes: no write, no event, the same version.
            if !deletes {
                if !fresh && load_changed(call, &key, &mut current, &object).await? {
                    fresh = true;
                    continue;
                }
                return Ok(Done::Stored(object));
            }
        }
        let ttl = call.server.time_to_live(call.resource);
        let change = Change::Put { value: bytes.clone(), ttl };
        let write = Write { key: key.clone(), guard: Guard::Unchanged(object.revision), change };
        match call.server.store.write(write).await? {
            Outcome::Done { revision } => {
                services::settle(call.server, call.resource, &old, Some(&value)).await;
                let now =
                    Served::new(&bytes, revision).ok_or_else(|| Failure::internal("the object was not encoded"))?;
                if !deletes {
                    return Ok(Done::Stored(Arc::new(now)));
                }
                ending = Some(now.decode());
                (current, fresh) = (Some(Arc::new(now)), true);
            }
            Outcome::Conflict { current: now } => {
                services::revert(call.server, &value, &reserved).await;
                (current, fresh) = (served(now), true);
            }
        }
    }
}

/// Counts what a change adds.
async fn charge(call: &Call<'_>, value: &Value, old: &Value, dry_run: bool) -> Result<()> {
    admission::charge_change(call.server, call.resource, &call.target.subresource, (value, old), dry_run).await
}

fn served(entry: Option<store::Entry>) -> Option<Arc<Served>> {
    entry.and_then(|entry| Served::new(&entry.value, entry.revision)).map(Arc::new)
}

async fn load(call: &Call<'_>, key: &str) -> Result<Option<Arc<Served>>> {
    Ok(served(call.server.store.get(key, 0).await?.entry))
}

/// Reads the object from the store; whether that is another than the cached one.
async fn load_changed(call: &Call<'_>, key: &str, current: &mut Option<Arc<Served>>, cached: &Served) -> Result<bool> {
    *current = load(call, key).await?;
    Ok(current.as_ref().is_none_or(|now| now.revision != cached.revision))
}
