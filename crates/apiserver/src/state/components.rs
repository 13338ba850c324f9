//! Components that run in the server's process: their metrics and health checks.
//!
//! The server identifies them only by name. Each has a separate registry of metrics, at `/metrics/NAME`, and a
//! check `NAME` in `/readyz` and `/healthz`, so that a failure is visible.

use locks::RwLock;
use std::sync::Arc;

use telemetry::metrics::Registry;

/// Failed checks of a component.
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
    pub(crate) fn add(&self, name: &'static str, metrics: Arc<Registry>, failures: Failures) {
        self.0.write().push(Component { name, metrics, failures });
    }

    pub(crate) fn metrics(&self, name: &str) -> Option<String> {
        let all = self.0.read();
        all.iter().find(|component| component.name == name).map(|component| component.metrics.text())
    }

    /// Returns each component's check, and its result. Failures are logged: health checks do not publish them.
    pub(crate) fn checks(&self) -> Vec<(String, bool)> {
        let all = self.0.read();
        let check = |component: &Component| {
            let failures = (component.failures)();
            for why in &failures {
                tracing::debug!(component = component.name, err = %why, "Component is not healthy");
            }
            (component.name.to_owned(), failures.is_empty())
        };
        all.iter().map(check).collect()
    }
}
