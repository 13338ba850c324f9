//! Filters, scores and messages.

use std::collections::BTreeMap;

use api::json::Value;
use scheduling::cluster::{NodeId, PodInfo};
use scheduling::cycle::{self, Search};
use scheduling::framework::{Point, PreFilter, Status};
use scheduling::{Outcome, Scheduler};

use super::{NOW, list, numbers, pod_info, run_all, same, scheduler, strings, without_stray_words, without_taints};

#[test]
fn snapshots() {
    run_all("snapshots.jsonl", |case| {
        let mut scheduler = scheduler(case);
        let expected = case.get("expect").unwrap();
        let pod = pod_info(case.get("pod").unwrap(), &scheduler);
        filters(&scheduler, &pod, expected)?;
        let found = search(&scheduler, &pod, expected)?;
        scores(&scheduler, &pod, expected, &found)?;
        outcome(&mut scheduler, case, expected)
    });
}

fn names(scheduler: &Scheduler, ids: &[NodeId]) -> Vec<String> {
    ids.iter().map(|id| scheduler.cluster().cache.node(*id).unwrap().name().to_string()).collect()
}

/// As recorded: reasons in any order, without the taint's name.
fn verdict(status: &Status) -> (String, Vec<String>) {
    let reason = |reason: &str| match reason.split_once(" {") {
        Some(("node(s) had untolerated taint", _)) => "node(s) had untolerated taint(s)".to_owned(),
        _ => reason.to_owned(),
    };
    let mut reasons: Vec<String> = status.reasons.iter().map(|it| reason(it)).collect();
    reasons.sort();
    (status.code.name().to_owned(), reasons)
}

fn recorded_verdict(value: &Value) -> (String, Vec<String>) {
    let mut reasons = strings(value.get("reasons"));
    reasons.sort();
    (value.str_at(&["code"]).unwrap().to_owned(), reasons)
}

fn filters(scheduler: &Scheduler, pod: &PodInfo, expected: &Value) -> Result<(), String> {
    let cluster = scheduler.cluster();
    let profile = scheduler.profile(pod).unwrap();
    let mut skipped = Vec::new();
    for enabled in profile.at(Point::Filter) {
        let name = enabled.name();
        let recorded = expected.at(&["preFilter", name]);
        let filter = match enabled.plugin.pre_filter(pod, cluster) {
            PreFilter::Skip => {
                skipped.push(name.to_owned());
                continue;
            }
            PreFilter::Reject(status) => {
                same(&format!("{name}: PreFilter"), recorded.map(recorded_verdict), Some(verdict(&status)))?;
                continue;
            }
            PreFilter::AskAbout(filter, nodes) => {
                let nodes: Vec<String> = nodes.iter().map(ToString::to_string).collect();
                let left = recorded.map(|it| strings(it.get("nodes")));
                same(&format!("{name}: nodes left"), left, Some(nodes))?;
                filter
            }
            PreFilter::Ask(filter) => {
                same(&format!("{name}: PreFilter"), recorded.map(recorded_verdict), None)?;
                filter
            }
        };
        let mut found: BTreeMap<(String, Vec<String>), Vec<String>> = BTreeMap::new();
        for node in cluster.cache.nodes() {
            if let Err(status) = filter.filter(node) {
                found.entry(verdict(&status)).or_default().push(node.name().to_string());
            }
        }
        found.values_mut().for_each(|nodes| nodes.sort());
        let recorded = list(expected.at(&["filter", name])).iter();
        let recorded = recorded.map(|it| (recorded_verdict(it), strings(it.get("nodes")))).collect();
        same(&format!("{name}: Filter"), recorded, found)?;
    }
    skipped.sort();
    let recorded = strings(expected.get("preFilterSkip"));
    same("PreFilter skipped", recorded, skipped)
}

fn search(scheduler: &Scheduler, pod: &PodInfo, expected: &Value) -> Result<Vec<NodeId>, String> {
    let profile = scheduler.profile(pod).unwrap();
    // The data look at all nodes, also where room was made on one.
    let mut pod = pod.clone();
    pod.nominated_node = Default::default();
    let found = Search { profile, cluster: scheduler.cluster(), start: 0 }.run(&pod);
    let mut feasible = found.map(|found| found.feasible).unwrap_or_default();
    feasible.sort_by_key(|id| scheduler.cluster().cache.node(*id).unwrap().name().clone());
    if expected.str_at(&["result"]) == Some("error") {
        return Ok(feasible);
    }
    same("feasible", strings(expected.get("feasible")), names(scheduler, &feasible))?;
    Ok(feasible)
}

