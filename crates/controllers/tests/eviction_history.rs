//! Random histories of taints and tolerations: the rule evicts when a simple model, second by second, does.

use std::sync::Arc;
use std::time::Duration;

use api::core::v1::{Taint, Toleration};
use api::time::Timestamp;
use controllers::nodes::taint_eviction::plan::{Plan, Step, revise};
use matching::tolerations::{StayDuration, Tolerations};
use matching::{CompileCache, Features};
use proptest::prelude::*;

/// Taints that a toleration tolerates, in the model.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Key(char),
    All,
    /// An expression over the key.
    Expression(char),
    /// An expression that fails.
    Broken,
}

/// At this second the taints are these keys, and the tolerations these, each with its seconds.
#[derive(Debug, Clone)]
struct Event {
    at: i64,
    taints: Vec<char>,
    tolerations: Vec<(Kind, Option<i64>)>,
}

fn kind() -> impl Strategy<Value = Kind> {
    let key = prop::sample::select(vec!['a', 'b', 'c']);
    prop_oneof![
        4 => key.clone().prop_map(Kind::Key),
        1 => Just(Kind::All),
        4 => key.prop_map(Kind::Expression),
        1 => Just(Kind::Broken),
    ]
}

fn history() -> impl Strategy<Value = Vec<Event>> {
    let taints = prop::sample::subsequence(vec!['a', 'b', 'c'], 0..=3);
    let tolerations = prop::collection::vec((kind(), prop::option::weighted(0.7, -1_i64..40)), 0..5);
    let event = (1_i64..30, taints, tolerations);
    prop::collection::vec(event, 1..8).prop_map(|events| {
        let mut at = 0;
        let timed = events.into_iter().map(|(pause, taints, tolerations)| {
            at += pause;
            Event { at, taints, tolerations }
        });
        timed.collect()
    })
}

fn taint(key: char) -> Taint {
    Taint { key: key.to_string().into(), effect: "NoExecute".into(), ..Taint::default() }
}

fn toleration((kind, seconds): &(Kind, Option<i64>)) -> Toleration {
    let mut toleration = Toleration { toleration_seconds: *seconds, ..Toleration::default() };
    match kind {
        Kind::Key(key) => {
            toleration.key = key.to_string().into();
            toleration.operator = "Exists".into();
        }
        Kind::All => toleration.operator = "Exists".into(),
        Kind::Expression(key) => toleration.expression = format!("taint.key == '{key}'").into(),
        Kind::Broken => toleration.expression = "taint.key == string(1 / int(taint.value.size()))".into(),
    }
    toleration
}

/// Time of the eviction according to the rule.
fn by_rule(history: &[Event], end: i64, cache: &CompileCache, features: &Features) -> Option<i64> {
    let mut plan: Option<Plan> = None;
    for (event, until) in history.iter().zip(history.iter().skip(1).map(|it| it.at).chain([end])) {
        let taints: Vec<Taint> = event.taints.iter().copied().map(taint).collect();
        let tolerations: Vec<Toleration> = event.tolerations.iter().map(toleration).collect();
        let stay = match taints.as_slice() {
            [] => StayDuration::Forever,
            taints => Tolerations::new(&tolerations, cache, features).stay(taints),
        };
        match revise(plan, stay, Timestamp { seconds: event.at, nanos: 0 }) {
            Step::Nothing => {}
            Step::Cancel => plan = None,
            Step::EvictNow { .. } => return Some(event.at),
            Step::Schedule { plan: next, .. } => plan = Some(next),
        }
        if let Some(plan) = plan.filter(|plan| plan.fires_at.seconds <= until) {
            return Some(plan.fires_at.seconds);
        }
    }
    None
}

/// Time of the eviction according to a model that advances second by second.
fn by_model(history: &[Event], end: i64, expressions: bool) -> Option<i64> {
    let mut left: Option<i64> = None;
    for second in 0..=end {
        if left == Some(0) {
            return Some(second);
        }
        if let Some(event) = history.iter().find(|event| event.at == second) {
            let tolerates = |kind: &Kind, taint: char| match kind {
                Kind::Key(key) => *key == taint,
                Kind::All => true,
                Kind::Expression(key) => expressions && *key == taint,
                Kind::Broken => false,
            };
            let mut allowed: Option<i64> = None;
            for taint in &event.taints {
                let Some((_, seconds)) = event.tolerations.iter().find(|(kind, _)| tolerates(kind, *taint)) else {
                    return Some(second);
                };
                if let Some(seconds) = seconds {
                    allowed = Some(allowed.map_or(*seconds, |least| least.min(*seconds)).max(0));
                }
            }
            left = match (allowed, left) {
                (None, _) => None,
                (Some(_), Some(left)) => Some(left),
                (Some(0), None) => return Some(second),
                (Some(allowed), None) => Some(allowed),
            };
        }
        left = left.map(|left| left - 1);
    }
    None
}

proptest! {
    #[test]
    fn the_rule_evicts_when_the_model_does(history in history(), expressions: bool) {
        let cache = CompileCache::new(16.try_into().unwrap(), Arc::new(|| Duration::ZERO)).unwrap();
        let features = Features { cel: expressions, ..Features::default() };
        let end = history.last().unwrap().at + 100;
        prop_assert_eq!(by_rule(&history, end, &cache, &features), by_model(&history, end, expressions));
    }
}
