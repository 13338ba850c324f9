//! One leader among replicas, by a Lease.
//!
//! The holder renews the lease; the others wait until it was not renewed for its whole duration, measured by
//! their own clock, so that clocks need not agree. Follows client-go's `leaderelection`.

mod watchdog;

use locks::Mutex;
use std::sync::Arc;
use std::time::Duration;

use api::coordination::v1::{Lease, LeaseSpec};
use api::time::{MicroTime, Timestamp};
use telemetry::logs::chain;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{debug, info};

use self::watchdog::Watchdog;
use crate::client::Client;
use crate::error::Error;
pub use crate::leadership::Leadership;
use crate::objects::Objects;

/// Time limit for a stopping leader to end its work and release the lease.
pub const END_TIMEOUT: Duration = Duration::from_secs(20);

/// Lease and timing of the election.
#[derive(Debug, Clone)]
pub struct Options {
    /// The lease's namespace, most often `kube-system`.
    pub namespace: String,
    /// The lease's name, most often the component's.
    pub name: String,
    /// Identity of the candidate; must be unique.
    pub identity: String,
    /// Time without renewal after which another candidate takes over.
    pub lease_duration: Duration,
    /// The leader gives up when it could not renew for this long, which must be shorter.
    pub renew_deadline: Duration,
    /// Between two attempts to acquire or renew.
    pub retry_period: Duration,
    /// Whether the lease is given back at the end, so that others need not wait.
    pub release_at_end: bool,
}

impl Options {
    /// The times that Kubernetes' components use: 15, 10 and 2 seconds.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>, identity: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            release_at_end: true,
        }
    }
}

/// Result of leading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome<T> {
    /// The work was finished.
    Finished(T),
    /// The lease could not be renewed in time, and the work was ended.
    Lost,
    /// Shutdown was requested.
    Stopped,
}

/// The tasks that a leader spawned; they end with its leadership. Clones share them.
#[derive(Clone)]
pub struct Tasks {
    /// None once leadership has ended.
    running: Arc<Mutex<Option<JoinSet<()>>>>,
    /// The tasks that are being stopped.
    ending: Arc<Mutex<Option<JoinSet<()>>>>,
}

impl Default for Tasks {
    /// None yet.
    fn default() -> Self {
        Self { running: Arc::new(Mutex::new(Some(JoinSet::new()))), ending: Arc::default() }
    }
}

impl Tasks {
    /// Spawns a task, unless leadership has ended.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut running = self.running.lock();
        if let Some(running) = running.as_mut() {
            while running.try_join_next().is_some() {}
            running.spawn(task);
        }
    }

    /// Ends all tasks.
    fn end(&self) {
        let running = self.running.lock().take();
        if let Some(mut running) = running {
            running.abort_all();
            *self.ending.lock() = Some(running);
        }
    }

    /// Waits until all tasks have ended: the lease is not released before.
    async fn ended(&self) {
        let ending = self.ending.lock().take();
        if let Some(mut ending) = ending {
            ending.shutdown().await;
        }
    }
}

/// The time in which one leads. Its end, also by being dropped, ends all that was started in it.
struct LeaderTask {
    leadership: Leadership,
    tasks: Tasks,
    acquired: Instant,
}

impl Drop for LeaderTask {
    fn drop(&mut self) {
        self.leadership.extend(self.acquired);
        self.tasks.end();
    }
}

/// A contender.
pub struct Election {
    options: Options,
    leases: Objects<Lease>,
    /// The lease as last seen, and when that was.
    seen: Option<(Lease, Instant)>,
    now: fn() -> Timestamp,
    /// Called when the lease has expired and the runtime does not respond.
    expired: Option<Arc<dyn Fn() + Send + Sync>>,
}

/// Leases are measured by the machine's time: other processes contend for them.
fn wall_clock() -> Timestamp {
    clock::Clock::system().now()
}

impl Election {
    /// Contends for a lease.
    #[must_use]
    pub fn new(client: &Client, options: Options) -> Self {
        Self { options, leases: client.objects(), seen: None, now: wall_clock, expired: None }
    }

