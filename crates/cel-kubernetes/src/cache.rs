//! Programs that were compiled before: bounded, shared between threads, each expression compiled once.
//!
//! The least recently used program is evicted first. Errors are never cached: a repeated request is compiled
//! again. There is no global cache: each evaluating component owns one and passes in its clock.

use locks::{Condvar, Mutex, RwLock};
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A monotonic clock, handed in by the owner.
pub type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// Values by expression, at most this many.
///
/// A hit copies no text, hashes it once, and waits only for a thread that is adding an entry to the same shard.
pub struct Cache<V, E> {
    shards: Box<[Shard<V, E>]>,
    hasher: TextHasher,
    clock: Clock,
    counters: Counters,
}

/// Apart from each other in memory, so that threads in different shards do not meet.
#[repr(align(128))]
struct Shard<V, E> {
    capacity: usize,
    /// By the hash of the expression. Of two expressions with one hash, the later is kept.
    done: RwLock<HashMap<u64, Entry<V>, BuildHasherDefault<PrehashedKey>>>,
    /// Counts hits and additions: the entry with the lowest number was used least recently.
    now: AtomicU64,
    hits: AtomicU64,
    /// Expressions that a thread is compiling right now.
    under_way: Mutex<Flights<V, E>>,
}

struct Entry<V> {
    text: Arc<str>,
    value: Arc<V>,
    used: AtomicU64,
}

type Flights<V, E> = HashMap<Arc<str>, Arc<Flight<V, E>>>;

/// One compilation, and the threads that wait for it.
struct Flight<V, E> {
    /// `None` while the compilation is running.
    outcome: Mutex<Option<CompileResult<V, E>>>,
    landed: Condvar,
}

/// Result of a compilation; `None` if the compiling thread panicked.
type CompileResult<V, E> = Option<Result<Arc<V>, E>>;

#[derive(Default)]
struct Counters {
    misses: AtomicU64,
    evictions: AtomicU64,
    compile_nanoseconds: AtomicU64,
}

/// Counters of a cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Number of results from the cache, or from a compilation in progress.
    pub hits: u64,
    /// Compiled.
    pub misses: u64,
    /// Programs that had to go.
    pub evictions: u64,
    /// Time spent compiling.
    pub compile_time: Duration,
}

/// Small caches keep one exact order; large ones one per shard, so that threads do not wait for each other.
const SHARDS: usize = 8;
const SHARDED_FROM: usize = 256;

impl<V, E: Clone> Cache<V, E> {
    /// A cache of at most `capacity` programs.
    pub fn new(capacity: NonZeroUsize, clock: Clock) -> Self {
        let shard_count = if capacity.get() < SHARDED_FROM { 1 } else { SHARDS };
        let shard = |_| Shard {
            capacity: capacity.get().div_ceil(shard_count),
            done: RwLock::default(),
            now: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            under_way: Mutex::default(),
        };
        Cache {
            shards: (0..shard_count).map(shard).collect(),
            hasher: TextHasher::new(),
            clock,
            counters: Counters::default(),
        }
    }

    /// Returns the program of an expression. If several threads request a new one at once, one compiles and the
    /// others wait for it.
    pub fn get_or_compile(&self, text: &str, compile: impl FnOnce() -> Result<V, E>) -> Result<Arc<V>, E> {
        let hash = self.hasher.hash(text);
        let shard = self.shard(hash);
        match shard.find(hash, text) {
            Some(found) => Ok(found),
            None => self.compile_once(shard, hash, text, compile),
        }
    }

    #[cold]
    fn compile_once(
        &self,
        shard: &Shard<V, E>,
        hash: u64,
        text: &str,
        compile: impl FnOnce() -> Result<V, E>,
    ) -> Result<Arc<V>, E> {
        let mut under_way = shard.under_way.lock();
        if let Some(flight) = under_way.get(text).cloned() {
            drop(under_way);
            if let Some(outcome) = flight.wait() {
                shard.hits.fetch_add(1, Ordering::Relaxed);
                return outcome;
            }
            under_way = shard.under_way.lock();
        }
        // A compilation adds its program before it is removed from those in progress.
        if let Some(found) = shard.find(hash, text) {
            return Ok(found);
        }
        let key: Arc<str> = text.into();
        let flight = Arc::new(Flight { outcome: Mutex::new(None), landed: Condvar::new() });
        under_way.insert(key.clone(), flight.clone());
        drop(under_way);
        let landing = FlightGuard { shard, key: &key, flight: &flight };
        let outcome = self.compile(compile);
        if let Ok(value) = &outcome {
            let evicted = shard.add(hash, key.clone(), value.clone());
            self.counters.evictions.fetch_add(evicted, Ordering::Relaxed);
        }
        *flight.outcome.lock() = Some(Some(outcome.clone()));
        drop(landing);
        outcome
    }

