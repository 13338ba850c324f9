//! Metrics under kube-proxy's names. All are of the family IPv4.

use std::sync::Arc;
use std::time::Duration;

use telemetry::metrics::{Counter, Gauge, Histogram, Registry};

const IPV4: &[&str] = &["IPv4"];
const FAMILY: &[&str] = &["ip_family"];

/// Histogram buckets in seconds: from 1 ms, doubled fourteen times.
const SECONDS: &[f64] =
    &[0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384];

/// Buckets of the time from a change to its rules.
const PROGRAMMING_SECONDS: &[f64] = &[
    0.0, 0.25, 0.5, 0.75, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0, 17.0,
    18.0, 19.0, 20.0, 21.0, 22.0, 23.0, 24.0, 25.0, 26.0, 27.0, 28.0, 29.0, 30.0, 31.0, 32.0, 33.0, 34.0, 35.0, 36.0,
    37.0, 38.0, 39.0, 40.0, 41.0, 42.0, 43.0, 44.0, 45.0, 46.0, 47.0, 48.0, 49.0, 50.0, 51.0, 52.0, 53.0, 54.0, 55.0,
    56.0, 57.0, 58.0, 59.0, 60.0, 65.0, 70.0, 75.0, 80.0, 85.0, 90.0, 95.0, 100.0, 105.0, 110.0, 115.0, 120.0, 150.0,
    180.0, 210.0, 240.0, 270.0, 300.0,
];

/// The proxy's metrics.
pub struct Metrics {
    sync: Arc<Histogram>,
    full_sync: Arc<Histogram>,
    partial_sync: Arc<Histogram>,
    programming: Arc<Histogram>,
    conntrack: Arc<Histogram>,
    /// Stale flows that were deleted.
    pub conntrack_deleted: Arc<Counter>,
    /// Rejected transactions.
    pub sync_failures: Arc<Counter>,
    /// Rejected deletions of chains.
    pub cleanup_failures: Arc<Counter>,
    /// Changes of EndpointSlices.
    pub endpoint_changes: Arc<Counter>,
    /// Changes of Services.
    pub service_changes: Arc<Counter>,
    /// Changes of EndpointSlices that are not applied yet.
    pub endpoint_changes_pending: Arc<Gauge>,
    /// Changes of Services that are not applied yet.
    pub service_changes_pending: Arc<Gauge>,
    /// Time of the last successful sync in seconds.
    pub last_sync: Arc<Gauge>,
    /// Time of the last change in seconds.
    pub last_queued: Arc<Gauge>,
    /// Ports without local endpoints: internal policy.
    pub no_local_internal: Arc<Gauge>,
    /// Ports without local endpoints: external policy.
    pub no_local_external: Arc<Gauge>,
    /// Repairs after others have changed the table.
    pub repairs: Arc<Counter>,
}

impl Metrics {
    /// Registers the metrics.
    #[must_use]
    pub fn new(registry: &Registry) -> Self {
        let seconds = |name, help| registry.family::<Histogram>(name, help, FAMILY, SECONDS).with(IPV4);
        let counter = |name, help| registry.family::<Counter>(name, help, FAMILY, &[]).with(IPV4);
        let gauge = |name, help| registry.family::<Gauge>(name, help, FAMILY, &[]).with(IPV4);
        let no_local = registry.family::<Gauge>(
            "kubeproxy_sync_proxy_rules_no_local_endpoints_total",
            "[ALPHA] Number of services with a Local traffic policy and no endpoints",
            &["traffic_policy", "ip_family"],
            &[],
        );
        Self {
            sync: seconds("kubeproxy_sync_proxy_rules_duration_seconds", "[ALPHA] SyncProxyRules latency in seconds"),
            full_sync: seconds(
                "kubeproxy_sync_full_proxy_rules_duration_seconds",
                "[ALPHA] SyncProxyRules latency in seconds for full resyncs",
            ),
            partial_sync: seconds(
                "kubeproxy_sync_partial_proxy_rules_duration_seconds",
                "[ALPHA] SyncProxyRules latency in seconds for partial resyncs",
            ),
            programming: registry
                .family::<Histogram>(
                    "kubeproxy_network_programming_duration_seconds",
                    "[ALPHA] In Cluster Network Programming Latency in seconds",
                    FAMILY,
                    PROGRAMMING_SECONDS,
                )
                .with(IPV4),
            conntrack: seconds(
                "kubeproxy_conntrack_reconciler_sync_duration_seconds",
                "[ALPHA] ReconcileConntrackFlowsLatency latency in seconds",
            ),
            conntrack_deleted: counter(
                "kubeproxy_conntrack_reconciler_deleted_entries_total",
                "[ALPHA] Cumulative conntrack flows deleted by conntrack reconciler",
            ),
            sync_failures: counter(
                "kubeproxy_sync_proxy_rules_nftables_sync_failures_total",
                "[ALPHA] Cumulative proxy nftables sync failures",
            ),
            cleanup_failures: counter(
                "kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total",
                "[ALPHA] Cumulative proxy nftables cleanup failures",
            ),
            endpoint_changes: counter(
                "kubeproxy_sync_proxy_rules_endpoint_changes_total",
                "[ALPHA] Cumulative proxy rules Endpoint changes",
            ),
            service_changes: counter(
                "kubeproxy_sync_proxy_rules_service_changes_total",
                "[ALPHA] Cumulative proxy rules Service changes",
            ),
            endpoint_changes_pending: gauge(
                "kubeproxy_sync_proxy_rules_endpoint_changes_pending",
                "[ALPHA] Pending proxy rules Endpoint changes",
            ),
            service_changes_pending: gauge(
                "kubeproxy_sync_proxy_rules_service_changes_pending",
                "[ALPHA] Pending proxy rules Service changes",
            ),
            last_sync: gauge(
                "kubeproxy_sync_proxy_rules_last_timestamp_seconds",
                "[ALPHA] The last time proxy rules were successfully synced",
            ),
            last_queued: gauge(
                "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds",
                "[ALPHA] The last time a sync of proxy rules was queued",
            ),
            no_local_internal: no_local.with(&["internal", "IPv4"]),
            no_local_external: no_local.with(&["external", "IPv4"]),
            repairs: counter(
                "kubeproxy_celplane_table_repairs_total",
                "[ALPHA] Full resyncs because others had changed the proxy's table",
            ),
        }
    }

    /// Counts a sync.
    pub fn synced(&self, took: Duration, is_full: bool) {
        self.sync.observe_duration(took);
        let kind = if is_full { &self.full_sync } else { &self.partial_sync };
        kind.observe_duration(took);
    }

    /// Counts the time from a change to its rules.
    pub fn programmed(&self, took: Duration) {
        self.programming.observe_duration(took);
    }

    /// Counts a cleanup of flows.
    pub fn cleaned(&self, took: Duration) {
        self.conntrack.observe_duration(took);
    }
}
