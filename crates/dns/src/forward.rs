//! Forwarding of names outside the cluster's domain to the servers of `resolv.conf`.
//!
//! Equal questions share one query. The number of questions is bounded, in total and per client address. A server
//! that forwards queries to this one is not used.

mod accept;
mod exchange;
mod resolv_conf;

use locks::{Mutex, RwLock};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::{Name, RecordType};
use telemetry::logs::chain;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;
use tracing::{debug, error, info, warn};

use crate::answer::Answer;
use crate::cache::{Cache, Key};
use crate::metrics::Metrics;

/// Questions at a time: clients that wait, and queries whose client has left.
pub(crate) const WAITING_MAX: usize = 1024;
/// Maximum number of waiting clients with the same address.
pub(crate) const WAITING_PER_CLIENT_MAX: usize = 128;
/// One address may have this part of the free places, so that a few greedy addresses leave some for others.
const FREE_PART: usize = 4;
/// Time limit for one server.
const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(1500);
/// Time limit for all servers: the C library waits for five seconds.
const TIMEOUT: Duration = Duration::from_millis(4500);

/// The outcome of a query, once it is known.
type Outcome = watch::Receiver<Option<Arc<Answer>>>;

/// Forwards questions.
pub struct Forwarder {
    servers: RwLock<Arc<[SocketAddr]>>,
    /// Position of the server that answered last.
    preferred: AtomicUsize,
    cache: Cache,
    flights: Mutex<HashMap<Key, Outcome>>,
    waiting: Arc<Semaphore>,
    clients: Arc<Mutex<HashMap<IpAddr, usize>>>,
    /// Names of queries that find servers which forward to this one.
    probes: Mutex<HashMap<Name, SocketAddr>>,
    metrics: Arc<Metrics>,
}

/// A question of a client that waits for a response. The query that it starts keeps it: a client that leaves at once would have more
/// queries under way than it may.
pub(crate) struct WaitingClient {
    _permit: OwnedSemaphorePermit,
    clients: Arc<Mutex<HashMap<IpAddr, usize>>>,
    address: IpAddr,
}

impl Drop for WaitingClient {
    fn drop(&mut self) {
        let mut clients = self.clients.lock();
        if let Some(count) = clients.get_mut(&self.address) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                clients.remove(&self.address);
            }
        }
    }
}

/// Removes a query from those under way, also if its task is aborted.
struct Flight {
    forwarder: Arc<Forwarder>,
    key: Key,
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.forwarder.flights.lock().remove(&self.key);
    }
}

impl Forwarder {
    /// Forwards to these servers.
    #[must_use]
    pub fn new(servers: Vec<SocketAddr>, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            servers: RwLock::new(servers.into()),
            preferred: AtomicUsize::new(0),
            cache: Cache::default(),
            flights: Mutex::default(),
            waiting: Arc::new(Semaphore::new(WAITING_MAX)),
            clients: Arc::default(),
            probes: Mutex::default(),
            metrics,
        })
    }

    /// The cache.
    #[must_use]
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Reads the servers again; `own` are the addresses of this server. Returns whether they have changed.
    pub(crate) fn reload(&self, resolv_conf: &Path, own: &[SocketAddr], last: &mut Option<Vec<SocketAddr>>) -> bool {
        let (servers, dropped) = resolv_conf::servers(resolv_conf, own);
        if last.as_ref() == Some(&servers) {
            return false;
        }
        let path = resolv_conf.display();
        for server in dropped {
            warn!(server = %server, path = %path, "Ignored a name server that is this one");
        }
        if servers.is_empty() {
            warn!(path = %path, "Found no name servers: names outside the cluster's domain are not resolved");
        } else {
            info!(servers = ?servers, path = %path, "Forwarding names outside the cluster's domain");
        }
        *self.servers.write() = servers.clone().into();
        *last = Some(servers);
        true
    }

    /// Sends each server a query with a random name. If such a query arrives here, the server forwards to this one.
    pub(crate) async fn probe(&self) {
        let servers = self.servers.read().clone();
        for server in servers.iter() {
            let Ok(bytes) = exchange::random::<16>() else { return };
            let label: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let Ok(name) = Name::from_labels([label.as_bytes()]) else { return };
            self.probes.lock().insert(name.clone(), *server);
            let key =
                Key { name: name.clone(), record_type: RecordType::HINFO, dnssec_ok: false, checking_disabled: false };
            if let Err(failure) = exchange::ask(*server, &key, ATTEMPT_TIMEOUT).await {
                debug!(server = %server, err = %chain(&failure), "Name server did not answer");
            }
            self.probes.lock().remove(&name);
        }
    }

    /// Whether a query is one of [`probe`](Self::probe): its server is not used any more.
    pub(crate) fn is_probe(&self, key: &Key) -> bool {
        if key.record_type != RecordType::HINFO {
            return false;
        }
        let Some(server) = self.probes.lock().remove(&key.name) else { return false };
        error!(server = %server, "Ignored a name server that forwards queries to this one");
        let mut servers = self.servers.write();
        *servers = servers.iter().copied().filter(|it| *it != server).collect();
        true
    }

    /// Counts a client that waits; none if there are too many.
    pub(crate) fn enter(&self, address: IpAddr) -> Option<WaitingClient> {
        let mut clients = self.clients.lock();
        let count = clients.get(&address).copied().unwrap_or(0);
        let max = WAITING_PER_CLIENT_MAX.min(self.waiting.available_permits().div_ceil(FREE_PART));
        let permit = (count < max).then(|| self.waiting.clone().try_acquire_owned().ok()).flatten();
        let Some(permit) = permit else {
            self.metrics.rejected.increment();
            return None;
        };
        clients.insert(address, count.saturating_add(1));
        Some(WaitingClient { _permit: permit, clients: self.clients.clone(), address })
    }

    /// Resolves a question. Failures are answers, too.
    pub(crate) async fn resolve(self: &Arc<Self>, key: Key, waiting: WaitingClient) -> Arc<Answer> {
        let (mut outcome, _waiting) = self.outcome(&key, waiting);
        let answer = outcome.wait_for(Option::is_some).await.ok().and_then(|answer| answer.clone());
        // Its task was aborted.
        answer.unwrap_or_else(|| Arc::new(Answer::empty(ResponseCode::ServFail)))
    }

    /// Joins the query for a question, or starts one, which keeps the place of its client.
    fn outcome(self: &Arc<Self>, key: &Key, waiting: WaitingClient) -> (Outcome, Option<WaitingClient>) {
        let mut flights = self.flights.lock();
        if let Some(outcome) = flights.get(key) {
            return (outcome.clone(), Some(waiting));
        }
        let (sender, outcome) = watch::channel(None);
        flights.insert(key.clone(), outcome.clone());
        drop(flights);
        let flight = Flight { forwarder: self.clone(), key: key.clone() };
        tokio::spawn(async move {
            let answer = Arc::new(flight.forwarder.ask(&flight.key).await);
            flight.forwarder.cache.put(flight.key.clone(), &answer);
            drop((flight, waiting));
            sender.send_replace(Some(answer));
        });
        (outcome, None)
    }

    /// Sends a question to one server after the other until one answers.
    async fn ask(&self, key: &Key) -> Answer {
        let servers = self.servers.read().clone();
        let begun = Instant::now();
        let first = self.preferred.load(Ordering::Relaxed);
        // A single server gets a second chance, because packets are lost.
        let attempts = servers.len().max(2);
        for attempt in 0..attempts {
            let Some(left) = TIMEOUT.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) else { break };
            let at = first.saturating_add(attempt).checked_rem(servers.len()).unwrap_or(0);
            let Some(server) = servers.get(at) else { break };
            let started = Instant::now();
            let result = exchange::ask(*server, key, ATTEMPT_TIMEOUT.min(left)).await;
            let code = result.as_ref().map_or(ResponseCode::ServFail, |message| message.metadata.response_code);
            self.metrics.forwarded(*server, code, started.elapsed());
            match result {
                Ok(message) if matches!(code, ResponseCode::NoError | ResponseCode::NXDomain) => {
                    self.preferred.store(at, Ordering::Relaxed);
                    return accept::relevant(message, key);
                }
                Ok(_) => debug!(server = %server, code = %code, "Name server refused a query"),
                Err(failure) => debug!(server = %server, err = %chain(&failure), "Name server did not answer"),
            }
        }
        Answer::empty(ResponseCode::ServFail)
    }
}

