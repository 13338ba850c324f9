//! The proxy at work: follows the API server and keeps the kernel's table up to date.
//!
//! Changes are collected for `min_sync_period`, then applied as one transaction that contains only the difference. The first
//! transaction, one per hour, and every one after a failure replaces the whole table.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use api::core::v1::Node;
use api::json::Value;
use api::time::Timestamp;
use api::well_known::LABEL_TOPOLOGY_ZONE;
use client::informer::{Change, Changes};
use client::objects::Selection;
use client::resources::ServedView as _;
use client::{Client, Health, Informer, Key, Resource, Shutdown};
use locks::Mutex;
use telemetry::logs::chain;
use telemetry::metrics::Registry;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::conntrack::{self, Flow, Frontends};
use crate::decide::NodeFacts;
use crate::endpoint::Slice;
use crate::health_check::HealthCheck;
use crate::machine;
use crate::metrics::Metrics;
use crate::network::Network;
use crate::nft::{NodePortAddresses, Settings, Table};
use crate::plan::Omissions;
use crate::program::{self, ProgramError};
use crate::service::{IgnoreReason, Service};
use crate::state::State;
use crate::table::KernelTable;
use crate::topology::NodeTopology;

/// Name in logs and metrics.
pub const NAME: &str = "kube-proxy";
/// The user whose rights Kubernetes' bootstrap roles grant to proxies.
pub const IDENTITY: &str = "system:kube-proxy";
/// Services of other proxies and headless ones are not watched, as in kube-proxy.
const SELECTOR: &str = "!service.kubernetes.io/service-proxy-name,!service.kubernetes.io/headless";
const SERVICE_NETWORKS: Resource = Resource::new("networking.k8s.io", "v1", "servicecidrs", "ServiceCIDR");
/// Interval of full resyncs, as in kube-proxy.
const FULL_SYNC_PERIOD: Duration = Duration::from_secs(3600);
/// Time between two listings of the table as a multiple of the time that one takes: at most one percent of a processor.
const LISTING_REST: u32 = 100;
/// First and last delay after a failed full resync.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_LAST: Duration = Duration::from_secs(30);
/// Most bytes of the list of UDP flows that are read: about 400,000 flows.
const FLOWS_BYTES_MAX: u64 = 64 << 20;
/// Most networks of cluster IPs.
const SERVICE_NETWORKS_MAX: usize = 1000;

/// Recognition of traffic from pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LocalTraffic {
    /// The source is in the network of all pods (`--cluster-cidr`); without a network, no traffic is masqueraded for its source.
    Cluster(Option<Network>),
    /// The source is in the node's own `podCIDR`.
    Node,
}

/// Choice of the addresses that accept node ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodePortChoice {
    /// The node's primary address.
    Primary,
    /// The addresses of the machine in these networks.
    Networks(Vec<Network>),
}

/// Settings of a proxy.
#[derive(Debug, Clone)]
pub struct Configuration {
    /// The node's name.
    pub node: String,
    /// The node's address, if it is not to be read from the Node.
    pub address: Option<Ipv4Addr>,
    /// Recognition of traffic from pods.
    pub local_traffic: LocalTraffic,
    /// Addresses that accept node ports.
    pub node_ports: NodePortChoice,
    /// Whether all traffic to cluster IPs is masqueraded.
    pub masquerade_all: bool,
    /// The network of all pods, if traffic of the node's pods to other addresses is masqueraded.
    pub pod_masquerade: Option<Network>,
    /// Bit of the packet mark that requests masquerading.
    pub masquerade_bit: u8,
    /// The table.
    pub table: Table,
    /// Shortest time between two transactions.
    pub min_sync_period: Duration,
    /// Interval at which the table is checked.
    pub sync_period: Duration,
}

impl Configuration {
    /// kube-proxy's defaults for a node.
    #[must_use]
    pub fn new(node: String) -> Self {
        Self {
            node,
            address: None,
            local_traffic: LocalTraffic::Cluster(None),
            node_ports: NodePortChoice::Primary,
            masquerade_all: false,
            pod_masquerade: None,
            masquerade_bit: 14,
            table: Table::default(),
            min_sync_period: Duration::from_secs(1),
            sync_period: Duration::from_secs(30),
        }
    }
}

