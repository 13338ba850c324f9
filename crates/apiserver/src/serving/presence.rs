//! What says that this server is there: its address behind the service `default/kubernetes`, a lease with its name, and
//! what other servers need to know to trust the same clients. Namespaces and the service that it needs come back, too.
//!
//! Servers on one store tell each other by entries that vanish if they are not renewed; whoever looks next takes a server
//! that is gone out of the endpoints. Follows Kubernetes' `controlplane/reconcilers` and its identity leases.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use api::json::{Object, Value};
use api::time::Timestamp;
use ring::digest::{SHA256, digest};
use store::{Change, Guard, Outcome, Store, Write};
use tokio::task::JoinHandle;
use tracing::warn;

use super::bootstrap;
use crate::clock;
use crate::objects::metadata;
use crate::objects::services::AddressRange;
use crate::random;
use crate::resources::{self, Resource};
use crate::server::{Server, Stopping};
use crate::storage::stored::Served;

/// How often a server says that it is there.
const INTERVAL: Duration = Duration::from_secs(10);
/// A server that has not said so for this long is gone.
const TIME_TO_LIVE: Duration = Duration::from_secs(15);
/// A lease says that a server was there within this time.
const LEASE_SECONDS: i64 = 3600;
/// What tells the leases of servers from others.
const IDENTITY_LABEL: &str = "apiserver.kubernetes.io/identity";
const IDENTITY: &str = "kube-apiserver";
/// Leases of servers that are gone are looked for once in this many turns.
const CLEAN_EVERY: u64 = 6;
/// How many leases are looked through at a time.
const LEASES_AT_A_TIME: usize = 500;
/// The start of the entries by which servers on one store know each other. No resource is stored there.
const ADDRESSES: &str = "/masterleases/";
/// So often a write is tried again if someone else was faster.
const ATTEMPTS_MAX: usize = 5;

/// Where a server can be found, and whom it trusts.
#[derive(Debug, Clone)]
pub struct Presence {
    /// The address and port for clients inside the cluster.
    pub address: SocketAddr,
    /// The name of the machine.
    pub hostname: String,
    /// The authorities of client certificates, as PEM.
    pub client_authorities: String,
}

/// The authorities of client certificates that others are told of.
#[derive(Debug, Clone, Default)]
pub struct Authorities(Arc<RwLock<String>>);

