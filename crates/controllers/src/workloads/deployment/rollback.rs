//! Rollback to an earlier revision by annotation, as in old versions. (`kubectl rollout undo` changes the
//! template itself.)

use api::apps::v1::Deployment;
use client::resources::ServedView as _;

use super::revision::NOT_COPIED;
use super::rule::Round;
use super::sets;
use crate::machinery::action::Action;
use crate::machinery::edit;

pub(super) const ANNOTATION: &str = "deprecated.deployment.rollback.to";

/// The revision to go back to, 0 for the one before.
pub(super) fn wanted(deployment: &Deployment) -> Option<i64> {
    deployment.metadata.annotations.get(ANNOTATION).and_then(|text| text.parse().ok())
}

impl Round<'_> {
    pub(super) fn roll_back(&mut self, revision: i64) {
        let revision = if revision == 0 { self.last_revision() } else { revision };
        let mut object = self.deployment.to_value();
        object.remove_at(&["metadata", "annotations", ANNOTATION]);
        let set = self.sets.all().find(|set| sets::revision(set) == Some(revision)).cloned();
        let name = self.deployment.metadata().name.clone();
        let event = match set {
            None if revision == 0 => {
                let message = "Unable to find last revision.".to_owned();
                Action::warning(&self.about, "DeploymentRollbackRevisionNotFound", message)
            }
            None => {
                let message = "Unable to find the revision to rollback to.".to_owned();
                Action::warning(&self.about, "DeploymentRollbackRevisionNotFound", message)
            }
            Some(set) => {
                let template = sets::without_hash(set.value());
                if template == sets::without_hash(self.deployment.value()) {
                    let message =
                        format!("The rollback revision contains the same template as current deployment \"{name}\"");
                    Action::warning(&self.about, "DeploymentRollbackTemplateUnchanged", message)
                } else {
                    object.set_or_remove_at(&["spec", "template"], template);
                    let copied = |key: &str| !NOT_COPIED.contains(&key);
                    let mut annotations = self.deployment.metadata().annotations.clone();
                    annotations.retain(|key, _| !copied(key) && key != ANNOTATION);
                    let others = set.metadata().annotations.iter().filter(|(key, _)| copied(key));
                    annotations.extend(others.map(|(key, value)| (key.clone(), value.clone())));
                    object.set_at(&["metadata", "annotations"], edit::document(&annotations));
                    let message = format!("Rolled back deployment \"{name}\" to revision {revision}");
                    Action::normal(&self.about, "DeploymentRollback", message)
                }
            }
        };
        self.decision.actions.push(Action::Update { resource: Deployment::RESOURCE, object });
        self.decision.actions.push(event);
    }

    /// The highest revision but one.
    fn last_revision(&self) -> i64 {
        let mut revisions: Vec<i64> = self.sets.all().filter_map(sets::revision).collect();
        revisions.sort_unstable();
        revisions.iter().rev().nth(1).copied().unwrap_or(0)
    }
}
