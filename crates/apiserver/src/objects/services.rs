//! Which service has which address and port.
//!
//! Each is a key in the store that one service holds: it is made before the service is written, and removed after the
//! service is gone or has let go of it, so that no two services ever have the same, whatever happens in between and however
//! many servers there are. Addresses are `IPAddress` objects, as in Kubernetes. Who fails in between leaves a key behind
//! that nobody uses; it counts as free once no request can still be about to use it.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use api::field::{Errors, Path};
use api::json::Value;
use api::time::Timestamp;
use store::{Outcome, Write};

use crate::clock;
use crate::http::status::{Failure, Result};
use crate::objects::metadata;
use crate::random;
use crate::resources::{self, Resource};
use crate::server::Server;
use crate::storage::stored::{self, Served};

/// Where keys of ports lie; they are not objects that clients see.
const PORTS: &str = "/registry/ranges/servicenodeports/";

/// The addresses that services can have: a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressRange {
    first: Ipv4Addr,
    length: u32,
}

impl Default for AddressRange {
    /// `10.96.0.0/12`, as `kubeadm` has it.
    fn default() -> Self {
        Self { first: Ipv4Addr::new(10, 96, 0, 0), length: 12 }
    }
}

impl std::fmt::Display for AddressRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.first, self.length)
    }
}

impl std::str::FromStr for AddressRange {
    type Err = String;

    /// Reads `10.96.0.0/12`; there must be room for a few services.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (address, length) = text.split_once('/').ok_or("must be a network such as 10.96.0.0/12")?;
        let address: Ipv4Addr = address.parse().map_err(|_| "must be a network of IPv4 addresses")?;
        let length: u32 = length.parse().map_err(|_| "must end in a number of bits")?;
        if !(8..=29).contains(&length) {
            return Err("must have a prefix of 8 to 29 bits".to_owned());
        }
        let mask = u32::MAX.checked_shl(32_u32.saturating_sub(length)).unwrap_or_default();
        Ok(Self { first: Ipv4Addr::from_bits(address.to_bits() & mask), length })
    }
}

impl AddressRange {
    /// How many addresses there are, without that of the network and that of everyone.
    fn len(self) -> u32 {
        let all = 1_u32.checked_shl(32_u32.saturating_sub(self.length)).unwrap_or(u32::MAX);
        all.saturating_sub(2)
    }

    /// The address at a position.
    fn at(self, index: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.first.to_bits().saturating_add(1).saturating_add(index))
    }

    fn contains(self, address: Ipv4Addr) -> bool {
        let index = address.to_bits().checked_sub(self.first.to_bits());
        index.is_some_and(|index| (1..=self.len()).contains(&index))
    }

    /// The first this many are left to those who ask for one by name, as long as there are others.
    fn kept(self) -> u32 {
        const LEAST: u32 = 16;
        const MOST: u32 = 256;
        if self.len() <= LEAST { 0 } else { self.len().div_ceil(LEAST).clamp(LEAST, MOST) }
    }

    /// The address of the API server's own service.
    #[must_use]
    pub fn first_address(self) -> Ipv4Addr {
        self.at(0)
    }
}

/// The ports that services can have on all nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl Default for PortRange {
    fn default() -> Self {
        Self { first: 30000, last: 32767 }
    }
}

impl std::fmt::Display for PortRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl std::str::FromStr for PortRange {
    type Err = String;

    /// Reads `30000-32767`.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (first, last) = text.split_once('-').ok_or("must be two ports, such as 30000-32767")?;
        let port = |text: &str| text.trim().parse::<u16>().map_err(|_| format!("`{text}` is not a port"));
        let (first, last) = (port(first)?, port(last)?);
        if first == 0 || first > last {
            return Err("must be from a port to a higher one".to_owned());
        }
        Ok(Self { first, last })
    }
}

/// What was taken for a service that is not written yet.
#[derive(Debug, Default)]
pub(crate) struct Reserved(Vec<String>);

fn is_service(resource: &Resource<'_>) -> bool {
    (resource.group, resource.plural) == ("", "services")
}

