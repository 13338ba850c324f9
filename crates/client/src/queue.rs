//! A queue of keys: each waits once, is processed by one worker at a time, and is retried after failures.
//!
//! A key that is added while it is processed waits until that has ended, and is then returned again, once. A
//! key is returned as an [`Item`]: dropping the item, by a panic or a cancelled task, counts as a failure, and
//! the key is retried. Delays need no separate task: callers of [`get`](Queue::get) wait for the earliest one.
//! Follows client-go's `workqueue`.

mod item;
mod limits;
mod metrics;

use locks::{Mutex, MutexGuard};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use clock::Clock;
use tokio::sync::Notify;
use tokio::time::Instant;

pub use item::Item;
pub(crate) use limits::chance;
pub use limits::{Backoff, Bucket};
pub use metrics::Metrics;

struct State<K> {
    /// Waiting keys, in order. INVARIANT: in `dirty`, not in `working`, and here once.
    ready: VecDeque<K>,
    /// Keys to process, waiting or not, with the time at which they were added.
    dirty: HashMap<K, Instant>,
    /// Keys being processed, with the start time.
    working: HashMap<K, Instant>,
    /// Delayed keys: the earliest time of each, and all requested times.
    due: HashMap<K, Instant>,
    later: BinaryHeap<Reverse<(Instant, u64)>>,
    /// The keys of `later`, by number: keys need no order.
    numbered: HashMap<u64, K>,
    next_number: u64,
    failures: HashMap<K, u32>,
    bucket: Option<Bucket>,
    closed: bool,
}

/// A queue of keys.
pub struct Queue<K> {
    state: Mutex<State<K>>,
    backoff: Backoff,
    /// Notified when a key is ready, or the queue is closed.
    ready: Notify,
    /// Notified when a key was processed.
    done: Notify,
    counts: metrics::Counts,
    clock: Clock,
}

impl<K: Clone + Eq + Hash> Default for Queue<K> {
    fn default() -> Self {
        Self::new(Backoff::default(), Some(Bucket::default()))
    }
}

impl<K: Clone + Eq + Hash> Queue<K> {
    /// A queue with these limits on keys [added after a failure](Self::add_rate_limited): a growing delay per
    /// key, and a rate over all keys.
    #[must_use]
    pub fn new(backoff: Backoff, bucket: Option<Bucket>) -> Self {
        Self::counting(backoff, bucket, metrics::Counts::default(), Clock::system())
    }

    /// Sets another clock for delays.
    #[must_use]
    pub fn with_clock(mut self, clock: &Clock) -> Self {
        self.clock = clock.clone();
        self
    }

