//! Start and end of a server, and the components and keys that it is given in between.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use api::features::Gate;
use futures::future::BoxFuture;
use store::Store;
use tokio::sync::watch;

use crate::admission::{self, Chain};
use crate::aggregator::{self, Aggregator, availability};
use crate::authorization::{Authorizer, impersonation};
use crate::custom::conversion::Conversions;
use crate::custom::{self, CustomResources};
use crate::flow_control::{self, FlowControl};
use crate::identity::keys::KeyRing;
use crate::identity::service_accounts::ServiceAccounts;
use crate::identity::{Authenticator, User};
use crate::metrics::Metrics;
use crate::objects::strategy::Meaning;
use crate::outbound::backends::Backends;
use crate::serving::{api_services, bootstrap, node_metrics};
use crate::shutdown::ShutdownSignal;
use crate::state::watch_memory::Memory;
use crate::state::{Components, Refusals};
use crate::storage::recorder::Recorder;
use crate::storage::{compaction, events, health};
use crate::wire::budget::Budgets;
use crate::wire::listing::Makers;
use cache::Cache;
use cache::background::Tasks;

use super::{Failures, Kubelets, Options, Server};

/// Result of starting a server.
type StartResult = std::result::Result<Arc<Server>, store::Error>;

/// Time that background tasks have to end when the server stops.
const TASKS_TIMEOUT: Duration = Duration::from_secs(2);