/// The keys that a service holds.
fn held(service: &Value) -> Vec<String> {
    let addresses = service.at(&["spec", "clusterIPs"]).and_then(Value::as_array).unwrap_or_default();
    let addresses = addresses.iter().filter_map(Value::as_str).filter_map(|it| it.parse().ok()).filter_map(address_key);
    let ports = service.at(&["spec", "ports"]).and_then(Value::as_array).unwrap_or_default();
    let ports = ports.iter().filter_map(|port| port.get("nodePort"));
    let ports = ports.chain(service.at(&["spec", "healthCheckNodePort"])).filter_map(Value::as_i64);
    addresses.chain(ports.filter(|port| *port != 0).map(port_key)).collect()
}

fn address_key(address: Ipv4Addr) -> Option<String> {
    resources::find("networking.k8s.io", "v1", "ipaddresses").map(|it| it.key("", &address.to_string()))
}

fn port_key(port: i64) -> String {
    format!("{PORTS}{port}")
}

/// The object behind the key of an address or a port.
pub(crate) fn holder(key: &str, namespace: &str, name: &str) -> Value {
    let what = key.rsplit('/').next().unwrap_or_default();
    let (kind, api_version) =
        if key.starts_with(PORTS) { ("NodePort", "celplane/v1") } else { ("IPAddress", "networking.k8s.io/v1") };
    api::json!({
        "kind": kind,
        "apiVersion": api_version,
        "metadata": {
            "name": what,
            "uid": (random::uid()),
            "creationTimestamp": (clock::now().to_string()),
            "labels": {
                "ipaddress.kubernetes.io/ip-family": "IPv4",
                "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"
            }
        },
        "spec": {"parentRef": {"resource": "services", "namespace": namespace, "name": name}}
    })
}

/// The object that says which addresses there are.
pub(crate) fn own_range(range: AddressRange) -> Value {
    let networks = vec![Value::from(range.to_string())];
    let condition = api::json!({
        "type": "Ready", "status": "True", "lastTransitionTime": (clock::now().to_string()), "reason": "",
        "message": "Kubernetes default Service CIDR is ready"
    });
    let conditions = vec![condition];
    api::json!({
        "metadata": {"name": "kubernetes"}, "spec": {"cidrs": networks}, "status": {"conditions": conditions}
    })
}

/// The key of the API server's own address, and what it holds.
pub(crate) fn own_address(range: AddressRange) -> Option<(String, Value)> {
    let key = address_key(range.first_address())?;
    let holder = holder(&key, "default", "kubernetes");
    Some((key, holder))
}

/// Whether an address is held by the service of the API.
pub(crate) fn is_of_api(holder: &Value) -> bool {
    parent(holder) == ("default", "kubernetes")
}

/// Gives a service what it wants and has not: addresses and ports. Nothing is taken in a dry run.
///
/// # Errors
/// 422 if what it asks for is taken or out of range, 500 if nothing is left.
pub(crate) async fn reserve(
    server: &Arc<Server>,
    resource: &Resource<'_>,
    service: &mut Value,
    old: Option<&Value>,
    dry_run: bool,
) -> Result<Reserved> {
    if !is_service(resource) {
        return Ok(Reserved::default());
    }
    let errors = registry::init_service_families(service, old);
    if !errors.is_empty() {
        return Err(Failure::invalid("", "Service", metadata::text(service, "name"), &errors));
    }
    let mut taking = Taking {
        server,
        namespace: metadata::text(service, "namespace").to_owned(),
        name: metadata::text(service, "name").to_owned(),
        before: old.map(held).unwrap_or_default(),
        taken: Vec::new(),
        dry_run,
    };
    match taking.all(service).await {
        Ok(()) => {
            if let Some(of) = resource.object_type("v1") {
                api::types::normalize(of, service);
            }
            Ok(Reserved(taking.taken))
        }
        Err(failure) => {
            let (namespace, name) = (taking.namespace, taking.name);
            give_back(server, &taking.taken, &namespace, &name).await;
            Err(failure)
        }
    }
}

/// Gives back what was taken for a service that was not written.
pub(crate) async fn revert(server: &Arc<Server>, service: &Value, reserved: &Reserved) {
    let (namespace, name) = (metadata::text(service, "namespace"), metadata::text(service, "name"));
    give_back(server, &reserved.0, namespace, name).await;
}

