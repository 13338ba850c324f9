//! Limits of change: stabilization windows, and policies per period.
//!
//! An autoscaler without `behavior` may double its replicas at a time, or have four, and removes none that were recommended
//! within the window. Follows `normalizeDesiredReplicas` and `normalizeDesiredReplicasWithBehaviors` of Kubernetes'
//! `pkg/controller/podautoscaler/horizontal.go`.

use std::time::Duration;

use api::autoscaling::v2::{HorizontalPodAutoscalerBehavior, ScalingPolicy, ScalingRules};
use api::time::Timestamp;

/// Recommendations and changes that are kept at most; with more, the oldest are forgotten.
const KEPT_MAX: usize = 1000;

const WITHIN: (&str, &str) = ("DesiredWithinRange", "the desired count is within the acceptable range");
const UP_LIMIT: (&str, &str) =
    ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate");
const DOWN_LIMIT: (&str, &str) =
    ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate");
const TOO_MANY: (&str, &str) = ("TooManyReplicas", "the desired replica count is more than the maximum replica count");
const TOO_FEW: (&str, &str) = ("TooFewReplicas", "the desired replica count is less than the minimum replica count");
const STABLE: (&str, &str) = ("ReadyForNewScale", "recommended size matches current size");
const UP_STABILIZED: (&str, &str) = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
);
const DOWN_STABILIZED: (&str, &str) = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
);

/// Recent recommendations and changes of one autoscaler.
#[derive(Debug, Default)]
pub(super) struct History {
    recommendations: Vec<(i32, Timestamp)>,
    added: Vec<(i32, Timestamp)>,
    removed: Vec<(i32, Timestamp)>,
}

/// Bounds and present number of replicas.
#[derive(Debug, Clone, Copy)]
pub(super) struct Range {
    pub(super) min: i32,
    pub(super) max: i32,
    pub(super) current: i32,
}

/// A number of replicas within all limits, and the reasons and messages of two conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LimitedReplicas {
    pub(super) replicas: i32,
    /// For `AbleToScale`.
    pub(super) stabilized: (&'static str, &'static str),
    /// For `ScalingLimited`.
    pub(super) limit: (&'static str, &'static str),
    /// The status of `ScalingLimited`.
    pub(super) is_limited: bool,
}

impl History {
    /// Records the present number as the first recommendation: a restart removes nothing within the window.
    pub(super) fn begin(&mut self, current: i32, now: Timestamp) {
        if self.recommendations.is_empty() {
            self.recommendations.push((current, now));
        }
    }

    /// Brings a recommendation within the limits, and records it. `window` is the default for removing replicas.
    pub(super) fn limit(
        &mut self,
        behavior: Option<&HorizontalPodAutoscalerBehavior>,
        desired: i32,
        range: Range,
        window: Duration,
        now: Timestamp,
    ) -> LimitedReplicas {
        let (up, down) = match behavior {
            None => {
                let stabilized = self.stabilize(desired, window, now);
                let why = if stabilized == desired { STABLE } else { DOWN_STABILIZED };
                return finish(stabilized, why, plain_limit(stabilized, range));
            }
            Some(behavior) => (rules_up(behavior), rules_down(behavior)),
        };
        let seconds = |rules: &ScalingRules| rules.stabilization_window_seconds.and_then(|it| u64::try_from(it).ok());
        let up_window = Duration::from_secs(seconds(&up).unwrap_or(0));
        let down_window = seconds(&down).map_or(window, Duration::from_secs);
        let stabilized = self.stabilize_both(desired, range.current, (up_window, down_window), now);
        let why = match stabilized == desired {
            true => STABLE,
            false if desired >= range.current => UP_STABILIZED,
            false => DOWN_STABILIZED,
        };
        let changes = (self.added.as_slice(), self.removed.as_slice());
        finish(stabilized, why, rate_limit(stabilized, range, (&up, &down), changes, now))
    }

    /// Records a change, for policies.
    pub(super) fn changed(
        &mut self,
        behavior: Option<&HorizontalPodAutoscalerBehavior>,
        before: i32,
        after: i32,
        now: Timestamp,
    ) {
        let Some(behavior) = behavior else { return };
        let (rules, changes) = match after > before {
            true => (rules_up(behavior), &mut self.added),
            false => (rules_down(behavior), &mut self.removed),
        };
        let longest = rules.policies.iter().map(period).max().unwrap_or_default();
        changes.retain(|(_, at)| at.plus(longest) >= now);
        push(changes, after.saturating_sub(before).saturating_abs(), now);
    }

    fn stabilize(&mut self, desired: i32, window: Duration, now: Timestamp) -> i32 {
        self.recommendations.retain(|(_, at)| at.plus(window) >= now);
        let highest = self.recommendations.iter().map(|it| it.0).max().unwrap_or(desired).max(desired);
        push(&mut self.recommendations, desired, now);
        highest
    }

    fn stabilize_both(&mut self, desired: i32, current: i32, windows: (Duration, Duration), now: Timestamp) -> i32 {
        let (up, down) = windows;
        let recent = |window: Duration| {
            let recent = self.recommendations.iter().filter(move |(_, at)| at.plus(window) > now);
            recent.map(|(count, _)| *count)
        };
        let lowest = recent(up).fold(desired, i32::min);
        let highest = recent(down).fold(desired, i32::max);
        let stabilized = current.max(lowest).min(highest);
        self.recommendations.retain(|(_, at)| at.plus(up.max(down)) >= now);
        push(&mut self.recommendations, desired, now);
        stabilized
    }
}

