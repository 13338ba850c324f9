//! Events about pods and their containers, under the node's name.

use api::core::v1::{ObjectReference, Pod};
use api::json::Value;
use client::events::{Recorder, Severity, reference};

use super::manifest::Kind;

/// Writes events.
pub(super) struct Events {
    pub(super) recorder: Recorder,
}

impl Events {
    /// An event about a pod as a whole.
    pub(super) fn pod(&self, pod: &Pod, severity: Severity, reason: &str, message: &str) {
        self.recorder.event(reference(pod), severity, reason, message);
    }

    /// An event about a container.
    pub(super) fn container(
        &self,
        pod: &Pod,
        kind: Kind,
        container: &Value,
        severity: Severity,
        reason: &str,
        message: &str,
    ) {
        let field_path = format!("spec.{}{{{}}}", kind.field(), container.text("name")).into();
        let about = ObjectReference { field_path, ..reference(pod) };
        self.recorder.event(about, severity, reason, message);
    }
}
