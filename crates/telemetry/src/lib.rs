//! Logs and metrics in the form that Kubernetes' components have them.
//!
//! [`logs`] turns `tracing` events into text or JSON lines; [`metrics`] keeps counters, gauges and histograms
//! and writes them as Prometheus text; [`features`] exports the enabled gates. The calling component defines
//! its messages and metrics.

pub mod features;
pub mod logs;
pub mod metrics;