/// Gives back what a service that was written, or deleted, does not hold any more.
pub(crate) async fn settle(server: &Arc<Server>, resource: &Resource<'_>, old: &Value, new: Option<&Value>) {
    if !is_service(resource) {
        return;
    }
    let mut keys = held(old);
    let kept = new.map(held).unwrap_or_default();
    keys.retain(|key| !kept.contains(key));
    give_back(server, &keys, metadata::text(old, "namespace"), metadata::text(old, "name")).await;
}

/// Removes keys that a service holds. What cannot be removed now is found to be unused later.
async fn give_back(server: &Arc<Server>, keys: &[String], namespace: &str, name: &str) {
    for key in keys {
        let Ok(reading) = server.store.get(key, 0).await else { continue };
        let Some(entry) = reading.entry else { continue };
        let holder = Served::new(&entry.value, entry.revision).map(|it| it.decode());
        if holder.is_some_and(|holder| parent(&holder) == (namespace, name)) {
            let _ = server.store.write(Write::delete(key.as_str(), entry.revision)).await;
        }
    }
}

/// Whose a key is.
fn parent(holder: &Value) -> (&str, &str) {
    let part = |name: &str| holder.str_at(&["spec", "parentRef", name]).unwrap_or_default();
    (part("namespace"), part("name"))
}

struct Taking<'a> {
    server: &'a Arc<Server>,
    namespace: String,
    name: String,
    /// What the service held before.
    before: Vec<String>,
    taken: Vec<String>,
    dry_run: bool,
}