    /// Adds a watchdog: a thread that calls `expired` when the lease has expired while this candidate leads,
    /// which means that the runtime is blocked. It also does when the work does not end within [`END_TIMEOUT`].
    #[must_use]
    pub fn watched(mut self, expired: impl Fn() + Send + Sync + 'static) -> Self {
        self.expired = Some(Arc::new(expired));
        self
    }

    /// Waits until this contender leads, then does `work` for as long as it does or until `stop` is ready.
    ///
    /// The work is dropped when leadership is lost, and so are the tasks that it spawned into `tasks`: nothing of it
    /// runs on. From then on [`Leadership::holds`] is false.
    pub async fn lead<T, W>(
        mut self,
        stop: impl Future<Output = ()>,
        work: impl FnOnce(Leadership, Tasks) -> W,
    ) -> Outcome<T>
    where
        W: Future<Output = T>,
    {
        tokio::pin!(stop);
        let acquired = loop {
            let started = Instant::now();
            let attempt = async {
                let result = self.acquire_or_renew().await;
                if let Err(error) = &result {
                    debug!(lease = %self.options.name, err = %chain(&error), "Could not read or write the lease");
                }
                matches!(result, Ok(true))
            };
            tokio::select! {
                leads = attempt => if leads { break started },
                () = &mut stop => return Outcome::Stopped,
            }
            tokio::select! {
                () = tokio::time::sleep(self.options.retry_period) => {}
                () = &mut stop => return Outcome::Stopped,
            }
        };
        info!(lease = %self.options.name, identity = %self.options.identity, "Became leader");
        let first = acquired.checked_add(self.options.lease_duration).unwrap_or(acquired);
        let leadership = Leadership::until(first);
        let tasks = Tasks::default();
        let leading = LeaderTask { leadership: leadership.clone(), tasks: tasks.clone(), acquired };
        let watchdog = self.expired.clone().map(|expired| Watchdog::start(self.options.lease_duration, expired));
        let outcome = {
            let work = work(leadership.clone(), tasks.clone());
            tokio::select! {
                result = work => Outcome::Finished(result),
                () = self.renew(acquired, &leadership, watchdog.as_ref()) => Outcome::Lost,
                () = &mut stop => Outcome::Stopped,
            }
        };
        if let Some(watchdog) = &watchdog {
            watchdog.extend(END_TIMEOUT);
        }
        drop(leading);
        tasks.ended().await;
        info!(lease = %self.options.name, identity = %self.options.identity, "Stopped leading");
        if self.options.release_at_end && outcome_is_ours(&outcome) {
            self.release().await;
        }
        outcome
    }

    /// Renews the lease until renewals have failed for too long.
    async fn renew(&mut self, mut renewed: Instant, leadership: &Leadership, watchdog: Option<&Watchdog>) {
        loop {
            tokio::time::sleep(self.options.retry_period).await;
            let deadline = renewed.checked_add(self.options.renew_deadline).unwrap_or(renewed);
            let started = Instant::now();
            match tokio::time::timeout_at(deadline, self.acquire_or_renew()).await {
                Ok(Ok(true)) => {
                    renewed = started;
                    let until = started.checked_add(self.options.lease_duration).unwrap_or(started);
                    leadership.extend(until);
                    if let Some(watchdog) = watchdog {
                        watchdog.extend(until.saturating_duration_since(Instant::now()));
                    }
                }
                // Another candidate holds it.
                Ok(Ok(false)) => return,
                Ok(Err(error)) => {
                    debug!(lease = %self.options.name, err = %chain(&error), "Could not renew the lease");
                    if Instant::now() >= deadline {
                        return;
                    }
                }
                Err(_) => return,
            }
        }
    }

