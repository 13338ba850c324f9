//! Expressions over sets of devices: every set judged as cel-go judges it, and the search finds the first of them.

use crate::setting::{Programs, Setting, cases};
use api::json::{self, Value};
use api::resource::v1;
use dra::device::Model;
use dra::expressions::Answer;
use dra::{Budget, Features, Search};

/// The candidates of a case in canonical order: name, model, and the value that `matchAttribute` compares.
fn candidates(case: &Value) -> Vec<(String, Model, Option<v1::DeviceAttribute>)> {
    let devices = case.get("devices").and_then(Value::as_array).unwrap_or_default();
    let mut devices: Vec<(Vec<String>, Model, Option<v1::DeviceAttribute>)> = devices
        .iter()
        .map(|document| {
            let key = ["driver", "pool", "name"].map(|it| document.str_at(&[it]).unwrap().to_owned()).to_vec();
            let view: v1::Device = json::from_value(&device(document)).unwrap();
            let attribute = case.str_at(&["matchAttribute"]).and_then(|full| {
                let (domain, name) = full.split_once('/').unwrap();
                let own = view.attributes.get(name).filter(|_| domain == key[0]);
                view.attributes.get(full).or(own).cloned()
            });
            (key.clone(), Model::new(&key[0], &view), attribute)
        })
        .collect();
    devices.sort_by(|left, right| left.0.cmp(&right.0));
    devices.into_iter().map(|(key, model, attribute)| (key.join("/"), model, attribute)).collect()
}

/// A device as slices hold it: amounts are written short in the cases.
fn device(document: &Value) -> Value {
    let mut device = document.clone();
    if let Some(capacity) = device.get_mut("capacity").and_then(Value::as_object_mut) {
        let values: Vec<(String, Value)> =
            capacity.iter().map(|(name, value)| (name.to_owned(), api::json!({"value": (value.clone())}))).collect();
        for (name, value) in values {
            capacity.insert(&name, value);
        }
    }
    device
}

/// Calls `visit` with each ascending choice of `count` out of `total`, in order.
fn combinations(total: usize, count: usize, visit: &mut dyn FnMut(&[usize])) {
    fn extend(chosen: &mut Vec<usize>, total: usize, count: usize, visit: &mut dyn FnMut(&[usize])) {
        if chosen.len() == count {
            return visit(chosen);
        }
        for next in chosen.last().map_or(0, |last| last + 1)..total {
            chosen.push(next);
            extend(chosen, total, count, visit);
            chosen.pop();
        }
    }
    extend(&mut Vec::new(), total, count, visit);
}

/// Evaluates every set.
fn brute_force(case: &Value, programs: &Programs) -> Value {
    let candidates = candidates(case);
    let count = case.get("count").unwrap().as_i64().unwrap() as usize;
    let mut answer = Value::object();
    let document = answer.as_object_mut().unwrap();
    let expression = match programs.expressions.set(case.str_at(&["expression"]).unwrap()) {
        Ok(expression) => expression,
        Err(error) => {
            document.insert("compileError", error.to_string());
            return answer;
        }
    };
    let names = |set: &[usize]| Value::Array(set.iter().map(|it| candidates[*it].0.as_str().into()).collect());
    let (mut total, mut satisfying, mut errors, mut most) = (0_i64, 0_i64, 0_i64, 0);
    let mut costs = Vec::new();
    combinations(candidates.len(), count, &mut |set| {
        total += 1;
        let values: Vec<_> = set.iter().map(|it| &candidates[*it].2).collect();
        if case.get("matchAttribute").is_some() && values.iter().any(|it| it.is_none() || *it != values[0]) {
            return;
        }
        let devices: Vec<_> = set.iter().map(|it| candidates[*it].1.seen().unwrap()).collect();
        let (said, cost) = expression.ask(&devices);
        costs.push(cost);
        most = most.max(cost as i64);
        match said {
            Answer::Yes => {
                satisfying += 1;
                document.insert("last", names(set));
                if document.get("first").is_none() {
                    document.insert("first", names(set));
                }
            }
            Answer::No => {}
            Answer::Fails(error) => {
                errors += 1;
                if document.get("firstError").is_none() {
                    document.insert("firstError", &*error);
                    document.insert("firstErrorSet", names(set));
                }
            }
        }
    });
    let mut insert = |key: &str, number: i64| {
        if number > 0 {
            document.insert(key, number);
        }
    };
    insert("errors", errors);
    insert("firstCombinationCost", costs.first().map_or(0, |cost| *cost as i64));
    insert("maxCost", most);
    document.insert("combinations", total);
    document.insert("satisfying", satisfying);
    document.insert("satisfiable", satisfying > 0);
    answer
}

