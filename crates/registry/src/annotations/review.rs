//! Admission of objects with annotations: validation, update rules, and the scheduler of pods.
//!
//! An API server that does not have the proposals' fields stores annotations unread. A webhook applies these rules instead:
//! those of the fields, and that a pod with annotations goes to a scheduler that reads them.

use api::annotations::{DEVICE_CONSTRAINTS, NODE_AFFINITY, TOLERATIONS};
use api::field::{Errors, Path};
use api::json::Value;
use api::well_known::DEFAULT_SCHEDULER;

use super::{has_any, merge, text};
use crate::core::pod::update;
use crate::document::same;
use crate::meta::IMMUTABLE;
use crate::strategy::Context;

/// An object that is created or changed.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The kind of the object.
    pub kind: &'a str,
    /// The object.
    pub object: &'a Value,
    /// The object that is replaced.
    pub old: Option<&'a Value>,
    /// Names of the schedulers that read annotations.
    pub schedulers: &'a [String],
    /// An object of the pod that has annotations: a resource claim, its template, or a volume.
    pub carrier: Option<Carrier<'a>>,
}

/// An object whose annotations decide where the pods that use it run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier<'a> {
    /// A resource claim, or the template of one.
    Claim(&'a str),
    /// A persistent volume.
    Volume(&'a str),
}

impl std::fmt::Display for Carrier<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Claim(name) => write!(f, "resource claim \"{name}\""),
            Self::Volume(name) => write!(f, "persistent volume \"{name}\""),
        }
    }
}

impl Request<'_> {
    /// Whether the request creates a pod that only some schedulers place as it asks, or gives such annotations to a pod that
    /// still waits for a scheduler.
    fn needs_scheduler(&self) -> bool {
        if self.kind != "Pod" {
            return false;
        }
        match self.old {
            None => self.carrier.is_some() || has_any("Pod", self.object),
            // Annotations stored before the webhook was installed must not prevent other changes. The tolerations of a bound
            // pod are read by the resolver, whichever scheduler has placed it.
            Some(old) => old.field("spec").text("nodeName").is_empty() && text::has_other(self.object, old),
        }
    }

    /// Returns the scheduler name to set: the first that reads annotations, if a new pod needs one and names the default one.
    #[must_use]
    pub fn assigned_scheduler(&self) -> Option<&str> {
        // The scheduler of an existing pod cannot be changed.
        if self.old.is_some() {
            return None;
        }
        let name = self.object.field("spec").text("schedulerName");
        let first = self.schedulers.first()?;
        let is_default = name.is_empty() || name == DEFAULT_SCHEDULER;
        (self.needs_scheduler() && is_default && !self.schedulers.iter().any(|it| it == name)).then_some(first)
    }

    /// Returns the errors of the object and of the change.
    #[must_use]
    pub fn validate(&self, context: &Context<'_>) -> Errors {
        let mut new = self.object.clone();
        let mut errors = Errors::new();
        if let Err(found) = merge(self.kind, &mut new, context) {
            errors.append(found);
        }
        if self.needs_scheduler() {
            self.validate_scheduler(&mut errors);
        }
        if let (Some(old), true) = (self.old, errors.is_empty()) {
            let mut before = old.clone();
            // Nothing was decided by an annotation that is invalid: it may be corrected.
            if merge(self.kind, &mut before, context).is_ok() {
                validate_change(self.kind, &new, &before, &mut errors);
            }
        }
        errors
    }

    fn validate_scheduler(&self, errors: &mut Errors) {
        let (spec, at) = (self.object.field("spec"), Path::new("spec"));
        if !spec.text("nodeName").is_empty() {
            let detail = "must not be set together with placement annotations, which a scheduler evaluates";
            errors.forbidden(at.child("nodeName"), detail);
        }
        let name = spec.text("schedulerName");
        if !self.schedulers.iter().any(|it| it == name) {
            let names: Vec<String> = self.schedulers.iter().map(|it| format!("\"{it}\"")).collect();
            let reason = match self.carrier {
                Some(carrier) => format!("{carrier} has placement annotations"),
                None => "the pod has placement annotations".to_owned(),
            };
            let detail = format!("{reason}, which only these schedulers read: {}", names.join(", "));
            errors.invalid(at.child("schedulerName"), name, detail);
        }
    }
}

/// The update rules of the fields, applied to merged objects, with paths of the annotations.
fn validate_change(kind: &str, new: &Value, old: &Value, errors: &mut Errors) {
    let at = Path::new("metadata.annotations");
    let (new_spec, old_spec) = (new.field("spec"), old.field("spec"));
    match kind {
        "Pod" => {
            update::validate_kept_tolerations(new_spec, old_spec, &at.key(TOLERATIONS), errors);
            let affinity = |spec: &Value| spec.field("affinity").field("nodeAffinity").clone();
            update::validate_affinity_change(
                &affinity(new_spec),
                &affinity(old_spec),
                !old_spec.list("schedulingGates").is_empty(),
                &at.key(NODE_AFFINITY),
                errors,
            );
        }
        "PersistentVolume" => {
            let (new, old) = (new_spec.field("nodeAffinity"), old_spec.field("nodeAffinity"));
            if !old.is_null() && !same(new, old) {
                errors.invalid(at.key(NODE_AFFINITY), Value::Null, IMMUTABLE);
            }
        }
        "ResourceClaim" if !same(new_spec.field("devices"), old_spec.field("devices")) => {
            errors.invalid(at.key(DEVICE_CONSTRAINTS), Value::Null, IMMUTABLE);
        }
        "ResourceClaimTemplate" if !same(new_spec.field("spec"), old_spec.field("spec")) => {
            let at = Path::new("spec.metadata.annotations");
            errors.invalid(at.key(DEVICE_CONSTRAINTS), Value::Null, IMMUTABLE);
        }
        _ => {}
    }
}
