//! A key that was handed out, and how the work on it ended.

use std::hash::Hash;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::Queue;

/// A key being processed. Dropping it is a failure: the key is retried, rate limited.
pub struct Item<K: Clone + Eq + Hash> {
    queue: Arc<Queue<K>>,
    key: K,
    ended: bool,
}

impl<K: Clone + Eq + Hash> Item<K> {
    pub(super) fn new(queue: Arc<Queue<K>>, key: K) -> Self {
        Self { queue, key, ended: false }
    }

    /// Marks the work as done, and resets earlier failures.
    pub fn done(mut self) {
        self.ended = true;
        self.queue.forget(&self.key);
        self.queue.done(&self.key);
    }

    /// Marks the work as done, and requeues the key after some time.
    pub fn again_after(mut self, delay: Duration) {
        self.ended = true;
        self.queue.forget(&self.key);
        self.queue.add_after(self.key.clone(), delay);
        self.queue.done(&self.key);
    }

    /// Marks the work as failed: the more failures, the longer the delay.
    pub fn retry(self) {
        drop(self);
    }
}

impl<K: Clone + Eq + Hash> Deref for Item<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.key
    }
}

impl<K: Clone + Eq + Hash> Drop for Item<K> {
    fn drop(&mut self) {
        if !self.ended {
            self.queue.add_rate_limited(self.key.clone());
            self.queue.done(&self.key);
        }
    }
}
