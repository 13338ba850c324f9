//! Performs actions through the API, under a controller's own identity.
//!
//! What is written is noted in the [expectations](crate::expectations), what is refused in the
//! [refusals]. Creations from a template go through [`create_all`](Executor::create_all), which begins
//! with one and doubles: if the first is refused, the others are not tried.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::core::v1::ObjectReference;
use api::json::{Text, Value};
use api::meta::v1::ObjectMeta;
use client::events::Recorder;
use client::informer::Key;
use client::objects::Deletion;
use client::{Client, Resource};
use futures::future::join_all;
use tokio::time::Instant;
use tracing::debug;

use crate::action::{Action, Event};
use crate::edit;
use crate::expectations::Expectations;
use crate::refusals::{self, Refusals, Turn, Wanted};

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The request failed.
    #[error(transparent)]
    Client(#[from] client::Error),
    /// The controller of what is to be adopted is gone or going: what the local copies say is too old.
    #[error("the object is gone or being deleted")]
    Ending,
    /// The same was refused a short while ago, so that it was not tried.
    #[error("{message}")]
    Held {
        /// What the server said then.
        message: String,
        /// When to ask again.
        after: Duration,
    },
    /// Something has to be over first.
    #[error("{0}")]
    Waiting(String),
    /// Others are refused for what it has too, and its turn to try has not come.
    #[error("others like it are refused, and it has not been tried yet")]
    Early {
        /// When to ask again.
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

    /// Whether the namespace is being deleted: it takes what it holds along.
    #[must_use]
    pub fn is_ending_namespace(&self) -> bool {
        self.to_string().contains("because it is being terminated")
    }

    /// What users are told of it: nothing before there was a try.
    #[must_use]
    pub fn told(&self) -> Option<String> {
        (!matches!(self, Failure::Early { .. })).then(|| self.to_string())
    }

    /// How long to wait before the next try, if the server has refused; other failures come back with growing pauses.
    #[must_use]
    pub fn held(&self) -> Option<Duration> {
        match self {
            Failure::Held { after, .. } | Failure::Early { after } => Some(*after),
            Failure::Client(error) => refusals::is_refusal(error).then_some(AFTER_REFUSAL),
            Failure::Ending | Failure::Waiting(_) => None,
        }
    }
}

/// Whether the server may have done what it answered with an error.
fn may_be_done(error: &client::Error) -> bool {
    error.code() == 0 || error.code() >= 500
}

/// Who was just refused asks again after this time.
const AFTER_REFUSAL: Duration = Duration::from_secs(5);

/// Whose pods (or other objects) are made: what events are about, and what refusals belong to.
#[derive(Debug, Clone, PartialEq)]
pub struct Owner {
    /// What events are about.
    pub about: ObjectReference,
    /// Changes with the spec: a refusal of an old one does not count.
    pub generation: i64,
}

/// What came of a number of creations.
#[derive(Debug, Default)]
pub struct Created {
    /// What exists now, as the server made it.
    pub objects: Vec<Value>,
    /// Why the others do not exist.
    pub failure: Option<Failure>,
    /// Whether nobody has told of the failure before.
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

    /// Through which it speaks.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.inner.client
    }

    /// What it wrote and has not seen yet.
    #[must_use]
    pub fn expectations(&self) -> &Expectations {
        &self.inner.expectations
    }

    /// Tells what happened.
    #[must_use]
    pub fn recorder(&self) -> &Recorder {
        &self.inner.recorder
    }

    /// Whether all that was written for a key has been seen: only then a decision is sound.
    #[must_use]
    pub fn settled(&self, key: &Key) -> bool {
        self.inner.expectations.settled(key, Instant::now())
    }

    /// Forgets all about a key whose object is gone.
    pub fn forget(&self, key: &Key) {
        self.inner.expectations.forget(key);
        self.inner.refusals.forget(&(self.inner.controller, key.clone()));
    }

    /// How long the object of `key`, about which nobody has been told anything yet, waits because what it wants to create
    /// will be refused, as it is for others. `object` is what is created, or has its fields.
    #[must_use]
    pub fn postponed(&self, key: &Key, resource: &Resource, object: &Value, generation: i64) -> Option<Duration> {
        let wanted = Wanted { plural: &resource.plural, object, generation };
        match self.inner.refusals.peek(&(self.inner.controller, key.clone()), wanted, Instant::now()) {
            Some(after) if after > Duration::ZERO => Some(after),
            _ => None,
        }
    }

    /// Performs actions in order, for the object of `key`; the first failure ends it.
    ///
    /// Where an object is written twice, the second write is guarded by the version that the first one made. What is to
    /// be deleted may be gone already.
    ///
    /// # Errors
    /// The first failure.
    pub async fn perform(&self, key: &Key, actions: Vec<Action>) -> Result<(), Failure> {
        let mut versions: HashMap<(Text, Text), Text> = HashMap::new();
        for mut action in actions {
            if let Action::Update { resource, object } | Action::UpdateStatus { resource, object } = &mut action
                && let Some(version) = versions.get(&(resource.plural.as_ref().into(), edit::name(object).into()))
            {
                let version = version.clone();
                edit::set(object, &["metadata", "resourceVersion"], version);
            }
            if let Some((plural, answer)) = self.perform_one(key, action).await? {
                let version = answer.str_at(&["metadata", "resourceVersion"]).unwrap_or_default();
                versions.insert((plural, edit::name(&answer).into()), version.into());
            }
        }
        Ok(())
    }

    /// Performs one action and gives back what it wrote.
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
                let answer = objects.create(edit::namespace(&object), &object).await?;
                (resource, answer)
            }
            Action::Update { resource, object } => {
                let objects = client.documents(resource.clone());
                let answer = objects.update(edit::namespace(&object), edit::name(&object), &object).await?;
                (resource, answer)
            }
            Action::UpdateStatus { resource, object } => {
                let objects = client.documents(resource.clone());
                let answer = objects.update_status(edit::namespace(&object), edit::name(&object), &object).await?;
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

    /// Asks the server whether an object is still there, and not about to go. Local copies of several kinds do not come
    /// at the same time: what a deleted object owned may be seen to go before the object itself.
    ///
    /// # Errors
    /// Any failure but that it is not there.
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

    /// Writes a status, and gives back what the server made of it.
    ///
    /// # Errors
    /// What the server refuses.
    pub async fn write_status(&self, key: &Key, resource: Resource, object: Value) -> Result<Value, Failure> {
        let action = Action::UpdateStatus { resource, object };
        Ok(self.perform_one(key, action).await?.map(|(_, answer)| answer).unwrap_or_default())
    }

    fn note(&self, key: &Key, resource: &Resource, answer: &Value) {
        let version = answer.str_at(&["metadata", "resourceVersion"]).unwrap_or_default();
        self.inner.expectations.wrote(key, &resource.plural, version, Instant::now());
    }

    /// Deletes an object, the one of this uid if it is not empty; tells whether it was there. One that is another by now
    /// was not.
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
                    // It may be gone all the same: another one would be one too many.
                    self.inner.expectations.may_have_written(key, Instant::now());
                }
                let changed = error.is_conflict() && how.resource_version.is_none() && how.uid.is_some();
                if error.is_not_found() || changed { Ok(false) } else { Err(error.into()) }
            }
        }
    }

    /// Creates objects from a template for the object of `key`: first one, then two, four and so on at a time. The first
    /// failure ends it; what the server refuses is not tried again for a while.
    pub async fn create_all(&self, key: &Key, owner: &Owner, resource: &Resource, objects: Vec<Value>) -> Created {
        let who = (self.inner.controller, key.clone());
        let mut created = Created::default();
        let mut rest = objects.as_slice();
        let mut batch = 1_usize;
        while let (Some(first), None) = (rest.first(), &created.failure) {
            let wanted = |object| Wanted { plural: &resource.plural, object, generation: owner.generation };
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
            let creations = now.iter().map(|object| documents.create(edit::namespace(object), object));
            for (object, answer) in now.iter().zip(join_all(creations).await) {
                match answer {
                    Ok(answer) => {
                        self.note(key, resource, &answer);
                        self.inner.refusals.accepted(&who, &resource.plural, Instant::now());
                        created.objects.push(answer);
                    }
                    Err(error) => {
                        debug!(controller = who.0, object = %key, err = %error, "Creation failed");
                        if may_be_done(&error) {
                            // It may exist all the same: another one would be one too many.
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
