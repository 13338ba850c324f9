//! A local copy of a collection that follows its changes, in order.
//!
//! An [`Informer`] opens one watch that begins with what exists (or lists first, where a server cannot do that), and goes
//! on from the last version it saw when the watch ends. Only when that version is too old it starts over, and then tells
//! its handlers the difference. Objects are kept once, however many read them: clone the informer, or get it from
//! [`Informers`]. It ends with its last clone. Who owns which field is dropped, because nobody reads it here.
//!
//! What follows, stores and tells does not know the type of the objects, so that there is one copy of it in the program
//! and not one for each of a hundred types. Types stand at its edge: in [`Informer`], [`Store`] and [`Changes`].

mod changes;
mod follow;
mod handlers;
mod shared;
mod state;
mod store;

use std::any::{Any, TypeId};
use std::sync::Arc;

use api::json::{ConvertError, Text, Value};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use self::handlers::{Handler, Handlers};
use self::state::State;
use self::store::Contents;
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

/// An object of a type that is known where it is read.
pub(crate) type Anything = dyn Any + Send + Sync;

/// What happened to an object.
#[derive(Debug, PartialEq, Eq)]
pub enum Change<T: ?Sized> {
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

impl<T: ?Sized> Clone for Change<T> {
    fn clone(&self) -> Self {
        match self {
            Change::Added(object) => Change::Added(object.clone()),
            Change::Updated { old, new } => Change::Updated { old: old.clone(), new: new.clone() },
            Change::Deleted(object) => Change::Deleted(object.clone()),
        }
    }
}

impl<T: ?Sized> Change<T> {
    /// The newest that is known of the object.
    pub fn newest(&self) -> &Arc<T> {
        match self {
            Change::Added(object) | Change::Deleted(object) | Change::Updated { new: object, .. } => object,
        }
    }
}

impl Change<Anything> {
    /// None if the objects are of another type.
    fn typed<T: Send + Sync + 'static>(&self) -> Option<Change<T>> {
        let typed = |object: &Arc<Anything>| object.clone().downcast().ok();
        Some(match self {
            Change::Added(object) => Change::Added(typed(object)?),
            Change::Updated { old, new } => Change::Updated { old: typed(old)?, new: typed(new)? },
            Change::Deleted(object) => Change::Deleted(typed(object)?),
        })
    }
}

type Make = dyn Fn(Arc<Value>, &Others<'_>) -> Result<Arc<Anything>, ConvertError> + Send + Sync;

/// How documents become what is kept.
pub(crate) struct Decode {
    make: Box<Make>,
    /// What is made.
    form: TypeId,
    /// Whether whoever keeps the same type keeps the same.
    is_shared: bool,
}

impl Decode {
    fn own<T: Send + Sync + 'static>(
        decode: impl Fn(Arc<Value>) -> Result<T, ConvertError> + Send + Sync + 'static,
    ) -> Self {
        let make = move |document, _: &Others<'_>| Ok(Arc::new(decode(document)?) as Arc<Anything>);
        Self { make: Box::new(make), form: TypeId::of::<T>(), is_shared: false }
    }

    fn of_kind<T: Kept>() -> Self {
        let make = |document, others: &Others<'_>| Ok(Arc::new(T::keep_sharing(document, others)?) as Arc<Anything>);
        Self { make: Box::new(make), form: TypeId::of::<T>(), is_shared: true }
    }
}

/// What the task that follows the collection shares with those who read.
struct Inner {
    contents: Arc<Contents>,
    handlers: Handlers,
    state: State,
    name: String,
}

/// The copy, and the task that follows the collection; it ends when the last informer that uses it is gone.
struct Running {
    inner: Arc<Inner>,
    task: JoinHandle<()>,
}

impl Running {
    /// Follows the collection. Needs a Tokio runtime.
    fn start(client: &Client, resource: Resource, selection: Selection, decode: Decode) -> Arc<Self> {
        let inner = Arc::new(Inner {
            contents: Arc::default(),
            handlers: Handlers::default(),
            state: State::new(),
            name: selection.describe(&resource),
        });
        let follower = follow::Follower::new(client.clone(), resource, selection, decode, inner.clone());
        let task = tokio::spawn(follower.run());
        Arc::new(Self { inner, task })
    }

    fn health(&self) -> Result<(), String> {
        let name = &self.inner.name;
        if self.task.is_finished() {
            return Err(format!("the informer of {name} has ended"));
        }
        self.inner.state.health().map_err(|why| format!("the informer of {name} {why}"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A local copy of a collection. Clones share it, and handlers are called for as long as one of them lives.
pub struct Informer<T> {
    running: Arc<Running>,
    store: Store<T>,
}

impl<T> Clone for Informer<T> {
    fn clone(&self) -> Self {
        Self { running: self.running.clone(), store: self.store.clone() }
    }
}

impl<T: Kept> Informer<T> {
    /// Follows the collection of a kind. Needs a Tokio runtime.
    #[must_use]
    pub fn start(client: &Client, selection: Selection) -> Self {
        Self::reading(Running::start(client, T::RESOURCE, selection, Decode::of_kind::<T>()))
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
        Self::reading(Running::start(client, resource, selection, Decode::own(decode)))
    }

    /// Reads what a task keeps, whose objects are of this type.
    fn reading(running: Arc<Running>) -> Self {
        let store = Store::of(running.inner.contents.clone());
        Self { running, store }
    }

    fn inner(&self) -> &Inner {
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
        &self.store
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
        self.running.health()
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
    pub fn on_change_while(&self, mut handler: impl FnMut(&Key, &Change<T>) -> bool + Send + 'static) {
        self.tell(Box::new(move |key, change| change.typed().is_none_or(|change| handler(key, &change))));
    }

    fn tell(&self, handler: Handler) {
        self.inner().handlers.add(&self.inner().contents, handler);
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
        self.tell(Box::new(move |key, change| sender.send(key, change)));
        receiver
    }
}
