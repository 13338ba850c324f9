//! Cases in files: tolerations, node affinity, expressions; and the caches behind them.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use api::core::v1::{
    NodeAffinity, NodeSelector, PersistentVolume, PersistentVolumeClaim, PreferredSchedulingTerm, Taint, Toleration,
};
use api::json::{self, Value};
use matching::node::labels;
use matching::node_affinity::{PreferredAffinity, RequiredAffinity};
use matching::taints::{self, seen_by_expressions};
use matching::tolerations::{StayDuration, Tolerations};
use matching::volumes::{self, Seeker, VolumeMatcher};
use matching::{CompileCache, Features, Node};
use serde::de::DeserializeOwned;

fn cache(capacity: usize) -> CompileCache {
    CompileCache::new(NonZeroUsize::new(capacity).unwrap(), Arc::new(|| Duration::ZERO)).unwrap()
}

fn cases(text: &str) -> Vec<(String, Value)> {
    let (mut documents, error) = api::yaml::parse_documents(text);
    assert_eq!(error.map(|error| error.message), None);
    let Value::Array(cases) = documents.remove(0).value else { panic!("cases are a list") };
    assert!(cases.len() > 20);
    let name = |case: &Value| case.str_at(&["list"]).or(case.str_at(&["name"])).unwrap().to_owned();
    cases.into_iter().map(|case| (name(&case), case)).collect()
}

fn view<T: DeserializeOwned + Default>(value: Option<&Value>) -> T {
    value.map_or_else(T::default, |value| json::from_value(value).unwrap())
}

fn features(case: &Value) -> Features {
    let is_on = |gate: &str| case.at(&["gates", gate]).is_none_or(|value| value.as_bool().unwrap());
    Features {
        cel: is_on("cel"),
        affinity_cel: is_on("affinity_cel"),
        semver: is_on("semver"),
        comparison: is_on("comparison"),
    }
}

#[test]
fn tolerations_tolerate_as_the_cases_say() {
    for (name, case) in cases(include_str!("cases/tolerations.yaml")) {
        let list: Vec<Toleration> = view(case.get("tolerations"));
        let taints: Vec<Taint> = view(case.get("taints"));
        let tolerations = Tolerations::new(&list, &cache(8), &features(&case));
        let tolerated: Vec<Value> = taints.iter().map(|taint| tolerations.tolerate(taint).into()).collect();
        assert_eq!(case.get("tolerated").unwrap().as_array().unwrap(), tolerated, "{name}");
        let stay = tolerations.stay(&taints);
        match case.get("stays") {
            Some(Value::String(text)) if text == "no" => assert_eq!(stay, StayDuration::No, "{name}"),
            Some(Value::String(_)) => assert_eq!(stay, StayDuration::Forever, "{name}"),
            Some(seconds) => assert_eq!(stay, StayDuration::Seconds(seconds.as_i64().unwrap()), "{name}"),
            None => {}
        }
    }
}

#[test]
fn node_affinity_matches_as_the_cases_say() {
    for (name, case) in cases(include_str!("cases/node_affinity.yaml")) {
        let (cache, features) = (cache(8), features(&case));
        let selector = case.get("terms").map(|terms| NodeSelector { node_selector_terms: view(Some(terms)) });
        let preferred: Vec<PreferredSchedulingTerm> = view(case.get("preferred"));
        let affinity =
            NodeAffinity { required_during_scheduling_ignored_during_execution: selector, ..NodeAffinity::default() };
        let node = Node { labels: labels(&view(case.get("labels"))), ..Node::default() };
        let required = RequiredAffinity::new(&Default::default(), Some(&affinity), &cache, &features);
        assert_eq!(required.matches(&node), case.get("matches").unwrap().as_bool().unwrap(), "{name}");
        let preferred = PreferredAffinity::new(&preferred, &cache, &features);
        assert!(preferred.errors().is_empty(), "{name}");
        if let Some(score) = case.get("score") {
            assert_eq!(preferred.score(&node), score.as_i64().unwrap(), "{name}");
        }
    }
}

#[test]
fn expressions_compile_and_yield_as_the_cases_say() {
    let cache = cache(64);
    for (name, case) in cases(include_str!("cases/expressions.yaml")) {
        let taint: Taint = view(case.get("taint"));
        let outcome = match (case.str_at(&["toleration"]), case.str_at(&["node_affinity"])) {
            (Some(text), _) => cache.toleration(text).map(|it| it.matches(&seen_by_expressions(&taint))),
            (_, Some(text)) => cache.node_affinity(text).map(|it| it.matches(&labels(&view(case.get("labels"))))),
            _ => panic!("{name} has no expression"),
        };
        match (outcome, case.str_at(&["error"])) {
            (Ok(yields), None) => assert_eq!(yields, case.get("yields").unwrap().as_bool().unwrap(), "{name}"),
            (Err(error), Some(expected)) => assert!(error.to_string().contains(expected), "{name}: {error}"),
            (outcome, _) => panic!("{name}: {outcome:?}"),
        }
    }
}