/// Health checks of load balancers, for the listeners that answer them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HealthChecks {
    /// By Service.
    pub services: BTreeMap<Key, HealthCheck>,
    /// Whether the rules are up to date.
    pub is_healthy: bool,
}

/// Inputs of a proxy.
pub struct Options {
    /// Client with the proxy's identity.
    pub client: Client,
    /// Settings.
    pub configuration: Configuration,
    /// The registry of its metrics.
    pub registry: Arc<Registry>,
    /// Health checks.
    pub health: Health,
    /// The signal to end.
    pub shutdown: Shutdown,
    /// Receives the health checks of load balancers.
    pub health_checks: watch::Sender<HealthChecks>,
}

/// Runs the proxy until shutdown, then removes its table.
///
/// # Errors
/// `nft` is missing at the start.
pub async fn run(options: Options) -> Result<(), ProgramError> {
    let table = options.configuration.table.clone();
    // Names a missing program or missing rights at once instead of after the first Service.
    // A check of a transaction reads no tables, whose size may be that of an earlier process.
    program::run("nft", &["-c", "add", "table", "ip", &table.to_string()], String::new(), 0).await?;
    let shutdown = options.shutdown.clone();
    if let Some(mut proxier) = Proxier::start(options).await {
        proxier.follow(&shutdown).await;
    }
    if let Err(error) = KernelTable::remove(&table).await {
        warn!(table = %table, err = %chain(&error), "Could not remove the table of the proxy");
    }
    Ok(())
}

/// Time of the oldest change that is not applied, and the last failure.
#[derive(Default)]
struct Backlog {
    since: Option<Instant>,
    failure: Option<String>,
}

struct Proxier {
    configuration: Configuration,
    client: Client,
    metrics: Metrics,
    health_checks: watch::Sender<HealthChecks>,
    services: Changes<Result<Service, IgnoreReason>>,
    slices: Changes<Option<Slice>>,
    nodes: Informer<Node>,
    service_networks: Informer<Value>,
    wake: Arc<Notify>,
    state: State,
    settings: Settings,
    kernel: KernelTable,
    backlog: Arc<Mutex<Backlog>>,
    needs_replacement: bool,
    last_replacement: Instant,
    next_listing: Instant,
    stale_udp: Frontends,
    triggers: Vec<Timestamp>,
    started: Timestamp,
    retry: Duration,
    has_reported_ipv6: bool,
    has_reported_conntrack: bool,
    /// Keeps the collections alive.
    _informers: (Informer<Result<Service, IgnoreReason>>, Informer<Option<Slice>>),
}

impl Proxier {
    /// Waits for Services and EndpointSlices. `None` if the shutdown is requested before.
    async fn start(options: Options) -> Option<Self> {
        let Options { client, configuration, registry, health, shutdown, health_checks } = options;
        let wake = Arc::new(Notify::new());
        let selection = || Selection { labels: SELECTOR.to_owned(), ..Selection::default() };
        let all_services =
            Informer::decoding(&client, api::core::v1::Service::RESOURCE, selection(), |it| Ok(Service::read(&it)));
        let node = configuration.node.clone();
        let all_slices =
            Informer::decoding(&client, api::discovery::v1::EndpointSlice::RESOURCE, selection(), move |it| {
                Ok(Slice::read(&it, &node))
            });
        let own = Selection { fields: format!("metadata.name={}", configuration.node), ..Selection::default() };
        let nodes = Informer::<Node>::start(&client, own);
        let service_networks = Informer::of_documents(&client, SERVICE_NETWORKS, Selection::default());
        let (of_node, of_networks) = (wake.clone(), wake.clone());
        nodes.on_change(move |_, _| of_node.notify_one());
        service_networks.on_change(move |_, _| of_networks.notify_one());
        let backlog: Arc<Mutex<Backlog>> = Arc::default();
        let (known, late) = (backlog.clone(), configuration.sync_period.saturating_mul(2));
        health.add("rules", move || {
            let backlog = known.lock();
            match (&backlog.failure, backlog.since) {
                (Some(failure), _) => Err(failure.clone()),
                (None, Some(since)) if since.elapsed() > late => Err("changes are not applied in time".to_owned()),
                _ => Ok(()),
            }
        });
        let informers = (all_services.clone(), all_slices.clone());
        health.add("informers", move || informers.0.health().and_then(|()| informers.1.health()));
        let (services, slices) = (all_services.changes_waking(wake.clone()), all_slices.changes_waking(wake.clone()));
        tokio::select! {
            () = shutdown.requested() => return None,
            () = async { tokio::join!(all_services.synced(), all_slices.synced()); } => {}
        }
        let facts = NodeFacts {
            topology: NodeTopology { name: configuration.node.clone(), zone: String::new() },
            address: configuration.address.unwrap_or(Ipv4Addr::UNSPECIFIED),
            pod_network: None,
            masquerade_mark: 1_u32.checked_shl(u32::from(configuration.masquerade_bit)).unwrap_or(1 << 14),
        };
        let settings = Settings {
            table: configuration.table.clone(),
            masquerade_all: configuration.masquerade_all,
            pod_masquerade: None,
            node_port_addresses: NodePortAddresses::Some(Vec::new()),
            service_networks: Vec::new(),
        };
        Some(Self {
            metrics: Metrics::new(&registry),
            started: client.clock().now(),
            client,
            configuration,
            health_checks,
            services,
            slices,
            nodes,
            service_networks,
            wake,
            state: State::new(facts),
            settings,
            kernel: KernelTable::default(),
            backlog,
            needs_replacement: true,
            last_replacement: Instant::now(),
            next_listing: Instant::now(),
            stale_udp: Frontends::new(),
            triggers: Vec::new(),
            retry: RETRY_FIRST,
            has_reported_ipv6: false,
            has_reported_conntrack: false,
            _informers: (all_services, all_slices),
        })
    }