fn push(list: &mut Vec<(i32, Timestamp)>, count: i32, now: Timestamp) {
    if list.len() >= KEPT_MAX {
        list.remove(0);
    }
    list.push((count, now));
}

type Reason = (&'static str, &'static str);

/// Numbers of added and of removed replicas, with their times.
type Changes<'a> = (&'a [(i32, Timestamp)], &'a [(i32, Timestamp)]);

fn finish(stabilized: i32, why: Reason, (replicas, limit): (i32, Reason)) -> LimitedReplicas {
    LimitedReplicas { replicas, stabilized: why, limit, is_limited: replicas != stabilized }
}

fn plain_limit(desired: i32, range: Range) -> (i32, Reason) {
    let fastest = range.current.saturating_mul(2).max(4);
    let (most, why) = if range.max > fastest { (fastest, UP_LIMIT) } else { (range.max, TOO_MANY) };
    if desired < range.min {
        (range.min, TOO_FEW)
    } else if desired > most {
        (most, why)
    } else {
        (desired, WITHIN)
    }
}

fn rate_limit(
    desired: i32,
    range: Range,
    (up, down): (&ScalingRules, &ScalingRules),
    changes: Changes<'_>,
    now: Timestamp,
) -> (i32, Reason) {
    if desired > range.current {
        let fastest = up_limit(range.current, up, changes, now).max(range.current);
        let (most, why) = if range.max > fastest { (fastest, UP_LIMIT) } else { (range.max, TOO_MANY) };
        if desired > most {
            return (most, why);
        }
    } else if desired < range.current {
        let fastest = down_limit(range.current, down, changes, now).min(range.current);
        let (least, why) = if range.min < fastest { (fastest, DOWN_LIMIT) } else { (range.min, TOO_FEW) };
        if desired < least {
            return (least, why);
        }
    }
    (desired, WITHIN)
}

/// The largest number of replicas that the policies allow.
fn up_limit(current: i32, rules: &ScalingRules, changes: Changes<'_>, now: Timestamp) -> i32 {
    let proposed = rules.policies.iter().map(|policy| {
        let start = at_start(current, policy, changes, now);
        match policy.policy_type == "Percent" {
            // Rounded up: otherwise few replicas would never become more.
            true => rounded((f64::from(start) * (1.0 + f64::from(policy.value) / 100.0)).ceil()),
            false => start.saturating_add(policy.value),
        }
    });
    match rules.select_policy.as_deref() {
        Some("Disabled") => current,
        Some("Min") => proposed.min().unwrap_or(i32::MAX),
        _ => proposed.max().unwrap_or(i32::MIN),
    }
}

/// The smallest number of replicas that the policies allow.
fn down_limit(current: i32, rules: &ScalingRules, changes: Changes<'_>, now: Timestamp) -> i32 {
    let proposed = rules.policies.iter().map(|policy| {
        let start = at_start(current, policy, changes, now);
        match policy.policy_type == "Percent" {
            true => rounded((f64::from(start) * (1.0 - f64::from(policy.value) / 100.0)).trunc()),
            false => start.saturating_sub(policy.value),
        }
    });
    match rules.select_policy.as_deref() {
        Some("Disabled") => current,
        Some("Min") => proposed.max().unwrap_or(i32::MIN),
        _ => proposed.min().unwrap_or(i32::MAX),
    }
}

/// The number of replicas at the start of a policy's period.
fn at_start(current: i32, policy: &ScalingPolicy, (added, removed): Changes<'_>, now: Timestamp) -> i32 {
    let recent = |changes: &[(i32, Timestamp)]| {
        let recent = changes.iter().filter(|(_, at)| at.plus(period(policy)) > now);
        recent.fold(0_i32, |sum, (count, _)| sum.saturating_add(*count))
    };
    current.saturating_sub(recent(added)).saturating_add(recent(removed))
}

fn period(policy: &ScalingPolicy) -> Duration {
    Duration::from_secs(u64::try_from(policy.period_seconds).unwrap_or_default())
}

#[expect(clippy::cast_possible_truncation, reason = "out of range, the conversion stays at the end of the range")]
fn rounded(value: f64) -> i32 {
    value as i32
}

/// The rules for adding replicas. The server has set their defaults, if there is a behavior.
fn rules_up(behavior: &HorizontalPodAutoscalerBehavior) -> ScalingRules {
    behavior.scale_up.clone().unwrap_or_else(|| ScalingRules {
        policies: vec![policy("Percent", 100), policy("Pods", 4)],
        ..ScalingRules::default()
    })
}

/// The same for removing replicas.
fn rules_down(behavior: &HorizontalPodAutoscalerBehavior) -> ScalingRules {
    behavior
        .scale_down
        .clone()
        .unwrap_or_else(|| ScalingRules { policies: vec![policy("Percent", 100)], ..ScalingRules::default() })
}

fn policy(kind: &str, value: i32) -> ScalingPolicy {
    ScalingPolicy { policy_type: kind.into(), value, period_seconds: 15 }
}

#[cfg(test)]
mod tests;
