//! Threads for what takes a while: parts of long answers, requests with long bodies.
//!
//! There are as many as processors, and they have a lower priority than those that serve connections: when all
//! processors are busy, short requests, above all health checks, do not wait for long lists.

use locks::{Condvar, Mutex};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use telemetry::logs::chain;
use tokio::sync::oneshot;
use tracing::warn;

/// Niceness of these threads: with 5, they get a third of the time of others.
const NICE: i32 = 5;
/// As those of the runtime: documents may be deep.
const STACK_BYTES: usize = 8 << 20;

type Job = Box<dyn FnOnce() + Send>;

thread_local! {
    /// Whether this is one of the threads.
    static IS_HEAVY: Cell<bool> = const { Cell::new(false) };
    /// Reports whether a caller still waits for the result of the work on this thread.
    static IS_WANTED: RefCell<Option<WantedFn>> = const { RefCell::new(None) };
}

type WantedFn = Box<dyn Fn() -> bool>;

/// Whether the result of the work on this thread is still needed. Long work checks it periodically, and ends
/// when its request has timed out or its client has disconnected.
pub(crate) fn is_wanted() -> bool {
    IS_WANTED.with_borrow(|is_wanted| is_wanted.as_ref().is_none_or(|is_wanted| is_wanted()))
}

/// The threads; they start when they are first needed, and end with the last handle.
#[derive(Clone, Default)]
pub(crate) struct Threads(Arc<OnceLock<StartedThread>>);

struct StartedThread(Arc<SharedQueue>);

#[derive(Default)]
struct SharedQueue {
    queue: Mutex<Queue>,
    more: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    is_over: bool,
}

impl std::fmt::Debug for Threads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Threads").finish_non_exhaustive()
    }
}

impl Threads {
    /// Runs work when its turn comes; `None` if it panics. It is not started if the caller has stopped waiting.
    /// On one of these threads it runs at once: they must not wait for each other.
    pub(crate) async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        if IS_HEAVY.get() {
            return std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).ok();
        }
        self.start(work).await.ok()
    }

    /// The same, but it waits in line from now on, and its result can be waited for later.
    pub(crate) fn start<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> oneshot::Receiver<T> {
        let (sender, receiver) = oneshot::channel();
        self.0.get_or_init(StartedThread::new).0.push(Box::new(move || {
            if !sender.is_closed() {
                let sender = Rc::new(sender);
                let asked = sender.clone();
                IS_WANTED.set(Some(Box::new(move || !asked.is_closed())));
                let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
                IS_WANTED.set(None);
                if let (Ok(done), Some(sender)) = (done, Rc::into_inner(sender)) {
                    // An error means that the caller has stopped waiting.
                    let _ = sender.send(done);
                }
            }
        }));
        receiver
    }
}

impl StartedThread {
    fn new() -> Self {
        let shared = Arc::new(SharedQueue::default());
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            let shared = shared.clone();
            let thread = std::thread::Builder::new().name("heavy".to_owned()).stack_size(STACK_BYTES);
            let started = thread.spawn(move || {
                IS_HEAVY.set(true);
                lower_priority();
                while let Some(job) = shared.next() {
                    job();
                }
            });
            if let Err(error) = started {
                warn!(err = %chain(&error), "Could not start a thread");
            }
        }
        Self(shared)
    }
}

impl Drop for StartedThread {
    fn drop(&mut self) {
        self.0.queue().is_over = true;
        self.0.more.notify_all();
    }
}

impl SharedQueue {
    fn queue(&self) -> locks::MutexGuard<'_, Queue> {
        self.queue.lock()
    }

    fn push(&self, job: Job) {
        self.queue().jobs.push_back(job);
        self.more.notify_one();
    }

    /// Waits for the next job; none at the end.
    fn next(&self) -> Option<Job> {
        let mut queue = self.queue();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            if queue.is_over {
                return None;
            }
            queue = self.more.wait(queue);
        }
    }
}

/// Linux counts each thread by itself; elsewhere this would slow down all of them.
#[cfg(target_os = "linux")]
fn lower_priority() {
    let now = rustix::process::getpriority_process(None).unwrap_or_default();
    if let Err(error) = rustix::process::setpriority_process(None, now.saturating_add(NICE)) {
        warn!(err = %chain(&error), "Could not lower the priority of a thread");
    }
}

#[cfg(not(target_os = "linux"))]
fn lower_priority() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_is_done_elsewhere_with_a_lower_priority() {
        let threads = Threads::default();
        let own = rustix::process::getpriority_process(None).unwrap();
        let theirs = threads.run(|| rustix::process::getpriority_process(None).unwrap()).await.unwrap();
        assert_eq!(theirs, (own + NICE).min(19));
        assert_eq!(rustix::process::getpriority_process(None).unwrap(), own);
    }

    /// As a custom table does, which selects its objects there.
    #[tokio::test]
    async fn nested_work_runs_without_waiting() {
        let (threads, runtime) = (Threads::default(), tokio::runtime::Handle::current());
        let nested = || {
            let (inner, runtime) = (threads.clone(), runtime.clone());
            threads.run(move || runtime.block_on(inner.run(|| 1)).unwrap_or_default())
        };
        let many = (0..4 * std::thread::available_parallelism().unwrap().get()).map(|_| nested());
        let done = tokio::time::timeout(std::time::Duration::from_secs(20), futures::future::join_all(many)).await;
        assert!(done.unwrap().into_iter().all(|it| it == Some(1)));
    }

    #[tokio::test]
    async fn work_learns_that_its_result_is_not_waited_for() {
        let threads = Threads::default();
        assert_eq!(threads.run(is_wanted).await, Some(true));
        let (begun, has_begun) = oneshot::channel();
        let (ended, has_ended) = oneshot::channel();
        let result = threads.start(move || {
            begun.send(()).unwrap();
            while is_wanted() {
                std::thread::yield_now();
            }
            ended.send(()).unwrap();
        });
        has_begun.await.unwrap();
        drop(result);
        has_ended.await.unwrap();
        assert_eq!(threads.run(is_wanted).await, Some(true));
    }

    #[tokio::test]
    async fn a_panic_is_nothing_and_the_threads_go_on() {
        let threads = Threads::default();
        for _ in 0..20 {
            assert_eq!(threads.run(|| -> u8 { panic!("expected in this test") }).await, None);
        }
        assert_eq!(threads.run(|| 7).await, Some(7));
    }

    #[tokio::test]
    async fn threads_end_with_the_last_handle() {
        let threads = Threads::default();
        threads.run(|| ()).await.unwrap();
        let shared = Arc::downgrade(&threads.0.get().unwrap().0);
        drop(threads);
        // Each thread holds it until it ends.
        while shared.strong_count() > 0 {
            tokio::task::yield_now().await;
        }
    }
}
