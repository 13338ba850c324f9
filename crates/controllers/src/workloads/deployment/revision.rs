//! The ReplicaSet of the newest template: found, annotated, or made.

use api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet};
use api::json;
use api::json::{Text, Value};
use api::well_known::ANNOTATION_LAST_APPLIED;
use client::Document;
use client::resources::ServedView as _;

use super::progress;
use super::rule::Round;
use super::sets::{self, DESIRED, HASH_LABEL, MAX, REVISION, max_surge};
use crate::machinery::action::{Action, Decision};
use crate::machinery::ownership::Controller;
use crate::{machinery::edit, machinery::hash};

const HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// The history of revisions is kept this short.
const HISTORY_MAX: usize = 2000;
/// Annotations of the Deployment that its ReplicaSets do not get.
pub(super) const NOT_COPIED: [&str; 6] =
    [ANNOTATION_LAST_APPLIED, REVISION, HISTORY, DESIRED, MAX, super::rollback::ANNOTATION];
const NAME_MAX: usize = 253;

/// A ReplicaSet to be made.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NewSet {
    pub(super) name: String,
    pub(super) object: Value,
    replicas: i32,
    revision: String,
}

/// Result of the creation.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Outcome {
    Created,
    /// It existed already, created by an interrupted round.
    Existed,
    /// The name is taken by another object.
    Collided,
    Failed(String),
}

/// Whether a set is the deployment's own and has its template.
pub(super) fn is_same(deployment: &Document<Deployment>, set: &Document<ReplicaSet>) -> bool {
    let controls = set.metadata().controller().is_some_and(|owner| owner.uid == deployment.metadata().uid);
    controls && sets::without_hash(deployment.value()) == sets::without_hash(set.value())
}

