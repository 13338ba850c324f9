//! Counters of a compile cache as metrics show them.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use matching::CompileCache;

#[test]
fn compile_time_is_counted_in_seconds() {
    let readings = AtomicU32::new(0);
    // Each reading of the clock is a quarter of a second later.
    let clock = Arc::new(move || Duration::from_millis(250) * readings.fetch_add(1, Ordering::Relaxed));
    let cache = CompileCache::new(NonZeroUsize::new(4).unwrap(), clock).unwrap();
    cache.toleration("taint.key == 'a'").unwrap();
    let value = |name: &str| {
        let label = Some(("field", "toleration"));
        cache.samples().into_iter().find(|it| it.0 == name && it.2 == label).map(|it| it.3)
    };
    assert_eq!((value("compilations_total"), value("compilation_seconds_total")), (Some(1.0), Some(0.25)));
}
