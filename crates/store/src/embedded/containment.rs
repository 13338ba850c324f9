//! Panics of the storage library on a damaged file are errors like any other.
//!
//! redb panics on some damaged pages. They are caught here; a process that calls [`quiet_contained_panics`] does not print
//! them either.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use super::file::damaged;
use crate::Error;

thread_local! {
    /// Nesting depth of [`contain`] on this thread.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Suppresses the output of panics that a store turns into [`Error::Damaged`].
///
/// For a whole process, so it is the program's choice. All other panics are reported as before. A second call changes nothing.
pub fn quiet_contained_panics() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let others = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if DEPTH.get() == 0 {
                others(info);
            }
        }));
    });
}

/// Runs work in which redb may panic.
pub(super) fn contain<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    DEPTH.set(DEPTH.get().saturating_add(1));
    let done = catch_unwind(AssertUnwindSafe(work));
    DEPTH.set(DEPTH.get().saturating_sub(1));
    done.unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("reading it failed");
        Err(damaged(format!("its pages do not fit together ({text})")))
    })
}
