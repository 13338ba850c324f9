//! Aggregated APIs: groups and versions that other servers serve, as `APIService` objects with a service say.
//!
//! - [`endpoint`]: the server behind a service, or the reason why there is none.
//! - [`availability`]: a task that asks those servers whether they are there, and writes the condition `Available`.
//! - [`fetch`]: requests of its own; [`documents`]: discovery and OpenAPI of those servers.
//! - [`headers`]: heads of requests and answers that are passed on.
//! - [`resource_metrics`]: `metrics.k8s.io`, which this process can serve itself.
//!
//! Follows `kube-aggregator` of Kubernetes. Built-in groups and versions are never passed on.

pub(crate) mod availability;
pub(crate) mod documents;
pub(crate) mod endpoint;
pub(crate) mod fetch;
pub(crate) mod headers;
pub(crate) mod resource_metrics;

use locks::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use ::clock::Clock;
use api::json::Value;
use api::metadata;
use bytes::Bytes;
use cache::{Cache, ResourceCache};
use registry::definition_status::compare_versions;
use telemetry::logs::chain;
use telemetry::metrics::{Counter, Family, Registry};
use tracing::error;

use self::documents::Documents;
use crate::certificates::front_proxy::FrontProxy;
use crate::custom::{self, Edition};
use crate::outbound::backends::{Backends, ServicePort};
use crate::outbound::forward::Forwarder;
use crate::outbound::verifier::{ClientCertificate, Trust};
use crate::resources::{self, RuntimeConfig};

/// The reason of the condition `Available` if the pods of a service are simulated.
pub(crate) const SIMULATED: &str = "SimulatedBackend";

/// Names of APIServices with series of their own in metrics; all others share one.
const SERIES_MAX: usize = 500;

/// A version of a group that another server serves.
#[derive(Debug, Clone)]
pub(crate) struct RemoteVersion {
    /// The name of the APIService.
    pub(crate) name: String,
    /// Identifies the APIService among those that had the same name.
    pub(crate) uid: String,
    pub(crate) group: String,
    pub(crate) version: String,
    group_priority: i64,
    version_priority: i64,
    /// The service.
    pub(crate) service: ServicePort,
    /// Trust in the server's certificate.
    pub(crate) trust: Trust,
    /// Whether the condition `Available` is true.
    pub(crate) is_available: bool,
    /// Whether the server is not called because its pods are simulated.
    pub(crate) is_simulated: bool,
    /// Whether this process serves it itself.
    pub(crate) is_local: bool,
    /// Discovery and OpenAPI of the server.
    pub(crate) documents: Arc<Documents>,
}

impl RemoteVersion {
    /// Reads an APIService; none if it has no service, because this server serves it itself.
    fn new(object: &Value) -> Option<Self> {
        let spec = object.get("spec")?;
        let service = spec.get("service").filter(|it| !it.is_null())?;
        let text = |value: &Value, field: &str| value.text(field).to_owned();
        let number = |field: &str| spec.get(field).and_then(Value::as_i64).unwrap_or_default();
        let port = service.get("port").and_then(Value::as_i64).unwrap_or(443);
        let condition = available(object);
        let trusts_anything = spec.get("insecureSkipTLSVerify").and_then(Value::as_bool) == Some(true);
        let authorities = || api::base64::decode(&text(spec, "caBundle")).unwrap_or_default();
        Some(Self {
            name: metadata::name(object).to_owned(),
            uid: metadata::text(object, "uid").to_owned(),
            group: text(spec, "group"),
            version: text(spec, "version"),
            group_priority: number("groupPriorityMinimum"),
            version_priority: number("versionPriority"),
            service: (text(service, "namespace"), text(service, "name"), u16::try_from(port).unwrap_or_default()),
            trust: if trusts_anything { Trust::Anything } else { Trust::Authorities(Bytes::from(authorities())) },
            is_available: condition.is_some_and(|it| it.str_at(&["status"]) == Some("True")),
            is_simulated: condition.is_some_and(|it| it.str_at(&["reason"]) == Some(SIMULATED)),
            is_local: false,
            documents: Arc::default(),
        })
    }

