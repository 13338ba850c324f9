//! Making the file smaller after much was deleted.
//!
//! A thread of its own copies what is kept into a new file, while writes go on in the old one. The writer adds what has happened
//! meanwhile and lets the new file take the place of the old. Whoever reads from the old one finishes there.

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

/// How often to look whether the copy is complete.
const COPY_LOOK: Duration = Duration::from_millis(50);

/// A copy that is being made.
pub(super) struct Copying {
    thread: JoinHandle<Result<Copy, Error>>,
    stop: Arc<AtomicBool>,
    /// What was dropped from the file since the copy was begun.
    pub(super) forgotten: Vec<Revision>,
}

impl Writer {
    /// Begins or ends a copy, if it is time to.
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

    /// More than half of a long file is empty, and there is room for the other half.
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
        // What is about to be dropped need not be copied.
        garbage.is_empty() && bytes < length / 2 && medium.free_bytes().is_none_or(|free| free > needed)
    }

    /// Whether somebody reads all of the file, who needs it as it is.
    fn is_being_backed_up(&self) -> bool {
        self.shared.file().is_ok_and(|file| Arc::weak_count(&file) > 0)
    }

    fn begin(&self) -> Option<Copying> {
        let Some(Medium::Path(path)) = self.medium.clone() else { return None };
        let file = self.shared.file().ok()?;
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, cache_bytes) = (stop.clone(), self.options.cache_bytes);
        let thread = std::thread::Builder::new().name("store-shrink".to_owned());
        let thread = thread.spawn(move || file.copy(&path, cache_bytes, &stopped)).ok()?;
        Some(Copying { thread, stop, forgotten: Vec::new() })
    }

    fn finish(&self, copying: Copying) -> Result<(), Error> {
        let Some(Medium::Path(path)) = &self.medium else { return Ok(()) };
        let copy = copying.thread.join().unwrap_or(Err(Error::Closed))?;
        let smaller = self.shared.file()?.finish(copy, &copying.forgotten, path)?;
        let old = self.shared.set_file(Some(Arc::new(smaller)));
        contain(|| {
            drop(old);
            Ok(())
        })
    }

    /// Gives up a copy that is being made, so that the file can be closed.
    pub(super) fn stop_shrinking(&mut self) {
        if let Some(copying) = self.copying.take() {
            copying.stop.store(true, Ordering::Relaxed);
            let _ = copying.thread.join();
        }
    }
}
