//! A local copy of a collection that follows its changes, in order.
//!
//! An [`Informer`] opens one watch that begins with the existing objects (or lists first, if the server does
//! not support that), and resumes from the last version when the watch ends. Only if that version is too old,
//! it starts over and passes the differences to its handlers. Objects are kept once for all readers: clone the
//! informer, or get it from [`Informers`]. It ends with its last clone. Managed fields are dropped, because no
//! component reads them here.
//!
//! The code for watching, storing and notifying is independent of the object type, so that it is compiled once
//! and not for each of a hundred types. Types appear only in the interface: in [`Informer`], [`Store`] and
//! [`Changes`].

mod changes;
mod follow;
mod handlers;
mod managed_fields;
mod shared;
mod state;
mod store;

use std::any::TypeId;
use std::sync::Arc;

use api::json::{ConvertError, Text, Value};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use self::handlers::{Handler, Handlers};
use self::state::State;
use self::store::Contents;
use crate::client::Client;
pub(crate) use crate::decoded::AnyObject;
use crate::document::{DecodeContext, KeptForm};
use crate::objects::Selection;
use crate::resources::Resource;

pub use changes::Changes;
pub use shared::Informers;
pub use store::Store;

/// Identity of an object in a collection.
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

/// A change of an object.
#[derive(Debug, PartialEq, Eq)]
pub enum Change<T: ?Sized> {
    /// The object is new.
    Added(Arc<T>),
    /// The object was changed, once or several times.
    Updated {
        /// The previous state.
        old: Arc<T>,
        /// The present state.
        new: Arc<T>,
    },
    /// The object was deleted; this is its last known state.
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

impl Change<AnyObject> {
    /// None if the objects are of another type.
    fn typed<T: Send + Sync + 'static>(&self) -> Option<Change<T>> {
        let typed = |object: &Arc<AnyObject>| object.clone().downcast().ok();
        Some(match self {
            Change::Added(object) => Change::Added(typed(object)?),
            Change::Updated { old, new } => Change::Updated { old: typed(old)?, new: typed(new)? },
            Change::Deleted(object) => Change::Deleted(typed(object)?),
        })
    }
}

type DecodeFn = dyn Fn(Arc<Value>, &DecodeContext<'_>) -> Result<Arc<AnyObject>, ConvertError> + Send + Sync;

/// Conversion of documents to the kept form.
pub(crate) struct FormDecoder {
    make: Box<DecodeFn>,
    /// Type of the kept form.
    form: TypeId,
    /// Whether all informers of the same type keep the same form.
    is_shared: bool,
}

impl FormDecoder {
    fn own<T: Send + Sync + 'static>(
        decode: impl Fn(Arc<Value>) -> Result<T, ConvertError> + Send + Sync + 'static,
    ) -> Self {
        let make = move |document, _: &DecodeContext<'_>| Ok(Arc::new(decode(document)?) as Arc<AnyObject>);
        Self { make: Box::new(make), form: TypeId::of::<T>(), is_shared: false }
    }

    fn of_kind<T: KeptForm>() -> Self {
        let make =
            |document, others: &DecodeContext<'_>| Ok(Arc::new(T::keep_sharing(document, others)?) as Arc<AnyObject>);
        Self { make: Box::new(make), form: TypeId::of::<T>(), is_shared: true }
    }
}

/// State shared by the watching task and its readers.
struct Inner {
    contents: Arc<Contents>,
    handlers: Handlers,
    state: State,
    name: String,
}

/// The copy, and the task that follows the collection; it ends with the last informer that uses it.
struct RunningInformer {
    inner: Arc<Inner>,
    task: JoinHandle<()>,
}

impl RunningInformer {
    /// Follows the collection. Needs a Tokio runtime.
    fn start(client: &Client, resource: Resource, selection: Selection, decode: FormDecoder) -> Arc<Self> {
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

impl Drop for RunningInformer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A local copy of a collection. Clones share it, and handlers are called for as long as one of them lives.
pub struct Informer<T> {
    running: Arc<RunningInformer>,
    store: Store<T>,
}

impl<T> Clone for Informer<T> {
    fn clone(&self) -> Self {
        Self { running: self.running.clone(), store: self.store.clone() }
    }
}

impl<T: KeptForm> Informer<T> {
    /// Follows the collection of a kind. Needs a Tokio runtime.
    #[must_use]
    pub fn start(client: &Client, selection: Selection) -> Self {
        Self::reading(RunningInformer::start(client, T::RESOURCE, selection, FormDecoder::of_kind::<T>()))
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
    /// Follows a collection and keeps the result of `decode` for each object. Requires a Tokio runtime.
    #[must_use]
    pub fn decoding<D>(client: &Client, resource: Resource, selection: Selection, decode: D) -> Self
    where
        D: Fn(Arc<Value>) -> Result<T, ConvertError> + Send + Sync + 'static,
    {
        Self::reading(RunningInformer::start(client, resource, selection, FormDecoder::own(decode)))
    }

    /// A reader of a running task, whose objects are of this type.
    fn reading(running: Arc<RunningInformer>) -> Self {
        let store = Store::of(running.inner.contents.clone());
        Self { running, store }
    }

    fn inner(&self) -> &Inner {
        &self.running.inner
    }

    /// Name for logs and checks: the resource and its selection.
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

    /// Checks that the copy is reliable: it has synced, the server has sent data recently, and the task is running.
    ///
    /// # Errors
    /// Why not.
    pub fn health(&self) -> Result<(), String> {
        self.running.health()
    }

    /// Number of objects that could not be decoded; they are not in the store.
    #[must_use]
    pub fn unreadable(&self) -> u64 {
        self.inner().state.unreadable()
    }

    /// Calls `handler` for every existing object, and then for every change, in order.
    ///
    /// It is called by the task that stores changes, so it should only record the work to do. It may add
    /// handlers, but must not hold this informer, which would then never end.
    pub fn on_change(&self, mut handler: impl FnMut(&Key, &Change<T>) + Send + 'static) {
        self.on_change_while(move |key, change| {
            handler(key, change);
            true
        });
    }

    /// As [`on_change`](Self::on_change), until the handler answers with false.
    pub fn on_change_while(&self, mut handler: impl FnMut(&Key, &Change<T>) -> bool + Send + 'static) {
        self.add_handler(Box::new(move |key, change| change.typed().is_none_or(|change| handler(key, &change))));
    }

    fn add_handler(&self, handler: Handler) {
        self.inner().handlers.add(&self.inner().contents, handler);
    }

    /// Returns the changes of [`on_change`](Self::on_change) as a queue: unread changes are merged by key, so
    /// that there are never more of them than objects.
    #[must_use]
    pub fn changes(&self) -> Changes<T> {
        self.changes_waking(Arc::default())
    }

    /// Like [`changes`](Self::changes); `ready` is notified when a change is available, so that a caller can
    /// wait for several collections with [`Changes::try_next`].
    #[must_use]
    pub fn changes_waking(&self, ready: Arc<Notify>) -> Changes<T> {
        let (sender, receiver) = changes::channel(ready);
        self.add_handler(Box::new(move |key, change| sender.send(key, change)));
        receiver
    }
}
