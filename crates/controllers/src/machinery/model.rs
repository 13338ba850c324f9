//! A small world in which workload controllers are tested as a whole: their rules, queues, expectations and writes.
//!
//! `server` keeps objects like an API server, notifies watchers, and fails occasionally, before or after a
//! write. `world` simulates users, scheduler and kubelets by a seeded generator, in paused time, and restarts
//! the controllers. A model (in `workloads`) defines the disturbances, the invariants after every write of a
//! controller, and the final state. A failure names its seed.

mod server;
mod workloads;
mod world;

use std::sync::LazyLock;

use api::time::Timestamp;
use clock::Clock;

/// Start time of all worlds.
const BEGIN: Timestamp = Timestamp { seconds: 1_800_000_000, nanos: 0 };

static CLOCK: LazyLock<Clock> = LazyLock::new(|| Clock::starting_at(BEGIN));

/// The clock of all worlds.
pub(crate) fn clock() -> &'static Clock {
    &CLOCK
}

/// The time, which passes as the runtime's does: not at all where it is paused and all wait.
pub(crate) fn now() -> Timestamp {
    CLOCK.now()
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