    /// Number of programs in the cache.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.done.read().len()).sum()
    }

    /// Whether the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Counters of the cache.
    pub fn statistics(&self) -> Statistics {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Statistics {
            hits: self.shards.iter().map(|shard| get(&shard.hits)).sum(),
            misses: get(&self.counters.misses),
            evictions: get(&self.counters.evictions),
            compile_time: Duration::from_nanos(get(&self.counters.compile_nanoseconds)),
        }
    }

    fn compile(&self, compile: impl FnOnce() -> Result<V, E>) -> Result<Arc<V>, E> {
        let before = (self.clock)();
        let outcome = compile().map(Arc::new);
        let took = (self.clock)().saturating_sub(before);
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.counters.misses.fetch_add(1, Ordering::Relaxed);
        self.counters.compile_nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
        outcome
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "the index is taken modulo the number of shards, which is at least one"
    )]
    fn shard(&self, hash: u64) -> &Shard<V, E> {
        // The hash table uses the lowest and highest bits.
        let hash = hash.wrapping_shr(32) as usize;
        &self.shards[hash.checked_rem(self.shards.len()).unwrap_or(0)]
    }
}

impl<V, E> Shard<V, E> {
    /// Returns a compiled program and marks it as the one used last.
    fn find(&self, hash: u64, text: &str) -> Option<Arc<V>> {
        let done = self.done.read();
        let entry = done.get(&hash).filter(|entry| *entry.text == *text)?;
        entry.used.store(self.tick(), Ordering::Relaxed);
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(entry.value.clone())
    }

    /// Adds a program; answers how many had to go for it.
    fn add(&self, hash: u64, text: Arc<str>, value: Arc<V>) -> u64 {
        let mut done = self.done.write();
        let entry = Entry { text, value, used: AtomicU64::new(self.tick()) };
        if done.insert(hash, entry).is_some() {
            return 1;
        }
        if done.len() <= self.capacity {
            return 0;
        }
        // Compiling takes far longer than this look at all entries of the shard.
        let oldest = done.iter().min_by_key(|(_, entry)| entry.used.load(Ordering::Relaxed)).map(|(hash, _)| *hash);
        u64::from(oldest.and_then(|oldest| done.remove(&oldest)).is_some())
    }

    fn tick(&self) -> u64 {
        self.now.fetch_add(1, Ordering::Relaxed)
    }
}

/// Mixes eight octets at a time with secret random numbers, so that the authors of expressions cannot cause
/// collisions.
struct TextHasher {
    seed: u64,
    factor: u64,
}

impl TextHasher {
    fn new() -> Self {
        let random = RandomState::new();
        TextHasher { seed: random.hash_one(0), factor: random.hash_one(1) | 1 }
    }

    fn mix(&self, hash: u64, word: u64) -> u64 {
        let product = u128::from(hash ^ word).wrapping_mul(u128::from(self.factor ^ 0x9e37_79b9_7f4a_7c15));
        (product as u64) ^ (product.wrapping_shr(64) as u64)
    }

