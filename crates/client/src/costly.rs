//! Work that may take long, such as evaluating users' expressions: on a thread of low priority, paced by namespace.
//!
//! A component has one such thread. Workers of the runtime never do this work, so that leases, watches and other keys do not
//! wait for it. A namespace that has used the thread for long has to wait; others do not wait for it.

use locks::Mutex;
use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use telemetry::logs::chain;
use tracing::warn;

/// Niceness of the thread: with 5, it gets a third of the time of other threads.
const NICE: i32 = 5;
/// Equal to the stack of the runtime's threads: expressions may be deep.
const STACK_BYTES: usize = 8 << 20;

type Job = Box<dyn FnOnce() + Send>;

/// Jobs of all components that are waited for.
static PENDING: AtomicUsize = AtomicUsize::new(0);

/// Number of jobs of this process that are waited for. They take real time: tests that let a paused clock advance wait
/// until there are none.
#[must_use]
pub fn pending() -> usize {
    PENDING.load(Ordering::SeqCst)
}

/// A job that is waited for.
struct PendingJob;

impl PendingJob {
    fn new() -> Self {
        PENDING.fetch_add(1, Ordering::SeqCst);
        Self
    }
}

impl Drop for PendingJob {
    fn drop(&mut self) {
        PENDING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A thread for costly work. It starts with the first job and ends with its owner.
pub struct CostlyWork {
    jobs: OnceLock<Option<Sender<Job>>>,
    paces: Mutex<Paces>,
    started: Instant,
}

/// The namespace has used the thread for too long: it may try again after this time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryAfter(pub Duration);

impl Default for CostlyWork {
    fn default() -> Self {
        Self { jobs: OnceLock::new(), paces: Mutex::default(), started: Instant::now() }
    }
}

impl std::fmt::Debug for CostlyWork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CostlyWork").finish_non_exhaustive()
    }
}

impl CostlyWork {
    /// Runs a job for a namespace when its turn comes.
    ///
    /// # Errors
    /// The namespace has to wait. So has one whose job panicked.
    pub async fn run<T: Send + 'static>(
        &self,
        namespace: &str,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, RetryAfter> {
        self.paces().turn(namespace, self.started.elapsed())?;
        let _pending = PendingJob::new();
        let (sender, receiver) = channel();
        let measured = move || {
            let begun = thread_time();
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
            // An error means that the caller has stopped waiting.
            let _ = sender.send((result.ok(), thread_time().saturating_sub(begun)));
        };
        let jobs = self.jobs.get_or_init(start).clone();
        // The thread that waits is one of those for blocking work, which paused clocks take into account.
        let waiting = tokio::task::spawn_blocking(move || {
            match jobs {
                Some(jobs) => drop(jobs.send(Box::new(measured))),
                None => measured(),
            }
            receiver.recv().ok()
        });
        let done = waiting.await.ok().flatten();
        let (result, took) = done.unwrap_or((None, PACES.overdraft));
        self.paces().spent(namespace, took, self.started.elapsed());
        result.ok_or(RetryAfter(PACES.overdraft.saturating_mul(10)))
    }

    fn paces(&self) -> locks::MutexGuard<'_, Paces> {
        self.paces.lock()
    }
}

/// Starts the thread; `None` if the system permits none.
fn start() -> Option<Sender<Job>> {
    let (sender, receiver) = channel::<Job>();
    let thread = std::thread::Builder::new().name("costly".to_owned()).stack_size(STACK_BYTES);
    let started = thread.spawn(move || {
        lower_priority();
        while let Ok(job) = receiver.recv() {
            job();
        }
    });
    match started {
        Ok(_) => Some(sender),
        Err(error) => {
            warn!(err = %chain(&error), "Could not start a thread");
            None
        }
    }
}

/// Runs a job on a thread of low priority and of its own, and waits for it: for calling threads that may block. Nothing if
/// the job panicked or the thread could not be started.
pub fn run_aside<T: Send>(name: &str, job: impl FnOnce() -> T + Send) -> Option<T> {
    let aside = || {
        lower_priority();
        job()
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES);
        match thread.spawn_scoped(scope, aside) {
            Ok(thread) => thread.join().ok(),
            Err(error) => {
                warn!(err = %chain(&error), "Could not start a thread");
                None
            }
        }
    })
}

/// Processor time of the calling thread.
#[must_use]
pub fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// Linux applies the niceness per thread; on other systems this would slow down all of them.
#[cfg(target_os = "linux")]
fn lower_priority() {
    let now = rustix::process::getpriority_process(None).unwrap_or_default();
    if let Err(error) = rustix::process::setpriority_process(None, now.saturating_add(NICE)) {
        warn!(err = %chain(&error), "Could not lower the priority of a thread");
    }
}

