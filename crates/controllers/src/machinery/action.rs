//! Actions of controllers: the result of a rule.
//!
//! Actions carry whole documents, because a view has only some fields. They are data: tests compare them, the
//! [executor](crate::machinery::executor) performs them in order.

use api::core::v1::ObjectReference;
use api::json::{Text, Value};
use client::Resource;
use client::events::Severity;
use client::objects::{Deletion, Patch};

/// One thing to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Creates an object.
    Create {
        /// Kind of the object.
        resource: Resource,
        /// The whole document; its metadata names the namespace.
        object: Value,
    },
    /// Replaces an object, guarded by the version in the document.
    Update {
        /// Kind of the object.
        resource: Resource,
        /// The whole document.
        object: Value,
    },
    /// Replaces the status of an object, guarded by the version in the document.
    UpdateStatus {
        /// Kind of the object.
        resource: Resource,
        /// The whole document.
        object: Value,
    },
    /// Changes parts of an object.
    Patch {
        /// Kind of the object.
        resource: Resource,
        /// Empty if the kind has none.
        namespace: Text,
        /// Name of the object.
        name: Text,
        /// Subresource such as `status`; empty for the object itself.
        subresource: &'static str,
        /// Type of the patch.
        kind: Patch,
        /// The patch.
        patch: Value,
    },
    /// Deletes an object.
    Delete {
        /// Kind of the object.
        resource: Resource,
        /// Empty if the kind has none.
        namespace: Text,
        /// Name of the object.
        name: Text,
        /// UID of the object: the next decision waits until its deletion is observed. May be empty.
        uid: Text,
        /// Preconditions and propagation policy.
        how: Deletion,
    },
    /// Records an event.
    Event(Event),
}

/// An event to record.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Object of the event.
    pub about: ObjectReference,
    /// Severity of the event.
    pub severity: Severity,
    /// In CamelCase, fixed.
    pub reason: &'static str,
    /// Message of the event.
    pub message: String,
}

impl Action {
    /// Returns an event of type Normal.
    #[must_use]
    pub fn normal(about: &ObjectReference, reason: &'static str, message: String) -> Self {
        Self::Event(Event { about: about.clone(), severity: Severity::Normal, reason, message })
    }

    /// Returns an event of type Warning.
    #[must_use]
    pub fn warning(about: &ObjectReference, reason: &'static str, message: String) -> Self {
        Self::Event(Event { about: about.clone(), severity: Severity::Warning, reason, message })
    }
}

/// Decision of a rule.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decision {
    /// Actions to perform, in this order; the first failure ends it.
    pub actions: Vec<Action>,
    /// Delay after which the object is reconciled again even without a change.
    pub again: Option<std::time::Duration>,
}

impl Decision {
    /// Decides again after `delay`, or earlier if that was decided before.
    pub fn look_again(&mut self, delay: std::time::Duration) {
        self.again = Some(self.again.map_or(delay, |known| known.min(delay)));
    }
}
