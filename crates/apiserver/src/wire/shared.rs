//! Long documents that are built on demand and not kept, but shared by concurrent responses.

use locks::Mutex;
use std::sync::{Arc, Weak};

use bytes::Bytes;

/// A document that may be in use by a response.
#[derive(Default)]
pub(crate) struct SharedDocument(Mutex<Weak<Bytes>>);

/// Holds a document for as long as it is being sent.
struct Holder(Arc<Bytes>);

impl AsRef<[u8]> for Holder {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl SharedDocument {
    /// Returns the document, built if no response uses it.
    pub(crate) fn get(&self, make: impl FnOnce() -> Bytes) -> Bytes {
        let mut last = self.0.lock();
        let document = last.upgrade().unwrap_or_else(|| {
            let made = Arc::new(make());
            *last = Arc::downgrade(&made);
            made
        });
        Bytes::from_owner(Holder(document))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_is_built_once_and_dropped_with_its_users() {
        let (shared, mut count) = (SharedDocument::default(), 0);
        let mut get = || {
            shared.get(|| {
                count += 1;
                Bytes::from(format!("{count}"))
            })
        };
        let (first, second) = (get(), get());
        assert_eq!((first.as_ref(), second.as_ref()), (&b"1"[..], &b"1"[..]));
        assert_eq!(first.as_ptr(), second.as_ptr());
        // A part of it is enough to hold it.
        let part = second.slice(0..1);
        drop((first, second));
        assert_eq!(get().as_ref(), b"1");
        drop(part);
        assert_eq!(get().as_ref(), b"2");
    }
}
