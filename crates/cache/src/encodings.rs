//! Encodings of an object that are kept with it, so that a list does not repeat the work of the one before.
//!
//! Messages of protobuf are nearly as long as the objects: a [`Budget`] limits all of them together, and what exceeds it is
//! encoded again. The cells of a table row are short, and limited by the length of their object.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Number of bytes that kept messages may take.
#[derive(Debug)]
pub struct Budget {
    free: AtomicUsize,
}

impl Budget {
    /// A budget for this many bytes.
    #[must_use]
    pub fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self { free: AtomicUsize::new(bytes) })
    }

    fn reserve(self: &Arc<Self>, bytes: usize) -> Option<Reservation> {
        let taken = |free: usize| free.checked_sub(bytes);
        self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).ok()?;
        Some(Reservation { budget: self.clone(), bytes })
    }
}

/// A part of a budget, returned when it is dropped.
#[derive(Debug)]
struct Reservation {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.free.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Message {
    bytes: Box<[u8]>,
    _reservation: Reservation,
}

/// The text of a table row up to its object, without the age of the object.
#[derive(Debug)]
pub struct Row {
    /// Text before the age.
    pub start: Box<str>,
    /// Seconds since 1970 at which the object was created; none if the row shows no age.
    pub created: Option<i64>,
    /// Text after the age.
    pub end: Box<str>,
}

/// The kept encodings of an object.
#[derive(Debug, Default)]
pub(crate) struct Encodings {
    message: OnceLock<Box<Message>>,
    row: OnceLock<Box<Row>>,
}

impl Encodings {
    pub(crate) fn message(&self) -> Option<&[u8]> {
        self.message.get().map(|message| &*message.bytes)
    }

    pub(crate) fn keep_message(&self, bytes: &[u8], budget: &Arc<Budget>) {
        if self.message.get().is_none()
            && let Some(reserved) = budget.reserve(bytes.len())
        {
            // Another thread may have kept the same.
            let _ = self.message.set(Box::new(Message { bytes: bytes.into(), _reservation: reserved }));
        }
    }

    pub(crate) fn row(&self) -> Option<&Row> {
        self.row.get().map(|row| &**row)
    }

    pub(crate) fn keep_row(&self, row: Row, bytes_max: usize) {
        if row.start.len().saturating_add(row.end.len()) <= bytes_max {
            // Another thread may have kept the same.
            let _ = self.row.set(Box::new(row));
        }
    }
}

/// A copy starts without encodings.
impl Clone for Encodings {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// Objects are equal whatever is kept of them.
impl PartialEq for Encodings {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Encodings {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_kept_within_the_budget() {
        let budget = Budget::new(10);
        let (first, second) = (Encodings::default(), Encodings::default());
        first.keep_message(b"1234567", &budget);
        second.keep_message(b"1234", &budget);
        assert_eq!(first.message(), Some(&b"1234567"[..]));
        assert_eq!(second.message(), None);
        drop(first);
        second.keep_message(b"1234", &budget);
        assert_eq!(second.message(), Some(&b"1234"[..]));
        second.keep_message(b"1234", &budget);
        assert_eq!(budget.free.load(Ordering::Relaxed), 6);
    }
}
