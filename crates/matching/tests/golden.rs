//! Tolerations, selectors and resources are judged as the reference judges them, on its recorded answers.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use api::core::v1;
use api::field::Errors;
use api::json::{self, Value};
use api::meta::v1::LabelSelector;
use matching::node::labels;
use matching::node_affinity::{PreferredAffinity, RequiredAffinity};
use matching::node_selector::NodeSelector;
use matching::tolerations::{Toleration, Tolerations};
use matching::volumes::VolumeMatcher;
use matching::{CompileCache, Features, Node, resources, taints, topology};
use serde::de::DeserializeOwned;

/// Kinds of cases that are answered elsewhere: which fields of which kind can be selected is the server's matter, field
/// selectors themselves are judged in `api`.
const ELSEWHERE: [&str; 3] = ["fieldLabel", "selectableFields", "fieldString"];

fn view<T: DeserializeOwned + Default>(value: Option<&Value>) -> T {
    value.map_or_else(T::default, |value| json::from_value(value).unwrap())
}

fn node(input: &Value) -> Node {
    Node::new(&view(input.get("node")), &taints::Sets::new())
}

fn error_text(errors: &Errors) -> Value {
    if errors.is_empty() { Value::Null } else { errors.message().into() }
}

fn result(result: Result<bool, Errors>) -> Value {
    match result {
        Ok(matches) => api::json!({"error": null, "match": matches}),
        Err(errors) => api::json!({"error": (errors.message()), "match": false}),
    }
}

fn tolerations(input: &Value, cache: &CompileCache) -> Value {
    let features = Features { comparison: input.get("comparison").unwrap().as_bool().unwrap(), ..Features::default() };
    let list: Vec<v1::Toleration> = view(input.get("tolerations"));
    let taints: Vec<v1::Taint> = view(input.get("taints"));
    let matrix: Vec<Value> = list
        .iter()
        .map(|toleration| {
            let toleration = Toleration::new(toleration, cache, &features);
            Value::Array(taints.iter().map(|taint| toleration.tolerates(taint).into()).collect())
        })
        .collect();
    let all = Tolerations::new(&list, cache, &features);
    let first = |counts: fn(&v1::Taint) -> bool| {
        all.first_untolerated(&taints, counts).map_or(Value::Null, |index| Value::from(index as i64))
    };
    let mut answer = api::json!({
        "matrix": (Value::Array(matrix)),
        "firstUntolerated": (first(|_| true)),
        "firstUntoleratedHard": (first(taints::is_hard)),
        "firstUntoleratedPrefer": (first(taints::is_soft))
    });
    if let Some(object) = answer.as_object_mut() {
        object.insert("allTolerated", taints.iter().all(|taint| all.tolerate(taint)));
    }
    answer
}

fn node_affinity(input: &Value, cache: &CompileCache) -> Value {
    let features = Features::default();
    let affinity: Option<v1::NodeAffinity> = view(input.get("nodeAffinity"));
    let required = RequiredAffinity::new(&view(input.get("nodeSelector")), affinity.as_ref(), cache, &features);
    let node = node(input);
    let mut answer = api::json!({"required": (result(required.try_matches(&node)))});
    let recorded = input.at(&["nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution"]);
    if let (Some(affinity), Some(_)) = (&affinity, recorded) {
        let preferred =
            PreferredAffinity::new(&affinity.preferred_during_scheduling_ignored_during_execution, cache, &features);
        let judged = if preferred.errors().is_empty() {
            api::json!({"score": (preferred.score(&node))})
        } else {
            api::json!({"error": (preferred.errors().message())})
        };
        answer.as_object_mut().unwrap().insert("preferred", judged);
    }
    answer
}

fn node_selector(input: &Value, cache: &CompileCache) -> Value {
    let selector = NodeSelector::new(&view(input.get("selector")), cache, &Features::default());
    let node = node(input);
    let errors = selector.errors();
    let mut answer = api::json!({"error": (error_text(&errors)), "lazy": (result(selector.try_matches(&node)))});
    if errors.is_empty() {
        answer.as_object_mut().unwrap().insert("match", selector.matches(&node));
    }
    answer
}

fn volume(input: &Value, cache: &CompileCache) -> Value {
    let matcher = VolumeMatcher::new(&view(input.get("pv")), cache, &Features::default());
    match matcher.check(&node(input).labels) {
        Ok(()) => api::json!({"error": null, "ok": true}),
        Err(error) => api::json!({"error": error, "ok": false}),
    }
}