#[test]
fn every_set_is_judged_as_by_cel_go() {
    let programs = Programs::new();
    let mut failures = Vec::new();
    for case in cases(include_str!("data/set_constraints.jsonl")) {
        let mut expected = case.get("expect").unwrap().clone();
        let mut found = brute_force(&case, &programs);
        if let Some(error) = expected.str_at(&["compileError"]).map(str::to_owned) {
            // The recorder reports types with different names.
            let text = error.strip_prefix("result type ").unwrap_or(&error);
            let ours = found.str_at(&["compileError"]).unwrap_or("compiles");
            if !ours.ends_with(text) {
                failures.push(format!("{}: {ours} instead of {error}", case.str_at(&["id"]).unwrap()));
            }
            continue;
        }
        expected.sort_keys();
        found.sort_keys();
        if expected != found {
            let id = case.str_at(&["id"]).unwrap();
            failures.push(format!("{id}\n  {}\n  {}", json::to_string(&expected), json::to_string(&found)));
        }
    }
    assert!(failures.is_empty(), "{}\n{}", failures.len(), failures.join("\n"));
}

/// The case as a node, slices and a claim.
fn as_claim(case: &Value) -> Value {
    let mut slices: Vec<Value> = Vec::new();
    for (index, document) in case.get("devices").and_then(Value::as_array).unwrap_or_default().iter().enumerate() {
        let text = |key: &str| document.str_at(&[key]).unwrap();
        let same_pool = |it: &&Value| {
            let same = |key| it.str_at(&[key]) == document.str_at(&[key]);
            same("driver") && same("pool")
        };
        let all = case.get("devices").and_then(Value::as_array).unwrap();
        let count = all.iter().filter(same_pool).count() as i64;
        slices.push(api::json!({
            "metadata": {"name": (format!("slice-{index}"))},
            "spec": {
                "driver": (text("driver")),
                "nodeName": "n",
                "pool": {"name": (text("pool")), "generation": 1, "resourceSliceCount": (count)},
                "devices": [(device(document))]
            }
        }));
    }
    let mut constraints = vec![api::json!({"cel": {"expression": (case.str_at(&["expression"]).unwrap())}})];
    if let Some(name) = case.str_at(&["matchAttribute"]) {
        constraints.insert(0, api::json!({"matchAttribute": (name)}));
    }
    let count = case.get("count").unwrap().clone();
    let exactly = api::json!({"deviceClassName": "any", "allocationMode": "ExactCount", "count": (count)});
    api::json!({
        "node": {"metadata": {"name": "n"}},
        "deviceClasses": [{"metadata": {"name": "any"}}],
        "resourceSlices": (Value::Array(slices)),
        "claims": [{
            "metadata": {"name": "c", "namespace": "ns"},
            "spec": {"devices": {
                "requests": [{"name": "r", "exactly": (exactly)}],
                "constraints": (Value::Array(constraints))
            }}
        }]
    })
}

#[test]
fn the_search_finds_the_first_set_or_the_error_before_it() {
    let programs = Programs::new();
    for case in cases(include_str!("data/set_constraints.jsonl")) {
        let id = case.str_at(&["id"]).unwrap();
        let expected = case.get("expect").unwrap();
        let setting = Setting::new(&as_claim(&case), &programs, Features::ALL);
        let pools = setting.pools().unwrap();
        let mut budget = Budget::by_cost();
        let (found, effort) = Search::new(&pools, &setting.allocated, &setting.claims, &mut budget, None).run();
        let names = |key: &str| -> Option<Vec<String>> {
            let list = expected.get(key)?.as_array()?;
            Some(list.iter().map(|it| it.as_str().unwrap().to_owned()).collect())
        };
        let ranks = |set: &Vec<String>| -> Vec<usize> {
            let order = candidates(&case);
            set.iter().map(|name| order.iter().position(|it| it.0 == *name).unwrap()).collect()
        };
        let (first, error) = (names("first"), names("firstErrorSet"));
        if expected.get("compileError").is_some() {
            assert!(found.unwrap_err().to_string().contains("CEL compile error"), "{id}");
            continue;
        }
        let comes_first = match (&first, &error) {
            (Some(first), Some(error)) => ranks(error) < ranks(first),
            (None, Some(_)) => true,
            _ => false,
        };
        if comes_first {
            let text = found.unwrap_err().to_string();
            // Messages name the first four.
            let names = error.unwrap();
            let more = if names.len() > 4 { format!(" and {} more", names.len() - 4) } else { String::new() };
            let set = format!("on devices {}{more}: ", names[..names.len().min(4)].join(", "));
            assert!(text.contains(&set) && text.contains(expected.str_at(&["firstError"]).unwrap()), "{id}: {text}");
        } else {
            let found = found.unwrap();
            let allocations =
                found.map(|it| it.allocations(&setting.claims, &pools, &mut || panic!("nothing is shared")).unwrap());
            let devices = allocations.map(|it| -> Vec<String> {
                let results = it[0].devices.results.iter();
                results.map(|it| format!("{}/{}/{}", it.driver, it.pool, it.device)).collect()
            });
            assert_eq!(devices, first, "{id}");
        }
        assert!(effort.evaluations as i64 <= expected.get("combinations").unwrap().as_i64().unwrap(), "{id}");
    }
}