impl Server {
    /// Starts a server on a store: fills the cache, and creates the default objects. Service account tokens are
    /// signed with a new secret key.
    ///
    /// # Errors
    /// Those of the store.
    pub fn start(store: Arc<dyn Store>, options: Options) -> BoxFuture<'static, StartResult> {
        Box::pin(async move {
            let keys = KeyRing::generate().map_err(|error| store::Error::Unavailable(store::Cause::new(error)))?;
            Self::start_with(store, options, keys).await
        })
    }

    /// As [`Server::start`], with these keys for service account tokens.
    ///
    /// # Errors
    /// Those of the store.
    pub fn start_with_keys(store: Arc<dyn Store>, options: Options, keys: KeyRing) -> BoxFuture<'static, StartResult> {
        Box::pin(Self::start_with(store, options, keys))
    }

    async fn start_with(store: Arc<dyn Store>, options: Options, keys: KeyRing) -> StartResult {
        let opened = store.current_revision().await?;
        let extras = bootstrap::Extras {
            node_fleet: options.node_fleet,
            bootstrap_tokens: options.bootstrap_tokens,
            resource_metrics: options.resource_metrics,
        };
        let now = options.clock.now_seconds();
        bootstrap::create(&*store, options.service_addresses, extras, &options.runtime_config, now).await?;
        let cache = Cache::start(store.clone(), opened, options.watch_history_bytes_max).await?;
        let stopping = watch::channel(false).0;
        let tasks = Tasks::default();
        if let Some(interval) = options.compaction_interval {
            tasks.spawn("compaction", compaction::run(store.clone(), interval, ShutdownSignal::new(&stopping)));
        }
        tasks.spawn("store health", health::run(store.clone(), ShutdownSignal::new(&stopping)));
        tasks.spawn(
            "event bound",
            events::bound(store.clone(), options.event_bytes_max, ShutdownSignal::new(&stopping)),
        );
        let accounts = ServiceAccounts::new(cache.clone(), &options.issuer, &options.audiences, keys);
        let metrics = Metrics::new(options.features);
        let backends = Arc::new(Backends {
            outbound: Arc::new(crate::outbound::Https::default()),
            cache: cache.clone(),
            mapped: options.backends.clone(),
            simulated: options.simulated_backends,
        });
        let recorder = Arc::new(Recorder::new(store.clone(), options.event_ttl, options.clock.clone()));
        let conversions = Conversions::new(backends.clone(), recorder.clone(), metrics.registry());
        let customs = Arc::new(CustomResources::new(Some(Arc::new(conversions))));
        let allows_expressions = options.features.enabled(Gate::CRDAdditionalPrinterColumnCEL);
        let controller =
            custom::Controller::new(store.clone(), cache.clone(), &customs, allows_expressions, options.clock.clone());
        custom::run(controller, &tasks, ShutdownSignal::new(&stopping)).await;
        let counted = store.clone();
        metrics.registry().computed(
            "apiserver_storage_durable_commits",
            "[ALPHA] How often the store of this process made writes durable since its start: one wait for the disk each.",
            &[],
            #[expect(clippy::cast_precision_loss, reason = "a count of commits stays far below 2^52")]
            move || vec![(Vec::new(), counted.durable_commits() as f64)],
        );
        let seats = options.reads_max.saturating_add(options.writes_max);
        let flow = Arc::new(FlowControl::new(seats, options.request_timeout, metrics.registry()));
        let (clock, stops) = (options.clock.clone(), ShutdownSignal::new(&stopping));
        flow_control::run(&flow, store.clone(), cache.clone(), clock, &tasks, stops).await;
        let authorizer = Arc::new(Authorizer::new(&cache));
        let meaning = Arc::new(Meaning::new(options.features, cache.clone(), customs.clone(), options.clock.clone()));
        let cluster = Arc::new(admission::State {
            store: store.clone(),
            cache: cache.clone(),
            authorizer: authorizer.clone(),
            meaning: meaning.clone(),
            customs: customs.clone(),
            policy_metrics: admission::PolicyMetrics::new(metrics.registry()),
            webhook_metrics: admission::webhooks::WebhookMetrics::new(metrics.registry()),
            condition_metrics: admission::ConditionMetrics::new(metrics.registry()),
            backends: backends.clone(),
            recorder,
            runtime_config: options.runtime_config.clone(),
            clock: options.clock.clone(),
            pod_security: admission::pod_security::Setup::new(options.pod_security.clone(), metrics.registry()),
        });
        let settings = aggregator::Settings {
            config: options.runtime_config.clone(),
            backends: backends.clone(),
            front_proxy: options.front_proxy.clone(),
            resource_metrics: options.resource_metrics,
            clock: options.clock.clone(),
        };
        let aggregator = Aggregator::new(&cache, settings, metrics.registry());
        availability::keep(&aggregator, store.clone(), &tasks, ShutdownSignal::new(&stopping));
        let (enabled, disabled) = (&options.enabled_admission_plugins, &options.disabled_admission_plugins);
        let admission = Chain::new(cluster, enabled, disabled, metrics.registry());
        let server = Arc::new(Self {
            authorizer,
            admission,
            impersonation: impersonation::Memory::default(),
            refusals: Refusals::default(),
            authenticator: Authenticator::new(
                options.tokens.clone(),
                accounts,
                options.bootstrap_tokens,
                options.clock.clone(),
            ),
            meaning,
            customs,
            aggregator,
            backends,
            metrics,
            flow,
            current: crate::state::current_revision::CurrentRevision::default(),
            makers: Makers::new(options.request_timeout, options.write_timeout),
            budgets: Budgets::new(options.answer_bytes_max),
            tails: Arc::default(),
            watch_memory: Memory::new(options.watch_bytes_max),
            components: Components::default(),
            openapi: OnceLock::new(),
            usage_samples: Default::default(),
            kubelets: OnceLock::new(),
            stopping,
            tasks,
            store,
            cache,
            options,
        });
        api_services::keep(&server);
        if server.options.resource_metrics {
            node_metrics::keep(&server);
        }
        Ok(server)
    }

    /// Ends all watches and closes the store.
    ///
    /// # Errors
    /// Those of the last writes.
    pub fn stop(&self) -> BoxFuture<'_, std::result::Result<(), store::Error>> {
        Box::pin(async {
            self.end_watches();
            self.tasks.finish(TASKS_TIMEOUT).await;
            if let Some(audit) = &self.options.audit {
                audit.flush().await;
            }
            self.store.close().await
        })
    }

    /// Ends all watches.
    pub fn end_watches(&self) {
        self.stopping.send_replace(true);
    }

    /// Names a component that runs beside the server: its metrics are at `/metrics/NAME`, and what is wrong with it makes
    /// the process unready.
    pub fn add_component(&self, name: &'static str, metrics: Arc<telemetry::metrics::Registry>, failures: Failures) {
        self.components.add(name, metrics, failures);
    }

    /// Sets the connection to node agents; only the first call has an effect.
    pub fn set_kubelets(&self, kubelets: Arc<dyn Kubelets>) {
        self.kubelets.get_or_init(|| kubelets);
    }

    /// Replaces the table of tokens; requests that are under way keep their user.
    pub fn set_tokens(&self, tokens: HashMap<String, User>) {
        self.authenticator.set_tokens(tokens);
    }

    /// The keys of service account tokens.
    #[must_use]
    pub fn keys(&self) -> Arc<KeyRing> {
        self.authenticator.service_accounts.keys()
    }

    /// Replaces the keys of service account tokens.
    pub fn set_keys(&self, keys: KeyRing) {
        self.authenticator.service_accounts.set_keys(keys);
    }
}
