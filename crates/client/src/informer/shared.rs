//! One informer per collection, for all components of a process that act under one identity.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use api::json::Value;
use tokio::sync::watch;

use super::Informer;
use crate::client::Client;
use crate::objects::Selection;
use crate::resources::{Resource, Served};

type Collection = (TypeId, Resource, Selection);
/// An informer of some type, and whether it has everything.
type Started = (Box<dyn Any + Send + Sync>, watch::Receiver<bool>);

/// The informers that were asked for, each started once.
pub struct Informers {
    client: Client,
    all: Mutex<HashMap<Collection, Started>>,
}

impl Informers {
    /// Informers that speak through `client`.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client, all: Mutex::new(HashMap::new()) }
    }

    /// Through which they speak.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The informer of a kind.
    pub fn of<T: Served>(&self, selection: &Selection) -> Informer<T> {
        self.shared(T::RESOURCE, selection, || Informer::start(&self.client, selection.clone()))
    }

    /// The informer of a resource, as plain documents.
    pub fn of_documents(&self, resource: &Resource, selection: &Selection) -> Informer<Value> {
        let start = || Informer::of_documents(&self.client, resource.clone(), selection.clone());
        self.shared(resource.clone(), selection, start)
    }

    fn shared<T: Send + Sync + 'static>(
        &self,
        resource: Resource,
        selection: &Selection,
        start: impl FnOnce() -> Informer<T>,
    ) -> Informer<T> {
        let collection = (TypeId::of::<T>(), resource, selection.clone());
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.get(&collection).and_then(|(informer, _)| informer.downcast_ref::<Informer<T>>());
        if let Some(informer) = known {
            return informer.clone();
        }
        let informer = start();
        all.insert(collection, (Box::new(informer.clone()), informer.inner.synced.subscribe()));
        informer
    }

    /// Waits until each informer that was asked for has everything that existed when it started.
    pub async fn synced(&self) {
        let waiting: Vec<watch::Receiver<bool>> = {
            let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
            all.values().map(|(_, synced)| synced.clone()).collect()
        };
        for mut synced in waiting {
            // An error means that the informer is gone.
            let _ = synced.wait_for(|synced| *synced).await;
        }
    }
}
