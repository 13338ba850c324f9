//! Locks that stay usable after a panic.
//!
//! The locks of the standard library are poisoned when a thread panics while it holds them, and every later access must
//! decide what to do. Here the decision is made once: access continues. A panic ends one request, task or evaluation; the
//! values behind the locks are changed by single calls, so that they are consistent when a panic unwinds past a guard.
//!
//! The guards are those of the standard library.

pub use std::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

use std::sync::PoisonError;
use std::time::Duration;

/// Mutual exclusion: [`std::sync::Mutex`] without poisoning.
#[derive(Debug, Default)]
pub struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Creates an unlocked mutex.
    pub const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no other thread holds the lock.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lock for many readers or one writer: [`std::sync::RwLock`] without poisoning.
#[derive(Debug, Default)]
pub struct RwLock<T>(std::sync::RwLock<T>);

impl<T> RwLock<T> {
    /// Creates an unlocked lock.
    pub const fn new(value: T) -> Self {
        Self(std::sync::RwLock::new(value))
    }

    /// Waits until no thread holds the lock for writing.
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no other thread holds the lock.
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A condition that threads holding a [`Mutex`] wait for: [`std::sync::Condvar`] without poisoning.
#[derive(Debug, Default)]
pub struct Condvar(std::sync::Condvar);

impl Condvar {
    /// Creates a condition without waiting threads.
    pub const fn new() -> Self {
        Self(std::sync::Condvar::new())
    }

    /// Releases the lock, waits for a notification and takes the lock again. May return without a notification.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// Like [`Condvar::wait`], for at most the timeout.
    pub fn wait_timeout<'a, T>(&self, guard: MutexGuard<'a, T>, timeout: Duration) -> MutexGuard<'a, T> {
        self.0.wait_timeout(guard, timeout).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Wakes one waiting thread.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn panic_while(hold: impl FnOnce() + Send) {
        std::thread::scope(|scope| assert!(scope.spawn(hold).join().is_err()));
    }

    #[test]
    fn mutex_stays_usable_after_a_panic() {
        let mutex = Mutex::new(1);
        panic_while(|| {
            let mut guard = mutex.lock();
            *guard = 2;
            panic!("while the lock is held");
        });
        *mutex.lock() += 1;
        assert_eq!(mutex.into_inner(), 3);
    }

    #[test]
    fn rw_lock_stays_usable_after_a_panic() {
        let lock = RwLock::new(1);
        panic_while(|| {
            let mut guard = lock.write();
            *guard = 2;
            panic!("while the lock is held");
        });
        assert_eq!(*lock.read(), 2);
        *lock.write() += 1;
        assert_eq!(*lock.read(), 3);
    }

    #[test]
    fn condvar_wakes_a_waiting_thread() {
        let (mutex, changed) = (Mutex::new(false), Condvar::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                *mutex.lock() = true;
                changed.notify_all();
            });
            let mut guard = mutex.lock();
            while !*guard {
                guard = changed.wait(guard);
            }
        });
    }
}
