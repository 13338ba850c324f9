//! Benchmarks that answer with ratios: our work and the peers' on the same input, in the same run.
//!
//! [`cases`] defines the workloads, [`ours`] and [`peers`] run them on each engine, [`column`] and [`columns`]
//! measure printer columns, [`curve`] measures the cost of device sets, [`harness`] measures time, [`memory`]
//! measures memory, [`table`] prints, and [`recorded`] holds figures that were measured elsewhere.
//! [`scheduling`] runs workloads on the scheduler's core. Each file in `benches/` starts with the question that
//! it answers. Without `--bench` (so under `cargo test`) they check every engine's verdict instead of
//! measuring.

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