    async fn follow(&mut self, shutdown: &Shutdown) {
        loop {
            self.collect();
            let pause = if self.needs_replacement || self.state.has_changes() {
                if self.sync().await { self.configuration.min_sync_period } else { self.next_retry() }
            } else {
                Duration::ZERO
            };
            tokio::select! {
                () = shutdown.requested() => return,
                () = tokio::time::sleep(pause) => {}
            }
            // A failed sync is repeated without a further change.
            if self.needs_replacement {
                continue;
            }
            tokio::select! {
                () = shutdown.requested() => return,
                () = self.wake.notified() => {}
                () = tokio::time::sleep(self.configuration.sync_period) => self.check().await,
            }
        }
    }

    fn next_retry(&mut self) -> Duration {
        let retry = self.retry;
        self.retry = retry.saturating_mul(2).min(RETRY_LAST);
        retry
    }

    /// Takes over all changes that wait.
    fn collect(&mut self) {
        let (mut services, mut slices) = (0_u64, 0_u64);
        while let Some((key, change)) = self.services.try_next() {
            services = services.saturating_add(1);
            let service = match &change {
                Change::Deleted(_) => None,
                Change::Added(new) | Change::Updated { new, .. } => self.usable(&key, new),
            };
            self.state.set_service(&key, service);
        }
        while let Some((key, change)) = self.slices.try_next() {
            slices = slices.saturating_add(1);
            let (old, new) = match &change {
                Change::Added(new) => (None, (**new).clone()),
                Change::Updated { old, new } => ((**old).as_ref(), (**new).clone()),
                Change::Deleted(old) => ((**old).as_ref(), None),
            };
            self.state.set_slice(&key.name, old, new.map(Arc::new));
        }
        self.metrics.service_changes.add(services);
        self.metrics.endpoint_changes.add(slices);
        if self.state.has_changes() {
            self.metrics.service_changes_pending.add(i64::try_from(services).unwrap_or(0));
            self.metrics.endpoint_changes_pending.add(i64::try_from(slices).unwrap_or(0));
            self.metrics.last_queued.set(self.client.clock().now().seconds);
            self.backlog.lock().since.get_or_insert_with(Instant::now);
        }
        self.collect_node();
    }

    fn usable(&mut self, key: &Key, service: &Arc<Result<Service, IgnoreReason>>) -> Option<Arc<Service>> {
        match &**service {
            Ok(service) => Some(Arc::new(service.clone())),
            Err(IgnoreReason::NoAddress) => None,
            Err(IgnoreReason::Ipv6) if self.has_reported_ipv6 => None,
            Err(reason) => {
                self.has_reported_ipv6 |= *reason == IgnoreReason::Ipv6;
                warn!(service = %key, err = %chain(reason), "Service gets no rules");
                None
            }
        }
    }

