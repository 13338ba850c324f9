//! What follows an attempt: most controllers treat the same failures alike.

use client::controller::Next;
use client::informer::Key;

use crate::executor::Failure;
use crate::expectations::UNSETTLED;

/// What follows what was done. A namespace that ends takes the object along; what exists already will be seen; what was
/// refused is tried again after some time; all else fails and comes back with growing pauses.
///
/// # Errors
/// All else.
pub(crate) fn next(result: Result<(), Failure>) -> Result<Next, Failure> {
    match result {
        Ok(()) => Ok(Next::Done),
        Err(failure) if failure.is_ending_namespace() => Ok(Next::Done),
        Err(failure) if failure.is_already_exists() => Ok(Next::After(UNSETTLED)),
        Err(failure) => failure.held().map(Next::After).ok_or(failure),
    }
}

/// The key of a namespace, for controllers that do something once in each.
pub(crate) fn namespace_key(namespace: &str) -> Key {
    Key::new("", namespace)
}
