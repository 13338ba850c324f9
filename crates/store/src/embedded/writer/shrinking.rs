//! Making the file smaller after much was deleted.
//!
//! A separate thread copies the current data into a new file, while writes continue in the old one. The writer
//! then adds the changes made meanwhile and replaces the old file by the new one. Readers of the old file
//! finish there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::Writer;
use crate::embedded::containment::contain;
use crate::embedded::file::{Copy, Medium};
use crate::{Error, Revision};

/// After a failure, this many intervals pass before the next attempt.
const BACK_OFF: u32 = 60;

/// Interval at which the copy is checked for completion.
const COPY_LOOK: Duration = Duration::from_millis(50);

/// A copy that is being made.
pub(super) struct CopyTask {
    thread: JoinHandle<Result<Copy, Error>>,
    stop: Arc<AtomicBool>,
    /// Revisions removed from the file since the copy was started.
    pub(super) forgotten: Vec<Revision>,
}

impl Writer {
    /// Starts or ends a copy, if it is due.
    pub(super) fn shrink(&mut self) {
        let now = Instant::now();
        if now < self.next_shrink || self.failure.is_some() {
            return;
        }
        let interval = self.options.shrinking.interval;
        let pause = match self.copying.take() {
            Some(copying) if copying.thread.is_finished() && !self.is_being_backed_up() => match self.finish(copying) {
                Ok(()) => interval,
                // The old file is as good as it was.
                Err(_) => interval.saturating_mul(BACK_OFF),
            },
            Some(copying) => {
                self.copying = Some(copying);
                COPY_LOOK
            }
            None if self.is_too_long() => {
                self.copying = self.begin();
                if self.copying.is_some() { COPY_LOOK } else { interval.saturating_mul(BACK_OFF) }
            }
            None => interval,
        };
        self.next_shrink = now.checked_add(pause).unwrap_or(now);
    }

    /// Whether more than half of a long file is empty, and there is space for a copy of the other half.
    fn is_too_long(&self) -> bool {
        let Some(medium) = &self.medium else { return false };
        let Some(length) = medium.file_bytes().filter(|length| *length > self.options.shrinking.file_bytes_min) else {
            return false;
        };
        let (bytes, garbage) = {
            let state = self.shared.state();
            (state.index.bytes(), state.index.garbage(state.compacted, 1))
        };
        let needed = bytes.saturating_add(self.options.free_bytes_min);
        // Versions that are about to be removed need not be copied.
        garbage.is_empty() && bytes < length / 2 && medium.free_bytes().is_none_or(|free| free > needed)
    }

    /// Whether a backup is reading the whole file, which must stay as it is.
    fn is_being_backed_up(&self) -> bool {
        self.shared.file().is_ok_and(|file| Arc::weak_count(&file) > 0)
    }

    fn begin(&self) -> Option<CopyTask> {
        let Some(Medium::Path(path)) = self.medium.clone() else { return None };
        let file = self.shared.file().ok()?;
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, cache_bytes) = (stop.clone(), self.options.cache_bytes);
        let thread = std::thread::Builder::new().name("store-shrink".to_owned());
        let thread = thread.spawn(move || file.copy(&path, cache_bytes, &stopped)).ok()?;
        Some(CopyTask { thread, stop, forgotten: Vec::new() })
    }

    fn finish(&self, copying: CopyTask) -> Result<(), Error> {
        let Some(Medium::Path(path)) = &self.medium else { return Ok(()) };
        let copy = copying.thread.join().unwrap_or(Err(Error::Closed))?;
        let smaller = self.shared.file()?.finish(copy, &copying.forgotten, path)?;
        let old = self.shared.set_file(Some(Arc::new(smaller)));
        contain(|| {
            drop(old);
            Ok(())
        })
    }

    /// Aborts a copy in progress, so that the file can be closed.
    pub(super) fn stop_shrinking(&mut self) {
        if let Some(copying) = self.copying.take() {
            copying.stop.store(true, Ordering::Relaxed);
            let _ = copying.thread.join();
        }
    }
}
