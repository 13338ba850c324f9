//! Performs actions through the API, under a controller's own identity.
//!
//! Writes are recorded in the [expectations](crate::machinery::expectations), rejections in the [refusals]. Creations from
//! a template go through [`create_all`](Executor::create_all), which begins with one and doubles: if the first
//! is rejected, the others are not tried.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::core::v1::ObjectReference;
use api::json::{Text, Value};
use api::meta::v1::ObjectMeta;
use api::metadata;
use api::time::Timestamp;
use client::events::Recorder;
use client::informer::Key;
use client::objects::Deletion;
use client::{Client, Resource};
use futures::future::join_all;
use telemetry::logs::chain;
use tokio::time::Instant;
use tracing::debug;

use crate::machinery::action::{Action, Event};
use crate::machinery::expectations::Expectations;
use crate::machinery::refusals::{self, Refusals, Turn, WantedObject};

/// A reason why an action was not performed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The request failed.
    #[error(transparent)]
    Client(#[from] client::Error),
    /// The controller of the object to adopt was deleted or is being deleted: the informers are outdated.
    #[error("the object no longer exists or is being deleted")]
    Ending,
    /// The same creation was rejected recently, so that it was not tried.
    #[error("{message}")]
    Held {
        /// Message of the server at the last attempt.
        message: String,
        /// Delay before the next attempt.
        after: Duration,
    },
    /// Another operation must finish first.
    #[error("{0}")]
    Waiting(String),
    /// Similar objects are rejected, and this one has not had its first attempt.
    #[error("similar objects are rejected, and this one has not been tried yet")]
    Early {
        /// Delay before the next attempt.
        after: Duration,
    },
}

impl Failure {
    /// The code of the server's answer, 0 if there was none.
    #[must_use]
    pub fn code(&self) -> u16 {
        match self {
            Failure::Client(error) => error.code(),
            Failure::Held { .. } | Failure::Early { .. } | Failure::Ending | Failure::Waiting(_) => 0,
        }
    }

    /// Whether an object of this name exists already.
    #[must_use]
    pub fn is_already_exists(&self) -> bool {
        matches!(self, Failure::Client(error) if error.is_already_exists())
    }

    /// Whether the namespace is being deleted, which also deletes its objects.
    #[must_use]
    pub fn is_ending_namespace(&self) -> bool {
        self.to_string().contains("because it is being terminated")
    }

    /// Message for events: `None` before the first attempt.
    #[must_use]
    pub fn reported(&self) -> Option<String> {
        (!matches!(self, Failure::Early { .. })).then(|| self.to_string())
    }

    /// Delay before the next attempt, if the server has rejected the request; other failures are retried with a
    /// growing back-off.
    #[must_use]
    pub fn held(&self) -> Option<Duration> {
        match self {
            Failure::Held { after, .. } | Failure::Early { after } => Some(*after),
            Failure::Client(error) => {
                (refusals::is_refusal(error) && !refusals::may_pass(error)).then_some(AFTER_REFUSAL)
            }
            Failure::Ending | Failure::Waiting(_) => None,
        }
    }
}

/// Whether the server may have performed a request that it answered with an error.
fn may_be_done(error: &client::Error) -> bool {
    error.code() == 0 || error.code() >= 500
}

/// Delay after a rejection.
const AFTER_REFUSAL: Duration = Duration::from_secs(5);

/// Owner of the created objects: subject of events, and key of rejections.
#[derive(Debug, Clone, PartialEq)]
pub struct Owner {
    /// Object of the events.
    pub about: ObjectReference,
    /// Changes with the spec: a refusal of an old one does not count.
    pub generation: i64,
}

/// Result of several creations.
#[derive(Debug, Default)]
pub struct CreationResult {
    /// Created objects, as returned by the server.
    pub objects: Vec<Value>,
    /// Failure of the others.
    pub failure: Option<Failure>,
    /// Whether the failure was not reported before.
    pub is_news: bool,
}

struct Inner {
    controller: &'static str,
    client: Client,
    recorder: Recorder,
    expectations: Expectations,
    refusals: Arc<Refusals>,
}

/// Performs actions for one controller. Clones share everything.
#[derive(Clone)]
pub struct Executor {
    inner: Arc<Inner>,
}