/// Returns an object with defaults for everything that a case does not set.
fn completed(case: Option<&Value>, defaults: Value) -> Value {
    let mut object = defaults;
    for (key, value) in case.and_then(Value::as_object).into_iter().flat_map(|fields| fields.iter()) {
        object.as_object_mut().unwrap().insert(key, value.clone());
    }
    object
}

#[test]
fn claims_get_the_volumes_that_the_cases_say() {
    for (name, case) in cases(include_str!("cases/volumes.yaml")) {
        let cache = cache(8);
        let amount = || api::json!({"storage": "10Gi"});
        let spec = api::json!({
            "accessModes": ["ReadWriteOnce"], "storageClassName": "c", "resources": {"requests": (amount())}
        });
        let mut claim =
            PersistentVolumeClaim { spec: view(Some(&completed(case.get("claim"), spec))), ..Default::default() };
        claim.metadata.name = "claim".into();
        claim.metadata.namespace = "default".into();
        claim.metadata.uid = "claim-uid".into();
        claim.metadata.annotations = view(case.get("claim_annotations"));
        let volumes: Vec<(PersistentVolume, VolumeMatcher)> = case
            .get("volumes")
            .unwrap()
            .as_array()
            .unwrap()
            .iter()
            .map(|it| {
                let spec = api::json!({
                    "capacity": (amount()), "accessModes": ["ReadWriteOnce"], "storageClassName": "c"
                });
                let mut volume =
                    PersistentVolume { spec: view(Some(&completed(Some(it), spec))), ..Default::default() };
                volume.metadata.name = it.str_at(&["name"]).unwrap().into();
                volume.metadata.labels = view(it.get("labels"));
                volume.status.phase = it.str_at(&["phase"]).unwrap_or("Available").into();
                let matcher = VolumeMatcher::new(&volume, &cache, &Features::ALL);
                (volume, matcher)
            })
            .collect();
        let node_labels = labels(&view(case.get("labels")));
        let seeker = match case.str_at(&["seeker"]) {
            Some("binder") => Seeker::Binder { waits_for_pod: false },
            Some("waiting binder") => Seeker::Binder { waits_for_pod: true },
            _ => Seeker::Scheduler(&node_labels),
        };
        let excluded: Vec<api::json::Text> = view(case.get("excluded"));
        let is_excluded = |volume: &PersistentVolume| excluded.contains(&volume.metadata.name);
        let found =
            volumes::find(&claim, volumes.iter().map(|(volume, matcher)| (volume, matcher)), seeker, is_excluded);
        let found = found.unwrap().map(|volume| volume.metadata.name.as_str());
        assert_eq!(found, case.str_at(&["finds"]), "{name}");
    }
}

/// TestTolerationCacheGetOrCompile, TestAffinityCacheGetOrCompile
#[test]
fn an_expression_is_compiled_once_for_each_kind_of_place() {
    let cache = cache(4);
    let first = cache.toleration("true").unwrap();
    assert!(first.is_shared_with(&cache.toleration("true").unwrap()));
    let first = cache.node_affinity("true").unwrap();
    assert!(first.is_shared_with(&cache.node_affinity("true").unwrap()));
    for statistics in [cache.toleration_statistics(), cache.node_affinity_statistics()] {
        assert_eq!((statistics.hits, statistics.misses, statistics.evictions), (1, 1, 0));
    }
}

/// TestCacheDoesNotCacheErrors
#[test]
fn errors_are_not_kept() {
    let cache = cache(4);
    for misses in 1..=2 {
        cache.toleration("taint.key ==").unwrap_err();
        assert_eq!(cache.toleration_statistics().misses, misses);
    }
}

/// TestCacheLRUEviction
#[test]
fn the_least_recently_used_expression_goes_first() {
    let cache = cache(2);
    let texts = ["taint.key == 'a'", "taint.key == 'b'", "taint.key == 'a'", "taint.key == 'c'", "taint.key == 'a'"];
    for text in texts {
        cache.toleration(text).unwrap();
    }
    let statistics = cache.toleration_statistics();
    assert_eq!((statistics.hits, statistics.misses, statistics.evictions), (2, 3, 1));
}

#[test]
fn an_expression_is_evaluated_once_per_distinct_input_that_it_reads() {
    let cache = cache(4);
    let expression = cache.node_affinity("node.labels['zone'] == 'a'").unwrap();
    for number in 0..1000 {
        let zone = if number % 2 == 0 { "a" } else { "b" };
        let labels = [("zone", zone), ("kubernetes.io/hostname", &number.to_string())].into_iter().collect();
        assert_eq!(expression.matches(&labels), number % 2 == 0);
    }
    assert_eq!(expression.remembered(), 2);

    let expression = cache.toleration("taint.key == 'a'").unwrap();
    for number in 0..1000 {
        let taint = Taint { key: "a".into(), value: number.to_string().into(), ..Taint::default() };
        assert!(expression.matches(&seen_by_expressions(&taint)));
    }
    assert_eq!(expression.remembered(), 1);
    let sets = taints::Sets::new();
    assert!(sets.intern(&[]).is_empty());
}