#[cfg(not(target_os = "linux"))]
fn lower_priority() {}

/// The time that each namespace has used.
#[derive(Debug, Default)]
struct Paces {
    debts: HashMap<String, Debt>,
}

/// The time that a namespace owed at some time, and how many of its jobs were postponed since its last turn.
#[derive(Debug, Clone, Copy, Default)]
struct Debt {
    owed: Duration,
    at: Duration,
    postponed: u32,
}

struct Limits {
    /// A namespace may use this part of the thread's time: one of so many.
    share: u32,
    /// A namespace may run ahead of its share by this much.
    overdraft: Duration,
    /// The longest time for which a job is postponed at once.
    wait_max: Duration,
    /// Namespaces whose debts are kept; those that owe nothing are dropped first.
    debtors_max: usize,
}

const PACES: Limits =
    Limits { share: 5, overdraft: Duration::from_millis(100), wait_max: Duration::from_secs(30), debtors_max: 10_000 };

impl Debt {
    fn at(&self, now: Duration) -> Duration {
        let earned = now.saturating_sub(self.at).checked_div(PACES.share).unwrap_or_default();
        self.owed.saturating_sub(earned)
    }
}

impl Paces {
    /// Checks that it is the namespace's turn.
    fn turn(&mut self, namespace: &str, now: Duration) -> Result<(), RetryAfter> {
        let Some(debt) = self.debts.get_mut(namespace) else { return Ok(()) };
        let excess = debt.at(now).saturating_sub(PACES.overdraft);
        if excess.is_zero() {
            debt.postponed = 0;
            return Ok(());
        }
        // Postponed keys return one after the other, not all at once.
        debt.postponed = debt.postponed.saturating_add(1);
        let wait = excess.saturating_mul(PACES.share).saturating_mul(debt.postponed);
        Err(RetryAfter(wait.min(PACES.wait_max)))
    }

    /// Records the duration of a job of the namespace.
    fn spent(&mut self, namespace: &str, took: Duration, now: Duration) {
        if self.debts.len() >= PACES.debtors_max {
            self.debts.retain(|_, debt| !debt.at(now).is_zero());
        }
        let debt = self.debts.entry(namespace.to_owned()).or_default();
        debt.owed = debt.at(now).saturating_add(took).min(PACES.overdraft.saturating_mul(10));
        debt.at = now;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[tokio::test]
    async fn jobs_run_on_a_thread_of_low_priority() {
        let work = CostlyWork::default();
        let own = rustix::process::getpriority_process(None).unwrap();
        let job = || (rustix::process::getpriority_process(None).unwrap(), std::thread::current().id());
        let (priority, thread) = work.run("a", job).await.unwrap();
        assert_eq!(priority, (own + NICE).min(19));
        assert_eq!(work.run("b", job).await.unwrap().1, thread, "one thread for all");
    }

    #[tokio::test]
    async fn panic_postpones_and_the_thread_continues() {
        let work = CostlyWork::default();
        assert!(work.run("a", || panic!("expected in this test")).await.is_err());
        assert_eq!(work.run("b", || 7).await, Ok(7));
    }

    #[test]
    fn job_aside_has_low_priority_and_may_panic() {
        let own = rustix::process::getpriority_process(None).unwrap();
        let priority = run_aside("aside", || rustix::process::getpriority_process(None).unwrap());
        assert_eq!(priority, Some((own + NICE).min(19)));
        assert_eq!(run_aside("aside", || -> u8 { panic!("expected in this test") }), None);
    }

    #[test]
    fn namespace_that_used_its_share_waits() {
        let mut paces = Paces::default();
        assert_eq!(paces.turn("a", at(0)), Ok(()));
        paces.spent("a", at(200), at(200));
        assert_eq!(paces.turn("b", at(200)), Ok(()), "others do not wait");
        assert_eq!(paces.turn("a", at(200)), Err(RetryAfter(at(500))));
        assert_eq!(paces.turn("a", at(200)), Err(RetryAfter(at(1000))), "one after the other");
        assert_eq!(paces.turn("a", at(699)), Err(RetryAfter(at(2).checked_div(2).unwrap() * 3)));
        assert_eq!(paces.turn("a", at(700)), Ok(()));
    }

    #[test]
    fn short_jobs_add_up() {
        let mut paces = Paces::default();
        (0..30).for_each(|_| paces.spent("a", at(5), at(0)));
        assert!(paces.turn("a", at(0)).is_err());
        assert!(paces.turn("a", at(1000)).is_ok());
    }
}
