//! The one thread that writes.
//!
//! Guards are checked against the visible state plus the earlier writes of the same batch. No change becomes
//! visible, and no write is acknowledged, before its commit is on disk. The same thread deletes expired keys
//! and compacts history.

mod recovery;
mod shrinking;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::ballast::Ballast;
use super::file::{LogFile, Medium, Position, Record, Values, damaged};
use super::{Options, SharedState};
use crate::{Cause, Change, Error, Event, Guard, PreviousValue, Revision, Write};

/// Maximum number of writes in one commit.
const BATCH_WRITES: usize = 512;
/// Approximate number of bytes after which a batch is full.
const BATCH_BYTES: usize = 4 << 20;
/// Number of old versions that are removed along with a batch of writes.
const FORGET_ALONG: usize = 128;
/// Number of old versions that are removed at once when the writer is idle.
const FORGET_IDLE: usize = 2048;

/// A command to the writer.
pub(super) enum Command {
    Write(Job),
    Compact(Revision, oneshot::Sender<Result<(), Error>>),
    Close(oneshot::Sender<Result<(), Error>>),
}

/// Result of a write.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reply {
    Done(Revision),
    Conflict,
}

/// A write and the channel for its result.
pub(super) struct Job {
    write: Write,
    /// `None` for the deletion of expired keys, which no caller awaits.
    reply: Option<oneshot::Sender<Result<Reply, Error>>>,
    /// Held until the answer is given.
    _permit: Option<OwnedSemaphorePermit>,
}

impl Job {
    pub(super) fn new(
        write: Write,
        reply: Option<oneshot::Sender<Result<Reply, Error>>>,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Self {
        Self { write, reply, _permit: permit }
    }

    fn answer(self, result: Result<Reply, Error>) {
        if let Some(reply) = self.reply {
            // The caller may have stopped waiting.
            let _ = reply.send(result);
        }
    }

    fn bytes(&self) -> usize {
        match &self.write.change {
            Change::Put { value, .. } => value.len(),
            Change::Delete => 0,
        }
    }
}

/// Time of expiry, revision of the write, key.
type Expiry = (u64, Revision, Arc<str>);

pub(super) struct Writer {
    shared: Arc<SharedState>,
    medium: Option<Medium>,
    commands: Receiver<Command>,
    expiring: BinaryHeap<Reverse<Expiry>>,
    /// Times at which revisions were reached.
    ages: VecDeque<(Instant, Revision)>,
    next_look: Instant,
    /// Error of the file, until it is reopened.
    failure: Option<Error>,
    /// Not before this is that tried again.
    next_recovery: Instant,
    /// Until when a disk that was full is taken to be so still.
    full_until: Option<Instant>,
    /// The smaller file that is being made.
    copying: Option<shrinking::CopyTask>,
    /// Time of the next check for shrinking.
    next_shrink: Instant,
    options: Options,
    ballast: Option<Ballast>,
}

/// A write that will happen with the batch.
struct StagedWrite {
    job: Job,
    event: Event,
    expires_at_ms: u64,
}

impl Writer {
    pub(super) fn spawn(
        shared: Arc<SharedState>,
        medium: Option<Medium>,
        commands: Receiver<Command>,
        expiring: Vec<Expiry>,
        options: Options,
    ) -> Result<(), Error> {
        let failure = shared.failure();
        let writer = Self {
            ballast: medium.as_ref().and_then(Ballast::of),
            shared,
            medium,
            commands,
            expiring: expiring.into_iter().map(Reverse).collect(),
            ages: VecDeque::new(),
            next_look: Instant::now(),
            failure,
            next_recovery: Instant::now(),
            full_until: None,
            copying: None,
            next_shrink: Instant::now(),
            options,
        };
        let thread = std::thread::Builder::new().name("store-writer".to_owned());
        thread.spawn(move || writer.run()).map_err(|error| Error::Unavailable(Cause::new(error)))?;
        Ok(())
    }

