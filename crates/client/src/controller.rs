//! The loop of all controllers: changes become keys, workers reconcile one key each, and failed keys are
//! retried.
//!
//! A controller is a name, the informers whose changes matter to it with the keys that they mean, and a function that
//! brings one key to its wanted state. All else is here: waiting until everything is known, workers, rate limits,
//! `workqueue_*` metrics, health and the end. A panic while reconciling is a failure of that key and of nothing else.
//!
//! ```no_run
//! use celplane_client::controller::{Controller, Next, Runtime, controlled_by, own};
//! use celplane_client::{Document, Error, Informers, Key};
//! use api::apps::v1::ReplicaSet;
//! use api::core::v1::Pod;
//!
//! /// Counts the pods of each replica set.
//! async fn run(informers: &Informers, runtime: &Runtime) {
//!     let sets = informers.all::<Document<ReplicaSet>>();
//!     let pods = informers.all::<Pod>();
//!     Controller::new("pod-counter", runtime)
//!         .watch(&sets, own)
//!         .watch(&pods, controlled_by("ReplicaSet"))
//!         .workers(2)
//!         .run(move |key: Key| {
//!             let (sets, pods) = (sets.clone(), pods.clone());
//!             async move {
//!                 let Some(set) = sets.store().get_key(&key) else { return Ok::<_, Error>(Next::Done) };
//!                 let uid = &set.metadata.uid;
//!                 let owned = |pod: &Pod| pod.metadata.controller().is_some_and(|owner| owner.uid == *uid);
//!                 let count = pods.store().list().iter().filter(|pod| owned(pod.as_ref())).count();
//!                 println!("{key} has {count} pods");
//!                 Ok(Next::Done)
//!             }
//!         })
//!         .await;
//! }
//! ```

mod keys;

use std::fmt::Display;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use clock::Clock;
use telemetry::logs::chain;
use telemetry::metrics::Registry;
use tokio::task::JoinSet;
use tracing::{debug, error, info, warn};

use crate::health::Health;
use crate::informer::{Change, Informer, Key};
use crate::queue::{Backoff, Bucket, Metrics, Queue};
use crate::shutdown::Shutdown;

pub use crate::document::HasMetadata;
pub use keys::{controlled_by, own};

/// Time limit for work in progress at shutdown.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Next step after a successful reconciliation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// None until the next change.
    Done,
    /// Another reconciliation after this time.
    After(Duration),
}

/// State shared by the controllers of a component. Clones share it, too.
#[derive(Clone)]
pub struct Runtime {
    /// Metrics of their queues.
    pub queues: Metrics,
    /// The health of the controllers.
    pub health: Health,
    /// Signal that stops them.
    pub shutdown: Shutdown,
    /// Registry for their other metrics.
    pub registry: Registry,
    /// Time of the component.
    pub clock: Clock,
}

impl Runtime {
    /// Measured in `registry`, which has no `workqueue_*` metrics yet.
    #[must_use]
    pub fn new(registry: &Registry, health: Health, shutdown: Shutdown) -> Self {
        Self { queues: Metrics::new(registry), health, shutdown, registry: registry.clone(), clock: Clock::system() }
    }

    /// Sets another clock.
    #[must_use]
    pub fn with_clock(mut self, clock: &Clock) -> Self {
        self.clock = clock.clone();
        self
    }
}

type BoxedFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
/// Reconciles one key; a failure is returned as it is logged.
type ReconcileFn<K> = Arc<dyn Fn(K) -> BoxedFuture<Result<Next, String>> + Send + Sync>;

/// A controller under construction. `K` identifies an object to reconcile.
pub struct Controller<K: Clone + Eq + Hash = Key> {
    name: &'static str,
    runtime: Runtime,
    queue: Arc<Queue<K>>,
    workers: usize,
    /// Ready once all informers have everything.
    synced: Vec<BoxedFuture<()>>,
}

