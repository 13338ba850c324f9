//! Registration of this server: its address behind the service `default/kubernetes`, a lease with its name, and
//! the data that other servers need to trust the same clients. Restores the namespaces and the service that it
//! needs, too.
//!
//! Servers on one store register by entries that expire if they are not renewed; the next server removes an
//! expired one from the endpoints. Follows Kubernetes' `controlplane/reconcilers` and its identity leases.

use locks::RwLock;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ::clock::Clock;
use api::json::{Object, Value};
use api::time::Timestamp;
use api::well_known::{
    LABEL_ENDPOINT_SLICE_SKIP_MIRROR, LABEL_HOSTNAME, LABEL_SERVICE_NAME, NAMESPACE_PUBLIC, NAMESPACE_SYSTEM,
};
use ring::digest::{SHA256, digest};
use store::{Change, Guard, Outcome, Store, Write};
use telemetry::logs::chain;
use tokio::task::JoinHandle;
use tracing::warn;

use super::bootstrap;
use crate::certificates::front_proxy::FrontProxy;
use crate::initial_objects;
use crate::objects::services::AddressRange;
use crate::random;
use crate::resources::{self, Resource};
use crate::shutdown::ShutdownSignal;
use crate::state::Server;
use api::metadata;
use cache::stored::ServedObject;

/// Interval of renewals.
const INTERVAL: Duration = Duration::from_secs(10);
/// Time after which a server that was not renewed is removed.
const TIME_TO_LIVE: Duration = Duration::from_secs(15);
/// Duration of a lease.
const LEASE_SECONDS: i64 = 3600;
/// Label of the leases of servers.
const IDENTITY_LABEL: &str = "apiserver.kubernetes.io/identity";
const IDENTITY: &str = "kube-apiserver";
/// Number of turns between two cleanups of expired leases.
const CLEAN_EVERY: u64 = 6;
/// Number of leases to examine at a time.
const LEASES_AT_A_TIME: usize = 500;
/// The start of the entries by which servers on one store know each other. No resource is stored there.
const ADDRESSES: &str = "/masterleases/";
/// Maximum number of retries after conflicts.
const ATTEMPTS_MAX: usize = 5;

/// Address of a server, and its client authorities.
#[derive(Debug, Clone)]
pub struct Presence {
    /// The address and port for clients inside the cluster.
    pub address: SocketAddr,
    /// The name of the machine.
    pub hostname: String,
    /// The authorities of client certificates, as PEM.
    pub client_authorities: String,
    /// The kubeconfig in `kube-public/cluster-info`, by which machines find the cluster; none publishes nothing.
    pub cluster_info: Option<String>,
}

/// The client certificate authorities that are published.
#[derive(Debug, Clone, Default)]
pub struct Authorities(Arc<RwLock<String>>);

impl Authorities {
    /// Replaces them, from the next turn on.
    pub fn set(&self, pem: String) {
        *self.0.write() = pem;
    }

    fn get(&self) -> String {
        self.0.read().clone()
    }
}

/// A server that has been announced.
pub struct AnnouncedServer {
    authorities: Authorities,
    task: JoinHandle<()>,
}

impl AnnouncedServer {
    /// The published authorities.
    #[must_use]
    pub fn authorities(&self) -> Authorities {
        self.authorities.clone()
    }

    /// Waits until a stopping server has been unregistered.
    pub async fn gone(self) {
        // An error means that the task has already ended.
        let _ = self.task.await;
    }
}

impl Server {
    /// Registers the server, and renews it until it stops.
    #[must_use]
    pub fn announce(self: &Arc<Self>, presence: Presence) -> AnnouncedServer {
        let authorities = Authorities::default();
        authorities.set(presence.client_authorities.clone());
        let keeper = Keeper {
            identity: identity(&presence),
            // A restart under the same name is another holder.
            holder: random::uid(),
            presence,
            authorities: authorities.clone(),
            front_proxy: self.options.front_proxy.clone(),
            addresses: self.options.service_addresses,
            store: self.store.clone(),
            clock: self.clock().clone(),
        };
        AnnouncedServer { authorities, task: tokio::spawn(keeper.run(self.stopping())) }
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
    front_proxy: Option<Arc<FrontProxy>>,
    /// The network from which services get their cluster IPs.
    addresses: AddressRange,
    store: Arc<dyn Store>,
    clock: Clock,
}

impl Keeper {
    async fn run(self, mut stopping: ShutdownSignal) {
        let mut turns = self.clock.interval(INTERVAL);
        for turn in 0_u64.. {
            tokio::select! {
                () = stopping.stopped() => break,
                () = turns.tick() => {}
            }
            if let Err(error) = self.report(true).await {
                warn!(err = %chain(&error), "Could not publish the endpoint of this server");
            }
            if turn.is_multiple_of(CLEAN_EVERY)
                && let Err(error) = self.remove_expired_leases().await
            {
                warn!(err = %chain(&error), "Could not remove expired leases of servers");
            }
        }
        if let Err(error) = self.report(false).await {
            warn!(err = %chain(&error), "Could not withdraw the endpoint of this server");
        }
    }

