//! Budgets of attempts, and the memory that expressions take.

use std::sync::Arc;
use std::time::Duration;

use api::core::v1::{PodSpec, Taint};
use matching::expressions::Reason;
use matching::expressions::meter::Excess;
use matching::taints::{Sets, seen_by_expressions};
use matching::{CompileCache, Features, Meter, PodMatcher};

const EXPRESSION: &str = "[1,2,3,4,5,6,7,8,9,10].all(a, taint.value != 'x')";

fn cache() -> CompileCache {
    CompileCache::new(16.try_into().unwrap(), Arc::new(|| Duration::ZERO)).unwrap()
}

fn meter(cost_max: u64) -> Arc<Meter> {
    Arc::new(Meter::with_limits(cost_max, Duration::MAX, Arc::new(|| Duration::ZERO)))
}

fn taint(number: usize) -> Taint {
    Taint { key: "k".into(), value: number.to_string().into(), effect: "NoSchedule".into(), ..Taint::default() }
}

#[test]
fn evaluation_over_budget_has_no_answer_and_is_not_remembered() {
    let (cache, meter) = (cache(), meter(1));
    let expression = cache.metered(meter.clone()).toleration(EXPRESSION).unwrap();
    assert!(expression.matches(&seen_by_expressions(&taint(1))), "the first evaluation is within the budget");
    let outcome = expression.outcome(&seen_by_expressions(&taint(2)));
    assert_eq!(outcome.failure().map(|it| it.reason), Some(Reason::Budget));
    assert_eq!((outcome.own_failure(), meter.excess()), (None, Some(Excess::Cost(1))));
    assert!(expression.matches(&seen_by_expressions(&taint(1))), "remembered verdicts cost nothing");
    assert_eq!(expression.remembered(), 1);
    meter.begin();
    assert!(expression.matches(&seen_by_expressions(&taint(2))));
    // Other users of the same programs are not bound by the budget.
    assert!(cache.toleration(EXPRESSION).unwrap().matches(&seen_by_expressions(&taint(3))));
}

#[test]
fn expressions_of_a_pod_are_compiled_by_the_first_question() {
    let cache = cache();
    let spec = api::json!({"tolerations": [{"expression": EXPRESSION}], "affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchCELExpressions": ["'x' in node.labels"]}]}}}});
    let spec: PodSpec = api::json::from_value(&spec).unwrap();
    let pods: Vec<PodMatcher> = (0..3).map(|_| PodMatcher::new(&spec, &cache, &Features::ALL)).collect();
    let compiled = || (cache.toleration_statistics().misses, cache.node_affinity_statistics().misses);
    assert_eq!((pods[0].has_expressions(), compiled()), (true, (0, 0)));
    assert_eq!(pods[0].taints(&Sets::new().intern(&[taint(1)])).first_untolerated, None);
    assert_eq!(compiled(), (1, 1));
    assert_eq!((pods[1].tolerations().iter().count(), compiled()), (1, (1, 1)));
}

#[test]
fn verdicts_about_sets_of_taints_are_not_remembered_over_budget() {
    let (cache, meter) = (cache(), meter(1));
    let spec = api::json!({"tolerations": [{"expression": EXPRESSION}]});
    let spec: PodSpec = api::json::from_value(&spec).unwrap();
    let pod = PodMatcher::new(&spec, &cache.metered(meter.clone()), &Features::ALL);
    let sets = Sets::new();
    let set = sets.intern(&[taint(1), taint(2), taint(3)]);
    for attempt in 0..3 {
        meter.begin();
        let untolerated = pod.taints(&set).first_untolerated;
        assert_eq!((untolerated.is_some(), pod.is_over_budget()), (attempt < 2, attempt < 2), "{attempt}");
    }
    meter.begin();
    assert_eq!((pod.taints(&set).first_untolerated, meter.cost()), (None, 0));
}

#[test]
fn tables_of_an_expression_are_small_where_it_meets_few_sets() {
    let cache = cache();
    let spec = api::json!({"tolerations": [{"expression": EXPRESSION}]});
    let spec: PodSpec = api::json::from_value(&spec).unwrap();
    let pod = PodMatcher::new(&spec, &cache, &Features::ALL);
    let sets = Sets::new();
    let nodes: Vec<_> = (0..3).map(|number| sets.intern(&[taint(number)])).collect();
    nodes.iter().for_each(|set| assert_eq!(pod.taints(set).first_untolerated, None));
    let expression = cache.toleration(EXPRESSION).unwrap();
    // The table for the first set once took 8,192 bytes.
    assert!((1..=128).contains(&expression.set_table_bytes()), "{}", expression.set_table_bytes());
}