impl Taking<'_> {
    async fn all(&mut self, service: &mut Value) -> Result<()> {
        let kind = service.str_at(&["spec", "type"]).unwrap_or_default().to_owned();
        if kind != "ExternalName" {
            self.address(service).await?;
        }
        let balanced = kind == "LoadBalancer";
        if balanced || kind == "NodePort" {
            let spares = balanced
                && service.at(&["spec", "allocateLoadBalancerNodePorts"]).and_then(Value::as_bool) == Some(false);
            self.ports(service, !spares).await?;
        }
        if balanced && service.str_at(&["spec", "externalTrafficPolicy"]) == Some("Local") {
            self.health_check_port(service).await?;
        }
        Ok(())
    }

    async fn address(&mut self, service: &mut Value) -> Result<()> {
        let given = service.str_at(&["spec", "clusterIP"]).unwrap_or_default().to_owned();
        let range = self.server.options.service_addresses;
        if given == "None" {
            return Ok(());
        }
        if given.is_empty() {
            let Some(address) = self.any_address(range).await? else {
                let name = &self.name;
                let message = format!("failed to allocate a serviceIP for Service \"{name}\": range is full");
                return Err(Failure::internal(message));
            };
            let text = address.to_string();
            if let Some(spec) = service.get_mut("spec").and_then(Value::as_object_mut) {
                spec.insert("clusterIP", text.as_str());
                spec.insert("clusterIPs", vec![Value::from(text)]);
            }
            return Ok(());
        }
        let Some(address) = given.parse::<Ipv4Addr>().ok() else { return Ok(()) };
        let key = address_key(address).unwrap_or_default();
        if self.has(&key) {
            return Ok(());
        }
        let why = if !range.contains(address) {
            format!("the provided IP ({address}) is not in the valid range. The range of valid IPs is {range}")
        } else if self.take(&key).await? {
            return Ok(());
        } else {
            "provided IP is already allocated".to_owned()
        };
        let mut errors = Errors::new();
        let shown = service.at(&["spec", "clusterIPs"]).cloned().unwrap_or_default();
        let at = Path::new("spec");
        errors.invalid(at.child("clusterIPs"), shown, format!("failed to allocate IP {address}: {why}"));
        Err(Failure::invalid("", "Service", &self.name, &errors))
    }

    /// An address from behind those that are kept, or else any.
    async fn any_address(&mut self, range: AddressRange) -> Result<Option<Ipv4Addr>> {
        let found = self.free_address(range).await?;
        if found.is_some() {
            return Ok(found);
        }
        // One may have been given back a moment ago.
        self.server.catch_up().await;
        self.free_address(range).await
    }

    async fn free_address(&mut self, range: AddressRange) -> Result<Option<Ipv4Addr>> {
        let kept = range.kept();
        for (start, length) in [(kept, range.len().saturating_sub(kept)), (0, kept)] {
            for index in anywhere(length) {
                let address = range.at(start.saturating_add(index));
                let key = address_key(address).unwrap_or_default();
                if !self.is_known(&key) && self.take(&key).await? {
                    return Ok(Some(address));
                }
            }
        }
        Ok(None)
    }

    async fn ports(&mut self, service: &mut Value, gives: bool) -> Result<()> {
        let read = |port: &Value, name: &str| port.get(name).and_then(Value::as_i64).unwrap_or_default();
        let list = service.at(&["spec", "ports"]).and_then(Value::as_array).unwrap_or_default();
        let mut ports: Vec<(i64, i64)> = list.iter().map(|port| (read(port, "port"), read(port, "nodePort"))).collect();
        for index in 0..ports.len() {
            let Some((number, asked)) = ports.get(index).copied() else { continue };
            if asked != 0 {
                self.port(index, asked).await?;
            } else if gives {
                // The same port of several protocols is one on the nodes.
                let same = ports.iter().find(|(other, given)| *other == number && *given != 0);
                let given = match same.map(|(_, given)| *given) {
                    Some(given) => given,
                    None => self.any_port("failed to allocate a nodePort").await?,
                };
                if let Some(port) = ports.get_mut(index) {
                    port.1 = given;
                }
            }
        }
        let list = service.get_mut("spec").and_then(|spec| spec.get_mut("ports")).and_then(Value::as_array_mut);
        for (port, (_, given)) in list.into_iter().flatten().zip(ports).filter(|(_, (_, given))| *given != 0) {
            if let Some(port) = port.as_object_mut() {
                port.insert("nodePort", given);
            }
        }
        Ok(())
    }

    /// A port that is asked for.
    async fn port(&mut self, index: usize, port: i64) -> Result<()> {
        let Some(why) = self.refusal(port).await? else { return Ok(()) };
        let mut errors = Errors::new();
        let at = Path::new("spec");
        errors.invalid(at.child("ports").index(index).child("nodePort"), port, why);
        Err(Failure::invalid("", "Service", &self.name, &errors))
    }

    /// Why a port cannot be had; none if it was taken.
    async fn refusal(&mut self, port: i64) -> Result<Option<String>> {
        let (key, range) = (port_key(port), self.server.options.service_ports);
        if self.has(&key) {
            return Ok(None);
        }
        if !(i64::from(range.first)..=i64::from(range.last)).contains(&port) {
            return Ok(Some(format!("provided port is not in the valid range. The range of valid ports is {range}")));
        }
        Ok(if self.take(&key).await? { None } else { Some("provided port is already allocated".to_owned()) })
    }

    async fn any_port(&mut self, failed: &str) -> Result<i64> {
        if let Some(port) = self.free_port().await? {
            return Ok(port);
        }
        self.server.catch_up().await;
        let found = self.free_port().await?;
        found.ok_or_else(|| Failure::internal(format!("{failed}: range is full")))
    }

    async fn free_port(&mut self) -> Result<Option<i64>> {
        let range = self.server.options.service_ports;
        let length = u32::from(range.last).saturating_sub(u32::from(range.first)).saturating_add(1);
        for index in anywhere(length) {
            let port = i64::from(range.first).saturating_add(i64::from(index));
            let key = port_key(port);
            if !self.has(&key) && !self.is_known(&key) && self.take(&key).await? {
                return Ok(Some(port));
            }
        }
        Ok(None)
    }

    async fn health_check_port(&mut self, service: &mut Value) -> Result<()> {
        let asked = service.at(&["spec", "healthCheckNodePort"]).and_then(Value::as_i64).unwrap_or_default();
        if asked != 0 {
            return match self.refusal(asked).await? {
                None => Ok(()),
                Some(why) => {
                    Err(Failure::internal(format!("failed to allocate requested HealthCheck NodePort {asked}: {why}")))
                }
            };
        }
        let port = self.any_port("failed to allocate a HealthCheck NodePort 0").await?;
        if let Some(spec) = service.get_mut("spec").and_then(Value::as_object_mut) {
            spec.insert("healthCheckNodePort", port);
        }
        Ok(())
    }

    fn has(&self, key: &str) -> bool {
        self.before.iter().chain(&self.taken).any(|it| it == key)
    }

    /// Whether the cache says that someone has it. It may be a moment behind: the store decides.
    fn is_known(&self, key: &str) -> bool {
        let prefix = key.rfind('/').and_then(|at| key.get(..=at)).unwrap_or_default();
        self.server.cache.resource(prefix).get(key).is_some()
    }

    /// Takes a key; false if someone has it.
    async fn take(&mut self, key: &str) -> Result<bool> {
        if self.dry_run {
            let free = self.server.store.get(key, 0).await?.entry.is_none();
            if free {
                self.taken.push(key.to_owned());
            }
            return Ok(free);
        }
        let mut holder = holder(key, &self.namespace, &self.name);
        let value = stored::encode(&mut holder).ok_or_else(|| Failure::internal("the address has no metadata"))?;
        loop {
            match self.server.store.write(Write::create(key, value.clone())).await? {
                Outcome::Done { .. } => {
                    self.taken.push(key.to_owned());
                    return Ok(true);
                }
                Outcome::Conflict { current } => {
                    let Some(entry) = current else { continue };
                    if !self.is_left_behind(&entry).await? {
                        return Ok(false);
                    }
                    // Whoever removes it first, the next turn decides who has it.
                    let _ = self.server.store.write(Write::delete(key, entry.revision)).await?;
                }
            }
        }
    }

    /// Whether nobody uses a key, and nobody can be about to.
    async fn is_left_behind(&self, entry: &store::Entry) -> Result<bool> {
        let Some(holder) = Served::new(&entry.value, entry.revision).map(|it| it.decode()) else { return Ok(false) };
        let age = clock::now().seconds.saturating_sub(
            Timestamp::parse(metadata::text(&holder, "creationTimestamp")).map_or(i64::MAX, |it| it.seconds),
        );
        let patience = self.server.options.request_timeout.saturating_mul(2).max(Duration::from_secs(60));
        if age < i64::try_from(patience.as_secs()).unwrap_or(i64::MAX) {
            return Ok(false);
        }
        let (namespace, name) = parent(&holder);
        let Some(services) = resources::find("", "v1", "services").filter(|_| !name.is_empty()) else {
            return Ok(false);
        };
        let service = self.server.store.get(&services.key(namespace, name), 0).await?.entry;
        let service = service.and_then(|entry| Served::new(&entry.value, entry.revision)).map(|it| it.decode());
        Ok(service.is_none_or(|service| !held(&service).iter().any(|key| **key == *entry.key)))
    }
}

