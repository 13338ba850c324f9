//! The cluster as plugins see it: objects, rights and the time, without the server.

use std::sync::Arc;

use ::clock::Clock;
use api::json::Value;
use api::time::Timestamp;
use futures::future::BoxFuture;
use store::Store;

use super::match_conditions::ConditionMetrics;
use super::pod_security;
use super::policies::PolicyMetrics;
use super::webhooks::WebhookMetrics;
use crate::authorization::Authorizer;
use crate::custom::CustomResources;
use crate::objects::strategy::Meaning;
use crate::outbound::backends::Backends;
use crate::resources::{Resource, RuntimeConfig};
use crate::storage::recorder::Recorder;
use cache::Cache;

/// The parts of the server that plugins may use.
pub(crate) trait Cluster: Send + Sync {
    /// The objects, as of a moment ago.
    fn cache(&self) -> &Arc<Cache>;

    /// The objects as they are now.
    fn store(&self) -> &Arc<dyn Store>;

    /// The rights of users.
    fn authorizer(&self) -> &Authorizer;

    /// Defaults and validation of all kinds.
    fn meaning(&self) -> &Meaning;

    /// The custom resources.
    fn customs(&self) -> &Arc<CustomResources>;

    /// The metrics of admission policies.
    fn policy_metrics(&self) -> &PolicyMetrics;

    /// The metrics of match conditions.
    fn condition_metrics(&self) -> &ConditionMetrics;

    /// The metrics of webhooks.
    fn webhook_metrics(&self) -> &WebhookMetrics;

    /// The servers of webhooks.
    fn backends(&self) -> &Backends;

    /// Writes events about the configuration of admission.
    fn recorder(&self) -> &Recorder;

    /// Whether a built-in version is served.
    fn serves(&self, group: &str, version: &str) -> bool;

    /// The current time.
    fn now(&self) -> Timestamp;

    /// Configuration and counters of Pod Security.
    fn pod_security(&self) -> &Arc<pod_security::Setup>;

    /// Waits until the cache holds everything that was written before. Returns whether it does.
    fn catch_up(&self) -> BoxFuture<'_, bool>;
}

impl dyn Cluster + '_ {
    /// An object of the cache.
    pub(crate) fn object(&self, row: &Resource<'_>, namespace: &str, name: &str) -> Option<Value> {
        let found = self.cache().resource(&row.prefix()).get(&row.key(namespace, name));
        found.map(|object| object.decode())
    }
}

/// The parts of a running server.
pub(crate) struct State {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) authorizer: Arc<Authorizer>,
    pub(crate) meaning: Arc<Meaning>,
    pub(crate) customs: Arc<CustomResources>,
    pub(crate) policy_metrics: PolicyMetrics,
    pub(crate) webhook_metrics: WebhookMetrics,
    pub(crate) condition_metrics: ConditionMetrics,
    pub(crate) backends: Arc<Backends>,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) runtime_config: RuntimeConfig,
    pub(crate) clock: Clock,
    pub(crate) pod_security: Arc<pod_security::Setup>,
}

impl Cluster for State {
    fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    fn authorizer(&self) -> &Authorizer {
        &self.authorizer
    }

    fn meaning(&self) -> &Meaning {
        &self.meaning
    }

    fn customs(&self) -> &Arc<CustomResources> {
        &self.customs
    }

    fn policy_metrics(&self) -> &PolicyMetrics {
        &self.policy_metrics
    }

    fn condition_metrics(&self) -> &ConditionMetrics {
        &self.condition_metrics
    }

    fn webhook_metrics(&self) -> &WebhookMetrics {
        &self.webhook_metrics
    }

    fn backends(&self) -> &Backends {
        &self.backends
    }

    fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    fn serves(&self, group: &str, version: &str) -> bool {
        self.runtime_config.serves(group, version)
    }

    fn now(&self) -> Timestamp {
        self.clock.now_seconds()
    }

    fn pod_security(&self) -> &Arc<pod_security::Setup> {
        &self.pod_security
    }

    fn catch_up(&self) -> BoxFuture<'_, bool> {
        Box::pin(async {
            let Ok(current) = self.store.current_revision().await else { return false };
            self.cache.reach(current).await.is_ok()
        })
    }
}