impl Round<'_> {
    /// The revision that the newest template gets.
    fn next_revision(&self) -> String {
        let highest = self.sets.old.iter().filter_map(sets::revision).max().unwrap_or(0);
        highest.max(0).saturating_add(1).to_string()
    }

    /// Updates the annotations of the newest set and the deployment's revision. Returns whether it wrote.
    pub(super) fn sync_revision(&mut self) -> bool {
        let Some(set) = self.sets.new.clone() else { return false };
        let mut annotations = set.metadata().annotations.clone();
        self.annotate(&mut annotations, &self.next_revision(), true);
        let min_ready_seconds = self.deployment.spec.min_ready_seconds;
        if annotations != set.metadata().annotations || set.spec.min_ready_seconds != min_ready_seconds {
            let mut object = set.to_value();
            object.set_at(&["metadata", "annotations"], edit::document(&annotations));
            edit::set_count(&mut object, &["spec", "minReadySeconds"], min_ready_seconds);
            self.update_set(object);
            return true;
        }
        let mut status = self.deployment.status.clone();
        let is_watched = sets::progress_deadline(self.deployment).is_some();
        if is_watched && progress::condition(&status, progress::PROGRESSING).is_none() {
            let message = format!("Found new replica set \"{}\"", set.metadata().name);
            let found = "FoundNewReplicaSet";
            let condition = progress::new_condition(progress::PROGRESSING, "True", found, &message, self.seen.now);
            progress::set_condition(&mut status, condition);
        }
        let revision = annotations.get(REVISION).cloned().unwrap_or_default();
        self.write_revision(&revision, &status)
    }

    /// Writes revision and status if either has changed; returns whether it wrote.
    fn write_revision(&mut self, revision: &str, status: &DeploymentStatus) -> bool {
        let has = self.deployment.metadata().annotations.get(REVISION).map(Text::as_str);
        if has == Some(revision) && *status == self.deployment.status {
            return false;
        }
        let mut object = self.with_status(status);
        object.set_at(&["metadata", "annotations", REVISION], revision);
        self.update_status(object);
        true
    }

    /// Annotations as the newest set shall have them.
    fn annotate(&self, annotations: &mut api::meta::v1::StringMap, revision: &str, exists: bool) {
        for (key, value) in &self.deployment.metadata().annotations {
            if !NOT_COPIED.contains(&key.as_str()) {
                annotations.insert(key.clone(), value.clone());
            }
        }
        let before = annotations.get(REVISION).cloned();
        let number = |text: &str| text.parse::<i64>().ok();
        let old = match before.as_deref() {
            None | Some("") => Some(0),
            Some(text) => number(text),
        };
        // Kubernetes: a revision that is not a number stays, and so does the rest.
        let (Some(old), Some(new)) = (old, number(revision)) else { return };
        if old < new {
            annotations.insert(REVISION.into(), revision.into());
            if let Some(before) = before {
                remember(annotations, &before);
            }
        }
        if !exists {
            let wanted = self.wanted();
            let max = wanted.saturating_add(max_surge(self.deployment));
            annotations.insert(DESIRED.into(), wanted.to_string().into());
            annotations.insert(MAX.into(), max.to_string().into());
        }
    }

    /// The set that the newest template needs.
    pub(super) fn new_set(&self) -> NewSet {
        let deployment = self.deployment;
        let mut template = deployment.value().at(&["spec", "template"]).cloned().unwrap_or_default();
        let hash = hash::template(&template, deployment.status.collision_count);
        let name = set_name(&deployment.metadata().name, &hash);
        template.set_at(&["metadata", "labels", HASH_LABEL], hash.as_str());
        let mut selector = deployment.value().at(&["spec", "selector"]).cloned().unwrap_or_default();
        selector.set_at(&["matchLabels", HASH_LABEL], hash.as_str());
        let replicas = self.new_size(0);
        let revision = self.next_revision();
        let mut annotations = api::meta::v1::StringMap::new();
        self.annotate(&mut annotations, &revision, false);
        let controller = Controller { resource: &Deployment::RESOURCE, metadata: deployment.metadata() };
        let labels = template.at(&["metadata", "labels"]).cloned().unwrap_or_default();
        let namespace = deployment.metadata().namespace.clone();
        let mut object = json!({
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": (name.as_str()),
                "namespace": namespace,
                "labels": labels,
                "annotations": (edit::document(&annotations)),
                "ownerReferences": [(controller.reference())],
            },
            "spec": {"replicas": replicas, "selector": selector, "template": template},
        });
        edit::set_count(&mut object, &["spec", "minReadySeconds"], deployment.spec.min_ready_seconds);
        NewSet { name, object, replicas, revision }
    }

    /// Determines the steps after the creation of the new set, or its failure.
    pub(super) fn after_creation(&mut self, new: &NewSet, outcome: Outcome) -> Decision {
        let mut status = self.deployment.status.clone();
        let is_watched = sets::progress_deadline(self.deployment).is_some();
        let now = self.seen.now;
        let progressing = |status, reason, message: &str| {
            progress::new_condition(progress::PROGRESSING, status, reason, message, now)
        };
        match outcome {
            Outcome::Created => {
                if new.replicas > 0 {
                    let message = format!("Scaled up replica set {} from 0 to {}", new.name, new.replicas);
                    self.decision.actions.push(Action::normal(&self.about, "ScalingReplicaSet", message));
                }
                if is_watched {
                    let message = format!("Created new replica set \"{}\"", new.name);
                    progress::set_condition(&mut status, progressing("True", "NewReplicaSetCreated", &message));
                }
                self.write_revision(&new.revision, &status);
            }
            Outcome::Existed => {
                self.write_revision(&new.revision, &status);
            }
            Outcome::Collided => {
                status.collision_count = Some(status.collision_count.unwrap_or(0).saturating_add(1));
                self.report(status);
            }
            Outcome::Failed(error) => {
                let message = format!("Failed to create new replica set \"{}\": {error}", new.name);
                if is_watched {
                    progress::set_condition(&mut status, progressing("False", "ReplicaSetCreateError", &message));
                    self.report(status);
                }
                self.decision.actions.push(Action::warning(&self.about, "ReplicaSetCreateError", message));
            }
        }
        std::mem::take(&mut self.decision)
    }
}

/// Adds a revision to the history, of which the oldest are dropped when it gets too long.
fn remember(annotations: &mut api::meta::v1::StringMap, revision: &str) {
    let history = annotations.get(HISTORY).cloned().unwrap_or_default();
    let mut revisions: Vec<&str> = history.split(',').filter(|part| !part.is_empty()).collect();
    revisions.push(revision);
    while revisions.len() > 1 && revisions.join(",").len() > HISTORY_MAX {
        revisions.remove(0);
    }
    annotations.insert(HISTORY.into(), revisions.join(",").into());
}

fn set_name(deployment: &str, hash: &str) -> String {
    let room = NAME_MAX.saturating_sub(hash.len()).saturating_sub(1);
    // Names are ASCII, so that every place is a boundary.
    let kept = deployment.get(..room).unwrap_or(deployment);
    format!("{kept}-{hash}")
}