/// All numbers below a bound, from a random one on.
fn anywhere(bound: u32) -> impl Iterator<Item = u32> {
    let start = u32::try_from(random::below(u64::from(bound.max(1)))).unwrap_or_default();
    (start..bound).chain(0..start.min(bound))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read() {
        let range: AddressRange = "10.96.7.9/12".parse().unwrap();
        assert_eq!((range, range.to_string().as_str()), (AddressRange::default(), "10.96.0.0/12"));
        let range: AddressRange = "192.168.5.0/29".parse().unwrap();
        assert_eq!((range.len(), range.first_address().to_string().as_str(), range.kept()), (6, "192.168.5.1", 0));
        let inside = |text: &str| range.contains(text.parse().unwrap());
        assert!(!inside("192.168.5.0") && inside("192.168.5.1") && inside("192.168.5.6") && !inside("192.168.5.7"));
        assert!(!inside("192.168.4.255") && !inside("192.168.5.8"));
        for wrong in ["10.0.0.0", "10.0.0.0/30", "10.0.0.0/7", "fd00::/112", "x/8", "10.0.0.0/x"] {
            assert!(wrong.parse::<AddressRange>().is_err(), "{wrong}");
        }
        assert_eq!("10.0.0.0/24".parse::<AddressRange>().unwrap().kept(), 16);
        assert_eq!(AddressRange::default().kept(), 256);
        assert_eq!("30000-32767".parse::<PortRange>().unwrap(), PortRange::default());
        for wrong in ["1", "2-1", "0-5", "a-b", "1-70000"] {
            assert!(wrong.parse::<PortRange>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_number_comes_once() {
        for bound in [0, 1, 7] {
            let mut all: Vec<u32> = anywhere(bound).collect();
            all.sort_unstable();
            assert_eq!(all, (0..bound).collect::<Vec<_>>());
        }
    }
}
