//! The parts of a server that requests use: store, cache, rights, kinds, metrics and settings.
//!
//! Verbs see this; connections and the life of a request are in [`server`](crate::server).

mod components;
pub(crate) mod current_revision;
mod faults;
mod kubelets;
pub(crate) mod log_tails;
mod options;
pub(crate) mod passing;
mod refusals;
pub(crate) mod usage;
pub(crate) mod watch_memory;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ::clock::Clock;
use cache::Cache;
use cache::background::Tasks;
use store::Store;
use tokio::sync::watch;

pub(crate) use self::components::Components;
pub use self::components::Failures;
use self::current_revision::CurrentRevision;
pub use self::faults::{Faults, Refusal};
pub use self::kubelets::{ConnectFuture, FollowFuture, Kubelets, Logs, LogsFailure, StreamFailure, Streams};
use self::log_tails::Tails;
pub use self::options::Options;
pub(crate) use self::refusals::Refusals;
use self::usage::Samples;
pub use self::usage::{ContainerUsage, Usage};
use self::watch_memory::Memory;
use crate::admission::Chain;
use crate::aggregator::Aggregator;
use crate::authorization::{Authorizer, impersonation};
use crate::custom::CustomResources;
use crate::flow_control::FlowControl;
use crate::identity::Authenticator;
use crate::metrics::Metrics;
use crate::objects::strategy::Meaning;
use crate::openapi::OpenApi;
use crate::outbound::backends::Backends;
use crate::resources::Resource;
use crate::shutdown::ShutdownSignal;
use crate::wire::budget::Budgets;
use crate::wire::heavy::Threads;
use crate::wire::listing::Makers;

/// Maximum time that a refusal waits for the store.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(3);

/// The API server.
pub struct Server {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) authorizer: Arc<Authorizer>,
    pub(crate) meaning: Arc<Meaning>,
    pub(crate) admission: Chain,
    pub(crate) customs: Arc<CustomResources>,
    pub(crate) aggregator: Arc<Aggregator>,
    pub(crate) backends: Arc<Backends>,
    pub(crate) metrics: Metrics,
    pub(crate) components: Components,
    pub(crate) options: Options,
    pub(crate) authenticator: Authenticator,
    pub(crate) impersonation: impersonation::Memory,
    pub(crate) refusals: Refusals,
    pub(crate) openapi: OnceLock<OpenApi>,
    pub(crate) flow: Arc<FlowControl>,
    pub(crate) current: CurrentRevision,
    pub(crate) makers: Makers,
    pub(crate) budgets: Budgets,
    pub(crate) tails: Arc<Tails>,
    pub(crate) watch_memory: Arc<Memory>,
    pub(crate) usage_samples: Samples,
    pub(crate) kubelets: OnceLock<Arc<dyn Kubelets>>,
    pub(crate) stopping: watch::Sender<bool>,
    pub(crate) tasks: Tasks,
}

impl Server {
    pub(crate) fn stopping(&self) -> ShutdownSignal {
        ShutdownSignal::new(&self.stopping)
    }

    /// Source of the server's time.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.options.clock
    }

    /// Revision up to which the watch cache has followed the store.
    #[must_use]
    pub fn revision(&self) -> store::Revision {
        self.cache.revision()
    }

    /// The threads that long work is done on.
    pub(crate) fn threads(&self) -> &Threads {
        self.makers.threads()
    }

    pub(crate) fn kubelets(&self) -> Option<&Arc<dyn Kubelets>> {
        self.kubelets.get()
    }

    pub(crate) fn openapi(&self) -> &OpenApi {
        self.openapi.get_or_init(|| OpenApi::new(&self.options.runtime_config))
    }

    /// Lifetime of the objects of a resource.
    pub(crate) fn time_to_live(&self, resource: &Resource<'_>) -> Option<Duration> {
        (resource.plural == "events").then_some(self.options.event_ttl)
    }

    /// Waits until the cache contains all earlier writes. A following rejection is then based on them; if the
    /// store is unavailable, the present cache counts.
    pub(crate) async fn catch_up(&self) {
        let current = tokio::time::timeout(CATCH_UP_TIMEOUT, self.current.read(|| self.store.current_revision())).await;
        if let Ok(Ok(current)) = current {
            let _ = self.cache.reach(current).await;
        }
    }
}