impl<K: Clone + Eq + Hash + Display + Send + Sync + 'static> Controller<K> {
    /// A controller with one worker that watches nothing yet.
    #[must_use]
    pub fn new(name: &'static str, runtime: &Runtime) -> Self {
        Self::with_limits(name, runtime, Backoff::default(), Some(Bucket::default()))
    }

    /// Like [`new`](Self::new), with separate limits on retries.
    #[must_use]
    pub fn with_limits(name: &'static str, runtime: &Runtime, backoff: Backoff, bucket: Option<Bucket>) -> Self {
        let queue = runtime.queues.queue(name, backoff, bucket, &runtime.clock);
        Self { name, runtime: runtime.clone(), queue, workers: 1, synced: Vec::new() }
    }

    /// The queue, for keys that do not come from informers.
    #[must_use]
    pub fn queue(&self) -> &Arc<Queue<K>> {
        &self.queue
    }

    /// Sets the number of concurrent workers.
    #[must_use]
    pub fn workers(mut self, count: usize) -> Self {
        self.workers = count.max(1);
        self
    }

    /// Reconciles the keys of an object whenever it changes: those of its old and its new state.
    #[must_use]
    pub fn watch<T, I>(self, informer: &Informer<T>, keys: impl Fn(&T) -> I + Send + 'static) -> Self
    where
        T: Send + Sync + 'static,
        I: IntoIterator<Item = K>,
    {
        self.watch_changes(informer, move |change| {
            let before = if let Change::Updated { old, .. } = change { Some(keys(old)) } else { None };
            before.into_iter().flatten().chain(keys(change.newest())).collect::<Vec<K>>()
        })
    }

    /// Like [`watch`](Self::watch), for controllers that ignore some changes.
    #[must_use]
    pub fn watch_changes<T, I>(
        mut self,
        informer: &Informer<T>,
        keys: impl Fn(&Change<T>) -> I + Send + 'static,
    ) -> Self
    where
        T: Send + Sync + 'static,
        I: IntoIterator<Item = K>,
    {
        // The handler must not keep the queue of a controller that has ended.
        let queue = Arc::downgrade(&self.queue);
        informer.on_change_while(move |_, change| {
            let Some(queue) = queue.upgrade() else { return false };
            keys(change).into_iter().for_each(|key| queue.add(key));
            true
        });
        let watched = informer.clone();
        self.runtime.health.add(format!("informer/{}", informer.name()), move || watched.health());
        let watched = informer.clone();
        self.synced.push(Box::pin(async move { watched.synced().await }));
        self
    }

    /// Runs until shutdown is requested: waits until all informers have synced, then reconciles.
    ///
    /// Dropping the future ends everything at once.
    pub async fn run<R, F, E>(self, reconcile: R)
    where
        R: Fn(K) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Next, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
    {
        let reconcile = move |key| -> BoxedFuture<Result<Next, String>> {
            let result = reconcile(key);
            Box::pin(async move { result.await.map_err(|error| chain(&*error.into()).to_string()) })
        };
        self.run_boxed(Arc::new(reconcile)).await;
    }

    /// Not generic over the reconciler, so that all controllers share the code.
    async fn run_boxed(self, reconcile: ReconcileFn<K>) {
        let Self { name, runtime, queue, workers, synced } = self;
        let all_synced = async {
            for synced in synced {
                synced.await;
            }
        };
        tokio::select! {
            () = all_synced => {}
            () = runtime.shutdown.requested() => return,
        }
        info!(controller = name, workers, "Started controller");
        let mut running = JoinSet::new();
        for _ in 0..workers {
            running.spawn(work(name, queue.clone(), reconcile.clone()));
        }
        loop {
            let ended = tokio::select! {
                ended = running.join_next() => ended,
                () = runtime.shutdown.requested() => break,
            };
            let Some(Err(failure)) = ended else { break };
            // Its item was returned to the queue.
            error!(controller = name, err = %chain(&failure), "Reconciliation panicked");
            running.spawn(work(name, queue.clone(), reconcile.clone()));
        }
        queue.abandon();
        let finished = async { while running.join_next().await.is_some() {} };
        if tokio::time::timeout(END_TIMEOUT, finished).await.is_err() {
            warn!(controller = name, "Controller did not finish in time");
        }
        info!(controller = name, "Stopped controller");
    }
}

/// Number of failures that are not logged: the first ones are most often conflicts with another writer, and
/// disappear within a tenth of a second.
const QUIET_FAILURES: u32 = 5;

async fn work<K: Clone + Eq + Hash + Display>(name: &'static str, queue: Arc<Queue<K>>, reconcile: ReconcileFn<K>) {
    while let Some(item) = queue.get().await {
        match reconcile(item.clone()).await {
            Ok(Next::Done) => item.done(),
            Ok(Next::After(delay)) => item.again_after(delay),
            Err(why) => {
                let failures = queue.failures(&item);
                if failures < QUIET_FAILURES {
                    debug!(controller = name, key = %*item, err = %why, "Could not reconcile");
                } else {
                    warn!(controller = name, key = %*item, failures, err = %why, "Could not reconcile");
                }
                item.retry();
            }
        }
    }
}

#[cfg(test)]
mod tests;
