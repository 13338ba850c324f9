//! Windows and policies, with the numbers of Kubernetes' own tests.
#![allow(clippy::arithmetic_side_effects, reason = "tests")]

use proptest::prelude::*;

use super::*;

const WINDOW: Duration = Duration::from_secs(300);

fn at(seconds: i64) -> Timestamp {
    Timestamp { seconds: 1_800_000_000 + seconds, nanos: 0 }
}

fn rules(select: &str, window: i32, policies: &[(&str, i32, i32)]) -> ScalingRules {
    let policy = |(kind, value, period_seconds): &(&str, i32, i32)| ScalingPolicy {
        policy_type: (*kind).into(),
        value: *value,
        period_seconds: *period_seconds,
    };
    ScalingRules {
        stabilization_window_seconds: Some(window),
        select_policy: Some(select.into()),
        policies: policies.iter().map(policy).collect(),
        tolerance: None,
    }
}

fn behavior(up: ScalingRules, down: ScalingRules) -> HorizontalPodAutoscalerBehavior {
    HorizontalPodAutoscalerBehavior { scale_up: Some(up), scale_down: Some(down) }
}

fn range(current: i32) -> Range {
    Range { min: 1, max: 1000, current }
}

#[test]
fn replicas_double_at_most_without_behavior() {
    for (current, desired, expected, reason) in [
        (1, 9, 4, "ScaleUpLimit"),
        (10, 50, 20, "ScaleUpLimit"),
        (600, 1100, 1000, "TooManyReplicas"),
        (5, 0, 1, "TooFewReplicas"),
        (5, 7, 7, "DesiredWithinRange"),
    ] {
        let limited = History::default().limit(None, desired, range(current), WINDOW, at(0));
        assert_eq!((limited.replicas, limited.limit.0), (expected, reason), "{current} {desired}");
        assert_eq!(limited.is_limited, expected != desired);
    }
}

#[test]
fn highest_recommendation_of_the_window_stays() {
    let mut history = History::default();
    history.begin(8, at(0));
    let first = history.limit(None, 3, range(8), WINDOW, at(60));
    assert_eq!((first.replicas, first.stabilized.0), (8, "ScaleDownStabilized"));
    // The first recommendation is too old by now.
    let later = history.limit(None, 2, range(8), WINDOW, at(301));
    assert_eq!((later.replicas, later.stabilized.0), (3, "ScaleDownStabilized"));
    let last = history.limit(None, 2, range(3), WINDOW, at(700));
    assert_eq!((last.replicas, last.stabilized.0), (2, "ReadyForNewScale"));
}

#[test]
fn policies_limit_the_change_of_a_period() {
    let percent = ("Percent", 100, 60);
    let pods = ("Pods", 4, 60);
    for (select, current, desired, expected) in
        [("Max", 10, 100, 20), ("Min", 10, 100, 14), ("Disabled", 10, 100, 10), ("Max", 1, 100, 5), ("Max", 10, 12, 12)]
    {
        let both = behavior(rules(select, 0, &[percent, pods]), rules("Max", 0, &[percent]));
        let limited = History::default().limit(Some(&both), desired, range(current), WINDOW, at(0));
        assert_eq!(limited.replicas, expected, "up {select} {current}");
    }
    for (select, current, desired, expected) in
        [("Max", 100, 1, 80), ("Min", 100, 1, 96), ("Disabled", 100, 1, 100), ("Max", 5, 0, 1), ("Max", 100, 99, 99)]
    {
        let both = behavior(rules("Max", 0, &[percent]), rules(select, 0, &[("Percent", 20, 60), pods]));
        let limited = History::default().limit(Some(&both), desired, range(current), WINDOW, at(0));
        assert_eq!(limited.replicas, expected, "down {select} {current}");
    }
}

#[test]
fn earlier_changes_count_until_their_period_is_over() {
    let both = behavior(rules("Max", 0, &[("Pods", 4, 60)]), rules("Max", 0, &[("Pods", 2, 60)]));
    let mut history = History::default();
    let limit = |history: &mut History, current, desired, seconds| {
        history.limit(Some(&both), desired, range(current), WINDOW, at(seconds)).replicas
    };
    assert_eq!(limit(&mut history, 10, 30, 0), 14);
    history.changed(Some(&both), 10, 14, at(0));
    assert_eq!(limit(&mut history, 14, 30, 30), 14, "all four were added 30 seconds ago");
    assert_eq!(limit(&mut history, 14, 30, 61), 18);
    history.changed(Some(&both), 18, 16, at(70));
    assert_eq!(limit(&mut history, 16, 1, 75), 16, "two were removed five seconds ago");
    // A removal gives room for as many additions.
    assert_eq!(limit(&mut history, 16, 30, 75), 22);
}

#[test]
fn windows_of_both_directions_are_separate() {
    let policy = [("Percent", 900, 60)];
    let both = behavior(rules("Max", 60, &policy), rules("Max", 120, &policy));
    let mut history = History::default();
    history.begin(5, at(0));
    let up = history.limit(Some(&both), 9, range(5), WINDOW, at(30));
    assert_eq!((up.replicas, up.stabilized.0), (5, "ScaleUpStabilized"));
    let up = history.limit(Some(&both), 9, range(5), WINDOW, at(95));
    assert_eq!((up.replicas, up.stabilized.0), (9, "ReadyForNewScale"));
    let down = history.limit(Some(&both), 3, range(9), WINDOW, at(200));
    assert_eq!((down.replicas, down.stabilized.0), (9, "ScaleDownStabilized"));
    let down = history.limit(Some(&both), 3, range(9), WINDOW, at(216));
    assert_eq!(down.replicas, 3);
}

#[test]
fn missing_rules_have_the_defaults_of_the_server() {
    let none = HorizontalPodAutoscalerBehavior::default();
    let mut history = History::default();
    assert_eq!(history.limit(Some(&none), 50, range(10), WINDOW, at(0)).replicas, 20);
    history.begin(10, at(0));
    assert_eq!(history.limit(Some(&none), 1, range(10), WINDOW, at(10)).stabilized.0, "ScaleDownStabilized");
}

#[test]
fn history_is_bounded() {
    let mut history = History::default();
    for step in 0..3000 {
        history.limit(None, step, range(1), WINDOW, at(0));
    }
    assert_eq!(history.recommendations.len(), KEPT_MAX);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// The result is within the bounds for any sequence of recommendations.
    #[test]
    fn result_stays_within_bounds(
        steps in proptest::collection::vec((0_i32..200, 1_i64..100), 1..20),
        select in 0_usize..3,
        has_behavior: bool,
        value in 1_i32..200,
    ) {
        let rules = rules(["Max", "Min", "Disabled"][select], 30, &[("Percent", value, 60), ("Pods", value, 15)]);
        let both = behavior(rules.clone(), rules);
        let both = has_behavior.then_some(&both);
        let (mut history, mut now, mut current) = (History::default(), 0, 10);
        for (desired, seconds) in steps {
            now += seconds;
            let range = Range { min: 2, max: 100, current };
            history.begin(current, at(now));
            let limited = history.limit(both, desired, range, WINDOW, at(now));
            prop_assert!((2..=100).contains(&limited.replicas), "{limited:?}");
            history.changed(both, current, limited.replicas, at(now));
            current = limited.replicas;
        }
    }
}