    /// Whether requests for both go the same way.
    fn has_same_server(&self, other: &Self) -> bool {
        self.uid == other.uid && self.service == other.service && self.trust == other.trust
    }
}

/// The condition `Available`.
fn available(object: &Value) -> Option<&Value> {
    let conditions = object.array_at(&["status", "conditions"])?;
    conditions.iter().find(|it| it.str_at(&["type"]) == Some("Available"))
}

/// The aggregated APIs at one moment.
#[derive(Default)]
pub(crate) struct Snapshot {
    /// INVARIANT: sorted by group and version.
    remotes: Vec<RemoteVersion>,
    /// The older OpenAPI document of everything, for the custom resources that it was made with.
    pub(crate) older_openapi: Mutex<Option<OlderOpenApi>>,
}

/// The older OpenAPI document of everything, once it was asked for, with the custom resources in it.
type OlderOpenApi = (Weak<custom::Snapshot>, Arc<OnceLock<Edition>>);

impl Snapshot {
    /// The server of a group and version.
    pub(crate) fn find(&self, group: &str, version: &str) -> Option<&RemoteVersion> {
        let key = |it: &RemoteVersion| (it.group.as_str(), it.version.as_str()).cmp(&(group, version));
        self.remotes.get(self.remotes.binary_search_by(key).ok()?)
    }

    /// All, by group and version.
    pub(crate) fn remotes(&self) -> &[RemoteVersion] {
        &self.remotes
    }

    /// Adds the groups and versions to those that are served here. `priorities` has those of groups and of versions.
    pub(crate) fn merge<'a>(
        &'a self,
        groups: &mut Vec<(&'a str, Vec<&'a str>)>,
        priorities: impl Fn(&str, &str) -> (i64, i64),
    ) {
        if self.remotes.is_empty() {
            return;
        }
        for remotes in self.remotes.chunk_by(|left, right| left.group == right.group) {
            let Some(first) = remotes.first() else { continue };
            let group = first.group.as_str();
            let group_priority = remotes.iter().map(|it| it.group_priority).max().unwrap_or_default();
            let at = match groups.iter().position(|(it, _)| *it == group) {
                Some(at) => at,
                None => {
                    let comes_after = |(it, versions): &(&str, Vec<&str>)| {
                        let of_group = versions.iter().map(|version| self.group_priority(it, version, &priorities));
                        let priority = of_group.max().unwrap_or_default();
                        priority < group_priority || (priority == group_priority && *it > group)
                    };
                    // The core group has no name and comes first.
                    let at = groups.iter().position(|it| !it.0.is_empty() && comes_after(it));
                    let at = at.unwrap_or(groups.len());
                    groups.insert(at, (group, Vec::new()));
                    at
                }
            };
            let Some((_, versions)) = groups.get_mut(at) else { continue };
            for remote in remotes {
                if !versions.contains(&remote.version.as_str()) {
                    versions.push(&remote.version);
                }
            }
            let priority = |version: &str| {
                self.find(group, version).map_or_else(|| priorities(group, version).1, |it| it.version_priority)
            };
            versions.sort_by(|left, right| {
                priority(right).cmp(&priority(left)).then_with(|| compare_versions(left, right))
            });
        }
    }

    fn group_priority(&self, group: &str, version: &str, priorities: &impl Fn(&str, &str) -> (i64, i64)) -> i64 {
        self.find(group, version).map_or_else(|| priorities(group, version).0, |it| it.group_priority)
    }
}

/// The number of changes of APIServices, and that of documents.
type ChangeCounts = (u64, u64);

/// All aggregated APIs, and the way to their servers.
pub(crate) struct Aggregator {
    services: Arc<ResourceCache>,
    pub(crate) cache: Arc<Cache>,
    config: RuntimeConfig,
    /// The way to the pods of services.
    backends: Arc<Backends>,
    /// Forwards requests to the servers of aggregated APIs.
    pub(crate) forwarder: Forwarder,
    front_proxy: Option<Arc<FrontProxy>>,
    clock: Clock,
    certificate: OnceLock<Option<ClientCertificate>>,
    /// Documents of `metrics.k8s.io`, if this process serves it.
    resource_metrics: Option<Arc<Documents>>,
    snapshot: RwLock<(ChangeCounts, Arc<Snapshot>)>,
    documents: RwLock<HashMap<String, Arc<Documents>>>,
    documents_edited: AtomicU64,
    unavailable: Arc<Family<Counter>>,
    aggregated: Arc<Family<Counter>>,
}

