//! Replacement of old pods by new ones.

use api::apps::v1::ReplicaSet;
use client::objects::Deletion;
use client::resources::ServedView as _;

use super::progress;
use super::rule::{Round, Step};
use super::sets::{self, Set, max_unavailable, size, sum};
use crate::machinery::action::Action;

impl Round<'_> {
    /// `RollingUpdate`: a few at a time, within the bounds of surge and unavailability.
    pub(super) fn roll(&mut self) -> Step {
        if let Some(step) = self.revise() {
            return step;
        }
        if self.grow_new() || self.shrink_old() {
            return self.report_rollout();
        }
        if progress::is_complete(self.deployment, &self.deployment.status) {
            self.clean_up();
        }
        self.report_rollout()
    }

    /// `Recreate`: the old ones end before the new ones begin.
    pub(super) fn recreate(&mut self) -> Step {
        let active: Vec<Set> = self.sets.old.iter().filter(|set| size(set) > 0).cloned().collect();
        let mut scaled = false;
        for set in &active {
            scaled |= self.resize(set, 0);
        }
        if scaled || self.old_pods_run() {
            return self.report_rollout();
        }
        if let Some(step) = self.revise() {
            return step;
        }
        if let Some(new) = self.sets.new.clone() {
            self.resize(&new, self.wanted());
        }
        if progress::is_complete(self.deployment, &self.deployment.status) {
            self.clean_up();
        }
        self.report_rollout()
    }

    /// Whether pods of other templates have not ended.
    fn old_pods_run(&self) -> bool {
        if sum(self.sets.old.iter(), |set| set.status.replicas) > 0 {
            return true;
        }
        let new = self.sets.new.as_ref().map(|set| &set.metadata().uid);
        let old = self.seen.pods.iter().filter(|(uid, _)| Some(*uid) != new);
        old.flat_map(|(_, pods)| pods).any(|pod| !pod.is_terminal())
    }

    pub(super) fn grow_new(&mut self) -> bool {
        let Some(new) = self.sets.new.clone() else { return false };
        let (has, wanted) = (size(&new), self.wanted());
        if has == wanted {
            return false;
        }
        let size = if has > wanted { wanted } else { self.new_size(has) };
        self.resize(&new, size)
    }

    /// Deletes old pods: first unavailable ones, then as many as may be unavailable; returns whether a size
    /// changed.
    fn shrink_old(&mut self) -> bool {
        let Some(new) = self.sets.new.clone() else { return false };
        let old: Vec<Set> = self.sets.old.iter().filter(|set| size(set) > 0).cloned().collect();
        // The status of a set that just became smaller counts pods that are about to go. With them the sum would allow more
        // than it should; the next status brings the next round.
        let is_behind = |set: &Set| set.status.available_replicas > size(set);
        if old.is_empty() || is_behind(&new) || old.iter().any(is_behind) {
            return false;
        }
        let min_available = self.wanted().saturating_sub(max_unavailable(self.deployment));
        let new_unavailable = size(&new).saturating_sub(new.status.available_replicas);
        let total = sum(self.sets.all(), size);
        let most = total.saturating_sub(min_available).saturating_sub(new_unavailable);
        if most <= 0 {
            return false;
        }
        let mut sizes: Vec<(Set, i32)> = old.iter().map(|set| (set.clone(), size(set))).collect();
        let mut rest = most;
        let unavailable = |set: &Set| size(set).saturating_sub(set.status.available_replicas);
        let cleaned = self.shrink(&mut sizes, &mut rest, |set, _| unavailable(set));
        let available = sum(old.iter().chain([&new]), |set| set.status.available_replicas);
        let mut rest = available.saturating_sub(min_available);
        self.shrink(&mut sizes, &mut rest, |_, size| size) || cleaned
    }

    /// Scales sets down, the oldest first, by at most `rest` in total. Returns whether a size changed.
    fn shrink(&mut self, sizes: &mut [(Set, i32)], rest: &mut i32, most: impl Fn(&Set, i32) -> i32) -> bool {
        let mut changed = false;
        for (set, size) in sizes {
            let by = most(set, *size).min(*rest).max(0);
            if by > 0 {
                let old = std::mem::replace(size, size.saturating_sub(by));
                changed |= self.resize_from(set, old, *size);
                *rest = rest.saturating_sub(by);
            }
        }
        changed
    }

    /// Deletes the oldest sets without replicas beyond the limit of the history.
    pub(super) fn clean_up(&mut self) {
        let Some(limit) = self.deployment.spec.revision_history_limit.filter(|limit| *limit != i32::MAX) else {
            return;
        };
        let mut old: Vec<Set> = self.sets.old.iter().filter(|set| !set.metadata().is_deleting()).cloned().collect();
        let surplus = old.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        // Stable: sets of one revision stay sorted by age.
        old.sort_by_key(sets::revision);
        for set in old.iter().take(surplus) {
            let metadata = set.metadata();
            let is_idle =
                set.status.replicas == 0 && size(set) == 0 && metadata.generation <= set.status.observed_generation;
            if is_idle {
                self.decision.actions.push(Action::Delete {
                    resource: ReplicaSet::RESOURCE,
                    namespace: metadata.namespace.clone(),
                    name: metadata.name.clone(),
                    uid: metadata.uid.clone(),
                    how: Deletion::default(),
                });
            }
        }
    }
}
