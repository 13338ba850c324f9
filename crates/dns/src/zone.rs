//! The records of the cluster's domain: Services, endpoints and pods, by the Kubernetes DNS specification 1.1.0.
//!
//! The zone is an index that each change of an object updates, and a lookup that reads it; neither does I/O. Where the
//! specification leaves a choice, the zone follows CoreDNS with the configuration of kubeadm: pods `insecure`, a TTL of 30 seconds.

mod endpoints;
mod lookup;
mod name;
mod objects;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use api::json::Text;
use hickory_proto::rr::Name;

use self::endpoints::Endpoints;
pub use self::lookup::LookupResult;
pub use self::objects::{Backing, Endpoint, Port, Service, Slice};

/// A domain that cannot be served.
#[derive(Debug, Clone, thiserror::Error)]
#[error("`{0}` is not a domain name")]
pub struct InvalidDomain(String);

/// A Service with its endpoints. Either may arrive first.
#[derive(Debug, Default)]
struct Entry {
    service: Option<Arc<Service>>,
    endpoints: Endpoints,
}

/// A namespace with its Services.
#[derive(Debug, Default)]
struct Namespace {
    /// Whether the Namespace object exists: names in others do not.
    exists: bool,
    services: HashMap<Text, Entry>,
}

/// The owner of an address: namespace, Service, and host if it is an endpoint.
type Owner = (IpAddr, Text, Text, Text);

/// The zone of a cluster.
#[derive(Debug)]
pub struct Zone {
    origin: Name,
    /// Labels of the origin in lower case.
    domain: Vec<Vec<u8>>,
    namespaces: HashMap<Text, Namespace>,
    /// Addresses of Services.
    cluster_addresses: BTreeSet<Owner>,
    /// Addresses of endpoints, each with the number of slices that have it.
    endpoint_addresses: BTreeMap<Owner, u32>,
    serial: u32,
    has_synced: bool,
}

impl Zone {
    /// The empty zone of a domain, such as `cluster.local`.
    ///
    /// # Errors
    /// A domain that is not a name.
    pub fn new(domain: &str) -> Result<Self, InvalidDomain> {
        let text = domain.trim_end_matches('.').to_ascii_lowercase();
        let is_label = |label: &str| {
            !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        };
        if !text.split('.').all(is_label) {
            return Err(InvalidDomain(domain.to_owned()));
        }
        let labels: Vec<Vec<u8>> = text.split('.').map(|label| label.as_bytes().to_vec()).collect();
        let origin =
            Name::from_labels(labels.iter().map(Vec::as_slice)).map_err(|_| InvalidDomain(domain.to_owned()))?;
        Ok(Self {
            origin,
            domain: labels,
            namespaces: HashMap::new(),
            cluster_addresses: BTreeSet::new(),
            endpoint_addresses: BTreeMap::new(),
            serial: 0,
            has_synced: false,
        })
    }

    /// The domain.
    #[must_use]
    pub fn origin(&self) -> &Name {
        &self.origin
    }

    /// Marks the zone as complete: until then, missing names are failures of the server.
    pub fn set_synced(&mut self) {
        self.has_synced = true;
    }

