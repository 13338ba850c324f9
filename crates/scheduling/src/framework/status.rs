//! What a plugin says against a pod, or against a pod on a node.

use std::borrow::Cow;

/// How final a rejection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// The pod cannot run there now; removing pods might help.
    Unschedulable,
    /// The pod cannot run there, and removing pods does not help.
    UnschedulableAndUnresolvable,
    /// The pod waits for something that is under way.
    Pending,
    /// Something is wrong; the attempt ends.
    Error,
}

/// A rejection with its reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// How final it is.
    pub code: Code,
    /// Why, in Kubernetes' words.
    pub reasons: Vec<Cow<'static, str>>,
    /// Who says so; filled in by the framework.
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

    /// It is about the pod, not a failure of the scheduler.
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

    /// The attempt cannot go on.
    pub fn error(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::Error, reason)
    }

    /// Said by a plugin.
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
