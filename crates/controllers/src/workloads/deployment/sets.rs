//! The ReplicaSets of a Deployment as the rule sees them, and the numbers that follow from the spec.

use std::sync::Arc;

use api::apps::v1::{Deployment, ReplicaSet, RollingUpdate};
use api::json::Value;
use client::Document;

/// Label that identifies the template of a pod.
pub(super) const HASH_LABEL: &str = "pod-template-hash";
pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
pub(super) const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
pub(super) const MAX: &str = "deployment.kubernetes.io/max-replicas";

pub(super) type Set = Arc<Document<ReplicaSet>>;

/// The set of the newest template, and the others, oldest first.
#[derive(Debug, Clone)]
pub(super) struct Sets {
    pub(super) new: Option<Set>,
    pub(super) old: Vec<Set>,
}

impl Sets {
    pub(super) fn of(deployment: &Document<Deployment>, sets: &[Set]) -> Self {
        let mut old = sets.to_vec();
        sort_by_age(&mut old);
        let template = without_hash(deployment.value());
        let index = old.iter().position(|set| without_hash(set.value()) == template);
        let new = index.map(|index| old.remove(index));
        Self { new, old }
    }

    /// All ReplicaSets, that of the newest template last.
    pub(super) fn all(&self) -> impl Iterator<Item = &Set> {
        self.old.iter().chain(&self.new)
    }
}

/// The pod template of a Deployment or ReplicaSet, without the label that only a ReplicaSet has.
pub(super) fn without_hash(object: &Value) -> Option<Value> {
    let mut template = object.at(&["spec", "template"])?.clone();
    template.remove_at(&["metadata", "labels", HASH_LABEL]);
    if template.object_at(&["metadata", "labels"]).is_some_and(api::json::Object::is_empty) {
        template.remove_at(&["metadata", "labels"]);
    }
    Some(template)
}

/// The oldest first; names decide among equals.
pub(super) fn sort_by_age(sets: &mut [Set]) {
    sets.sort_by(|left, right| age(left).cmp(&age(right)));
}

fn age(set: &Set) -> (Option<api::time::Timestamp>, &str) {
    (set.metadata().creation_timestamp, &set.metadata().name)
}

/// The largest first; among equals the newest or the oldest.
pub(super) fn sort_by_size(sets: &mut [Set], newest_first: bool) {
    sets.sort_by(|left, right| {
        let by_age = age(left).cmp(&age(right));
        size(right).cmp(&size(left)).then(if newest_first { by_age.reverse() } else { by_age })
    });
}

/// Desired number of replicas of a set.
pub(super) fn size(set: &ReplicaSet) -> i32 {
    set.spec.replicas.unwrap_or(1)
}

pub(super) fn sum<'a>(sets: impl Iterator<Item = &'a Set>, number: impl Fn(&ReplicaSet) -> i32) -> i32 {
    sets.map(|set| number(set)).fold(0, i32::saturating_add)
}

/// The revision that a set is annotated with; nothing if the annotation is not a number.
pub(super) fn revision(set: &Set) -> Option<i64> {
    match set.metadata().annotations.get(REVISION) {
        None => Some(0),
        Some(text) => text.parse().ok(),
    }
}

/// A number that an annotation holds.
pub(super) fn number_in(set: &ReplicaSet, annotation: &str) -> Option<i32> {
    let number: u32 = set.metadata.annotations.get(annotation)?.parse().ok()?;
    i32::try_from(number).ok()
}

pub(super) fn wanted(deployment: &Deployment) -> i32 {
    deployment.spec.replicas.unwrap_or(1)
}

pub(super) fn is_rolling(deployment: &Deployment) -> bool {
    deployment.spec.strategy.strategy_type == "RollingUpdate"
}

/// Maximum number of additional and of unavailable pods during a rollout.
fn fence_posts(deployment: &Deployment) -> (i32, i32) {
    let rolling = deployment.spec.strategy.rolling_update.clone().unwrap_or_default();
    let RollingUpdate { max_unavailable, max_surge } = rolling;
    let total = i64::from(wanted(deployment));
    let scaled = |value: Option<api::int_or_string::IntOrString>, up: bool| {
        let number = value.unwrap_or_default().scaled(total, up).unwrap_or(0);
        i32::try_from(number).unwrap_or(i32::MAX)
    };
    let (surge, unavailable) = (scaled(max_surge, true), scaled(max_unavailable, false));
    // Both may round to zero, and then nothing could ever move.
    if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable) }
}

pub(super) fn max_surge(deployment: &Deployment) -> i32 {
    if is_rolling(deployment) { fence_posts(deployment).0 } else { 0 }
}

pub(super) fn max_unavailable(deployment: &Deployment) -> i32 {
    let wanted = wanted(deployment);
    if !is_rolling(deployment) || wanted == 0 { 0 } else { fence_posts(deployment).1.min(wanted) }
}

/// Progress deadline of a rollout, if there is one.
pub(super) fn progress_deadline(deployment: &Deployment) -> Option<i32> {
    deployment.spec.progress_deadline_seconds.filter(|seconds| *seconds != i32::MAX)
}
