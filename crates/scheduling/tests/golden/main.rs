//! Recorded decisions of Kubernetes' scheduler (`tests/data/*.jsonl`), compared with this one.
//!
//! `variants_*.jsonl` are randomly changed recorded cases, with the results of Kubernetes 1.38.0-alpha.0. One
//! difference is intended: the reason of TaintToleration names the taint. Cases that differ otherwise are in
//! `known_gaps.txt`, each with the reason; they are run, too, and must still differ.

#![allow(
    clippy::disallowed_methods,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "tests read their cases, and may fail"
)]

// The short name of the crate in the rest of the workspace.
extern crate celplane_scheduling as scheduling;

mod preemption;
mod queueing_hints;
mod snapshots;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use api::core::v1::Pod;
use api::json::{Value, from_value};
use matching::{Features, Matcher};
use scheduling::cluster::{Object, PodInfo, Shapes};
use scheduling::plugins;
use scheduling::queue::Backoff;
use scheduling::{Profile, Scheduler};

const NOW: Duration = Duration::from_secs(1);

/// Runs all cases of a file and its variants; `run` returns the difference.
fn run_all(file: &str, run: impl Fn(&Value) -> Result<(), String>) {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let gaps = std::fs::read_to_string(directory.join("known_gaps.txt")).unwrap();
    let gaps: BTreeMap<&str, &str> =
        gaps.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(": ")).collect();
    let read = |file: &str| std::fs::read_to_string(directory.join(file)).unwrap();
    let cases = read(file) + &read(&format!("variants_{file}"));
    let (mut count, mut failures) = (0, Vec::new());
    for line in cases.lines() {
        let case = api::json::parse(line.as_bytes()).unwrap();
        let id = case.str_at(&["id"]).unwrap();
        count += 1;
        match (run(&case), gaps.contains_key(id)) {
            (Ok(()), true) => failures.push(format!("{id}: no longer differs; remove it from known_gaps.txt")),
            (Err(difference), false) => failures.push(format!("{id}: {difference}")),
            _ => {}
        }
    }
    assert!(failures.is_empty(), "{} of {count} differ\n{}", failures.len(), failures.join("\n"));
    assert!(count > 100);
}

fn matcher(case: &Value) -> Arc<Matcher> {
    let gate = case.bool_at(&["gates", "TaintTolerationComparisonOperators"]);
    let features = Features { comparison: gate.unwrap_or(true), ..Features::default() };
    let clock: Arc<dyn Fn() -> Duration + Send + Sync> = Arc::new(|| Duration::ZERO);
    Arc::new(Matcher::new(NonZeroUsize::new(64).unwrap(), clock, features).unwrap())
}

fn profile(case: &Value, matcher: &Matcher) -> Profile {
    let configured = list(case.get("pluginConfig"));
    let args = configured.iter().map(|it| (it.str_at(&["name"]).unwrap(), it.get("args").unwrap()));
    plugins::default_profile_with(&args.collect(), matcher).unwrap()
}

/// A scheduler with the cluster of the case.
fn scheduler(case: &Value) -> Scheduler {
    let matcher = matcher(case);
    let mut scheduler = Scheduler::new(vec![profile(case, &matcher)], Backoff::default(), matcher, 1);
    let cluster = case.get("cluster").unwrap();
    for node in list(cluster.get("nodes")) {
        scheduler.set_node(&from_value(node).unwrap(), NOW);
    }
    macro_rules! objects {
        ($($field:literal => $kind:ident),*) => {
            $(for object in list(cluster.get($field)) {
                scheduler.set_object(&Object::$kind(Arc::new(from_value(object).unwrap())), NOW);
            })*
        };
    }
    objects! {
        "namespaces" => Namespace, "services" => Service, "replicaSets" => ReplicaSet,
        "persistentVolumes" => Volume, "persistentVolumeClaims" => Claim, "storageClasses" => StorageClass,
        "csiNodes" => CsiNode, "csiDrivers" => CsiDriver, "csiStorageCapacities" => CsiStorageCapacity,
        "volumeAttachments" => VolumeAttachment, "podDisruptionBudgets" => DisruptionBudget
    }
    for pod in list(cluster.get("pods")) {
        let mut pod: Pod = from_value(pod).unwrap();
        if pod.spec.node_name.is_empty() {
            // It is nominated, and must not be tried itself.
            pod.spec.scheduling_gates = vec![api::core::v1::PodSchedulingGate { name: "test".into() }];
        }
        scheduler.set_pod(&pod, NOW);
    }
    scheduler
}

fn pod_info(pod: &Value, scheduler: &Scheduler) -> PodInfo {
    PodInfo::new(&from_value(pod).unwrap(), &mut Shapes::default(), &scheduler.cluster().matcher)
}

fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).unwrap_or_default()
}

fn strings(value: Option<&Value>) -> Vec<String> {
    list(value).iter().map(|it| it.as_str().unwrap().to_owned()).collect()
}

fn numbers(value: Option<&Value>) -> Vec<i64> {
    list(value).iter().map(|it| it.as_i64().unwrap()).collect()
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, expected: T, found: T) -> Result<(), String> {
    if expected == found { Ok(()) } else { Err(format!("{what}\n  expected {expected:?}\n  found    {found:?}")) }
}

/// The text without Kubernetes' addition if a plugin rejected all nodes before DynamicResources: its PostFilter
/// fails without the state of its PreFilter.
fn without_stray_words(message: &str) -> &str {
    message.strip_suffix(". not found").map_or(message, |it| &message[..=it.len()])
}

/// The text with every named taint as Kubernetes has it: nodes that differ only in their taint are counted together.
fn without_taints(message: &str) -> String {
    const OURS: &str = " node(s) had untolerated taint {";
    let mut rest = message;
    let (mut parts, mut out): (u64, Vec<String>) = (0, Vec::new());
    while let Some(at) = rest.find(OURS) {
        let (before, after) = rest.split_at(at);
        let digits = before.rfind(|it: char| !it.is_ascii_digit()).map_or(0, |it| it + 1);
        parts += before[digits..].parse::<u64>().unwrap();
        out.push(before[..digits].to_owned());
        rest = &after[after.find('}').unwrap() + 1..];
    }
    if parts == 0 {
        return message.to_owned();
    }
    // Put together and sort again, as Kubernetes would have.
    let text = format!("{}\u{1}{rest}", out.concat());
    let (head, tail) = text.split_once(": ").unwrap();
    let end = tail.find(". ").unwrap_or(tail.len() - 1);
    let (reasons, tail) = (&tail[..end], &tail[end + 1..]);
    let mut reasons: Vec<String> =
        reasons.split(", ").map(|it| it.replace('\u{1}', "")).filter(|it| !it.is_empty()).collect();
    // Beyond a number of taints the rest are not named.
    reasons.retain(|reason| match reason.strip_suffix(" node(s) had other untolerated taints") {
        Some(count) => {
            parts += count.parse::<u64>().unwrap();
            false
        }
        None => true,
    });
    reasons.push(format!("{parts} node(s) had untolerated taint(s)"));
    reasons.sort();
    format!("{head}: {}.{}", reasons.join(", "), tail.replace('\u{1}', ""))
}
