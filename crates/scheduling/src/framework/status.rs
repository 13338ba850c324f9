//! Rejection of a pod, or of a pod on a node, by a plugin.

use std::borrow::Cow;

/// Finality of a rejection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// The pod cannot run there now; removing pods might help.
    Unschedulable,
    /// The pod cannot run there, and removing pods does not help.
    UnschedulableAndUnresolvable,
    /// The pod waits for an operation in progress.
    Pending,
    /// An error that ends the attempt.
    Error,
}

/// A rejection with its reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Finality of the rejection.
    pub code: Code,
    /// Reasons in Kubernetes' words.
    pub reasons: Vec<Cow<'static, str>>,
    /// Plugin that rejected; set by the framework.
    pub plugin: &'static str,
}

impl Code {
    /// The name in recorded data.
    pub fn name(self) -> &'static str {
        match self {
            Code::Unschedulable => "Unschedulable",
            Code::UnschedulableAndUnresolvable => "UnschedulableAndUnresolvable",
            Code::Pending => "Pending",
            Code::Error => "Error",
        }
    }

    /// Whether it concerns the pod and is not a failure of the scheduler.
    pub fn is_rejection(self) -> bool {
        self != Code::Error
    }
}

impl Status {
    /// A rejection for one reason.
    pub fn new(code: Code, reason: impl Into<Cow<'static, str>>) -> Self {
        Status { code, reasons: vec![reason.into()], plugin: "" }
    }

    /// Removing pods might help.
    pub fn unschedulable(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::Unschedulable, reason)
    }

    /// Removing pods does not help.
    pub fn unresolvable(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::UnschedulableAndUnresolvable, reason)
    }

    /// An error that ends the attempt.
    pub fn error(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::Error, reason)
    }

    /// Sets the plugin.
    #[must_use]
    pub fn by(mut self, plugin: &'static str) -> Self {
        if self.plugin.is_empty() {
            self.plugin = plugin;
        }
        self
    }

    /// All reasons in one text.
    pub fn message(&self) -> String {
        self.reasons.join(", ")
    }
}
