//! What a controller can do: the result of its rule.
//!
//! Actions carry whole documents, because a view knows only some fields. They are data: tests compare them, the
//! [executor](crate::executor) performs them in order.

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
        /// Of which kind.
        resource: Resource,
        /// The whole document; its metadata names the namespace.
        object: Value,
    },
    /// Replaces an object, guarded by the version in the document.
    Update {
        /// Of which kind.
        resource: Resource,
        /// The whole document.
        object: Value,
    },
    /// Replaces the status of an object, guarded by the version in the document.
    UpdateStatus {
        /// Of which kind.
        resource: Resource,
        /// The whole document.
        object: Value,
    },
    /// Changes parts of an object.
    Patch {
        /// Of which kind.
        resource: Resource,
        /// Empty if the kind has none.
        namespace: Text,
        /// Which object.
        name: Text,
        /// Such as `status`; empty for the object itself.
        subresource: &'static str,
        /// How the patch is to be read.
        kind: Patch,
        /// The patch.
        patch: Value,
    },
    /// Deletes an object.
    Delete {
        /// Of which kind.
        resource: Resource,
        /// Empty if the kind has none.
        namespace: Text,
        /// Which object.
        name: Text,
        /// Its uid: the next decision waits until it is seen to end. May be empty.
        uid: Text,
        /// On which conditions, and what happens to what it owns.
        how: Deletion,
    },
    /// Tells users what happened.
    Event(Event),
}

/// What is told to users, through an Event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// What it is about.
    pub about: ObjectReference,
    /// How much it matters.
    pub severity: Severity,
    /// In CamelCase, fixed.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
}

impl Action {
    /// Tells that all is as it should be.
    #[must_use]
    pub fn normal(about: &ObjectReference, reason: &'static str, message: String) -> Self {
        Self::Event(Event { about: about.clone(), severity: Severity::Normal, reason, message })
    }

    /// Tells that somebody may have to act.
    #[must_use]
    pub fn warning(about: &ObjectReference, reason: &'static str, message: String) -> Self {
        Self::Event(Event { about: about.clone(), severity: Severity::Warning, reason, message })
    }
}

/// What a rule has decided.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decision {
    /// What is to be done, in this order; the first failure ends it.
    pub actions: Vec<Action>,
    /// When to decide again though nothing has changed.
    pub again: Option<std::time::Duration>,
}

impl Decision {
    /// Decides again after `delay`, or earlier if that was decided before.
    pub fn look_again(&mut self, delay: std::time::Duration) {
        self.again = Some(self.again.map_or(delay, |known| known.min(delay)));
    }
}