/// Settings of [`Aggregator::new`].
pub(crate) struct Settings {
    pub(crate) config: RuntimeConfig,
    pub(crate) backends: Arc<Backends>,
    pub(crate) front_proxy: Option<Arc<FrontProxy>>,
    /// Whether this process serves `metrics.k8s.io`.
    pub(crate) resource_metrics: bool,
    pub(crate) clock: Clock,
}

impl Aggregator {
    pub(crate) fn new(cache: &Arc<Cache>, settings: Settings, registry: &Registry) -> Arc<Self> {
        let services = cache.resource(&resources::API_SERVICES.prefix());
        let gauge = services.clone();
        registry.computed(
            "aggregator_unavailable_apiservice",
            "[ALPHA] Gauge of APIServices which are marked as unavailable broken down by APIService name.",
            &["name"],
            move || {
                let all = gauge.list(&resources::API_SERVICES.prefix(), Some(SERIES_MAX), 0, |_, _| true);
                let series = |object: Value| {
                    let is_true = available(&object).is_some_and(|it| it.str_at(&["status"]) == Some("True"));
                    (vec![metadata::name(&object).to_owned()], if is_true { 0.0 } else { 1.0 })
                };
                all.objects.iter().map(|(_, object)| series(object.decode())).collect()
            },
        );
        let Settings { config, backends, front_proxy, clock, resource_metrics: has_metrics } = settings;
        Arc::new(Self {
            services,
            cache: cache.clone(),
            config,
            backends,
            forwarder: Forwarder::default(),
            front_proxy,
            clock,
            certificate: OnceLock::new(),
            resource_metrics: has_metrics.then(|| Arc::new(resource_metrics::documents())),
            // No changes are counted yet: the first reader makes the first snapshot.
            snapshot: RwLock::new(((u64::MAX, u64::MAX), Arc::default())),
            documents: RwLock::default(),
            documents_edited: AtomicU64::new(0),
            unavailable: registry.family(
                "aggregator_unavailable_apiservice_total",
                "[ALPHA] Counter of APIServices which are marked as unavailable broken down by APIService name and reason.",
                &["name", "reason"],
                &[],
            ),
            aggregated: registry.family(
                "aggregator_discovery_aggregation_count_total",
                "[ALPHA] Counter of number of times discovery was aggregated",
                &[],
                &[],
            ),
        })
    }

    /// The certificate that aggregated API servers see. One that ends with the process if none was given.
    pub(crate) fn certificate(&self) -> Option<&ClientCertificate> {
        let make = || {
            let generated = match &self.front_proxy {
                Some(given) => Ok((**given).clone()),
                None => FrontProxy::generate(),
            };
            match generated {
                Ok(it) => Some(ClientCertificate { chain: it.certificate, key: it.key }),
                Err(error) => {
                    error!(err = %chain(&error), "Could not make the certificate for aggregated API servers");
                    None
                }
            }
        };
        self.certificate.get_or_init(make).as_ref()
    }

    fn edited(&self) -> ChangeCounts {
        (self.services.change_count(), self.documents_edited.load(Ordering::Acquire))
    }

