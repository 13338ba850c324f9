//! Open connections: limits in total, per address and per user, and the choice of connections to close.
//!
//! A connection is silent until its first request. When the limit is exceeded, the oldest silent one is closed,
//! then the one that has been idle longest; those with a request in progress never are. A reserve is kept for
//! administrators and nodes. Exceeded limits are logged, at most every few seconds.

use api::well_known::{GROUP_MASTERS, GROUP_NODES};
use locks::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tracing::warn;

use crate::identity::User;

/// Shorter pauses between requests do not make a connection idle.
const IDLE_MIN: Duration = Duration::from_secs(5);
/// The log repeats itself so often.
const REPORT_EVERY: Duration = Duration::from_secs(5);

/// Limits on connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Limits {
    all: usize,
    of_address: usize,
    of_user: usize,
    /// Additional connections for administrators and nodes.
    reserve: usize,
}

/// All connections of a listener.
#[derive(Debug)]
pub(super) struct Connections {
    limits: Limits,
    started: Instant,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    next_id: u64,
    open: BTreeMap<u64, Arc<SharedState>>,
    /// INVARIANT: those of `open` that have sent no request, oldest first.
    silent: BTreeSet<u64>,
    of_addresses: HashMap<IpAddr, BTreeSet<u64>>,
    of_users: HashMap<Box<str>, usize>,
    reports: HashMap<&'static str, Report>,
}

#[derive(Debug)]
struct Report {
    last: Instant,
    since: u64,
}

/// State shared by a connection and the table.
#[derive(Debug)]
struct SharedState {
    address: IpAddr,
    /// Requests that the connection is closed.
    close: Notify,
    /// Signals that the client does not read a response.
    stalled: Notify,
    requests: AtomicUsize,
    /// Milliseconds after the start of the listener.
    last_used: AtomicU64,
}

/// An open connection; it is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct TrackedConnection {
    id: u64,
    shared: Arc<SharedState>,
    all: Arc<Connections>,
    has_received: AtomicBool,
    user: Mutex<Option<Box<str>>>,
    is_identified: AtomicBool,
    /// Whether it was let in only because there is a reserve.
    pub(super) is_reserved: bool,
}

/// The connection of a request, for answers that the client leaves unread.
#[derive(Debug, Clone)]
pub(super) struct Carrier(pub(super) Arc<TrackedConnection>);

/// A request that is under way on a connection.
pub(super) struct RequestGuard(Arc<TrackedConnection>);

/// Whether a user may use the reserve.
pub(super) fn is_essential(user: &User) -> bool {
    user.is_in(GROUP_MASTERS) || user.is_in(GROUP_NODES)
}

impl Connections {
    /// At most `all` connections, and a few for emergencies.
    pub(super) fn new(all: usize) -> Arc<Self> {
        let limits = Limits {
            all,
            of_address: all.saturating_sub(all / 4).max(1),
            of_user: (all / 2).max(1),
            reserve: (all / 20).max(1),
        };
        Arc::new(Self { limits, started: Instant::now(), table: Mutex::default() })
    }

    fn table(&self) -> locks::MutexGuard<'_, Table> {
        self.table.lock()
    }

    fn age(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.started).as_millis()).unwrap_or(u64::MAX)
    }

    /// Lets a connection in, perhaps in the place of another one; none if there is no place.
    pub(super) fn admit(self: &Arc<Self>, address: IpAddr, now: Instant) -> Option<Arc<TrackedConnection>> {
        let mut table = self.table();
        let oldest_use = self.age(now).saturating_sub(u64::try_from(IDLE_MIN.as_millis()).unwrap_or(u64::MAX));
        if table.of_addresses.get(&address).map_or(0, BTreeSet::len) >= self.limits.of_address {
            let found = table.who_gives_way(Some(address), oldest_use);
            table.report("address", self.limits.of_address, now, &address);
            table.close(found?);
        }
        let mut is_reserved = false;
        if table.open.len() >= self.limits.all {
            let found = table.who_gives_way(None, oldest_use);
            table.report("all", self.limits.all, now, &address);
            match found {
                Some(found) => table.close(found),
                None if table.open.len() < self.limits.all.saturating_add(self.limits.reserve) => is_reserved = true,
                None => return None,
            }
        }
        let id = table.next_id;
        table.next_id = id.saturating_add(1);
        let last_used = AtomicU64::new(self.age(now));
        let shared = Arc::new(SharedState {
            address,
            close: Notify::new(),
            stalled: Notify::new(),
            requests: AtomicUsize::new(0),
            last_used,
        });
        table.open.insert(id, shared.clone());
        table.silent.insert(id);
        table.of_addresses.entry(address).or_default().insert(id);
        drop(table);
        Some(Arc::new(TrackedConnection {
            id,
            shared,
            all: self.clone(),
            has_received: AtomicBool::new(false),
            user: Mutex::default(),
            is_identified: AtomicBool::new(false),
            is_reserved,
        }))
    }

    /// Closes a connection that does nothing, because there are no more file descriptors.
    pub(super) fn give_way(&self, now: Instant) {
        let mut table = self.table();
        let oldest_use = self.age(now).saturating_sub(u64::try_from(IDLE_MIN.as_millis()).unwrap_or(u64::MAX));
        if let Some(found) = table.who_gives_way(None, oldest_use) {
            table.close(found);
        }
    }
}

