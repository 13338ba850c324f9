//! Metrics of the server, under Kubernetes' names.

use std::sync::Arc;
use std::time::Duration;

use telemetry::metrics::{Counter, Family, Gauge, Histogram, Registry};

use crate::custom::metrics::ColumnMetrics;

/// Bounds of request durations, in seconds.
const SECONDS: &[f64] = &[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];

/// The metrics of a server.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Arc<Family<Counter>>,
    durations: Arc<Family<Histogram>>,
    reads: Arc<Gauge>,
    writes: Arc<Gauge>,
    watchers: Arc<Family<Gauge>>,
    dropped: Arc<Family<Counter>>,
    cut_off: Arc<Family<Counter>>,
    /// Metrics of printer columns with expressions.
    pub(crate) columns: ColumnMetrics,
}

/// Labels of a request in metrics.
#[derive(Debug, Clone, Default)]
pub(crate) struct Labels<'a> {
    /// `GET`, `LIST`, `WATCH`, …
    pub(crate) verb: &'static str,
    /// The group.
    pub(crate) group: &'a str,
    /// The version.
    pub(crate) version: &'a str,
    /// The resource.
    pub(crate) resource: &'a str,
    /// The subresource.
    pub(crate) subresource: &'a str,
    /// `resource`, `namespace`, `cluster`, or empty.
    pub(crate) scope: &'static str,
}

impl Metrics {
    /// No counts yet.
    #[must_use]
    pub(crate) fn new(features: api::features::Features) -> Self {
        let registry = Registry::new();
        telemetry::features::publish(&registry, features.states());
        let in_flight = registry.family(
            "apiserver_current_inflight_requests",
            "[STABLE] Maximal number of currently used inflight request limit of this apiserver per request kind in last second.",
            &["request_kind"],
            &[],
        );
        Self {
            requests: registry.family(
                "apiserver_request_total",
                "[STABLE] Counter of apiserver requests broken out for each verb, dry run value, group, version, resource, scope, component, and HTTP response code.",
                &["code", "component", "dry_run", "group", "resource", "scope", "subresource", "verb", "version"],
                &[],
            ),
            durations: registry.family(
                "apiserver_request_duration_seconds",
                "[STABLE] Response latency distribution in seconds for each verb, dry run value, group, version, resource, subresource, scope and component.",
                &["component", "dry_run", "group", "resource", "scope", "subresource", "verb", "version"],
                SECONDS,
            ),
            reads: in_flight.with(&["readOnly"]),
            writes: in_flight.with(&["mutating"]),
            watchers: registry.family(
                "apiserver_longrunning_requests",
                "[STABLE] Gauge of all active long-running apiserver requests broken out by verb, group, version, resource, scope and component. Not all requests are tracked this way.",
                &["component", "group", "resource", "scope", "subresource", "verb", "version"],
                &[],
            ),
            dropped: registry.family(
                "apiserver_request_terminations_total",
                "[ALPHA] Number of requests which apiserver terminated in self-defense.",
                &["code", "component", "group", "resource", "scope", "subresource", "verb", "version"],
                &[],
            ),
            cut_off: registry.family(
                "apiserver_terminated_watchers_total",
                "[ALPHA] Counter of watchers closed due to unresponsiveness broken by resource type.",
                &["group", "resource"],
                &[],
            ),
            columns: ColumnMetrics::new(&registry),
            registry,
        }
    }

    /// Counts a request that was answered.
    pub(crate) fn answered(&self, labels: &Labels<'_>, code: u16, duration: Duration) {
        let Labels { verb, group, version, resource, subresource, scope } = labels;
        let code = code.to_string();
        self.requests.with(&[&code, "apiserver", "", group, resource, scope, subresource, verb, version]).increment();
        if *verb != "WATCH" {
            let series = self.durations.with(&["apiserver", "", group, resource, scope, subresource, verb, version]);
            series.observe_duration(duration);
        }
    }

    /// Counts a request that was refused because there were too many.
    pub(crate) fn refused(&self, labels: &Labels<'_>) {
        let Labels { verb, group, version, resource, subresource, scope } = labels;
        self.dropped.with(&["429", "apiserver", group, resource, scope, subresource, verb, version]).increment();
    }

    /// Counts a request for as long as the guard lives.
    #[must_use]
    pub(crate) fn in_flight(&self, writes: bool) -> CountedRequest {
        CountedRequest::new(if writes { &self.writes } else { &self.reads }.clone())
    }

    /// Counts a watch for as long as the guard lives.
    #[must_use]
    pub(crate) fn long_running(&self, resource: &str, group: &str, version: &str) -> CountedRequest {
        CountedRequest::new(self.watchers.with(&["apiserver", group, resource, "", "", "WATCH", version]))
    }

    /// Counts a watch that was ended because its client did not read.
    pub(crate) fn watcher_cut_off(&self, group: &str, resource: &str) {
        self.cut_off.with(&[group, resource]).increment();
    }

    /// Registry for the metrics of other components.
    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// All of it as Prometheus text.
    #[must_use]
    pub(crate) fn text(&self) -> String {
        self.registry.text()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new(api::features::Features::default())
    }
}

/// A request that counts for as long as this lives, however it ends.
pub(crate) struct CountedRequest(Arc<Gauge>);

impl CountedRequest {
    fn new(gauge: Arc<Gauge>) -> Self {
        gauge.add(1);
        Self(gauge)
    }
}

impl Drop for CountedRequest {
    fn drop(&mut self) {
        self.0.add(-1);
    }
}