    /// One turn: renews or removes the server's entry, and updates the published objects.
    async fn report(&self, is_there: bool) -> Result<(), store::Error> {
        self.renew(is_there).await?;
        if is_there {
            // Endpoints without their service would be cleaned up.
            bootstrap::restore(&*self.store, self.addresses, self.clock.now_seconds()).await?;
        }
        let all = self.store.list(ADDRESSES, store::ListOptions::default()).await?;
        let addresses = all.entries.iter().filter_map(|entry| entry.key.strip_prefix(ADDRESSES)?.parse().ok());
        let mut by_port: BTreeMap<u16, Vec<SocketAddr>> = BTreeMap::new();
        addresses.for_each(|address: SocketAddr| by_port.entry(address.port()).or_default().push(address));
        self.keep(resources::ENDPOINTS, ("default", "kubernetes"), |old| endpoints(old, &by_port)).await?;
        let own = by_port.get(&self.presence.address.port()).or_else(|| by_port.values().next());
        let own = own.map(Vec::as_slice).unwrap_or_default();
        self.keep(resources::ENDPOINT_SLICES, ("default", "kubernetes"), |old| slice(old, own)).await?;
        if !is_there {
            return Ok(());
        }
        let port = self.presence.address.port();
        self.keep(resources::SERVICES, ("default", "kubernetes"), |old| Some(with_port(old?.clone(), port))).await?;
        let authorities = self.authorities.get();
        let name = (NAMESPACE_SYSTEM, "extension-apiserver-authentication");
        self.keep(resources::CONFIG_MAPS, name, |old| Some(trust(old, &authorities, self.front_proxy.as_deref())))
            .await?;
        if let Some(kubeconfig) = &self.presence.cluster_info {
            let name = (NAMESPACE_PUBLIC, "cluster-info");
            self.keep(resources::CONFIG_MAPS, name, |old| cluster_info(old, kubeconfig)).await?;
        }
        self.keep(resources::LEASES, (NAMESPACE_SYSTEM, &self.identity), |_| Some(self.lease())).await
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

    /// Creates or changes an object to the result of `wanted`; `None` leaves it alone.
    async fn keep(
        &self,
        row: &Resource<'_>,
        (namespace, name): (&str, &str),
        wanted: impl Fn(Option<&Value>) -> Option<Value>,
    ) -> Result<(), store::Error> {
        let (key, now) = (row.key(namespace, name), self.clock.now_seconds());
        for _ in 0..ATTEMPTS_MAX {
            let entry = self.store.get(&key, 0).await?.entry;
            let old = entry.as_ref().and_then(|entry| ServedObject::new(&entry.value, entry.revision));
            let old = old.map(|served| served.decode());
            let Some(mut object) = wanted(old.as_ref()) else { return Ok(()) };
            metadata::set(&mut object, "name", name);
            metadata::set(&mut object, "namespace", namespace);
            let write = match (entry, old) {
                (Some(entry), Some(old)) => {
                    change(row, &old, object, now).map(|bytes| Write::update(key.as_str(), entry.revision, bytes))
                }
                // What cannot be read is for people to look at.
                (Some(_), None) => return Ok(()),
                (None, _) => bootstrap::make(row, object, now),
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
        let row = resources::LEASES;
        let range = row.key(NAMESPACE_SYSTEM, "");
        let mut options = store::ListOptions { limit: Some(LEASES_AT_A_TIME), ..store::ListOptions::default() };
        loop {
            let page = self.store.list(&range, options).await?;
            let last = page.entries.last().map(|entry| entry.key.to_string());
            for entry in page.entries {
                let lease = ServedObject::new(&entry.value, entry.revision).map(|served| served.decode());
                if lease.is_some_and(|lease| is_expired_identity(&lease, self.clock.now_seconds())) {
                    let guard = Guard::Unchanged(entry.revision);
                    let write = Write { key: entry.key.to_string(), guard, change: Change::Delete };
                    // If another server was faster, the lease was renewed or deleted.
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
        let now = self.clock.now_seconds().to_micro_string();
        api::json!({
            "metadata": {
                "labels": {IDENTITY_LABEL: IDENTITY, LABEL_HOSTNAME: hostname},
                "annotations": {"kubernetes.io/peer-advertise-address": address}
            },
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now}
        })
    }
}

/// Whether a lease belongs to a stopped server. Kubernetes: so does one without an expiry.
fn is_expired_identity(lease: &Value, now: Timestamp) -> bool {
    if lease.str_at(&["metadata", "labels", IDENTITY_LABEL]) != Some(IDENTITY) {
        return false;
    }
    let has_finalizers = lease.array_at(&["metadata", "finalizers"]).is_some_and(|it| !it.is_empty());
    let renewed = lease.str_at(&["spec", "renewTime"]).and_then(|text| Timestamp::parse(text).ok());
    let seconds = lease.i64_at(&["spec", "leaseDurationSeconds"]);
    let until = renewed.zip(seconds).map(|(renewed, seconds)| renewed.plus_seconds(seconds));
    !has_finalizers && until.is_none_or(|until| until < now)
}

/// The changed object as it is stored; none if it does not differ.
fn change(row: &Resource<'_>, old: &Value, wanted: Value, now: Timestamp) -> Option<bytes::Bytes> {
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
    let generation = old.i64_at(&["metadata", "generation"]);
    if let Some(generation) = generation {
        metadata::set(&mut object, "generation", generation.saturating_add(1));
    }
    initial_objects::changed(row, old, object, now)
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
    let labels = api::json!({LABEL_ENDPOINT_SLICE_SKIP_MIRROR: "true"});
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
        "metadata": {"labels": {LABEL_SERVICE_NAME: "kubernetes"}}, "addressType": family
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

/// The object by which machines find the cluster. One that another server of the same authority wrote stays; so do
/// signatures.
fn cluster_info(old: Option<&Value>, kubeconfig: &str) -> Option<Value> {
    let authority = |text: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix("certificate-authority-data: "));
        line.map(ToOwned::to_owned)
    };
    let known = old.and_then(|old| old.str_at(&["data", "kubeconfig"]));
    if known.is_some_and(|known| authority(known) == authority(kubeconfig)) {
        return None;
    }
    let mut data = old.and_then(|old| old.get("data")).and_then(Value::as_object).cloned().unwrap_or_else(Object::new);
    data.insert("kubeconfig", kubeconfig);
    Some(api::json!({"data": data}))
}

/// Maximum number of published front-proxy authorities; the oldest of other servers are dropped first.
const AUTHORITIES_MAX: usize = 16;

/// Facts for other servers: the authorities of client certificates, and those of the certificate with which aggregated API
/// servers are called. Further data stays.
fn trust(old: Option<&Value>, authorities: &str, front_proxy: Option<&FrontProxy>) -> Value {
    let mut data = old.and_then(|old| old.get("data")).and_then(Value::as_object).cloned().unwrap_or_else(Object::new);
    data.insert("client-ca-file", authorities);
    if let Some(front_proxy) = front_proxy {
        let texts = |texts: &[String]| api::json::to_string(&Value::Array(texts.iter().map(Value::from).collect()));
        let known = data.get("requestheader-client-ca-file").and_then(Value::as_str).unwrap_or_default();
        let all = with_authorities(known, &front_proxy.authorities);
        data.insert("requestheader-client-ca-file", all);
        data.insert("requestheader-allowed-names", texts(&front_proxy.allowed_names));
        data.insert("requestheader-username-headers", "[\"X-Remote-User\"]");
        data.insert("requestheader-uid-headers", "[\"X-Remote-Uid\"]");
        data.insert("requestheader-group-headers", "[\"X-Remote-Group\"]");
        data.insert("requestheader-extra-headers-prefix", "[\"X-Remote-Extra-\"]");
    }
    api::json!({"data": data})
}

/// The certificates of other servers on the store, and these, which come last.
fn with_authorities(known: &str, own: &str) -> String {
    const END: &str = "-----END CERTIFICATE-----";
    let certificates = |pem: &str| -> Vec<String> {
        let all = pem
            .split_inclusive(END)
            .filter_map(|it| Some(it.get(it.find("-----BEGIN CERTIFICATE-----")?..)?.to_owned()));
        all.filter(|it| it.ends_with(END)).collect()
    };
    let own = certificates(own);
    let mut all = certificates(known);
    all.retain(|it| !own.contains(it));
    let surplus = all.len().saturating_add(own.len()).saturating_sub(AUTHORITIES_MAX).min(all.len());
    all.drain(..surplus);
    all.into_iter().chain(own).map(|it| it + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_gone_is_not_an_endpoint() {
        let one: SocketAddr = "192.0.2.1:6443".parse().unwrap();
        let old = slice(None, &[one]).unwrap();
        assert_eq!(old.array_at(&["endpoints"]).map(<[Value]>::len), Some(1));
        let now = slice(Some(&old), &[]).unwrap();
        assert_eq!(now.array_at(&["endpoints"]).map(<[Value]>::len), Some(0));
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
    fn authorities_of_other_front_proxies_stay() {
        let certificate = |text: &str| format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
        let (one, two) = (certificate("one"), certificate("two"));
        assert_eq!(with_authorities("", &one), one);
        assert_eq!(with_authorities(&format!("{one}{two}"), &one), format!("{two}{one}"));
        assert_eq!(with_authorities("nonsense", &two), two);
        let many: String = (0..40).map(|number| certificate(&number.to_string())).collect();
        assert_eq!(with_authorities(&many, &one).matches("BEGIN").count(), AUTHORITIES_MAX);
    }

    #[test]
    fn a_server_keeps_its_name() {
        let presence = |address: &str| Presence {
            address: address.parse().unwrap(),
            hostname: "vm".to_owned(),
            client_authorities: String::new(),
            cluster_info: None,
        };
        let name = identity(&presence("192.0.2.1:6443"));
        assert_eq!(name, identity(&presence("192.0.2.1:6443")));
        assert_ne!(name, identity(&presence("192.0.2.1:6444")));
        assert_eq!(name.len(), "apiserver-".len() + 26);
    }
}