impl Table {
    /// The oldest silent connection, else the one that has been idle longest, if that is long.
    fn who_gives_way(&self, address: Option<IpAddr>, oldest_use: u64) -> Option<u64> {
        let of_address = address.and_then(|address| self.of_addresses.get(&address));
        let silent = match of_address {
            Some(ids) => ids.iter().find(|id| self.silent.contains(id)).copied(),
            None => self.silent.first().copied(),
        };
        silent.or_else(|| {
            let idle = self.open.iter().filter(|(_, it)| address.is_none_or(|address| it.address == address));
            let idle = idle.filter(|(_, it)| it.requests.load(Ordering::Relaxed) == 0);
            let idle = idle.map(|(id, it)| (it.last_used.load(Ordering::Relaxed), *id));
            idle.filter(|(last_used, _)| *last_used < oldest_use).min().map(|(_, id)| id)
        })
    }

    fn close(&mut self, id: u64) {
        if let Some(shared) = self.forget(id) {
            shared.close.notify_one();
        }
    }

    fn forget(&mut self, id: u64) -> Option<Arc<SharedState>> {
        let shared = self.open.remove(&id)?;
        self.silent.remove(&id);
        if let Some(ids) = self.of_addresses.get_mut(&shared.address) {
            ids.remove(&id);
            if ids.is_empty() {
                self.of_addresses.remove(&shared.address);
            }
        }
        Some(shared)
    }

    /// Logs that a limit was reached, unless it was logged recently.
    fn report(&mut self, limit_of: &'static str, limit: usize, now: Instant, who: &dyn std::fmt::Display) {
        let report = self.reports.get_mut(limit_of);
        let (is_due, times) = match &report {
            Some(report) => {
                (now.saturating_duration_since(report.last) >= REPORT_EVERY, report.since.saturating_add(1))
            }
            None => (true, 1),
        };
        let (open, silent) = (self.open.len(), self.silent.len());
        if is_due {
            warn!(limitOf = limit_of, limit, times, open, silent, who = %who, "Reached a limit of connections");
        }
        let last = match report {
            Some(report) if !is_due => report.last,
            _ => now,
        };
        self.reports.insert(limit_of, Report { last, since: if is_due { 0 } else { times } });
    }
}

impl TrackedConnection {
    /// Returns when the connection is to close.
    pub(super) async fn closed(&self) {
        self.shared.close.notified().await;
    }

    /// Returns when the client has left an answer unread for too long.
    pub(super) async fn stalled(&self) {
        self.shared.stalled.notified().await;
    }

    /// The client leaves an answer unread.
    pub(super) fn stall(&self) {
        self.shared.stalled.notify_one();
    }

    /// Whether a request has come.
    pub(super) fn has_received(&self) -> bool {
        self.has_received.load(Ordering::Relaxed)
    }

    /// A request came.
    pub(super) fn request(self: &Arc<Self>) -> RequestGuard {
        self.shared.requests.fetch_add(1, Ordering::Relaxed);
        if !self.has_received.swap(true, Ordering::Relaxed) {
            self.all.table().silent.remove(&self.id);
        }
        RequestGuard(self.clone())
    }