    fn run(mut self) {
        let closing = loop {
            let mut jobs = Vec::new();
            let mut bytes = 0_usize;
            let mut next = match self.commands.recv_timeout(self.idle_time()) {
                Ok(command) => Some(command),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => break None,
            };
            while let Some(Command::Write(job)) = next {
                bytes = bytes.saturating_add(job.bytes());
                jobs.push(job);
                if jobs.len() >= BATCH_WRITES || bytes >= BATCH_BYTES {
                    next = None;
                } else {
                    next = self.commands.try_recv().ok();
                }
            }
            self.take_expired(&mut jobs);
            self.write_batch(jobs);
            self.keep_retention();
            self.shrink();
            match next {
                Some(Command::Compact(revision, reply)) => {
                    let _ = reply.send(self.compact(revision));
                }
                Some(Command::Close(reply)) => break Some(reply),
                Some(Command::Write(_)) | None => {}
            }
        };
        self.shared.state_mut().close();
        self.stop_shrinking();
        let released = self.release_file();
        if let Some(reply) = closing {
            let _ = reply.send(self.failure.map_or(released, Err));
        }
    }

    /// Time until the next task without commands.
    fn idle_time(&self) -> Duration {
        if self.failure.is_some() {
            return recovery::RETRY_INTERVAL;
        }
        let state = self.shared.state();
        if !state.index.garbage(state.compacted, 1).is_empty() {
            return Duration::ZERO;
        }
        let look = self.next_look.min(self.next_shrink).saturating_duration_since(Instant::now());
        match self.expiring.peek() {
            Some(Reverse((at, ..))) => look.min(Duration::from_millis(at.saturating_sub(now_ms()))),
            None => look,
        }
    }

    /// Adds the deletions that are due.
    fn take_expired(&mut self, jobs: &mut Vec<Job>) {
        let now = now_ms();
        while let Some(Reverse((at, ..))) = self.expiring.peek() {
            if *at > now || jobs.len() >= BATCH_WRITES || self.failure.is_some() {
                break;
            }
            let Some(Reverse((_, revision, key))) = self.expiring.pop() else {
                break;
            };
            // Written again since, or deleted: the guard would fail.
            if self.shared.state().index.latest(&key).is_some_and(|(_, version)| version.revision == revision) {
                jobs.push(Job::new(Write::delete(&*key, revision), None, None));
            }
        }
    }

    fn write_batch(&mut self, jobs: Vec<Job>) {
        self.settle_ballast();
        if let Err(error) = self.recover() {
            for job in jobs {
                job.answer(Err(error.clone()));
            }
            return;
        }
        let full = self.full();
        let mut batch = Batch::new(&self.shared);
        for job in jobs {
            batch.stage(job, full.as_ref());
        }
        let Batch { staged, conflicts, .. } = batch;
        let (position, garbage) = {
            let state = self.shared.state();
            let revision = staged.last().map_or(state.revision, |last| last.event.revision);
            let limit = if staged.is_empty() { FORGET_IDLE } else { FORGET_ALONG };
            (Position { revision, compacted: state.compacted }, state.index.garbage(state.compacted, limit))
        };
        let nothing = staged.is_empty() && garbage.is_empty();
        if !nothing && let Err(error) = self.commit(&staged, &garbage, position) {
            return self.fail_batch(error, staged, conflicts);
        }
        let mut jobs = Vec::with_capacity(staged.len());
        {
            let mut state = self.shared.state_mut();
            state.index.forget(garbage.len());
            if let Some(copying) = &mut self.copying {
                copying.forgotten.extend(garbage);
            }
            state.publish(staged.into_iter().map(|StagedWrite { job, event, expires_at_ms }| {
                if expires_at_ms != 0 {
                    self.expiring.push(Reverse((expires_at_ms, event.revision, event.key.clone())));
                }
                jobs.push((job, event.revision));
                event
            }));
        }
        for (job, revision) in jobs {
            job.answer(Ok(Reply::Done(revision)));
        }
        for job in conflicts {
            job.answer(Ok(Reply::Conflict));
        }
    }

