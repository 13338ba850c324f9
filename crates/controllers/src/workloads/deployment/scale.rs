//! Sizes of ReplicaSets: one at a time, or several in proportion when the Deployment is resized in mid-rollout.

use std::collections::HashMap;

use super::rule::Round;
use super::sets::{self, DESIRED, MAX, Set, is_rolling, max_surge, size, sum};
use crate::machinery::action::Action;

impl Round<'_> {
    /// Whether the wanted number changed since the sets were made or sized.
    pub(super) fn was_resized(&self) -> bool {
        let wanted = self.wanted();
        let mut active = self.sets.all().filter(|set| size(set) > 0);
        active.any(|set| sets::number_in(set, DESIRED).is_some_and(|desired| desired != wanted))
    }

    /// Scales a set, with an event. Returns whether the size changed.
    pub(super) fn resize(&mut self, set: &Set, new: i32) -> bool {
        let old = size(set);
        old != new && self.resize_from(set, old, new)
    }

    /// Scales a set from `old`, which this round may have set, and updates the totals of the round.
    pub(super) fn resize_from(&mut self, set: &Set, old: i32, new: i32) -> bool {
        let wanted = self.wanted();
        let max = wanted.saturating_add(max_surge(self.deployment)).to_string();
        let wanted = wanted.to_string();
        let annotations = &set.metadata().annotations;
        let is_annotated = |key: &str, value: &str| annotations.get(key).is_some_and(|it| it == value);
        if old == new && is_annotated(DESIRED, &wanted) && is_annotated(MAX, &max) {
            return false;
        }
        let mut object = set.to_value();
        object.set_at(&["spec", "replicas"], new);
        object.set_at(&["metadata", "annotations", DESIRED], wanted);
        object.set_at(&["metadata", "annotations", MAX], max);
        self.update_set(object);
        if old != new {
            let direction = if old < new { "up" } else { "down" };
            let name = &set.metadata().name;
            let message = format!("Scaled {direction} replica set {name} from {old} to {new}");
            self.decision.actions.push(Action::normal(&self.about, "ScalingReplicaSet", message));
        }
        old != new
    }

    /// The size of the newest set, now `current`, that leaves the total within bounds.
    pub(super) fn new_size(&self, current: i32) -> i32 {
        let wanted = self.wanted();
        if !is_rolling(self.deployment) {
            return wanted;
        }
        let total = sum(self.sets.all(), size);
        let most = wanted.saturating_add(max_surge_asked(self.deployment));
        if total >= most {
            return current;
        }
        let room = most.saturating_sub(total).min(wanted.saturating_sub(current));
        current.saturating_add(room)
    }

    /// Sizes the sets of a deployment that is paused or was resized.
    pub(super) fn scale_paused_or_resized(&mut self) {
        let wanted = self.wanted();
        if let Some(set) = self.active_or_latest() {
            self.resize(&set, wanted);
            return;
        }
        if self.is_saturated() {
            let old: Vec<Set> = self.sets.old.iter().filter(|set| size(set) > 0).cloned().collect();
            for set in &old {
                self.resize(set, 0);
            }
            return;
        }
        if is_rolling(self.deployment) {
            self.scale_in_proportion();
        }
    }

    /// The only set with replicas, or the newest if none has any.
    fn active_or_latest(&self) -> Option<Set> {
        let active: Vec<&Set> = self.sets.all().filter(|set| size(set) > 0).collect();
        match active.as_slice() {
            [] => self.sets.new.as_ref().or(self.sets.old.last()).cloned(),
            [only] => Some((*only).clone()),
            _ => None,
        }
    }

    /// Whether the newest set alone has the desired size, and is available.
    fn is_saturated(&self) -> bool {
        let wanted = self.wanted();
        self.sets.new.as_ref().is_some_and(|set| {
            let desired = sets::number_in(set, DESIRED);
            size(set) == wanted && desired == Some(wanted) && set.status.available_replicas == wanted
        })
    }

    /// Spreads the difference over the sets by their sizes, so that the risk stays spread.
    fn scale_in_proportion(&mut self) {
        let mut active: Vec<Set> = self.sets.all().filter(|set| size(set) > 0).cloned().collect();
        let wanted = self.wanted();
        let allowed = if wanted > 0 { wanted.saturating_add(max_surge(self.deployment)) } else { 0 };
        let to_add = allowed.saturating_sub(sum(active.iter(), size));
        if to_add != 0 {
            sets::sort_by_size(&mut active, to_add > 0);
        }
        let mut added = 0_i32;
        let mut sizes: HashMap<&str, i32> = HashMap::new();
        for set in &active {
            let share = if to_add == 0 { 0 } else { self.share(set, to_add, added) };
            sizes.insert(&set.metadata().name, size(set).saturating_add(share));
            added = added.saturating_add(share);
        }
        for (index, set) in active.iter().enumerate() {
            let mut new = sizes.get(set.metadata().name.as_str()).copied().unwrap_or(0);
            if index == 0 && to_add != 0 {
                // The rounding remainder is added to the largest set.
                new = new.saturating_add(to_add.saturating_sub(added)).max(0);
            }
            self.resize_from(set, size(set), new);
        }
    }

    /// The part of the difference that a set takes, of which `added` is given out.
    fn share(&self, set: &Set, to_add: i32, added: i32) -> i32 {
        if size(set) == 0 || to_add == added {
            return 0;
        }
        let rest = to_add.saturating_sub(added);
        let fraction = self.fraction(set);
        if to_add > 0 { fraction.min(rest) } else { fraction.max(rest) }
    }

    /// Returns the growth of a set that keeps its share of the total.
    fn fraction(&self, set: &Set) -> i32 {
        let wanted = self.wanted();
        let own = size(set);
        if wanted == 0 {
            return own.saturating_neg();
        }
        let max = wanted.saturating_add(max_surge(self.deployment));
        let before = sets::number_in(set, MAX).filter(|before| *before != 0);
        let before = before.unwrap_or(self.deployment.status.replicas);
        if before == 0 {
            return 0;
        }
        let exact = f64::from(own) * f64::from(max) / f64::from(before);
        // Half rounds away from zero, in Go as here; all numbers are far below the limits of 32 bits.
        #[expect(clippy::cast_possible_truncation, reason = "a cast from float saturates")]
        let rounded = exact.round() as i32;
        rounded.saturating_sub(own)
    }
}

/// The surge as it is written, even where both bounds round to zero.
fn max_surge_asked(deployment: &api::apps::v1::Deployment) -> i32 {
    let surge = deployment.spec.strategy.rolling_update.as_ref().and_then(|rolling| rolling.max_surge.clone());
    let number = surge.unwrap_or_default().scaled(i64::from(sets::wanted(deployment)), true).unwrap_or(0);
    i32::try_from(number).unwrap_or(i32::MAX)
}
