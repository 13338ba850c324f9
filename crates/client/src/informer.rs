//! A local copy of a collection that follows its changes, in order.
//!
//! An [`Informer`] opens one watch that begins with what exists (or lists first, where a server cannot do that), and goes
//! on from the last version it saw when the watch ends. Only when that version is too old it starts over, and then tells
//! its handlers the difference. Objects are kept once, however many read them: clone the informer, or get it from
//! [`Informers`]. It ends with its last clone. Who owns which field is dropped, because nobody reads it here.

mod changes;
mod follow;
mod handlers;
mod shared;
mod state;
mod store;

use std::sync::Arc;

use api::json::{ConvertError, Text, Value};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use self::handlers::Handlers;
use self::state::State;
use crate::client::Client;
use crate::document::{Kept, Others};
use crate::objects::Selection;
use crate::resources::Resource;

pub use changes::Changes;
pub use shared::Informers;
pub use store::Store;

/// What tells the objects of a collection apart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Key {
    /// The namespace, empty if the kind has none.
    pub namespace: Text,
    /// The name.
    pub name: Text,
}

impl Key {
    /// The key of an object.
    pub fn new(namespace: impl Into<Text>, name: impl Into<Text>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.namespace.as_str() {
            "" => f.write_str(&self.name),
            namespace => write!(f, "{namespace}/{}", self.name),
        }
    }
}

/// What happened to an object.
#[derive(Debug, PartialEq, Eq)]
pub enum Change<T> {
    /// It is new here.
    Added(Arc<T>),
    /// It was changed, once or several times.
    Updated {
        /// As it was known before.
        old: Arc<T>,
        /// As it is now.
        new: Arc<T>,
    },
    /// It is gone; this is the last that is known of it.
    Deleted(Arc<T>),
}

impl<T> Clone for Change<T> {
    fn clone(&self) -> Self {
        match self {
            Change::Added(object) => Change::Added(object.clone()),
            Change::Updated { old, new } => Change::Updated { old: old.clone(), new: new.clone() },
            Change::Deleted(object) => Change::Deleted(object.clone()),
        }
    }
}

impl<T> Change<T> {
    /// The newest that is known of the object.
    pub fn newest(&self) -> &Arc<T> {
        match self {
            Change::Added(object) | Change::Deleted(object) | Change::Updated { new: object, .. } => object,
        }
    }
}

type Make<T> = dyn Fn(Arc<Value>, Option<&Others<'_>>) -> Result<T, ConvertError> + Send + Sync;

/// How documents become what is kept.
pub(crate) struct Decode<T> {
    make: Box<Make<T>>,
    /// Whether whoever keeps the same type keeps the same.
    is_shared: bool,
}

impl<T> Decode<T> {
    fn own(decode: impl Fn(Arc<Value>) -> Result<T, ConvertError> + Send + Sync + 'static) -> Self {
        Self { make: Box::new(move |document, _| decode(document)), is_shared: false }
    }
}

impl<T: Kept> Decode<T> {
    fn of_kind() -> Self {
        let make = |document, others: Option<&Others<'_>>| match others {
            Some(others) => T::keep_sharing(document, others),
            None => T::keep(document),
        };
        Self { make: Box::new(make), is_shared: true }
    }
}

/// What the task that follows the collection shares with those who read.
struct Inner<T> {
    store: Store<T>,
    handlers: Handlers<T>,
    state: State,
    name: String,
}

/// The copy, and the task that follows the collection; it ends when the last informer that uses it is gone.
struct Running<T> {
    inner: Arc<Inner<T>>,
    task: JoinHandle<()>,
}

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A local copy of a collection. Clones share it, and handlers are called for as long as one of them lives.
pub struct Informer<T> {
    running: Arc<Running<T>>,
}

impl<T> Clone for Informer<T> {
    fn clone(&self) -> Self {
        Self { running: self.running.clone() }
    }
}