    /// The aggregated APIs as of now.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        let edited = self.edited();
        {
            let current = self.snapshot.read();
            if current.0 == edited {
                return current.1.clone();
            }
        }
        let prefix = resources::API_SERVICES.prefix();
        // Objects without a service are not decoded: there is one for every built-in version.
        let all = self.services.list(&prefix, None, 0, |_, object| object.contains(b"\"service\":{"));
        let documents = self.documents.read();
        let remote = |object: Value| {
            let mut remote = RemoteVersion::new(&object)?;
            let is_built_in = remote.group.is_empty() || self.config.has_version(&remote.group, &remote.version);
            if let Some(documents) = documents.get(&remote.name).filter(|it| it.uid == remote.uid) {
                remote.documents = documents.clone();
            }
            (!is_built_in).then_some(remote)
        };
        let mut remotes: Vec<RemoteVersion> =
            all.objects.iter().filter_map(|(_, object)| remote(object.decode())).collect();
        drop(documents);
        if let Some(documents) = &self.resource_metrics {
            let is_it =
                |it: &RemoteVersion| it.group == resource_metrics::GROUP && it.version == resource_metrics::VERSION;
            match remotes.iter_mut().find(|it| is_it(it)) {
                Some(remote) if remote.is_simulated => {
                    (remote.is_local, remote.documents) = (true, documents.clone());
                }
                Some(_) => {}
                None => remotes.push(resource_metrics::remote(documents)),
            }
        }
        remotes.sort_by(|left, right| (&left.group, &left.version).cmp(&(&right.group, &right.version)));
        remotes.dedup_by(|left, right| left.group == right.group && left.version == right.version);
        let snapshot = Arc::new(Snapshot { remotes, ..Snapshot::default() });
        *self.snapshot.write() = (edited, snapshot.clone());
        snapshot
    }

    /// The server of a group and version.
    pub(crate) fn find(&self, group: &str, version: &str) -> Option<RemoteVersion> {
        self.snapshot().find(group, version).cloned()
    }

    /// Replaces the documents of a server; none forgets them.
    fn set_documents(&self, name: &str, documents: Option<Documents>) {
        let mut all = self.documents.write();
        let is_changed = match documents {
            Some(documents) => {
                let is_same = all.get(name).is_some_and(|known| **known == documents);
                if !is_same {
                    all.insert(name.to_owned(), Arc::new(documents));
                }
                !is_same
            }
            None => all.remove(name).is_some(),
        };
        drop(all);
        if is_changed {
            self.documents_edited.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Bytes of all documents but those of one server.
    fn document_bytes(&self, except: &str) -> usize {
        let all = self.documents.read();
        all.iter().filter(|(name, _)| *name != except).map(|(_, it)| it.bytes()).sum()
    }

    fn count_unavailable(&self, name: &str, reason: &str) {
        let name = if self.services.len() > SERIES_MAX { "other" } else { name };
        self.unavailable.with(&[name, reason]).increment();
    }

    /// Counts a document of discovery with all groups.
    pub(crate) fn count_aggregation(&self) {
        self.aggregated.with(&[]).increment();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(group: &str, version: &str, priorities: (i64, i64)) -> RemoteVersion {
        let object = api::json!({
            "metadata": {"name": (format!("{version}.{group}"))},
            "spec": {
                "group": group, "version": version, "groupPriorityMinimum": (priorities.0),
                "versionPriority": (priorities.1), "service": {"namespace": "a", "name": "b"}
            }
        });
        RemoteVersion::new(&object).unwrap()
    }

    #[test]
    fn groups_are_ordered_by_priority_then_name() {
        let remotes = vec![
            remote("b.example.com", "v1", (1000, 1)),
            remote("high.example.com", "v1", (17_500, 1)),
            remote("low.example.com", "v1", (10, 10)),
            remote("low.example.com", "v2", (10, 20)),
            remote("mixed.example.com", "v1beta1", (1000, 200)),
        ];
        let snapshot = Snapshot { remotes, ..Snapshot::default() };
        let mut groups = vec![
            ("", vec!["v1"]),
            ("apps", vec!["v1"]),
            ("batch", vec!["v1"]),
            ("a.example.com", vec!["v1"]),
            ("c.example.com", vec!["v1"]),
            ("mixed.example.com", vec!["v1"]),
        ];
        snapshot.merge(&mut groups, |group, _| match group {
            "" => (18_000, 1),
            "apps" => (17_800, 15),
            "batch" => (17_400, 15),
            _ => (1000, 100),
        });
        let expected = [
            ("", vec!["v1"]),
            ("apps", vec!["v1"]),
            ("high.example.com", vec!["v1"]),
            ("batch", vec!["v1"]),
            ("a.example.com", vec!["v1"]),
            ("b.example.com", vec!["v1"]),
            ("c.example.com", vec!["v1"]),
            ("mixed.example.com", vec!["v1beta1", "v1"]),
            ("low.example.com", vec!["v2", "v1"]),
        ];
        assert_eq!(groups, expected);
    }
}
