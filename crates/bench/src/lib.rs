//! Benchmarks that answer with ratios: our work and the peers' on the same input, in the same run.
//!
//! [`cases`] says what is evaluated, [`ours`] and [`peers`] how each engine does it, [`column`] and [`columns`] what printer columns do, [`curve`] what sets of
//! devices cost, [`harness`]
//! how long that takes, [`memory`] how much room, [`table`] how it is shown, and [`recorded`] what was measured elsewhere and can
//! only be quoted. [`scheduling`] plays workloads on the scheduler's core. Each file in `benches/` is headed by the question it answers. Without `--bench`
//! (so under `cargo test`) they check every engine's verdict instead of measuring.

pub mod cases;
pub mod column;
pub mod columns;
pub mod curve;
pub mod engine;
pub mod harness;
pub mod load;
pub mod memory;
pub mod ours;
pub mod peers;
pub mod recorded;
pub mod report;
pub mod scheduling;
pub mod table;