fn scores(scheduler: &Scheduler, pod: &PodInfo, expected: &Value, feasible: &[NodeId]) -> Result<(), String> {
    let Some(recorded) = expected.get("scores").and_then(Value::as_object) else { return Ok(()) };
    let profile = scheduler.profile(pod).unwrap();
    let scores = cycle::score(profile, pod, scheduler.cluster(), feasible).map_err(|status| status.message())?;
    let plain = |scores: &[(NodeId, i64)]| scores.iter().map(|(_, score)| *score).collect::<Vec<_>>();
    for (plugin, recorded) in recorded.iter() {
        let found = scores.by_plugin.iter().find(|scores| scores.plugin == plugin);
        // Kubernetes runs it on every pod; it scores all nodes equally if no claim has alternatives.
        if plugin == "DynamicResources" && found.is_none() && numbers(recorded.get("raw")).iter().all(|it| *it == 0) {
            continue;
        }
        let found = found.ok_or_else(|| format!("{plugin} does not score"))?;
        same(&format!("{plugin}: raw"), numbers(recorded.get("raw")), plain(&found.raw))?;
        same(&format!("{plugin}: normalized"), numbers(recorded.get("normalized")), plain(&found.normalized))?;
        same(&format!("{plugin}: weight"), recorded.get("weight").and_then(Value::as_i64), Some(found.weight))?;
    }
    let skipped = scores.skipped.iter().filter(|it| **it != "DynamicResources");
    let mut skipped: Vec<String> = skipped.map(|it| (*it).to_owned()).collect();
    skipped.sort();
    same("Score skipped", strings(expected.get("scoreSkip")), skipped)?;
    same("total", numbers(expected.get("total")), plain(&scores.total))?;
    if !pod.nominated_node.is_empty() {
        return Ok(());
    }
    same("best", strings(expected.get("best")), names(scheduler, &scores.best()))
}

/// The whole attempt, as the caller sees it.
fn outcome(scheduler: &mut Scheduler, case: &Value, expected: &Value) -> Result<(), String> {
    let pod: api::core::v1::Pod = api::json::from_value(case.get("pod").unwrap()).unwrap();
    if !pod.spec.node_name.is_empty() {
        // The caller would not have it scheduled.
        return Ok(());
    }
    scheduler.set_pod(&pod, NOW);
    let attempt = scheduler.schedule_one(NOW).ok_or("no attempt")?;
    let result = expected.str_at(&["result"]).unwrap();
    let message = expected.text("message");
    let message = without_stray_words(message);
    match (attempt.outcome, result) {
        (Outcome::Scheduled(placement), "scheduled") => {
            let best = strings(expected.get("best"));
            if best.contains(&placement.node.to_string()) {
                Ok(())
            } else {
                Err(format!("{} is not best", placement.node))
            }
        }
        (Outcome::Unschedulable(unplaced), "unschedulable") => {
            let found = without_taints(&unplaced.message);
            // One node is chosen among equals at random.
            let node = |text: &str| {
                text.split_once("for pod on node ").map(|(_, it)| it.split(',').next().unwrap().to_owned())
            };
            let found = match (node(message), node(&found)) {
                (Some(theirs), Some(ours)) => found.replace(&format!("on node {ours},"), &format!("on node {theirs},")),
                _ => found,
            };
            same("message", message.to_owned(), found)?;
            let mut plugins: Vec<String> = unplaced.plugins.iter().map(|it| (*it).to_owned()).collect();
            plugins.sort();
            same("plugins", strings(expected.get("unschedulablePlugins")), plugins)
        }
        (Outcome::Unschedulable(unplaced), "error") => same("message", message.to_owned(), unplaced.message),
        (Outcome::Error(found), "error") => same("message", message.to_owned(), found),
        (other, _) => Err(format!("expected {result}, found {other:?}")),
    }
}