    /// Takes over the node's facts and the networks of cluster IPs. If they change the fixed rules, the table is replaced.
    fn collect_node(&mut self) {
        let node = self.nodes.store().get("", &self.configuration.node);
        let configuration = &self.configuration;
        let mut facts = self.state.node().clone();
        if let Some(node) = &node {
            facts.topology.zone =
                node.metadata.labels.get(LABEL_TOPOLOGY_ZONE).map(ToString::to_string).unwrap_or_default();
            let mut addresses = node.status.addresses.iter().filter(|it| it.address_type == "InternalIP");
            let known = configuration.address.or_else(|| addresses.find_map(|it| it.address.parse().ok()));
            facts.address = known.unwrap_or(facts.address);
        }
        let own_pods: Option<Network> = node.and_then(|it| it.spec.pod_cidr.parse().ok());
        facts.pod_network = match configuration.local_traffic {
            LocalTraffic::Cluster(network) => network,
            LocalTraffic::Node => own_pods.or(facts.pod_network),
        };
        let pod_masquerade = own_pods.zip(configuration.pod_masquerade).or(self.settings.pod_masquerade);
        let node_port_addresses = match &configuration.node_ports {
            NodePortChoice::Primary if facts.address.is_unspecified() => NodePortAddresses::Some(Vec::new()),
            NodePortChoice::Primary => NodePortAddresses::Some(vec![facts.address]),
            NodePortChoice::Networks(networks) if networks.iter().any(|it| it.is_everything()) => {
                NodePortAddresses::All
            }
            NodePortChoice::Networks(networks) => {
                let in_networks = |it: &Ipv4Addr| networks.iter().any(|network| network.contains(*it));
                NodePortAddresses::Some(machine::addresses().into_iter().filter(in_networks).collect())
            }
        };
        let mut service_networks: Vec<Network> = self
            .service_networks
            .store()
            .list()
            .iter()
            .flat_map(|it| it.field("spec").texts("cidrs").filter_map(|it| it.parse().ok()).collect::<Vec<Network>>())
            .take(SERVICE_NETWORKS_MAX)
            .collect();
        service_networks.sort_unstable();
        service_networks.dedup();
        let settings = Settings { node_port_addresses, service_networks, pod_masquerade, ..self.settings.clone() };
        let is_fixed = |it: &NodeFacts| (it.pod_network, it.masquerade_mark);
        self.needs_replacement |= settings != self.settings || is_fixed(&facts) != is_fixed(self.state.node());
        self.settings = settings;
        self.state.set_node(facts);
    }

    /// Applies the changes; returns whether it succeeded.
    async fn sync(&mut self) -> bool {
        let begun = Instant::now();
        let update = self.state.update();
        self.triggers.extend(update.triggers);
        self.stale_udp.extend(update.udp);
        for (key, omissions) in update.omissions.iter().filter(|(_, it)| *it != Omissions::default()) {
            let (ports, affinity) = (omissions.ports, omissions.affinity);
            warn!(service = %key, ports, affinity, "Service exceeds a limit: ports without rules, or clients assigned by a hash of their address");
        }
        self.needs_replacement |= self.last_replacement.elapsed() > FULL_SYNC_PERIOD;
        if !self.needs_replacement
            && let Err(error) = self.kernel.delete_stale(&self.settings).await
        {
            self.metrics.cleanup_failures.increment();
            warn!(err = %chain(&error), "Could not delete unused chains");
            self.needs_replacement = true;
        }
        if !self.needs_replacement {
            let steps = self.state.ledger.difference();
            if !steps.is_empty()
                && let Err(error) = self.kernel.update(&self.settings, &steps).await
            {
                self.metrics.sync_failures.increment();
                warn!(err = %chain(&error), "Could not change the rules, replacing the table");
                self.needs_replacement = true;
            }
        }
        let is_full = self.needs_replacement;
        if is_full {
            let rules = self.state.ledger.rule_set();
            if let Err(error) = self.kernel.replace(&self.settings, self.state.node(), &rules).await {
                self.metrics.sync_failures.increment();
                warn!(err = %chain(&error), "Could not replace the table of the proxy");
                self.backlog.lock().failure = Some(chain(&error).to_string());
                self.publish();
                return false;
            }
            (self.needs_replacement, self.last_replacement) = (false, Instant::now());
            self.retry = RETRY_FIRST;
            let (elements, chains) = self.state.ledger.size();
            info!(table = %self.settings.table, elements, chains, duration = ?begun.elapsed(), "Replaced the table of the proxy");
        }
        self.state.ledger.confirm();
        *self.backlog.lock() = Backlog::default();
        self.applied(begun, is_full);
        self.clean_flows().await;
        true
    }

