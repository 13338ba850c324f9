//! Next step after an attempt: most controllers treat the same failures in the same way.

use client::controller::Next;
use client::informer::Key;

use crate::machinery::executor::Failure;
use crate::machinery::expectations::UNSETTLED;

/// Determines the next step after an action. A terminating namespace deletes the object, too; an existing
/// object will be observed; a rejection is retried after some time; all other failures are retried with a
/// growing back-off.
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