    /// Answers a batch whose commit failed, after determining whether it was durable.
    fn fail_batch(&mut self, error: Error, staged: Vec<StagedWrite>, conflicts: Vec<Job>) {
        self.fail(error.clone());
        let recovered = self.recover();
        let reached = self.shared.state().revision;
        for StagedWrite { job, event, .. } in staged {
            job.answer(match &recovered {
                Ok(()) if event.revision <= reached => Ok(Reply::Done(event.revision)),
                Ok(()) => Err(error.clone()),
                // The result is unknown.
                Err(_) => Err(Error::Unavailable(Cause::new(error.clone()))),
            });
        }
        // A conflict may rest on a write of this very batch.
        for job in conflicts {
            job.answer(Err(error.clone()));
        }
    }

    fn fail(&mut self, error: Error) {
        if matches!(error, Error::Full { .. }) {
            self.full_until = Instant::now().checked_add(recovery::RETRY_INTERVAL);
        }
        self.set_failure(Some(error));
    }

    fn commit(&self, staged: &[StagedWrite], garbage: &[Revision], position: Position) -> Result<(), Error> {
        if self.shared.in_memory {
            return Ok(());
        }
        let records: Vec<Record<'_>> = staged
            .iter()
            .map(|StagedWrite { event, expires_at_ms, .. }| Record {
                revision: event.revision,
                key: &event.key,
                value: event.value.as_ref(),
                expires_at_ms: *expires_at_ms,
            })
            .collect();
        self.shared.file()?.commit(&records, garbage, position)?;
        self.shared.commits.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn set_failure(&mut self, failure: Option<Error>) {
        self.shared.set_failure(failure.clone());
        self.failure = failure;
    }

    /// Releases or reserves the space for deletes.
    fn settle_ballast(&mut self) {
        if let (Some(ballast), Some(medium)) = (&mut self.ballast, &self.medium)
            && let Some(free) = medium.free_bytes()
        {
            ballast.settle(free, self.options.free_bytes_min);
        }
    }

    /// Error for all commands but deletes, if the disk is full.
    fn full(&self) -> Option<Error> {
        let full = self.medium.as_ref().and_then(|medium| medium.full(&self.options));
        full.or_else(|| self.full_until.is_some_and(|until| Instant::now() < until).then(Error::full))
    }

    /// Removes history beyond the retention limits.
    fn keep_retention(&mut self) {
        let retention = self.options.retention.clone();
        let mut target = {
            let state = self.shared.state();
            let kept = state.revision.saturating_sub(state.compacted);
            // A quarter more than needed, so that this does not happen at every write.
            let by_revisions = (kept > retention.revisions_max)
                .then(|| state.revision.saturating_sub(three_quarters(retention.revisions_max)));
            let by_bytes = (state.index.superseded_bytes() > retention.bytes_max)
                .then(|| state.index.compaction_for(three_quarters(retention.bytes_max)))
                .flatten();
            by_revisions.max(by_bytes)
        };
        let now = Instant::now();
        if now >= self.next_look {
            let Some(age_max) = retention.age_max else {
                self.next_look = now.checked_add(Duration::from_secs(3600)).unwrap_or(now);
                return self.compact_to(target);
            };
            let interval =
                age_max.checked_div(10).unwrap_or_default().clamp(Duration::from_millis(50), Duration::from_secs(10));
            self.next_look = now.checked_add(interval).unwrap_or(now);
            while let Some((at, revision)) = self.ages.front() {
                if now.saturating_duration_since(*at) < age_max {
                    break;
                }
                target = target.max(Some(*revision));
                self.ages.pop_front();
            }
            let revision = self.shared.state().revision;
            if self.ages.back().is_none_or(|(_, last)| *last != revision) {
                self.ages.push_back((now, revision));
            }
        }
        self.compact_to(target);
    }

    fn compact_to(&mut self, target: Option<Revision>) {
        if let Some(target) = target {
            // A failure shows at the next write, and this is tried again at the next look.
            let _ = self.compact(target);
        }
    }

    /// Makes `revision` the oldest one. Unneeded versions are removed along with later commits.
    fn compact(&mut self, revision: Revision) -> Result<(), Error> {
        self.recover()?;
        let position = {
            let state = self.shared.state();
            if revision > state.revision {
                return Err(Error::FutureRevision { requested: revision, current: state.revision });
            }
            if revision <= state.compacted {
                return Ok(());
            }
            Position { revision: state.revision, compacted: revision }
        };
        if let Err(error) = self.commit(&[], &[], position) {
            self.fail(error.clone());
            return Err(error);
        }
        let mut state = self.shared.state_mut();
        state.compacted = revision;
        state.publish([]);
        Ok(())
    }
}

/// Writes that are checked one after the other, each as if those before it had happened.
struct Batch<'a> {
    shared: &'a SharedState,
    revision: Revision,
    staged: Vec<StagedWrite>,
    conflicts: Vec<Job>,
    /// Index in `staged` of the last write of a key.
    written: HashMap<Arc<str>, usize>,
    values: Option<Values>,
}

impl<'a> Batch<'a> {
    fn new(shared: &'a SharedState) -> Self {
        let revision = shared.state().revision;
        let (staged, conflicts, written) = (Vec::new(), Vec::new(), HashMap::new());
        Self { shared, revision, staged, conflicts, written, values: None }
    }