#[cfg(test)]
mod tests {
    use telemetry::metrics::Registry;

    use super::*;

    fn forwarder(servers: Vec<SocketAddr>) -> Arc<Forwarder> {
        Forwarder::new(servers, Metrics::new(&Registry::new(), 53, "cluster.local"))
    }

    #[test]
    fn waiting_clients_are_bounded() {
        let forwarder = forwarder(Vec::new());
        let one = IpAddr::from([192, 0, 2, 1]);
        let mut waiting: Vec<WaitingClient> =
            (0..WAITING_PER_CLIENT_MAX).map(|_| forwarder.enter(one).unwrap()).collect();
        assert!(forwarder.enter(one).is_none());
        // Twenty addresses that take all they get leave places for others.
        for last in 2..=20 {
            let other = IpAddr::from([192, 0, 2, last]);
            let taken: Vec<WaitingClient> = std::iter::from_fn(|| forwarder.enter(other)).collect();
            assert!(!taken.is_empty(), "{last}");
            waiting.extend(taken);
        }
        assert!(waiting.len() <= WAITING_MAX);
        drop(waiting);
        assert!(forwarder.clients.lock().is_empty());
        assert!(forwarder.enter(one).is_some());
    }

    #[tokio::test]
    async fn queries_of_clients_that_left_count() {
        let silent = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let forwarder = forwarder(vec![silent.local_addr().unwrap()]);
        let one = IpAddr::from([192, 0, 2, 1]);
        for number in 0..WAITING_PER_CLIENT_MAX {
            let name = Name::from_ascii(format!("{number}.example.")).unwrap();
            let key = Key { name, record_type: RecordType::A, dnssec_ok: false, checking_disabled: false };
            let waiting = forwarder.enter(one).unwrap();
            // Polled once, then dropped.
            assert!(poll_once(forwarder.resolve(key, waiting)).is_none());
        }
        assert!(forwarder.enter(one).is_none());
        assert!(forwarder.enter(IpAddr::from([192, 0, 2, 2])).is_some());
    }

    /// The result of a future, if it is ready at once.
    fn poll_once<F: Future>(future: F) -> Option<F::Output> {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match std::pin::pin!(future).poll(&mut context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        }
    }

    #[test]
    fn server_that_returns_a_probe_is_not_used() {
        let (looping, other) = ("192.0.2.1:53".parse().unwrap(), "192.0.2.2:53".parse().unwrap());
        let forwarder = forwarder(vec![looping, other]);
        let name = Name::from_ascii("0123456789abcdef.").unwrap();
        let key = |record_type| Key { name: name.clone(), record_type, dnssec_ok: false, checking_disabled: false };
        forwarder.probes.lock().insert(name.clone(), looping);
        assert!(!forwarder.is_probe(&key(RecordType::A)));
        assert!(forwarder.is_probe(&key(RecordType::HINFO)));
        assert_eq!(&**forwarder.servers.read(), [other]);
    }
}
