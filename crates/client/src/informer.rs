//! A local copy of a collection that follows its changes, in order.
//!
//! An [`Informer`] opens one watch that begins with what exists (or lists first, where a server cannot do that), and goes
//! on from the last version it saw when the watch ends. Only when that version is too old it starts over, and then tells
//! its handlers the difference. Objects are kept once, however many read them: clone the informer, or get it from
//! [`Informers`]. Who owns which field is dropped, because nobody reads it here.

mod follow;
mod shared;
mod store;

use std::sync::{Arc, Mutex, PoisonError};

use api::json::{ConvertError, Text, Value};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::client::Client;
use crate::objects::Selection;
use crate::resources::{Resource, Served};

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

type Handler<T> = Box<dyn FnMut(&Key, &Change<T>) + Send>;
/// How documents become what is kept.
pub(crate) type Decode<T> = Arc<dyn Fn(Value) -> Result<T, ConvertError> + Send + Sync>;

/// What the task that follows the collection shares with those who read.
struct Inner<T> {
    store: Store<T>,
    /// Taken for as long as a change is stored and told, so that a new handler neither misses nor repeats one.
    handlers: Mutex<Vec<Handler<T>>>,
    synced: watch::Sender<bool>,
}

impl<T> Inner<T> {
    fn tell(handlers: &mut [Handler<T>], key: &Key, change: &Change<T>) {
        for handler in handlers {
            handler(key, change);
        }
    }
}

/// Ends the task when the last informer that uses it is gone.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A local copy of a collection. Clones share it.
pub struct Informer<T> {
    inner: Arc<Inner<T>>,
    _task: Arc<Task>,
}

impl<T> Clone for Informer<T> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), _task: self._task.clone() }
    }
}

impl<T: Served> Informer<T> {
    /// Follows a collection, as typed views.
    #[must_use]
    pub fn start(client: &Client, selection: Selection) -> Self {
        Self::decoding(client, T::RESOURCE, selection, |value| api::json::from_value(&value))
    }
}

impl Informer<Value> {
    /// Follows a collection, as plain documents.
    #[must_use]
    pub fn of_documents(client: &Client, resource: Resource, selection: Selection) -> Self {
        Self::decoding(client, resource, selection, Ok)
    }
}

impl<T: Send + Sync + 'static> Informer<T> {
    /// Follows a collection and keeps of each object what `decode` makes of it. Needs a Tokio runtime.
    #[must_use]
    pub fn decoding<D>(client: &Client, resource: Resource, selection: Selection, decode: D) -> Self
    where
        D: Fn(Value) -> Result<T, ConvertError> + Send + Sync + 'static,
    {
        let inner =
            Arc::new(Inner { store: Store::new(), handlers: Mutex::new(Vec::new()), synced: watch::channel(false).0 });
        let follower = follow::Follower::new(client.clone(), resource, selection, Arc::new(decode), inner.clone());
        let task = tokio::spawn(follower.run());
        Self { inner, _task: Arc::new(Task(task)) }
    }

    /// The objects.
    #[must_use]
    pub fn store(&self) -> &Store<T> {
        &self.inner.store
    }

    /// Whether everything that existed at the start is here.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        *self.inner.synced.borrow()
    }

    /// Waits for that.
    pub async fn synced(&self) {
        let mut synced = self.inner.synced.subscribe();
        // An error means that nobody will ever say so, which cannot be while `self` lives.
        let _ = synced.wait_for(|synced| *synced).await;
    }

    /// Calls `handler` for every object that is here, and then for every change, in order.
    ///
    /// It is called by the task that stores changes: it should only note what is to be done, and must not add handlers.
    pub fn on_change(&self, mut handler: impl FnMut(&Key, &Change<T>) + Send + 'static) {
        let mut handlers = self.inner.handlers.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, object) in self.inner.store.entries() {
            handler(&key, &Change::Added(object));
        }
        handlers.push(Box::new(handler));
    }

    /// What [`on_change`](Self::on_change) tells, to be read at leisure; what is not read is kept.
    #[must_use]
    pub fn changes(&self) -> mpsc::UnboundedReceiver<(Key, Change<T>)> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.on_change(move |key, change| {
            // An error means that nobody reads any more.
            let _ = sender.send((key.clone(), change.clone()));
        });
        receiver
    }
}
