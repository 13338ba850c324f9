//! Long documents that are made when asked and not kept, but shared by all to whom they are being sent.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;

/// A document that may be on its way to somebody.
#[derive(Default)]
pub(crate) struct Shared(Mutex<Weak<Bytes>>);

/// Holds a document for as long as it is being sent.
struct Holder(Arc<Bytes>);

impl AsRef<[u8]> for Holder {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Shared {
    /// The document, made if nobody has it.
    pub(super) fn get(&self, make: impl FnOnce() -> Bytes) -> Bytes {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
    fn a_document_is_made_once_for_all_who_have_it_and_then_forgotten() {
        let (shared, mut count) = (Shared::default(), 0);
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
