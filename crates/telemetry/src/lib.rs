//! Logs and metrics in the form that Kubernetes' components have them.
//!
//! [`logs`] turns `tracing` events into text or JSON lines; [`metrics`] keeps counters, gauges and histograms and writes
//! them as Prometheus text; [`features`] says which gates are on. Which component speaks, and what it counts, is the caller's business.

pub mod features;
pub mod logs;
pub mod metrics;