impl<T: Kept> Informer<T> {
    /// Follows the collection of a kind. Needs a Tokio runtime.
    #[must_use]
    pub fn start(client: &Client, selection: Selection) -> Self {
        Self::following(client, T::RESOURCE, selection, Decode::of_kind())
    }
}

impl Informer<Value> {
    /// Follows a collection, as plain documents.
    #[must_use]
    pub fn of_documents(client: &Client, resource: Resource, selection: Selection) -> Self {
        Self::decoding(client, resource, selection, |value| Ok(Arc::unwrap_or_clone(value)))
    }
}

impl<T: Send + Sync + 'static> Informer<T> {
    /// Follows a collection and keeps of each object what `decode` makes of it. Needs a Tokio runtime.
    #[must_use]
    pub fn decoding<D>(client: &Client, resource: Resource, selection: Selection, decode: D) -> Self
    where
        D: Fn(Arc<Value>) -> Result<T, ConvertError> + Send + Sync + 'static,
    {
        Self::following(client, resource, selection, Decode::own(decode))
    }

    fn following(client: &Client, resource: Resource, selection: Selection, decode: Decode<T>) -> Self {
        let inner = Arc::new(Inner {
            store: Store::new(),
            handlers: Handlers::new(),
            state: State::new(),
            name: selection.describe(&resource),
        });
        let follower = follow::Follower::new(client.clone(), resource, selection, decode, inner.clone());
        let task = tokio::spawn(follower.run());
        Self { running: Arc::new(Running { inner, task }) }
    }

    fn inner(&self) -> &Inner<T> {
        &self.running.inner
    }

    /// What is followed, for logs and checks: the resource, and what is selected of it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner().name
    }

    /// The objects.
    #[must_use]
    pub fn store(&self) -> &Store<T> {
        &self.inner().store
    }

    /// Whether everything that existed at the start is here.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.inner().state.has_synced()
    }

    /// Waits for that.
    pub async fn synced(&self) {
        self.inner().state.synced().await;
    }

    /// Whether the copy can be trusted: everything is here, the server was heard lately, and the task lives.
    ///
    /// # Errors
    /// Why not.
    pub fn health(&self) -> Result<(), String> {
        if self.running.task.is_finished() {
            return Err(format!("the informer of {} has ended", self.name()));
        }
        self.inner().state.health().map_err(|why| format!("the informer of {} {why}", self.name()))
    }

    /// How many objects came that could not be read; they are not in the store.
    #[must_use]
    pub fn unreadable(&self) -> u64 {
        self.inner().state.unreadable()
    }

    /// Calls `handler` for every object that is here, and then for every change, in order.
    ///
    /// It is called by the task that stores changes, so it should only note what is to be done. It may add handlers, but
    /// must not hold this informer, which would then never end.
    pub fn on_change(&self, mut handler: impl FnMut(&Key, &Change<T>) + Send + 'static) {
        self.on_change_while(move |key, change| {
            handler(key, change);
            true
        });
    }

    /// As [`on_change`](Self::on_change), until the handler answers with false.
    pub fn on_change_while(&self, handler: impl FnMut(&Key, &Change<T>) -> bool + Send + 'static) {
        self.inner().handlers.add(&self.inner().store, Box::new(handler));
    }

    /// What [`on_change`](Self::on_change) tells, to be read at leisure: what is not read is joined by key, so that no
    /// more waits than there are objects.
    #[must_use]
    pub fn changes(&self) -> Changes<T> {
        self.changes_waking(Arc::default())
    }

    /// As [`changes`](Self::changes); `ready` is notified when something waits, so that one can wait for the changes of
    /// several collections with [`Changes::try_next`].
    #[must_use]
    pub fn changes_waking(&self, ready: Arc<Notify>) -> Changes<T> {
        let (sender, receiver) = changes::channel(ready);
        self.on_change_while(move |key, change| sender.send(key, change));
        receiver
    }
}
