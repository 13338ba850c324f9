//! Benchmarks that answer with ratios: our work and the peers' on the same input, in the same run.
//!
//! [`cases`] defines the workloads, [`ours`] runs them on our engine (the crate `celplane-peers` on others), [`column`] and [`columns`]
//! measure printer columns, [`curve`] measures the cost of device sets, [`harness`] measures time, [`memory`]
//! measures memory, [`table`] prints, and [`recorded`] holds figures that were measured elsewhere.
//! [`comparison`] measures Celplane beside Kubernetes and writes a report. [`scheduling`] runs workloads on the scheduler's core. Each file in `benches/` starts with the question that
//! it answers. Without `--bench` (so under `cargo test`) they check every engine's verdict instead of
//! measuring.

pub mod cases;
pub mod column;
pub mod columns;
pub mod comparison;
pub mod curve;
pub mod engine;
pub mod harness;
pub mod load;
pub mod memory;
pub mod ours;
pub mod recorded;
pub mod report;
pub mod scheduling;
pub mod table;
