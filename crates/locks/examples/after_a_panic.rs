//! A counter that stays readable after a thread has panicked while it held the lock.
#![allow(clippy::panic, clippy::arithmetic_side_effects, reason = "an example of a panic")]

use celplane_locks::Mutex;

fn main() {
    let counter = Mutex::new(0);
    let ended = std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let mut count = counter.lock();
            *count += 1;
            panic!("the lock is held");
        });
        worker.join()
    });
    assert!(ended.is_err());
    assert_eq!(*counter.lock(), 1);
    println!("count: {}", *counter.lock());
}
