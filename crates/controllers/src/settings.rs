//! What the manager's flags say, beyond which controllers run.

use crate::node_lifecycle;

/// What controllers are told at the start. The defaults are Kubernetes'.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// How nodes are watched (`--node-monitor-period` and others).
    pub node_lifecycle: node_lifecycle::Settings,
}