fn all_labels(input: &Value) -> Vec<api::meta::v1::StringMap> {
    view(input.get("labels"))
}

fn allowed_topologies(input: &Value) -> Value {
    let terms: Vec<v1::TopologySelectorTerm> = view(input.get("topologyTerms"));
    let allowed = all_labels(input).into_iter().map(|it| topology::allows(&terms, &labels(&it)).into());
    api::json!({"match": (Value::Array(allowed.collect()))})
}

fn label_selector(input: &Value) -> Value {
    let selector = match input.get("selector") {
        Some(Value::String(text)) => api::labels::Selector::parse(text),
        // A selector that is missing selects nothing, which is not the same as an empty one.
        Some(Value::Null) | None => {
            let none = Value::Array(vec![false.into(); 14]);
            return api::json!({"string": "", "match": none, "empty": false, "selectable": false});
        }
        other => view::<LabelSelector>(other).to_selector(),
    };
    match selector {
        Ok(selector) => {
            let selected = all_labels(input).into_iter().map(|it| selector.matches(&it).into()).collect();
            let empty = selector.is_empty();
            api::json!({
                "string": (selector.to_string()), "match": (Value::Array(selected)), "empty": empty, "selectable": true
            })
        }
        Err(error) => api::json!({"error": (error.to_string())}),
    }
}

fn pod_resources(input: &Value) -> Value {
    let pod: v1::Pod = view(input.get("object"));
    let list = |list: v1::ResourceList| {
        Value::Object(list.into_iter().map(|(name, amount)| (name, Value::from(amount.to_string()))).collect())
    };
    let defaults = resources::Options::default();
    let requests = |options| list(resources::requests(&pod.spec, options));
    api::json!({
        "limits": (list(resources::limits(&pod.spec, defaults))),
        "requests": (requests(defaults)),
        "requestsContainersOnly": (requests(resources::Options { pod_level: false, ..defaults })),
        "requestsNoOverhead": (requests(resources::Options { overhead: false, ..defaults })),
        "qosClass": (resources::qos_class(&pod.spec).name())
    })
}

/// Properties of the recorded label selectors that are tested in `api`, and with the cells of tables.
const NOT_ASKED: [&str; 2] = ["requirements", "formatted"];

fn agrees(expected: &Value, answer: &Value) -> bool {
    let mut fields = expected.as_object().unwrap().iter().filter(|(key, _)| !NOT_ASKED.contains(key));
    let has_error = |value: &Value| value.get("error").is_some_and(|error| !error.is_null());
    has_error(expected) == has_error(answer) && fields.all(|(key, value)| answer.get(key) == Some(value))
}

#[test]
fn verdicts_are_those_of_the_reference() {
    let cache = CompileCache::new(NonZeroUsize::new(16).unwrap(), Arc::new(|| Duration::ZERO)).unwrap();
    let gaps: BTreeSet<&str> = include_str!("data/known_gaps.txt")
        .lines()
        .filter_map(|line| line.split('#').next().map(str::trim).filter(|id| !id.is_empty()))
        .collect();
    let mut wrong = Vec::new();
    let mut judged = 0;
    for line in include_str!("data/matching.jsonl").lines() {
        let case = json::parse(line.as_bytes()).unwrap();
        let (id, input, expected) =
            (case.str_at(&["id"]).unwrap(), case.get("input").unwrap(), case.get("expected").unwrap());
        let kind = input.str_at(&["type"]).unwrap();
        let answer = match kind {
            "tolerations" => tolerations(input, &cache),
            "nodeSelector" => node_selector(input, &cache),
            "nodeAffinity" => node_affinity(input, &cache),
            "pv" => volume(input, &cache),
            "topology" => allowed_topologies(input),
            "labelString" | "labelSelector" => label_selector(input),
            "podResources" => pod_resources(input),
            other if ELSEWHERE.contains(&other) => continue,
            other => panic!("cases of type {other} are not known"),
        };
        judged += 1;
        if agrees(expected, &answer) == gaps.contains(id) {
            wrong.push(format!("{id}\n  input    {input:?}\n  expected {expected:?}\n  answer   {answer:?}"));
        }
    }
    assert!(judged > 900, "only {judged} cases were judged");
    assert!(wrong.is_empty(), "{} of {judged} cases:\n{}", wrong.len(), wrong.join("\n"));
}