    /// Adds a write to those that will happen. While the disk is `full`, only deletes do.
    fn stage(&mut self, job: Job, full: Option<&Error>) {
        let (key, previous) = match self.current(&job.write.key) {
            Ok(current) => current,
            Err(error) => return job.answer(Err(error)),
        };
        let holds = match job.write.guard {
            Guard::Absent => previous.is_none(),
            Guard::Unchanged(revision) => previous.as_ref().is_some_and(|previous| previous.revision == revision),
        };
        let Some(revision) = self.revision.checked_add(1).filter(|_| holds) else {
            self.conflicts.push(job);
            return;
        };
        if let (Some(full), Change::Put { .. }) = (full, &job.write.change) {
            return job.answer(Err(full.clone()));
        }
        let (value, expires_at_ms) = match &job.write.change {
            Change::Put { value, ttl } => (Some(value.clone()), ttl.map_or(0, expiry)),
            Change::Delete => (None, 0),
        };
        self.revision = revision;
        self.written.insert(key.clone(), self.staged.len());
        self.staged.push(StagedWrite { job, event: Event { key, revision, value, previous }, expires_at_ms });
    }

    /// Value of a key after the writes staged so far.
    fn current(&mut self, key: &str) -> Result<(Arc<str>, Option<PreviousValue>), Error> {
        if let Some(StagedWrite { event, .. }) = self.written.get(key).and_then(|at| self.staged.get(*at)) {
            let value = event.value.clone();
            return Ok((event.key.clone(), value.map(|value| PreviousValue { value, revision: event.revision })));
        }
        let found = {
            let state = self.shared.state();
            state.index.latest(key).map(|(key, version)| state.locate(key, version))
        };
        let Some(found) = found else {
            return Ok((key.into(), None));
        };
        let value: Option<Bytes> = self.shared.value(found.revision, &found.content, &mut self.values)?;
        let value = value.ok_or_else(|| damaged(format!("the value of `{key}` is missing")))?;
        Ok((found.key, Some(PreviousValue { value, revision: found.revision })))
    }
}

fn three_quarters(limit: u64) -> u64 {
    limit.saturating_sub(limit / 4)
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis().try_into().unwrap_or(u64::MAX)
}

/// Returns the expiry time for a time to live; never 0, which stands for none.
fn expiry(ttl: Duration) -> u64 {
    now_ms().saturating_add(ttl.as_millis().try_into().unwrap_or(u64::MAX)).max(1)
}