    /// Acquires the lease if it is free or expired, or renews it; returns whether it is held now.
    async fn acquire_or_renew(&mut self) -> Result<bool, Error> {
        let (namespace, name) = (self.options.namespace.clone(), self.options.name.clone());
        let now = Instant::now();
        let mut lease = match &self.seen {
            // Our own lease is as we wrote it, unless another candidate has taken it: then the update fails.
            Some((lease, at)) if self.is_ours(lease) && !self.has_expired(lease, *at, now) => lease.clone(),
            _ => match self.leases.get(&namespace, &name).await {
                Ok(lease) => {
                    self.observe(&lease, now);
                    lease
                }
                Err(error) if error.is_not_found() => {
                    let mut lease = Lease::default();
                    lease.metadata.name = name.as_str().into();
                    lease.spec = self.held(&LeaseSpec::default());
                    let lease = self.leases.create(&namespace, &lease).await?;
                    self.seen = Some((lease, now));
                    return Ok(true);
                }
                Err(error) => return Err(error),
            },
        };
        let free = lease.spec.holder_identity.as_deref().unwrap_or_default().is_empty();
        let seen_at = self.seen.as_ref().map_or(now, |(_, at)| *at);
        if !free && !self.is_ours(&lease) && !self.has_expired(&lease, seen_at, now) {
            return Ok(false);
        }
        lease.spec = self.held(&lease.spec);
        match self.leases.update(&namespace, &name, &lease).await {
            Ok(lease) => {
                self.seen = Some((lease, now));
                Ok(true)
            }
            Err(error) => {
                // Someone else wrote it: read it the next time.
                self.seen = self.seen.take().filter(|(lease, _)| !self.is_ours(lease));
                Err(error)
            }
        }
    }

    /// Records the time of the lease's last observed change.
    fn observe(&mut self, lease: &Lease, now: Instant) {
        let same = self.seen.as_ref().is_some_and(|(seen, _)| {
            seen.metadata.resource_version == lease.metadata.resource_version && seen.metadata.uid == lease.metadata.uid
        });
        if !same {
            self.seen = Some((lease.clone(), now));
        }
    }

    fn is_ours(&self, lease: &Lease) -> bool {
        lease.spec.holder_identity.as_deref() == Some(self.options.identity.as_str())
    }

    fn has_expired(&self, lease: &Lease, seen: Instant, now: Instant) -> bool {
        let seconds = u64::try_from(lease.spec.lease_duration_seconds.unwrap_or(0)).unwrap_or(0);
        let duration = if self.is_ours(lease) { self.options.lease_duration } else { Duration::from_secs(seconds) };
        now.saturating_duration_since(seen) >= duration
    }

    /// Returns the lease as held by this candidate.
    fn held(&self, before: &LeaseSpec) -> LeaseSpec {
        let now = Some(MicroTime((self.now)()));
        let ours = before.holder_identity.as_deref() == Some(self.options.identity.as_str());
        let seconds = self.options.lease_duration.as_secs().max(1);
        let transitions = before.lease_transitions.unwrap_or(0);
        let is_new = before.holder_identity.is_none() && before.acquire_time.is_none();
        LeaseSpec {
            holder_identity: Some(self.options.identity.as_str().into()),
            lease_duration_seconds: Some(i32::try_from(seconds).unwrap_or(i32::MAX)),
            acquire_time: if ours { before.acquire_time } else { now },
            renew_time: now,
            lease_transitions: Some(if ours || is_new { transitions } else { transitions.saturating_add(1) }),
            ..LeaseSpec::default()
        }
    }

    /// Releases the lease, if it is still ours. A renewal in progress may have been faster.
    async fn release(&mut self) {
        let (namespace, name) = (self.options.namespace.clone(), self.options.name.clone());
        let attempts = async {
            loop {
                let Ok(mut lease) = self.leases.get(&namespace, &name).await else { return };
                if !self.is_ours(&lease) {
                    return;
                }
                let now = Some(MicroTime((self.now)()));
                lease.spec = LeaseSpec {
                    holder_identity: Some("".into()),
                    lease_duration_seconds: Some(1),
                    acquire_time: now,
                    renew_time: now,
                    lease_transitions: lease.spec.lease_transitions,
                    ..LeaseSpec::default()
                };
                match self.leases.update(&namespace, &name, &lease).await {
                    Err(error) if error.is_conflict() => {}
                    _ => return,
                }
            }
        };
        // A lease that cannot be released expires.
        let _ = tokio::time::timeout(self.options.renew_deadline, attempts).await;
    }
}

fn outcome_is_ours<T>(outcome: &Outcome<T>) -> bool {
    !matches!(outcome, Outcome::Lost)
}
