//! Giving addresses and ports to services, and taking them back.
//!
//! The keys that services hold are described in [`crate::objects::services`].

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use api::field::{Errors, Path};
use api::json::Value;
use api::metadata;
use api::time::Timestamp;
use cache::stored::{self, ServedObject};
use store::{Outcome, Write};

use crate::objects::services::{AddressRange, address_key, held, holder, is_service, parent, port_key};
use crate::random;
use crate::resources::{self, Resource};
use crate::state::Server;
use crate::wire::status::{Failure, Result};

/// Values allocated for a service that is not written yet.
#[derive(Debug, Default)]
pub(crate) struct ReservedValues(Vec<String>);

/// Allocates the missing addresses and ports of a service. Nothing is allocated in a dry run.
///
/// # Errors
/// 422 if a requested value is in use or out of range, 500 if nothing is left.
pub(crate) async fn reserve(
    server: &Arc<Server>,
    resource: &Resource<'_>,
    service: &mut Value,
    old: Option<&Value>,
    dry_run: bool,
) -> Result<ReservedValues> {
    if !is_service(resource) {
        return Ok(ReservedValues::default());
    }
    let errors = registry::init_service_families(service, old);
    if !errors.is_empty() {
        return Err(Failure::invalid("", "Service", metadata::name(service), &errors));
    }
    let mut taking = Allocation {
        server,
        namespace: metadata::namespace(service).to_owned(),
        name: metadata::name(service).to_owned(),
        before: old.map(held).unwrap_or_default(),
        taken: Vec::new(),
        dry_run,
    };
    match taking.all(service).await {
        Ok(()) => {
            if let Some(of) = resource.object_type("v1") {
                api::types::normalize(of, service);
            }
            Ok(ReservedValues(taking.taken))
        }
        Err(failure) => {
            let (namespace, name) = (taking.namespace, taking.name);
            give_back(server, &taking.taken, &namespace, &name).await;
            Err(failure)
        }
    }
}

/// Releases the values of a service that was not written.
pub(crate) async fn revert(server: &Arc<Server>, service: &Value, reserved: &ReservedValues) {
    let (namespace, name) = (metadata::namespace(service), metadata::name(service));
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
    give_back(server, &keys, metadata::namespace(old), metadata::name(old)).await;
}

/// Removes keys that a service holds. What cannot be removed now is found to be unused later.
async fn give_back(server: &Arc<Server>, keys: &[String], namespace: &str, name: &str) {
    for key in keys {
        let Ok(reading) = server.store.get(key, 0).await else { continue };
        let Some(entry) = reading.entry else { continue };
        let holder = ServedObject::new(&entry.value, entry.revision).map(|it| it.decode());
        if holder.is_some_and(|holder| parent(&holder) == (namespace, name)) {
            let _ = server.store.write(Write::delete(key.as_str(), entry.revision)).await;
        }
    }
}

struct Allocation<'a> {
    server: &'a Arc<Server>,
    namespace: String,
    name: String,
    /// Values that the service held before.
    before: Vec<String>,
    taken: Vec<String>,
    dry_run: bool,
}

impl Allocation<'_> {
    async fn all(&mut self, service: &mut Value) -> Result<()> {
        let kind = service.text_at(&["spec", "type"]).to_owned();
        if kind != "ExternalName" {
            self.address(service).await?;
        }
        let balanced = kind == "LoadBalancer";
        if balanced || kind == "NodePort" {
            let spares = balanced && service.bool_at(&["spec", "allocateLoadBalancerNodePorts"]) == Some(false);
            self.ports(service, !spares).await?;
        }
        if balanced && service.str_at(&["spec", "externalTrafficPolicy"]) == Some("Local") {
            self.health_check_port(service).await?;
        }
        Ok(())
    }

    async fn address(&mut self, service: &mut Value) -> Result<()> {
        let given = service.text_at(&["spec", "clusterIP"]).to_owned();
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
        let key = address_key(address);
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
                let key = address_key(address);
                if !self.is_known(&key) && self.take(&key).await? {
                    return Ok(Some(address));
                }
            }
        }
        Ok(None)
    }

    async fn ports(&mut self, service: &mut Value, gives: bool) -> Result<()> {
        let read = |port: &Value, name: &str| port.get(name).and_then(Value::as_i64).unwrap_or_default();
        let list = service.list_at(&["spec", "ports"]);
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

    /// Allocates a requested port.
    async fn port(&mut self, index: usize, port: i64) -> Result<()> {
        let Some(why) = self.refusal(port).await? else { return Ok(()) };
        let mut errors = Errors::new();
        let at = Path::new("spec");
        errors.invalid(at.child("ports").index(index).child("nodePort"), port, why);
        Err(Failure::invalid("", "Service", &self.name, &errors))
    }

    /// Returns the reason why a port is unavailable; `None` if it was allocated.
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
        let asked = service.int_at(&["spec", "healthCheckNodePort"]);
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

    /// Whether a value is in use, according to the cache. It may be outdated: the store decides.
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
        let mut holder = holder(key, &self.namespace, &self.name, self.server.clock().now_seconds());
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
                    // Whichever server removes it first, the next turn decides who gets it.
                    let _ = self.server.store.write(Write::delete(key, entry.revision)).await?;
                }
            }
        }
    }

    /// Whether a key is unused, and no request can be about to use it.
    async fn is_left_behind(&self, entry: &store::Entry) -> Result<bool> {
        let Some(holder) = ServedObject::new(&entry.value, entry.revision).map(|it| it.decode()) else {
            return Ok(false);
        };
        let age = self.server.clock().now().seconds.saturating_sub(
            Timestamp::parse(metadata::text(&holder, "creationTimestamp")).map_or(i64::MAX, |it| it.seconds),
        );
        let patience = self.server.options.request_timeout.saturating_mul(2).max(Duration::from_secs(60));
        if age < i64::try_from(patience.as_secs()).unwrap_or(i64::MAX) {
            return Ok(false);
        }
        let (namespace, name) = parent(&holder);
        if name.is_empty() {
            return Ok(false);
        }
        let service = self.server.store.get(&resources::SERVICES.key(namespace, name), 0).await?.entry;
        let service = service.and_then(|entry| ServedObject::new(&entry.value, entry.revision)).map(|it| it.decode());
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
    fn every_number_comes_once() {
        for bound in [0, 1, 7] {
            let mut all: Vec<u32> = anywhere(bound).collect();
            all.sort_unstable();
            assert_eq!(all, (0..bound).collect::<Vec<_>>());
        }
    }
}
