//! One round: from the observed state to actions.
//!
//! A round ends with the first write to the Deployment itself or to the annotations of its newest ReplicaSet,
//! because later steps build on it; the next round continues from there.

use std::collections::HashMap;
use std::sync::Arc;

use api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet};
use api::core::v1::{ObjectReference, Pod};
use api::json::{Text, Value};
use api::time::Timestamp;
use client::Document;
use client::resources::ServedView as _;

use super::progress;
use super::revision::NewSet;
use super::sets::{self, Set, Sets};
use crate::machinery::action::{Action, Decision};
use crate::machinery::edit;
use crate::machinery::ownership::Controller;

/// Input of a round.
pub(super) struct ObservedState {
    pub(super) deployment: Arc<Document<Deployment>>,
    /// The sets that the deployment controls.
    pub(super) sets: Vec<Set>,
    /// Their pods, by the uid of the set.
    pub(super) pods: HashMap<Text, Vec<Arc<Pod>>>,
    pub(super) now: Timestamp,
}

/// Result of a round.
#[derive(Debug)]
pub(super) enum Step {
    /// These actions.
    Do(Decision),
    /// A new ReplicaSet; the result of its creation determines the rest.
    Create(Box<NewSet>),
}

pub(super) struct Round<'a> {
    pub(super) seen: &'a ObservedState,
    pub(super) deployment: &'a Document<Deployment>,
    /// Newest template and the others, as seen.
    pub(super) sets: Sets,
    pub(super) about: ObjectReference,
    pub(super) decision: Decision,
}

impl<'a> Round<'a> {
    pub(super) fn new(seen: &'a ObservedState) -> Self {
        let deployment = &*seen.deployment;
        let about = Controller { resource: &Deployment::RESOURCE, metadata: deployment.metadata() }.about();
        let sets = Sets::of(deployment, &seen.sets);
        Self { seen, deployment, sets, about, decision: Decision::default() }
    }

    /// Desired number of replicas.
    pub(super) fn wanted(&self) -> i32 {
        sets::wanted(self.deployment)
    }

    fn finish(&mut self) -> Step {
        Step::Do(std::mem::take(&mut self.decision))
    }

    pub(super) fn decide(&mut self) -> Step {
        let spec = &self.deployment.spec;
        let selector = spec.selector.clone().unwrap_or_default();
        if selector.match_labels.is_empty() && selector.match_expressions.is_empty() {
            return self.refuse_to_select_all();
        }
        if self.deployment.metadata().is_deleting() {
            if !self.sync_revision() {
                self.report(progress::counted(self));
            }
            return self.finish();
        }
        if self.note_pause() {
            return self.finish();
        }
        if spec.paused {
            if !self.sync_revision() {
                self.scale_paused_or_resized();
                if super::rollback::wanted(self.deployment).is_none() {
                    self.clean_up();
                }
                self.report(progress::counted(self));
            }
            return self.finish();
        }
        if let Some(revision) = super::rollback::wanted(self.deployment) {
            return match self.revise() {
                Some(step) => step,
                None => {
                    self.roll_back(revision);
                    self.finish()
                }
            };
        }
        if self.sync_revision() {
            let wrote_itself = matches!(self.decision.actions.last(), Some(Action::UpdateStatus { .. }));
            if wrote_itself && sets::is_rolling(self.deployment) && !self.was_resized() {
                // Kubernetes: a template of before grows again in the same round, and the status waits for the next.
                self.grow_new();
            }
            return self.finish();
        }
        if self.was_resized() {
            self.scale_paused_or_resized();
            self.report(progress::counted(self));
            return self.finish();
        }
        if spec.strategy.strategy_type == "Recreate" { self.recreate() } else { self.roll() }
    }

    /// Finds or creates the newest set. `None` if it exists and is up to date.
    pub(super) fn revise(&mut self) -> Option<Step> {
        if self.sync_revision() {
            return Some(self.finish());
        }
        match self.sets.new {
            Some(_) => None,
            None => Some(Step::Create(Box::new(self.new_set()))),
        }
    }

    /// Reports the progress and ends the round.
    pub(super) fn report_rollout(&mut self) -> Step {
        let status = progress::rollout(self);
        if status == self.deployment.status {
            if let Some(again) = progress::next_check(self, &status) {
                self.decision.look_again(again);
            }
        } else {
            self.report(status);
        }
        self.finish()
    }

    /// Writes a status if it is new.
    pub(super) fn report(&mut self, status: DeploymentStatus) {
        if status != self.deployment.status {
            let object = self.with_status(&status);
            self.update_status(object);
        }
    }

    /// The deployment with another status.
    pub(super) fn with_status(&self, status: &DeploymentStatus) -> Value {
        let mut object = self.deployment.to_value();
        object.set_at(&["status"], edit::document(status));
        object
    }

    pub(super) fn update_status(&mut self, object: Value) {
        self.decision.actions.push(Action::UpdateStatus { resource: Deployment::RESOURCE, object });
    }

    pub(super) fn update_set(&mut self, object: Value) {
        self.decision.actions.push(Action::Update { resource: ReplicaSet::RESOURCE, object });
    }

    fn refuse_to_select_all(&mut self) -> Step {
        let message = "This deployment is selecting all pods. A non-empty selector is required.";
        self.decision.actions.push(Action::warning(&self.about, "SelectingAll", message.to_owned()));
        let generation = self.deployment.metadata().generation;
        if self.deployment.status.observed_generation < generation {
            let status = DeploymentStatus { observed_generation: generation, ..self.deployment.status.clone() };
            self.report(status);
        }
        self.finish()
    }

    /// Records in the condition that progress is not monitored while the deployment is paused. Returns whether
    /// it wrote.
    fn note_pause(&mut self) -> bool {
        if sets::progress_deadline(self.deployment).is_none() {
            return false;
        }
        let reason = progress::condition(&self.deployment.status, progress::PROGRESSING).map(|it| it.reason.as_str());
        if reason == Some(progress::TIMED_OUT) {
            return false;
        }
        let was_paused = reason == Some("DeploymentPaused");
        let (reason, message) = match (self.deployment.spec.paused, was_paused) {
            (true, false) => ("DeploymentPaused", "Deployment is paused"),
            (false, true) => ("DeploymentResumed", "Deployment is resumed"),
            _ => return false,
        };
        let mut status = self.deployment.status.clone();
        let condition = progress::new_condition(progress::PROGRESSING, "Unknown", reason, message, self.seen.now);
        progress::set_condition(&mut status, condition);
        self.report(status);
        true
    }
}
