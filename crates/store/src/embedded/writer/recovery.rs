//! Letting go of the file, and taking it up again after a failure.
//!
//! redb rejects all operations after a failure of the storage below it. A full disk is temporary, so the file
//! is reopened then. Only this shows whether the failed commit was durable; if so, it becomes visible. After
//! any other failure the kernel may hold pages that never reached the disk, so the store stays failed until the
//! process restarts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{LogFile, Writer};
use crate::embedded::containment::contain;
use crate::embedded::file::{LogEntry, damaged};
use crate::{Cause, Error, Event, PreviousValue};

/// A failed file is opened again so often.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Time limit for readers before the file is closed.
const READERS_WAIT: Duration = Duration::from_secs(5);

impl Writer {
    /// Opens the file again if it has failed for lack of room.
    pub(super) fn recover(&mut self) -> Result<(), Error> {
        let Some(failure) = self.failure.clone() else {
            return Ok(());
        };
        let (Some(medium), Error::Full { .. }) = (self.medium.clone(), &failure) else {
            return Err(failure);
        };
        let started = Instant::now();
        if started < self.next_recovery {
            return Err(failure);
        }
        self.stop_shrinking();
        self.release_file()?;
        let (file, position) = match LogFile::open(&medium, self.options.cache_bytes) {
            Ok(opened) => opened,
            Err(error) => {
                if let (Error::Full { .. }, Ok((readable, _))) =
                    (&error, LogFile::open_for_reading(&medium, self.options.cache_bytes))
                {
                    self.shared.set_file(Some(Arc::new(readable)));
                }
                // A long file that has to be repaired each time is not tried all the time.
                let pause = started.elapsed().saturating_mul(10).max(RETRY_INTERVAL);
                self.next_recovery = started.checked_add(pause).unwrap_or(started);
                return Err(error);
            }
        };
        let (revision, compacted) = {
            let state = self.shared.state();
            (state.revision, state.compacted)
        };
        if position.revision < revision || position.compacted < compacted {
            return Err(damaged(format!("the file is at revision {}, behind {revision}", position.revision)));
        }
        let mut happened: Vec<LogEntry> = Vec::new();
        file.scan(revision.saturating_add(1), |logged| {
            happened.push(logged);
            true
        })?;
        let file = Arc::new(file);
        let values = file.values()?;
        self.shared.set_file(Some(file));
        for LogEntry { revision, key, deleted, expires_at_ms, .. } in happened {
            let value = if deleted { None } else { values.get(revision)? };
            let previous = {
                let state = self.shared.state();
                state.index.before(&key, revision).map(|version| state.locate(&key, version))
            };
            let previous = match previous {
                Some(found) => self
                    .shared
                    .value(found.revision, &found.content, &mut None)?
                    .map(|value| PreviousValue { value, revision: found.revision }),
                None => None,
            };
            if expires_at_ms != 0 {
                self.expiring.push(std::cmp::Reverse((expires_at_ms, revision, key.clone())));
            }
            self.shared.state_mut().publish([Event { key, revision, value, previous }]);
        }
        self.shared.state_mut().compacted = position.compacted;
        self.set_failure(None);
        Ok(())
    }

    /// Closes the file once it has no readers.
    pub(super) fn release_file(&self) -> Result<(), Error> {
        let Some(mut file) = self.shared.set_file(None) else {
            return Ok(());
        };
        let started = Instant::now();
        loop {
            match Arc::try_unwrap(file) {
                // Closing writes to the file once more.
                Ok(closed) => {
                    return contain(|| {
                        drop(closed);
                        Ok(())
                    });
                }
                Err(shared) if started.elapsed() < READERS_WAIT => {
                    file = shared;
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(_) => {
                    return Err(Error::Unavailable(Cause::new("readers still hold the file")));
                }
            }
        }
    }
}
