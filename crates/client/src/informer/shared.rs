//! One informer per collection, for all components of a process that act under one identity.

use locks::Mutex;
use std::any::TypeId;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use api::json::{ConvertError, Value};
use tokio::sync::watch;

use super::{FormDecoder, Informer, RunningInformer};
use crate::client::Client;
use crate::document::KeptForm;
use crate::objects::Selection;
use crate::resources::Resource;

type Collection = (TypeId, Resource, Selection);

/// A running informer, as long as it is used, and whether it has synced.
struct StartedInformer {
    running: Weak<RunningInformer>,
    synced: watch::Receiver<bool>,
}

/// The informers in use, each started once and ended with its last user. Clones share them.
#[derive(Clone)]
pub struct Informers {
    client: Client,
    all: Arc<Mutex<HashMap<Collection, StartedInformer>>>,
}

impl Informers {
    /// Informers that use `client`.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client, all: Arc::default() }
    }

    /// Client of the informers.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The informer of all objects of a kind.
    #[must_use]
    pub fn all<T: KeptForm>(&self) -> Informer<T> {
        self.of(&Selection::default())
    }

    /// The informer of some objects of a kind.
    #[must_use]
    pub fn of<T: KeptForm>(&self, selection: &Selection) -> Informer<T> {
        Informer::reading(self.once(&T::RESOURCE, selection, FormDecoder::of_kind::<T>()))
    }

    /// The informer of a resource, as plain documents.
    #[must_use]
    pub fn of_documents(&self, resource: &Resource, selection: &Selection) -> Informer<Value> {
        self.decoding(resource, selection, |value| Ok(Arc::unwrap_or_clone(value)))
    }

    /// Returns the informer of a projection, created with `decode` if it does not exist yet: requests for the
    /// same type share it.
    #[must_use]
    pub fn decoding<T, D>(&self, resource: &Resource, selection: &Selection, decode: D) -> Informer<T>
    where
        T: Send + Sync + 'static,
        D: Fn(Arc<Value>) -> Result<T, ConvertError> + Send + Sync + 'static,
    {
        Informer::reading(self.once(resource, selection, FormDecoder::own(decode)))
    }

    fn once(&self, resource: &Resource, selection: &Selection, decode: FormDecoder) -> Arc<RunningInformer> {
        let collection = (decode.form, resource.clone(), selection.clone());
        let mut all = self.all.lock();
        if let Some(running) = all.get(&collection).and_then(|started| started.running.upgrade()) {
            return running;
        }
        let running = RunningInformer::start(&self.client, resource.clone(), selection.clone(), decode);
        let synced = running.inner.state.subscribe();
        all.retain(|_, started| started.running.strong_count() > 0);
        all.insert(collection, StartedInformer { running: Arc::downgrade(&running), synced });
        running
    }

    /// Waits until each informer that is used has everything that existed when it started.
    pub async fn synced(&self) {
        let waiting: Vec<watch::Receiver<bool>> = {
            let all = self.all.lock();
            all.values().map(|started| started.synced.clone()).collect()
        };
        for mut synced in waiting {
            // An error means that the informer has ended.
            let _ = synced.wait_for(|synced| *synced).await;
        }
    }
}
