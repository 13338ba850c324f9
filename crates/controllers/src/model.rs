//! A small world in which workload controllers are tested as a whole: their rules, queues, expectations and writes.
//!
//! `server` keeps objects as an API server does, tells watchers, and fails now and then, before or after a write.
//! `world` plays users, scheduler and kubelets by a seeded generator, in paused time, and ends and starts the
//! controllers anew. A model (in `workloads`) says what is disturbed, what must hold after every write of a
//! controller, and how it must all end. A failure names its seed.

mod server;
mod workloads;
mod world;

use std::sync::LazyLock;

use api::time::Timestamp;
use tokio::time::Instant;

/// When all worlds begin.
const BEGIN: Timestamp = Timestamp { seconds: 1_800_000_000, nanos: 0 };

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The time, which passes as the runtime's does: not at all where it is paused and all wait.
pub(crate) fn now() -> Timestamp {
    let start = *START;
    BEGIN.plus(Instant::now().saturating_duration_since(start))
}

/// Random numbers that a seed decides.
#[derive(Debug, Clone)]
struct Dice(u64);

impl Dice {
    /// A number below `sides`.
    fn below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mixed = (self.0 ^ (self.0 >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        (mixed >> 33) % sides
    }

    /// Whether something of this many percent happens.
    fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    fn number(&mut self, sides: i32) -> i32 {
        i32::try_from(self.below(u64::try_from(sides).unwrap())).unwrap()
    }
}