    fn counting(backoff: Backoff, bucket: Option<Bucket>, counts: metrics::Counts, clock: Clock) -> Self {
        Self {
            state: Mutex::new(State {
                ready: VecDeque::new(),
                dirty: HashMap::new(),
                working: HashMap::new(),
                due: HashMap::new(),
                later: BinaryHeap::new(),
                numbered: HashMap::new(),
                next_number: 0,
                failures: HashMap::new(),
                bucket,
                closed: false,
            }),
            backoff,
            ready: Notify::new(),
            done: Notify::new(),
            counts,
            clock,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock()
    }

    /// Adds a key, unless it waits already or the queue is closed.
    pub fn add(&self, key: K) {
        if self.lock().add(key, self.clock.instant(), &self.counts) {
            self.ready.notify_one();
        }
    }

    /// Adds a key after some time. If it is to be added anyway, the earlier time counts.
    pub fn add_after(&self, key: K, delay: Duration) {
        self.counts.retried();
        if delay.is_zero() {
            return self.add(key);
        }
        let mut state = self.lock();
        if state.closed {
            return;
        }
        let now = self.clock.instant();
        // A time that has passed does not replace this one.
        state.take_due(now, &self.counts);
        let at = now.checked_add(delay).unwrap_or(now);
        if state.due.get(&key).is_some_and(|due| *due <= at) {
            return;
        }
        let number = state.next_number;
        state.next_number = number.wrapping_add(1);
        state.due.insert(key.clone(), at);
        state.numbered.insert(number, key);
        state.later.push(Reverse((at, number)));
        drop(state);
        // A waiting caller must check the clock again.
        self.ready.notify_one();
    }

    /// Adds a key that failed: the longer it fails, the later.
    pub fn add_rate_limited(&self, key: K) {
        let delay = {
            let mut state = self.lock();
            let failures = state.failures.entry(key.clone()).or_default();
            let pause = self.backoff.delay(*failures);
            *failures = failures.saturating_add(1);
            let turn = state.bucket.as_mut().map_or(Duration::ZERO, |bucket| bucket.reserve(self.clock.instant()));
            pause.max(turn)
        };
        self.add_after(key, delay);
    }

    /// Resets the failures of a key, after success or when it is given up.
    pub fn forget(&self, key: &K) {
        self.lock().failures.remove(key);
    }

    /// Number of consecutive failures of a key.
    #[must_use]
    pub fn failures(&self, key: &K) -> u32 {
        self.lock().failures.get(key).copied().unwrap_or(0)
    }

    /// Number of waiting keys, without delayed ones.
    #[must_use]
    pub fn len(&self) -> usize {
        let mut state = self.lock();
        state.take_due(self.clock.instant(), &self.counts);
        state.ready.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The next key; `None` when the queue is closed and empty.
    pub async fn get(self: &Arc<Self>) -> Option<Item<K>> {
        loop {
            let notified = self.ready.notified();
            let next_due = {
                let mut state = self.lock();
                let now = self.clock.instant();
                state.take_due(now, &self.counts);
                if let Some(key) = state.ready.pop_front() {
                    let waited = state.dirty.remove(&key).map(|since| now.saturating_duration_since(since));
                    state.working.insert(key.clone(), now);
                    let others_wait = !state.ready.is_empty() || !state.later.is_empty();
                    drop(state);
                    self.counts.taken(waited.unwrap_or_default());
                    if others_wait {
                        self.ready.notify_one();
                    }
                    return Some(Item::new(self.clone(), key));
                }
                if state.closed {
                    drop(state);
                    // The other waiting callers must see it as well.
                    self.ready.notify_one();
                    return None;
                }
                state.later.peek().map(|Reverse((at, _))| *at)
            };
            match next_due {
                None => notified.await,
                Some(at) => {
                    tokio::select! {
                        () = notified => {}
                        () = self.clock.sleep_until(at) => {}
                    }
                }
            }
        }
    }

    /// The work on a key has ended.
    fn done(&self, key: &K) {
        let again = {
            let mut state = self.lock();
            let since = state.working.remove(key);
            if let Some(since) = since {
                self.counts.worked(self.clock.instant().saturating_duration_since(since));
            }
            let again = since.is_some() && state.dirty.contains_key(key);
            if again {
                state.ready.push_back(key.clone());
            }
            again
        };
        if again {
            self.ready.notify_one();
        }
        self.done.notify_waiters();
    }

    /// Accepts no more keys; waiting ones are still returned, delayed ones are dropped.
    pub fn close(&self) {
        {
            let mut state = self.lock();
            state.closed = true;
            state.later.clear();
            state.numbered.clear();
            state.due.clear();
        }
        self.ready.notify_one();
        self.done.notify_waiters();
    }

    /// [Closes](Self::close) the queue and drops waiting keys: only keys in progress are finished.
    pub fn abandon(&self) {
        {
            let mut state = self.lock();
            state.ready.clear();
            state.dirty.clear();
        }
        self.close();
    }

    /// [Closes](Self::close) the queue and waits until all queued keys have been processed.
    pub async fn drain(&self) {
        self.close();
        loop {
            let done = self.done.notified();
            tokio::pin!(done);
            // From here on no `done` is missed.
            done.as_mut().enable();
            {
                let state = self.lock();
                if state.working.is_empty() && state.ready.is_empty() {
                    return;
                }
            }
            done.await;
        }
    }
}

impl<K: Clone + Eq + Hash> State<K> {
    /// Whether the key waits now and did not before.
    fn add(&mut self, key: K, now: Instant, counts: &metrics::Counts) -> bool {
        if self.closed || self.dirty.contains_key(&key) {
            return false;
        }
        counts.added();
        self.dirty.insert(key.clone(), now);
        if self.working.contains_key(&key) {
            return false;
        }
        self.ready.push_back(key);
        true
    }

    /// Adds the keys whose time has come.
    fn take_due(&mut self, now: Instant, counts: &metrics::Counts) {
        while let Some(Reverse((at, number))) = self.later.peek().copied() {
            if at > now {
                return;
            }
            self.later.pop();
            let Some(key) = self.numbered.remove(&number) else { continue };
            // A later time of a key that was added earlier no longer counts.
            if self.due.get(&key) == Some(&at) {
                self.due.remove(&key);
                self.add(key, at, counts);
            }
        }
    }
}

#[cfg(test)]
mod tests;