    fn hash(&self, text: &str) -> u64 {
        let (words, rest) = text.as_bytes().as_chunks::<8>();
        let hash = words.iter().fold(self.seed, |hash, word| self.mix(hash, u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        for (to, from) in last.iter_mut().zip(rest) {
            *to = *from;
        }
        let hash = self.mix(hash, u64::from_le_bytes(last));
        self.mix(hash.wrapping_add(self.seed), text.len() as u64)
    }
}

/// The hash of a number that is a hash.
#[derive(Default)]
struct PrehashedKey(u64);

impl Hasher for PrehashedKey {
    fn write(&mut self, octets: &[u8]) {
        for octet in octets {
            self.0 = self.0.rotate_left(8) ^ u64::from(*octet);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl<V, E> std::fmt::Debug for Cache<V, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache").field("shards", &self.shards.len()).finish_non_exhaustive()
    }
}

impl<V, E: Clone> Flight<V, E> {
    /// Waits for the result; returns `None` if the compiling thread panicked.
    fn wait(&self) -> Option<Result<Arc<V>, E>> {
        let mut outcome = self.outcome.lock();
        loop {
            match &*outcome {
                Some(landed) => return landed.clone(),
                None => outcome = self.landed.wait(outcome),
            }
        }
    }
}

/// Removes a finished compilation from those in progress, also when it panics.
struct FlightGuard<'l, V, E> {
    shard: &'l Shard<V, E>,
    key: &'l Arc<str>,
    flight: &'l Flight<V, E>,
}

impl<V, E> Drop for FlightGuard<'_, V, E> {
    fn drop(&mut self) {
        self.shard.under_way.lock().remove(self.key);
        self.flight.outcome.lock().get_or_insert(None);
        self.flight.landed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;

    fn cache(capacity: usize) -> Cache<String, String> {
        let ticks = AtomicU64::new(0);
        let clock = move || Duration::from_nanos(ticks.fetch_add(5, Ordering::Relaxed));
        Cache::new(NonZeroUsize::new(capacity).unwrap(), Arc::new(clock))
    }

    fn value(text: &str) -> Result<String, String> {
        Ok(text.to_owned())
    }

    #[test]
    fn a_second_request_is_a_hit() {
        let cache = cache(2);
        let first = cache.get_or_compile("a", || value("a")).unwrap();
        let second = cache.get_or_compile("a", || panic!("compiled twice")).unwrap();
        assert!(Arc::ptr_eq(&first, &second));
        let statistics = cache.statistics();
        assert_eq!((statistics.hits, statistics.misses, statistics.evictions), (1, 1, 0));
        assert_eq!(statistics.compile_time, Duration::from_nanos(5));
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let cache = cache(2);
        for text in ["a", "b", "a", "c"] {
            cache.get_or_compile(text, || value(text)).unwrap();
        }
        cache.get_or_compile("a", || panic!("was used recently")).unwrap();
        let mut compiled_again = false;
        cache
            .get_or_compile("b", || {
                compiled_again = true;
                value("b")
            })
            .unwrap();
        assert!(compiled_again);
        assert_eq!((cache.len(), cache.statistics().evictions), (2, 2));
    }

    #[test]
    fn errors_are_not_kept() {
        let cache = cache(2);
        assert_eq!(cache.get_or_compile("a", || Err("broken".to_owned())), Err("broken".to_owned()));
        assert!(cache.is_empty());
        assert_eq!(*cache.get_or_compile("a", || value("mended")).unwrap(), "mended");
    }

    #[test]
    fn many_threads_compile_once() {
        let cache = cache(16);
        let compilations = AtomicUsize::new(0);
        let start = std::sync::Barrier::new(8);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    start.wait();
                    for text in ["a", "b", "c", "d"] {
                        let program = cache.get_or_compile(text, || {
                            compilations.fetch_add(1, Ordering::Relaxed);
                            thread::yield_now();
                            value(text)
                        });
                        assert_eq!(*program.unwrap(), text);
                    }
                });
            }
        });
        assert_eq!(compilations.into_inner(), 4);
        let statistics = cache.statistics();
        assert_eq!((statistics.misses, statistics.hits), (4, 28));
    }

    #[test]
    fn a_panic_leaves_the_cache_usable() {
        let cache = cache(2);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _ = cache.get_or_compile("a", || panic!("compiler is broken"));
        }));
        assert!(outcome.is_err());
        assert_eq!(*cache.get_or_compile("a", || value("a")).unwrap(), "a");
    }

    #[test]
    fn large_caches_stay_within_their_bound() {
        let cache = cache(1000);
        for number in 0..10_000 {
            let text = number.to_string();
            cache.get_or_compile(&text, || value(&text)).unwrap();
        }
        assert!(cache.len() <= 1000);
        assert_eq!(cache.statistics().evictions as usize, 10_000 - cache.len());
    }
}
