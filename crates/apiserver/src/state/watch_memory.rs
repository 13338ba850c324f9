//! Memory that watches hold for clients that have not read their events yet: bounded in total, and per user.
//!
//! A watch has a little for itself. What is more is taken from the budget until the last byte has left; a watch that gets
//! nothing for some time is cut off, and lists again.

use api::well_known::GROUP_MASTERS;
use locks::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;

use crate::identity::User;

/// Base memory of a watch. Batches up to half of it cost nothing more.
const OWN: usize = 8 << 10;
/// Divisor of the memory for all watches: the part that one user may hold.
const USER_PART: usize = 4;
/// Interval at which a watch that waits for memory checks again.
const STEP: Duration = Duration::from_millis(50);
/// Number of checks before a watch gives up.
const STEPS: usize = 200;

/// The budget of all watches.
#[derive(Debug)]
pub(crate) struct Memory {
    max: usize,
    used: AtomicUsize,
    users: Mutex<HashMap<Box<str>, Arc<AtomicUsize>>>,
}

/// The part of one watch.
#[derive(Debug)]
pub(crate) struct Share {
    account: Arc<Account>,
    _own: Charge,
}

/// Memory account of a user's watch.
#[derive(Debug)]
struct Account {
    memory: Arc<Memory>,
    user: Box<str>,
    user_max: usize,
    of_user: Arc<AtomicUsize>,
}

/// Bytes that are taken from the budget until this is dropped.
#[derive(Debug)]
struct Charge {
    account: Arc<Account>,
    bytes: usize,
}

impl Memory {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, used: AtomicUsize::new(0), users: Mutex::default() })
    }

    /// The share of a new watch; none if there is no room for another one.
    pub(crate) fn share(self: &Arc<Self>, user: &User) -> Option<Share> {
        let of_user = {
            let mut users = self.users.lock();
            users.entry(user.name.as_str().into()).or_default().clone()
        };
        // Administrators may use all of it, so that a watch for the repair of a cluster is not refused.
        let user_max = if user.is_in(GROUP_MASTERS) { self.max } else { self.max / USER_PART };
        let account = Account { memory: self.clone(), user: user.name.as_str().into(), user_max, of_user };
        let account = Arc::new(account);
        let own = Charge::take(&account, OWN)?;
        Some(Share { account, _own: own })
    }
}

/// Adds to a number unless that makes it too big.
fn add(number: &AtomicUsize, bytes: usize, max: usize) -> bool {
    let more = |used: usize| Some(used.saturating_add(bytes)).filter(|sum| *sum <= max);
    number.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
}

impl Charge {
    fn take(account: &Arc<Account>, bytes: usize) -> Option<Self> {
        if !add(&account.of_user, bytes, account.user_max) {
            return None;
        }
        if !add(&account.memory.used, bytes, account.memory.max) {
            account.of_user.fetch_sub(bytes, Ordering::Relaxed);
            return None;
        }
        Some(Self { account: account.clone(), bytes })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.of_user.fetch_sub(self.bytes, Ordering::Relaxed);
        self.account.memory.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let mut users = self.memory.users.lock();
        // This account and the table hold the last two references. The lock keeps a new watch from taking one meanwhile.
        if Arc::strong_count(&self.of_user) <= 2 {
            users.remove(&self.user);
        }
    }
}

/// Bytes with what is charged for them.
struct ChargedBytes {
    bytes: Bytes,
    _charge: Charge,
}

impl AsRef<[u8]> for ChargedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Share {
    /// The same bytes, charged until the last of them has left, when there is room for them; none if there is not.
    pub(crate) async fn charge(&self, bytes: Bytes) -> Option<Bytes> {
        if bytes.len() <= OWN / 2 {
            return Some(bytes);
        }
        for _ in 0..STEPS {
            if let Some(charge) = Charge::take(&self.account, bytes.len()) {
                return Some(Bytes::from_owner(ChargedBytes { bytes, _charge: charge }));
            }
            tokio::time::sleep(STEP).await;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(memory: &Memory) -> usize {
        memory.used.load(Ordering::Relaxed)
    }

    #[tokio::test(start_paused = true)]
    async fn released_memory_can_be_reused() {
        let memory = Memory::new(16 * OWN);
        let share = memory.share(&User::authenticated("admin", &["system:masters"])).unwrap();
        let small = share.charge(Bytes::from(vec![0; OWN / 2])).await.unwrap();
        assert_eq!(used(&memory), OWN);
        let held = share.charge(Bytes::from(vec![0; 10 * OWN])).await.unwrap();
        assert_eq!((used(&memory), held.len()), (11 * OWN, 10 * OWN));
        let part = held.slice(1..2);
        drop(held);
        assert_eq!(share.charge(Bytes::from(vec![0; 6 * OWN])).await, None);
        drop(part);
        assert!(share.charge(Bytes::from(vec![0; 6 * OWN])).await.is_some());
        drop((share, small));
        assert_eq!(used(&memory), 0);
        assert!(memory.users.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn one_user_has_a_part() {
        let memory = Memory::new(16 * OWN);
        let (jane, john) = (User::authenticated("jane", &[]), User::authenticated("john", &[]));
        let shares: Vec<_> = (0..5).map_while(|_| memory.share(&jane)).collect();
        assert_eq!(shares.len(), 4);
        let other = memory.share(&john).unwrap();
        assert!(other.charge(Bytes::from(vec![0; 3 * OWN])).await.is_some());
        assert_eq!(shares[0].charge(Bytes::from(vec![0; OWN])).await, None);
        drop((shares, other));
        assert_eq!((used(&memory), memory.users.lock().len()), (0, 0));
    }
}
