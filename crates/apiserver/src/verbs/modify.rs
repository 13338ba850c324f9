//! The loop under every write to an object that exists: read, decide, write, start over if someone else was faster.

use std::sync::Arc;

use api::json::Value;
use futures::future::BoxFuture;
use registry::pipeline::{Rules as _, Update};
use store::{Change, Guard, Outcome, Write};

use super::Call;
use crate::verbs::services;
use crate::wire::status::{Failure, Result};
use cache::stored::ServedObject;

/// A change that admission has to see before it is decided.
pub(super) trait Proposal: Send {
    /// Runs admission on the change.
    fn admit<'a>(self: Box<Self>, call: &'a Call<'_>, old: &'a Value) -> BoxFuture<'a, Result<Decision<'a>>>
    where
        Self: 'a;
}

/// Decision about an object.
pub(super) enum Decision<'p> {
    /// Decide after admission.
    Admit(Box<dyn Proposal + 'p>),
    /// Write it. The document is in the stored version.
    Put(Value),
    /// Write it, then decide again about what was written.
    PutThenDelete(Value),
    /// Remove it; the document is the client's response.
    Delete(Value),
    /// Leave it as it is.
    Keep,
}

impl Decision<'_> {
    /// Returns warnings about the written object.
    pub(super) fn warnings(&self, call: &Call<'_>, old: &Value, subresource: &str) -> Vec<String> {
        match self {
            Decision::Put(value) => {
                let subresource = Some(subresource).filter(|it| !it.is_empty());
                call.rules().warnings(value, Some(Update { old, subresource }))
            }
            _ => Vec::new(),
        }
    }
}

/// Result of a modification.
pub(super) enum ModifyResult {
    /// The object as it is now.
    Stored(Arc<ServedObject>),
    /// The object as it was when it went.
    Deleted(Value),
    /// The object that would have been stored.
    Dry(Value),
}

/// Applies `decide` to the object of a call until the result can be written without losing anyone else's change.
///
/// `decide` gets the stored document, which has its version in `metadata.resourceVersion`.
pub(super) async fn modify<'p>(
    call: &Call<'_>,
    dry_run: bool,
    mut decide: impl FnMut(&Value) -> Result<Decision<'p>>,
) -> Result<ModifyResult> {
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
            // Kubernetes: a concurrent deletion has the requested effect.
            return Ok(ModifyResult::Deleted(last));
        }
        let Some(object) = current.clone() else {
            if fresh {
                return Err(Failure::not_found(call.resource, &call.target.name));
            }
            (current, fresh) = (load(call, &key).await?, true);
            continue;
        };
        let old = match call.old(&object).await {
            Err(_) if !fresh && load_changed(call, &key, &mut current, &object).await? => {
                fresh = true;
                continue;
            }
            old => old?,
        };
        // A cached object may be out of date: only the store's own answer may end this without a write.
        let decision = match decide(&old) {
            Ok(Decision::Admit(proposal)) => proposal.admit(call, &old).await,
            decision => decision,
        };
        let decision = match decision {
            Ok(Decision::Keep) | Err(_) if !fresh && load_changed(call, &key, &mut current, &object).await? => {
                fresh = true;
                continue;
            }
            decision => decision?,
        };
        let (mut value, deletes) = match decision {
            // A proposal does not lead to another one.
            Decision::Keep | Decision::Admit(_) => return Ok(ModifyResult::Stored(object)),
            Decision::Delete(value) if dry_run => return Ok(ModifyResult::Deleted(value)),
            Decision::Put(mut value) | Decision::PutThenDelete(mut value) if dry_run => {
                services::reserve(call.server, call.resource, &mut value, Some(&old), true).await?;
                call.check_encoding(&value).await?;
                return Ok(ModifyResult::Dry(value));
            }
            Decision::Put(value) => (value, false),
            Decision::PutThenDelete(value) => (value, true),
            Decision::Delete(value) => {
                let write = Write::delete(key.as_str(), object.revision);
                match call.server.store.write(write).await? {
                    Outcome::Done { .. } => {
                        services::settle(call.server, call.resource, &old, None).await;
                        return Ok(ModifyResult::Deleted(value));
                    }
                    Outcome::Conflict { current: now } => {
                        (current, fresh) = (served(now), true);
                        continue;
                    }
                }
            }
        };
        let reserved = services::reserve(call.server, call.resource, &mut value, Some(&old), false).await?;
        let bytes = call.encoded(&mut value).await?;
        if object.json == ServedObject::new(&bytes, object.revision).map(|it| it.json).unwrap_or_default() {
            // Nothing changes: no write, no event, the same version.
            if !deletes {
                if !fresh && load_changed(call, &key, &mut current, &object).await? {
                    fresh = true;
                    continue;
                }
                return Ok(ModifyResult::Stored(object));
            }
        }
        let ttl = call.server.time_to_live(call.resource);
        let change = Change::Put { value: bytes.clone(), ttl };
        let write = Write { key: key.clone(), guard: Guard::Unchanged(object.revision), change };
        match call.server.store.write(write).await? {
            Outcome::Done { revision } => {
                services::settle(call.server, call.resource, &old, Some(&value)).await;
                call.warm(key.clone(), revision);
                let now = ServedObject::new(&bytes, revision)
                    .ok_or_else(|| Failure::internal("the object was not encoded"))?;
                if !deletes {
                    return Ok(ModifyResult::Stored(Arc::new(now)));
                }
                let now = Arc::new(now);
                ending = Some(call.old(&now).await?);
                (current, fresh) = (Some(now), true);
            }
            Outcome::Conflict { current: now } => {
                services::revert(call.server, &value, &reserved).await;
                (current, fresh) = (served(now), true);
            }
        }
    }
}

fn served(entry: Option<store::Entry>) -> Option<Arc<ServedObject>> {
    entry.and_then(|entry| ServedObject::new(&entry.value, entry.revision)).map(Arc::new)
}

async fn load(call: &Call<'_>, key: &str) -> Result<Option<Arc<ServedObject>>> {
    Ok(served(call.server.store.get(key, 0).await?.entry))
}

/// Reads the object from the store; whether that is another than the cached one.
async fn load_changed(
    call: &Call<'_>,
    key: &str,
    current: &mut Option<Arc<ServedObject>>,
    cached: &ServedObject,
) -> Result<bool> {
    *current = load(call, key).await?;
    Ok(current.as_ref().is_none_or(|now| now.revision != cached.revision))
}
