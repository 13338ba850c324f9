//! Leases for keys that expire.
//!
//! Separate leases for each key would be too many: keys with the same time to live that are written within a
//! short interval share one. It is granted for longer by that interval, so that no key expires early, and each
//! slightly late.

use locks::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use tonic::Status;

use super::connection::Connection;
use super::proto::{LeaseGrantRequest, LeaseGrantResponse, call, methods};

/// A lease is shared by at most this many keys: they all go in one step of etcd's.
const KEYS_MAX: u32 = 1000;
/// Maximum interval for sharing.
const SHARED_MAX: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy)]
struct Lease {
    id: i64,
    until: Instant,
    keys: u32,
}

#[derive(Debug, Default)]
pub(super) struct Leases(Mutex<HashMap<Duration, Lease>>);

impl Leases {
    /// A lease that lasts at least `ttl` from now.
    pub(super) async fn grant(&self, connection: &Connection, ttl: Duration) -> Result<i64, Status> {
        let now = Instant::now();
        if let Some(lease) = self.with(|leases| {
            let lease = leases.get_mut(&ttl).filter(|lease| now < lease.until && lease.keys < KEYS_MAX)?;
            lease.keys = lease.keys.saturating_add(1);
            Some(lease.id)
        }) {
            return Ok(lease);
        }
        let shared = ttl.checked_div(20).unwrap_or_default().min(SHARED_MAX);
        // Whole seconds, rounded up.
        let seconds = ttl.saturating_add(shared).saturating_add(Duration::from_millis(999)).as_secs().max(1);
        let request = LeaseGrantRequest { ttl: seconds.try_into().unwrap_or(i64::MAX) };
        // Granting twice is harmless: an unused lease expires.
        let granted = connection.read(|channel| call(channel, methods::LEASE_GRANT, request));
        let LeaseGrantResponse { id } = granted.await?;
        let until = now.checked_add(shared).unwrap_or(now);
        self.with(|leases| {
            leases.retain(|_, lease| now < lease.until);
            leases.insert(ttl, Lease { id, until, keys: 1 });
        });
        Ok(id)
    }

    fn with<T>(&self, work: impl FnOnce(&mut HashMap<Duration, Lease>) -> T) -> T {
        work(&mut self.0.lock())
    }
}