    /// Whether the zone is complete.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.has_synced
    }

    /// Sets the serial number of the zone: the time of the last change in seconds.
    pub fn set_serial(&mut self, serial: u32) {
        self.serial = serial;
    }

    /// Adds or removes a Namespace.
    pub fn set_namespace(&mut self, name: &str, exists: bool) {
        self.namespaces.entry(name.into()).or_default().exists = exists;
        self.drop_unused_namespace(name);
    }

    /// Adds, replaces or removes a Service.
    pub fn set_service(&mut self, namespace: &str, name: &str, service: Option<Arc<Service>>) {
        let entry = self.namespaces.entry(namespace.into()).or_default().services.entry(name.into()).or_default();
        let previous = std::mem::replace(&mut entry.service, service.clone());
        let owner = |address: &IpAddr| -> Owner { (*address, namespace.into(), name.into(), Text::default()) };
        for address in previous.iter().flat_map(|it| it.cluster_addresses()) {
            self.cluster_addresses.remove(&owner(address));
        }
        for address in service.iter().flat_map(|it| it.cluster_addresses()) {
            self.cluster_addresses.insert(owner(address));
        }
        self.drop_unused(namespace, name);
    }

    /// Adds, replaces or removes an EndpointSlice. `slice` is the present state, `previous` the last one.
    pub fn set_slice(&mut self, namespace: &str, name: &str, previous: Option<&Slice>, slice: Option<Arc<Slice>>) {
        // The label that names the Service may change.
        let moved = previous.filter(|previous| slice.as_ref().is_none_or(|slice| slice.service != previous.service));
        if let Some(previous) = moved {
            self.replace_slice(namespace, &previous.service, name, None);
        }
        if let Some(slice) = slice {
            let service = slice.service.clone();
            self.replace_slice(namespace, &service, name, Some(slice));
        }
    }

    fn replace_slice(&mut self, namespace: &str, service: &str, name: &str, slice: Option<Arc<Slice>>) {
        if service.is_empty() {
            return;
        }
        let entry = self.namespaces.entry(namespace.into()).or_default().services.entry(service.into()).or_default();
        let previous = entry.endpoints.set(name, slice.clone());
        let owner = |endpoint: &Endpoint| (endpoint.address, namespace.into(), service.into(), endpoint.host.clone());
        for endpoint in slice.iter().flat_map(|slice| &slice.endpoints) {
            let count = self.endpoint_addresses.entry(owner(endpoint)).or_default();
            *count = count.saturating_add(1);
        }
        for endpoint in previous.iter().flat_map(|slice| &slice.endpoints) {
            let key: Owner = owner(endpoint);
            if let Some(count) = self.endpoint_addresses.get_mut(&key) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    self.endpoint_addresses.remove(&key);
                }
            }
        }
        self.drop_unused(namespace, service);
    }

    fn drop_unused(&mut self, namespace: &str, service: &str) {
        let Some(entries) = self.namespaces.get_mut(namespace) else { return };
        let is_unused = |entry: &Entry| entry.service.is_none() && entry.endpoints.is_unused();
        if entries.services.get(service).is_some_and(is_unused) {
            entries.services.remove(service);
            self.drop_unused_namespace(namespace);
        }
    }

    fn drop_unused_namespace(&mut self, namespace: &str) {
        let is_unused = |namespace: &Namespace| !namespace.exists && namespace.services.is_empty();
        if self.namespaces.get(namespace).is_some_and(is_unused) {
            self.namespaces.remove(namespace);
        }
    }
}

impl Service {
    fn cluster_addresses(&self) -> &[IpAddr] {
        match &self.backing {
            Backing::Cluster(addresses) => addresses,
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(service: &str, addresses: std::ops::Range<u32>) -> Arc<Slice> {
        let endpoint = |number: u32| {
            let address = IpAddr::V4(std::net::Ipv4Addr::from(0x0a00_0000 | number));
            Endpoint { address, host: objects::dashed(address) }
        };
        Arc::new(Slice {
            service: service.into(),
            endpoints: addresses.map(endpoint).collect(),
            ports: vec![Port { name: "http".into(), protocol: "tcp".into(), number: 80 }],
        })
    }

    #[test]
    fn removed_objects_leave_nothing_behind() {
        let mut zone = Zone::new("cluster.local").unwrap();
        let service =
            Arc::new(Service { backing: Backing::Cluster(vec!["10.96.0.1".parse().unwrap()]), ports: Vec::new() });
        zone.set_namespace("a", true);
        zone.set_service("a", "s", Some(service));
        let first = slice("s", 0..3);
        zone.set_slice("a", "s-1", None, Some(first.clone()));
        let second = slice("t", 2..5);
        zone.set_slice("a", "s-1", Some(&first), Some(second.clone()));
        assert_eq!(zone.endpoint_addresses.len(), 3);
        zone.set_namespace("a", false);
        zone.set_service("a", "s", None);
        zone.set_slice("a", "s-1", Some(&second), None);
        assert!(zone.namespaces.is_empty() && zone.cluster_addresses.is_empty() && zone.endpoint_addresses.is_empty());
    }

    #[test]
    fn changed_slice_keeps_addresses_of_other_slices() {
        let mut zone = Zone::new("cluster.local").unwrap();
        let (first, second) = (slice("s", 0..3), slice("s", 2..4));
        zone.set_slice("a", "s-1", None, Some(first.clone()));
        zone.set_slice("a", "s-2", None, Some(second));
        zone.set_slice("a", "s-1", Some(&first), None);
        let endpoints = &zone.namespaces["a"].services["s"].endpoints;
        let addresses: Vec<String> = endpoints.v4(9).iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["10.0.0.2", "10.0.0.3"]);
    }

    #[test]
    fn domains_are_names() {
        for domain in ["cluster.local", "Cluster.Local.", "k8s"] {
            assert!(Zone::new(domain).is_ok(), "{domain}");
        }
        for domain in ["", ".", "a..b", "a b", &"x".repeat(64)] {
            assert!(Zone::new(domain).is_err(), "{domain}");
        }
    }
}