    /// Whether the user must be identified.
    pub(super) fn is_identified(&self) -> bool {
        self.is_identified.load(Ordering::Relaxed)
    }

    /// Notes whose connection it is; false if that user has too many.
    pub(crate) fn identify(&self, user: &User, now: Instant) -> bool {
        let mut known = self.user.lock();
        if known.is_some() {
            return true;
        }
        let limit = self.all.limits.of_user;
        let mut table = self.all.table();
        let count = table.of_users.get(user.name.as_str()).copied().unwrap_or_default();
        if count >= limit && !user.is_in(GROUP_MASTERS) {
            table.report("user", limit, now, &user.name);
            return false;
        }
        table.of_users.insert(user.name.as_str().into(), count.saturating_add(1));
        *known = Some(user.name.as_str().into());
        self.is_identified.store(true, Ordering::Relaxed);
        true
    }
}

impl RequestGuard {
    /// The response outlives this: the connection stays in use.
    pub(super) fn stays(self) {
        self.0.shared.requests.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let shared = &self.0.shared;
        shared.last_used.store(self.0.all.age(Instant::now()), Ordering::Relaxed);
        shared.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for TrackedConnection {
    fn drop(&mut self) {
        let user = self.user.lock().take();
        let mut table = self.all.table();
        table.forget(self.id);
        if let Some(user) = user
            && let Some(count) = table.of_users.get_mut(&user)
        {
            *count = count.saturating_sub(1);
            if *count == 0 {
                table.of_users.remove(&user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn is_open(tracked: &TrackedConnection) -> bool {
        tracked.all.table().open.contains_key(&tracked.id)
    }

    #[test]
    fn silent_connections_give_way_oldest_first() {
        let (all, now) = (Connections::new(4), Instant::now());
        let old: Vec<_> = (0..3).map(|_| all.admit(address(1), now).unwrap()).collect();
        drop(old[0].request());
        // One address has three quarters of all places.
        let new = all.admit(address(1), now).unwrap();
        assert_eq!(old.iter().map(|it| is_open(it)).collect::<Vec<_>>(), [true, false, true]);
        assert!(is_open(&new) && !new.is_reserved);
        let others: Vec<_> = (2..4).map(|last| all.admit(address(last), now).unwrap()).collect();
        assert!(!is_open(&old[2]) && others.iter().all(|it| is_open(it)));
        drop((old, new, others));
        let table = all.table();
        assert!(table.open.is_empty() && table.silent.is_empty() && table.of_addresses.is_empty());
    }

    #[test]
    fn then_idle_ones_and_never_those_in_use() {
        let (all, now) = (Connections::new(2), Instant::now());
        let (used, idle) = (all.admit(address(1), now).unwrap(), all.admit(address(2), now).unwrap());
        let underway = used.request();
        drop(idle.request());
        // Just now it was not idle: there is a reserve, and then nothing.
        let reserved = all.admit(address(3), now).unwrap();
        assert!(reserved.is_reserved);
        let _underway = reserved.request();
        assert!(all.admit(address(4), now).is_none());
        let later = now + Duration::from_secs(60);
        assert!(all.admit(address(4), later).is_some());
        assert!(is_open(&used) && !is_open(&idle));
        drop(underway);
    }

    #[test]
    fn one_user_has_half_of_them() {
        let (all, now) = (Connections::new(4), Instant::now());
        let connections: Vec<_> = (1..5).map(|last| all.admit(address(last), now).unwrap()).collect();
        let jane = User::authenticated("jane", &[]);
        let identified: Vec<bool> = connections.iter().map(|it| it.identify(&jane, now)).collect();
        assert_eq!(identified, [true, true, false, false]);
        assert!(connections[0].identify(&jane, now));
        assert!(connections[2].identify(&User::authenticated("john", &[]), now));
        let admin = User::authenticated("jane", &["system:masters"]);
        assert!(connections[3].identify(&admin, now));
        drop(connections);
        assert!(all.table().of_users.is_empty());
    }

    #[test]
    fn active_requests_keep_a_connection() {
        let (all, now) = (Connections::new(1), Instant::now());
        let watching = all.admit(address(1), now).unwrap();
        watching.request().stays();
        let later = now + Duration::from_secs(60);
        assert!(all.admit(address(2), later).unwrap().is_reserved);
        assert!(is_open(&watching));
    }
}
