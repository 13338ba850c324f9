//! Components that run beside the server in one process: their metrics and their health are asked for here.
//!
//! The server knows them by name only. Each has a registry of metrics of its own, at `/metrics/NAME`, and a check
//! `NAME` in `/readyz` and `/healthz`, so that one that fails is not silently missing.

use std::sync::{Arc, PoisonError, RwLock};

use telemetry::metrics::Registry;

/// What is wrong with a component, if anything.
pub type Failures = Box<dyn Fn() -> Vec<String> + Send + Sync>;

struct Component {
    name: &'static str,
    metrics: Arc<Registry>,
    failures: Failures,
}

/// The components that were named to the server.
#[derive(Default)]
pub(crate) struct Components(RwLock<Vec<Component>>);

impl Components {
    pub(super) fn add(&self, name: &'static str, metrics: Arc<Registry>, failures: Failures) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).push(Component { name, metrics, failures });
    }

    pub(super) fn metrics(&self, name: &str) -> Option<String> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.iter().find(|component| component.name == name).map(|component| component.metrics.text())
    }

    /// Each component's check, and whether it holds. What is wrong is logged: health checks do not tell.
    pub(super) fn checks(&self) -> Vec<(String, bool)> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let check = |component: &Component| {
            let failures = (component.failures)();
            for failure in &failures {
                tracing::debug!(component = component.name, err = %failure, "Component is not healthy");
            }
            (component.name.to_owned(), failures.is_empty())
        };
        all.iter().map(check).collect()
    }
}