    fn applied(&mut self, begun: Instant, is_full: bool) {
        self.metrics.synced(begun.elapsed(), is_full);
        let now = self.client.clock().now();
        // Changes before the start were applied by an earlier process.
        let since_start =
            std::mem::take(&mut self.triggers).into_iter().filter(|it| it.unix_nanos() >= self.started.unix_nanos());
        for trigger in since_start {
            self.metrics.programmed(trigger.until(now));
        }
        self.metrics.last_sync.set(now.seconds);
        self.metrics.service_changes_pending.set(0);
        self.metrics.endpoint_changes_pending.set(0);
        let (internal, external) = self.state.without_local();
        self.metrics.no_local_internal.set(i64::try_from(internal).unwrap_or(i64::MAX));
        self.metrics.no_local_external.set(i64::try_from(external).unwrap_or(i64::MAX));
        self.publish();
    }

    /// Publishes the health checks of load balancers.
    fn publish(&self) {
        let is_healthy = self.backlog.lock().failure.is_none();
        self.health_checks.send_if_modified(|known| {
            let is_same = known.services == *self.state.health_checks() && known.is_healthy == is_healthy;
            if !is_same {
                *known = HealthChecks { services: self.state.health_checks().clone(), is_healthy };
            }
            !is_same
        });
    }

    /// Replaces the table if others have changed it, and deletes chains that are no longer used.
    async fn check(&mut self) {
        let begun = Instant::now();
        let is_intact = if begun < self.next_listing {
            KernelTable::exists(&self.settings.table).await
        } else {
            let is_intact = self.kernel.is_intact(&self.settings).await;
            let rest = begun.elapsed().saturating_mul(LISTING_REST);
            self.next_listing = Instant::now().checked_add(rest).unwrap_or(begun);
            is_intact
        };
        match is_intact {
            Ok(true) => {
                if let Err(error) = self.kernel.delete_stale(&self.settings).await {
                    self.metrics.cleanup_failures.increment();
                    warn!(err = %chain(&error), "Could not delete unused chains");
                    self.needs_replacement = true;
                }
            }
            Ok(false) => {
                self.metrics.repairs.increment();
                warn!(table = %self.settings.table, "The table of the proxy was changed by others, replacing it");
                self.needs_replacement = true;
            }
            Err(error) => warn!(err = %chain(&error), "Could not check the table of the proxy"),
        }
    }

    /// Deletes UDP flows to endpoints that no longer exist.
    async fn clean_flows(&mut self) {
        if self.stale_udp.is_empty() {
            return;
        }
        let begun = Instant::now();
        let frontends = std::mem::take(&mut self.stale_udp);
        match clean(&frontends).await {
            Ok(deleted) => {
                debug!(deleted, "Deleted stale flows of UDP");
                self.metrics.conntrack_deleted.add(u64::try_from(deleted).unwrap_or(0));
            }
            Err(error) if self.has_reported_conntrack => {
                debug!(err = %chain(&error), "Could not delete stale flows of UDP")
            }
            Err(error) => {
                self.has_reported_conntrack = true;
                warn!(err = %chain(&error), "Could not delete stale flows of UDP; on Debian: apt-get install conntrack");
            }
        }
        self.metrics.cleaned(begun.elapsed());
    }
}

/// Deletes stale flows and returns the number of deletions.
async fn clean(frontends: &Frontends) -> Result<usize, ProgramError> {
    let listing = program::run("conntrack", &["-L", "-f", "ipv4", "-p", "udp"], String::new(), FLOWS_BYTES_MAX).await?;
    let flows = conntrack::stale(listing.lines().filter_map(Flow::parse), frontends);
    if !flows.is_empty() {
        program::run("conntrack", &["-R", "-"], conntrack::deletions(&flows), 0).await?;
    }
    Ok(flows.len())
}