impl Authorities {
    /// Replaces them, from the next turn on.
    pub fn set(&self, pem: String) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = pem;
    }

    fn get(&self) -> String {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A server that has been announced.
pub struct Announced {
    authorities: Authorities,
    task: JoinHandle<()>,
}

impl Announced {
    /// Whom others are told to trust.
    #[must_use]
    pub fn authorities(&self) -> Authorities {
        self.authorities.clone()
    }

    /// Waits until a server that stops has said so.
    pub async fn gone(self) {
        // An error means that the task is gone already.
        let _ = self.task.await;
    }
}

impl Server {
    /// Says that the server is there, and goes on saying so until it stops.
    #[must_use]
    pub fn announce(self: &Arc<Self>, presence: Presence) -> Announced {
        let authorities = Authorities::default();
        authorities.set(presence.client_authorities.clone());
        let keeper = Keeper {
            identity: identity(&presence),
            // Who restarts under the same name is another holder.
            holder: random::uid(),
            presence,
            authorities: authorities.clone(),
            addresses: self.options.service_addresses,
            store: self.store.clone(),
        };
        Announced { authorities, task: tokio::spawn(keeper.run(self.stopping())) }
    }
}

/// A name that stays the same when the server starts again.
fn identity(presence: &Presence) -> String {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let hash = digest(&SHA256, format!("{}:{}", presence.hostname, presence.address).as_bytes());
    let letter = |byte: &u8| LETTERS.get(usize::from(byte % 32)).map_or('a', |it| char::from(*it));
    format!("apiserver-{}", hash.as_ref().iter().take(26).map(letter).collect::<String>())
}

struct Keeper {
    identity: String,
    holder: String,
    presence: Presence,
    authorities: Authorities,
    /// The addresses that services can have.
    addresses: AddressRange,
    store: Arc<dyn Store>,
}

impl Keeper {
    async fn run(self, mut stopping: Stopping) {
        for turn in 0_u64.. {
            if let Err(error) = self.tell(true).await {
                warn!(err = %error, "Could not say that the server is there");
            }
            if turn.is_multiple_of(CLEAN_EVERY)
                && let Err(error) = self.remove_expired_leases().await
            {
                warn!(err = %error, "Could not remove leases of servers that are gone");
            }
            tokio::select! {
                () = stopping.stopped() => break,
                () = tokio::time::sleep(INTERVAL) => {}
            }
        }
        if let Err(error) = self.tell(false).await {
            warn!(err = %error, "Could not say that the server goes");
        }
    }

    /// One turn: says whether the server is there, and brings what others see up to date.
    async fn tell(&self, is_there: bool) -> Result<(), store::Error> {
        self.renew(is_there).await?;
        if is_there {
            // Endpoints without their service would be cleaned up.
            bootstrap::restore(&*self.store, self.addresses).await?;
        }
        let all = self.store.list(ADDRESSES, store::ListOptions::default()).await?;
        let addresses = all.entries.iter().filter_map(|entry| entry.key.strip_prefix(ADDRESSES)?.parse().ok());
        let mut by_port: BTreeMap<u16, Vec<SocketAddr>> = BTreeMap::new();
        addresses.for_each(|address: SocketAddr| by_port.entry(address.port()).or_default().push(address));
        self.keep("", "endpoints", ("default", "kubernetes"), |old| endpoints(old, &by_port)).await?;
        let own = by_port.get(&self.presence.address.port()).or_else(|| by_port.values().next());
        let own = own.map(Vec::as_slice).unwrap_or_default();
        self.keep("discovery.k8s.io", "endpointslices", ("default", "kubernetes"), |old| slice(old, own)).await?;
        if !is_there {
            return Ok(());
        }
        let port = self.presence.address.port();
        self.keep("", "services", ("default", "kubernetes"), |old| Some(with_port(old?.clone(), port))).await?;
        let authorities = self.authorities.get();
        let name = ("kube-system", "extension-apiserver-authentication");
        self.keep("", "configmaps", name, |old| Some(trust(old, &authorities))).await?;
        self.keep("coordination.k8s.io", "leases", ("kube-system", &self.identity), |_| Some(self.lease())).await
    }

    /// Writes the entry that other servers look for, or removes it.
    async fn renew(&self, is_there: bool) -> Result<(), store::Error> {
        let key = format!("{ADDRESSES}{}", self.presence.address);
        for _ in 0..ATTEMPTS_MAX {
            let guard = match self.store.get(&key, 0).await?.entry {
                Some(entry) => Guard::Unchanged(entry.revision),
                None if !is_there => return Ok(()),
                None => Guard::Absent,
            };
            let value = self.holder.clone().into();
            let change = if is_there { Change::Put { value, ttl: Some(TIME_TO_LIVE) } } else { Change::Delete };
            if let Outcome::Done { .. } = self.store.write(Write { key: key.clone(), guard, change }).await? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Makes or changes an object so that it is as `wanted` says, given what it is; none leaves it alone.
    async fn keep(
        &self,
        group: &str,
        plural: &str,
        (namespace, name): (&str, &str),
        wanted: impl Fn(Option<&Value>) -> Option<Value>,
    ) -> Result<(), store::Error> {
        let Some(row) = resources::find(group, "v1", plural) else { return Ok(()) };
        let key = row.key(namespace, name);
        for _ in 0..ATTEMPTS_MAX {
            let entry = self.store.get(&key, 0).await?.entry;
            let old = entry.as_ref().and_then(|entry| Served::new(&entry.value, entry.revision));
            let old = old.map(|served| served.decode());
            let Some(mut object) = wanted(old.as_ref()) else { return Ok(()) };
            metadata::set(&mut object, "name", name);
            metadata::set(&mut object, "namespace", namespace);
            let write = match (entry, old) {
                (Some(entry), Some(old)) => {
                    change(row, &old, object).map(|bytes| Write::update(key.as_str(), entry.revision, bytes))
                }
                // What cannot be read is for people to look at.
                (Some(_), None) => return Ok(()),
                (None, _) => bootstrap::make(row, object),
            };
            let Some(write) = write else { return Ok(()) };
            if let Outcome::Done { .. } = self.store.write(write).await? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Removes the leases of servers that have not renewed them.
    async fn remove_expired_leases(&self) -> Result<(), store::Error> {
        let Some(row) = resources::find("coordination.k8s.io", "v1", "leases") else { return Ok(()) };
        let range = row.key("kube-system", "");
        let mut options = store::ListOptions { limit: Some(LEASES_AT_A_TIME), ..store::ListOptions::default() };
        loop {
            let page = self.store.list(&range, options).await?;
            let last = page.entries.last().map(|entry| entry.key.to_string());
            for entry in page.entries {
                let lease = Served::new(&entry.value, entry.revision).map(|served| served.decode());
                if lease.is_some_and(|lease| is_expired_identity(&lease, clock::now())) {
                    let guard = Guard::Unchanged(entry.revision);
                    let write = Write { key: entry.key.to_string(), guard, change: Change::Delete };
                    // If somebody was faster, the lease is renewed or gone.
                    let _ = self.store.write(write).await?;
                }
            }
            if page.remaining == 0 {
                return Ok(());
            }
            let limit = Some(LEASES_AT_A_TIME);
            options = store::ListOptions { limit, after_key: last, ..store::ListOptions::default() };
        }
    }

    fn lease(&self) -> Value {
        let hostname = &self.presence.hostname;
        let address = self.presence.address.to_string();
        let holder = format!("{}_{}", self.identity, self.holder);
        let now = clock::now().to_micro_string();
        api::json!({
            "metadata": {
                "labels": {IDENTITY_LABEL: IDENTITY, "kubernetes.io/hostname": hostname},
                "annotations": {"kubernetes.io/peer-advertise-address": address}
            },
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now}
        })
    }
}

/// Whether a lease is that of a server which is gone. Kubernetes: one that does not say until when it holds is, too.
fn is_expired_identity(lease: &Value, now: Timestamp) -> bool {
    if lease.str_at(&["metadata", "labels", IDENTITY_LABEL]) != Some(IDENTITY) {
        return false;
    }
    let has_finalizers =
        lease.at(&["metadata", "finalizers"]).and_then(Value::as_array).is_some_and(|it| !it.is_empty());
    let renewed = lease.str_at(&["spec", "renewTime"]).and_then(|text| Timestamp::parse(text).ok());
    let seconds = lease.at(&["spec", "leaseDurationSeconds"]).and_then(Value::as_i64);
    let until = renewed.zip(seconds).map(|(renewed, seconds)| renewed.plus_seconds(seconds));
    !has_finalizers && until.is_none_or(|until| until < now)
}

/// The changed object as it is stored; none if it does not differ.
fn change(row: &Resource<'_>, old: &Value, wanted: Value) -> Option<bytes::Bytes> {
    let mut object = old.clone();
    let mut is_changed = false;
    for (name, value) in
        wanted.as_object()?.iter().filter(|(name, _)| !matches!(*name, "kind" | "apiVersion" | "metadata"))
    {
        if object.get(name) != Some(value) {
            is_changed = true;
            object.as_object_mut()?.insert(name, value.clone());
        }
    }
    for field in ["labels", "annotations"] {
        if let Some(value) = wanted.at(&["metadata", field]).filter(|value| old.at(&["metadata", field]) != Some(value))
        {
            is_changed = true;
            metadata::set(&mut object, field, value.clone());
        }
    }
    if !is_changed {
        return None;
    }
    let generation = old.at(&["metadata", "generation"]).and_then(Value::as_i64);
    if let Some(generation) = generation {
        metadata::set(&mut object, "generation", generation.saturating_add(1));
    }
    bootstrap::changed(row, old, object)
}

fn is_ipv6(addresses: &[SocketAddr]) -> bool {
    addresses.first().is_some_and(SocketAddr::is_ipv6)
}

fn endpoints(old: Option<&Value>, by_port: &BTreeMap<u16, Vec<SocketAddr>>) -> Option<Value> {
    let subsets = by_port.iter().map(|(port, addresses)| {
        let addresses = addresses.iter().map(|address| api::json!({"ip": (address.ip().to_string())}));
        let addresses: Vec<Value> = addresses.collect();
        let ports = api::json!([{"name": "https", "port": (i64::from(*port)), "protocol": "TCP"}]);
        api::json!({"addresses": addresses, "ports": ports})
    });
    let subsets: Vec<Value> = subsets.collect();
    if old.is_none() && subsets.is_empty() {
        return None;
    }
    let labels = api::json!({"endpointslice.kubernetes.io/skip-mirror": "true"});
    let mut object = api::json!({"metadata": {"labels": labels}});
    object.as_object_mut()?.insert("subsets", subsets);
    Some(object)
}

fn slice(old: Option<&Value>, addresses: &[SocketAddr]) -> Option<Value> {
    if old.is_none() && addresses.is_empty() {
        return None;
    }
    let family =
        old.and_then(|old| old.str_at(&["addressType"])).unwrap_or(if is_ipv6(addresses) { "IPv6" } else { "IPv4" });
    let endpoint =
        |address: &SocketAddr| api::json!({"addresses": [(address.ip().to_string())], "conditions": {"ready": true}});
    let all: Vec<Value> = addresses.iter().filter(|it| it.is_ipv6() == (family == "IPv6")).map(endpoint).collect();
    let port =
        |address: &SocketAddr| api::json!([{"name": "https", "protocol": "TCP", "port": (i64::from(address.port()))}]);
    let mut object = api::json!({
        "metadata": {"labels": {"kubernetes.io/service-name": "kubernetes"}}, "addressType": family
    });
    let fields = object.as_object_mut()?;
    fields.insert("endpoints", all);
    if let Some(ports) = addresses.first().map(port) {
        fields.insert("ports", ports);
    }
    if old.is_none() {
        metadata::set(&mut object, "generation", 1_i64);
    }
    Some(object)
}

/// The service leads to the port that is really listened on.
fn with_port(mut service: Value, port: u16) -> Value {
    let ports = service.get_mut("spec").and_then(|spec| spec.get_mut("ports")).and_then(Value::as_array_mut);
    for it in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
        if it.get("name").and_then(Value::as_str) == Some("https") {
            it.insert("targetPort", i64::from(port));
        }
    }
    service
}

/// What other servers find here to trust the same client certificates. What is there besides stays.
fn trust(old: Option<&Value>, authorities: &str) -> Value {
    let mut data = old.and_then(|old| old.get("data")).and_then(Value::as_object).cloned().unwrap_or_else(Object::new);
    data.insert("client-ca-file", authorities);
    api::json!({"data": data})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_gone_is_not_an_endpoint() {
        let one: SocketAddr = "192.0.2.1:6443".parse().unwrap();
        let old = slice(None, &[one]).unwrap();
        assert_eq!(old.at(&["endpoints"]).and_then(Value::as_array).map(<[Value]>::len), Some(1));
        let now = slice(Some(&old), &[]).unwrap();
        assert_eq!(now.at(&["endpoints"]).and_then(Value::as_array).map(<[Value]>::len), Some(0));
        assert_eq!(endpoints(None, &BTreeMap::new()), None);
    }

    #[test]
    fn leases_of_servers_end_when_they_are_not_renewed() {
        let now = Timestamp::parse("2026-11-17T02:00:00Z").unwrap();
        let lease = |label: &str, spec: Value| {
            let labels: Object = [(label, "kube-apiserver")].into_iter().collect();
            is_expired_identity(&api::json!({"metadata": {"labels": labels}, "spec": spec}), now)
        };
        let spec = |time: &str| api::json!({"leaseDurationSeconds": 3600, "renewTime": time});
        assert!(lease(IDENTITY_LABEL, spec("2026-11-17T00:59:59.999999Z")));
        assert!(!lease(IDENTITY_LABEL, spec("2026-11-17T01:00:01.000000Z")));
        assert!(lease(IDENTITY_LABEL, api::json!({})));
        assert!(!lease("else", spec("2026-11-17T00:59:59.000000Z")));
        let held = api::json!({"metadata": {"labels": {"apiserver.kubernetes.io/identity": "kube-apiserver"}, "finalizers": ["a/b"]}});
        assert!(!is_expired_identity(&held, now));
    }

    #[test]
    fn a_server_keeps_its_name() {
        let presence = |address: &str| Presence {
            address: address.parse().unwrap(),
            hostname: "vm".to_owned(),
            client_authorities: String::new(),
        };
        let name = identity(&presence("192.0.2.1:6443"));
        assert_eq!(name, identity(&presence("192.0.2.1:6443")));
        assert_ne!(name, identity(&presence("192.0.2.1:6444")));
        assert_eq!(name.len(), "apiserver-".len() + 26);
    }
}