impl Executor {
    /// Acts as `controller` through a client that has its identity. Needs a Tokio runtime.
    #[must_use]
    pub fn new(controller: &'static str, client: Client, refusals: Arc<Refusals>) -> Self {
        let recorder = Recorder::start(&client, controller, "");
        let expectations = Expectations::default();
        Self { inner: Arc::new(Inner { controller, client, recorder, expectations, refusals }) }
    }

    /// Client of the executor.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.inner.client
    }

    /// Time of the controller.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.inner.client.clock().now()
    }

    /// Writes that were not observed yet.
    #[must_use]
    pub fn expectations(&self) -> &Expectations {
        &self.inner.expectations
    }

    /// Recorder of events.
    #[must_use]
    pub fn recorder(&self) -> &Recorder {
        &self.inner.recorder
    }

    /// Whether all that was written for a key has been seen: only then a decision is sound.
    #[must_use]
    pub fn settled(&self, key: &Key) -> bool {
        self.inner.expectations.settled(key, Instant::now())
    }

    /// Removes all state of a key whose object was deleted.
    pub fn forget(&self, key: &Key) {
        self.inner.expectations.forget(key);
        self.inner.refusals.forget(&(self.inner.controller, key.clone()));
    }

    /// The keys whose creations were refused because an object of this name was missing; they may try at once.
    #[must_use]
    pub fn refused_without(&self, namespace: &str, name: &str) -> Vec<Key> {
        self.inner.refusals.appeared(self.inner.controller, namespace, name)
    }

    /// Delay for an object without a previous attempt, because its creation would be rejected as it is for
    /// others. `object` is the object to create, or has its fields.
    #[must_use]
    pub fn postponed(&self, key: &Key, resource: &Resource, object: &Value, generation: i64) -> Option<Duration> {
        let wanted = WantedObject { plural: &resource.plural, object, generation };
        match self.inner.refusals.peek(&(self.inner.controller, key.clone()), wanted, Instant::now()) {
            Some(after) if after > Duration::ZERO => Some(after),
            _ => None,
        }
    }

    /// Performs actions in order, for the object of `key`; the first failure ends it.
    ///
    /// If an object is written twice, the second write is guarded by the version of the first one. An object to
    /// delete may already be deleted.
    ///
    /// # Errors
    /// The first failure.
    pub async fn perform(&self, key: &Key, actions: Vec<Action>) -> Result<(), Failure> {
        let mut versions: HashMap<(Text, Text), Text> = HashMap::new();
        for mut action in actions {
            if let Action::Update { resource, object } | Action::UpdateStatus { resource, object } = &mut action
                && let Some(version) = versions.get(&(resource.plural.as_ref().into(), metadata::name(object).into()))
            {
                let version = version.clone();
                object.set_at(&["metadata", "resourceVersion"], version);
            }
            if let Some((plural, answer)) = self.perform_one(key, action).await? {
                let version = answer.text_at(&["metadata", "resourceVersion"]);
                versions.insert((plural, metadata::name(&answer).into()), version.into());
            }
        }
        Ok(())
    }

    /// Performs one action and returns the written object.
    async fn perform_one(&self, key: &Key, action: Action) -> Result<Option<(Text, Value)>, Failure> {
        let client = &self.inner.client;
        let (resource, answer) = match action {
            Action::Event(Event { about, severity, reason, message }) => {
                self.inner.recorder.event(about, severity, reason, &message);
                return Ok(None);
            }
            Action::Delete { resource, namespace, name, uid, how } => {
                self.delete(key, &resource, &namespace, &name, &uid, &how).await?;
                return Ok(None);
            }
            Action::Create { resource, object } => {
                let objects = client.documents(resource.clone());
                let answer = objects.create(metadata::namespace(&object), &object).await?;
                (resource, answer)
            }
            Action::Update { resource, object } => {
                let objects = client.documents(resource.clone());
                let answer = objects.update(metadata::namespace(&object), metadata::name(&object), &object).await?;
                (resource, answer)
            }
            Action::UpdateStatus { resource, object } => {
                let objects = client.documents(resource.clone());
                let answer =
                    objects.update_status(metadata::namespace(&object), metadata::name(&object), &object).await?;
                (resource, answer)
            }
            Action::Patch { resource, namespace, name, subresource, kind, patch } => {
                let objects = client.documents(resource.clone());
                let answer = objects.patch(&namespace, &name, subresource, kind, &patch).await?;
                (resource, answer)
            }
        };
        self.note(key, &resource, &answer);
        Ok(Some((resource.plural.as_ref().into(), answer)))
    }

    /// Checks with the server whether an object still exists and is not being deleted. Informers of several
    /// kinds are not synchronized: the dependents of a deleted object may disappear before the object itself.
    ///
    /// # Errors
    /// Any failure except that the object is missing.
    pub async fn lives(&self, resource: Resource, metadata: &ObjectMeta) -> Result<bool, Failure> {
        let found = self.inner.client.documents(resource).get(&metadata.namespace, &metadata.name).await;
        match found {
            Ok(object) => {
                let is_same = object.str_at(&["metadata", "uid"]) == Some(metadata.uid.as_str());
                Ok(is_same && object.at(&["metadata", "deletionTimestamp"]).is_none())
            }
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes a status, and returns the server's result.
    ///
    /// # Errors
    /// The server rejects the write.
    pub async fn write_status(&self, key: &Key, resource: Resource, object: Value) -> Result<Value, Failure> {
        let action = Action::UpdateStatus { resource, object };
        Ok(self.perform_one(key, action).await?.map(|(_, answer)| answer).unwrap_or_default())
    }

    fn note(&self, key: &Key, resource: &Resource, answer: &Value) {
        let version = answer.text_at(&["metadata", "resourceVersion"]);
        self.inner.expectations.wrote(key, &resource.plural, version, Instant::now());
    }

    /// Deletes an object, with this UID if it is not empty; returns whether it existed. A replaced object
    /// counts as missing.
    ///
    /// # Errors
    /// Any other failure.
    pub async fn delete(
        &self,
        key: &Key,
        resource: &Resource,
        namespace: &str,
        name: &str,
        uid: &str,
        how: &Deletion,
    ) -> Result<bool, Failure> {
        self.inner.expectations.deletes(key, &resource.plural, uid, Instant::now());
        let result = self.inner.client.documents(resource.clone()).delete(namespace, name, how).await;
        match result {
            Ok(_) => Ok(true),
            Err(error) => {
                self.inner.expectations.does_not_delete(uid);
                if may_be_done(&error) {
                    // It may have been deleted in spite of the error: deleting another one would be one too
                    // many.
                    self.inner.expectations.may_have_written(key, Instant::now());
                }
                let changed = error.is_conflict() && how.resource_version.is_none() && how.uid.is_some();
                if error.is_not_found() || changed { Ok(false) } else { Err(error.into()) }
            }
        }
    }

    /// Creates objects from a template for the object of `key`: first one, then two, four and so on at a time.
    /// The first failure ends it; rejected creations are not tried again for a while.
    pub async fn create_all(
        &self,
        key: &Key,
        owner: &Owner,
        resource: &Resource,
        objects: Vec<Value>,
    ) -> CreationResult {
        let who = (self.inner.controller, key.clone());
        let mut created = CreationResult::default();
        let mut rest = objects.as_slice();
        let mut batch = 1_usize;
        while let (Some(first), None) = (rest.first(), &created.failure) {
            let wanted = |object| WantedObject { plural: &resource.plural, object, generation: owner.generation };
            match self.inner.refusals.ask(&who, wanted(first), Instant::now()) {
                Turn::Go => {}
                Turn::Wait { after, message } => {
                    created.failure = Some(Failure::Held { message, after });
                    break;
                }
                Turn::First { after } => {
                    created.failure = Some(Failure::Early { after });
                    break;
                }
            }
            let (now, later) = rest.split_at_checked(batch).unwrap_or((rest, &[]));
            let documents = self.inner.client.documents(resource.clone());
            let creations = now.iter().map(|object| documents.create(metadata::namespace(object), object));
            for (object, answer) in now.iter().zip(join_all(creations).await) {
                match answer {
                    Ok(answer) => {
                        self.note(key, resource, &answer);
                        self.inner.refusals.accepted(&who, &resource.plural, Instant::now());
                        created.objects.push(answer);
                    }
                    Err(error) => {
                        debug!(controller = who.0, object = %key, err = %chain(&error), "Creation failed");
                        if may_be_done(&error) {
                            // It may exist in spite of the error: another one would be one too many.
                            self.inner.expectations.may_have_written(key, Instant::now());
                        }
                        let refusals = &self.inner.refusals;
                        created.is_news |= !refusals::is_refusal(&error)
                            || refusals.refused(&who, wanted(object), &error, Instant::now());
                        created.failure.get_or_insert(error.into());
                    }
                }
            }
            rest = later;
            batch = batch.saturating_mul(2);
        }
        created
    }
}
