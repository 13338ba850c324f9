//! What does CEL cost where pods meet nodes: 5,000 nodes × 1,000 pods, by kind of toleration and number of distinct taint sets?
//!
//! Every pod is matched against every node, as in a scheduler's filter. The matchers are built inside the
//! measured loop, because a scheduler builds one per pod. `matching_fleet KIND SETS` runs one combination once,
//! for counting instructions.

#![allow(clippy::arithmetic_side_effects, reason = "numbers of a table")]

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::core::v1::{Node as NodeView, PodSpec, PodSpecPart, Taint, Toleration};
use api::time::Timestamp;
use matching::{CompileCache, Features, Node, PodMatcher, taints};

const NODES: usize = 5_000;
const PODS: usize = 1_000;
const KINDS: [&str; 8] = ["none", "Equal", "Gt", "Semver", "CEL", "gates-off", "Equal-timed", "CEL-timed"];
/// Suffix of a kind in which every taint has a different time on each node, as after an outage.
const TIMED: &str = "-timed";
const SETS: [usize; 4] = [1, 10, 100, 5_000];
const ROUNDS: usize = 5;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|it| !it.starts_with("--")).collect();
    if let [kind, sets] = arguments.as_slice() {
        let Ok(sets) = sets.parse() else { return ExitCode::from(2) };
        println!("{kind} {sets}: {} fit", run(kind, &fleet(kind, sets)));
        return ExitCode::SUCCESS;
    }
    if !std::env::args().any(|argument| argument == "--bench") {
        return check();
    }
    println!("What does CEL cost where pods meet nodes? {NODES} nodes x {PODS} pods, ms (best of {ROUNDS})");
    println!("{:11} {}", "", SETS.map(|sets| format!("{sets:>10} sets")).join(" "));
    for kind in KINDS {
        let cells = SETS.map(|sets| {
            let fleet = fleet(kind, sets);
            let best = (0..ROUNDS).map(|_| time(|| run(kind, &fleet))).min().unwrap_or_default();
            format!("{:>15.1}", best.as_secs_f64() * 1e3)
        });
        println!("{kind:11} {}", cells.join(" "));
    }
    ExitCode::SUCCESS
}

/// Every kind of toleration must give the same verdicts, or comparing their cost means nothing.
fn check() -> ExitCode {
    let fits = ["Equal", "Gt", "Semver", "CEL", "Equal-timed", "CEL-timed"].map(|kind| run(kind, &fleet(kind, 10)));
    println!("{fits:?} pods fit their nodes, by kind of toleration");
    if fits.iter().all(|count| *count == NODES * PODS) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn time(work: impl FnOnce() -> usize) -> Duration {
    let start = Instant::now();
    std::hint::black_box(work());
    start.elapsed()
}

/// Nodes with one taint that every kind of toleration tolerates, and one that distinguishes the sets.
fn fleet(kind: &str, sets: usize) -> Vec<Node> {
    let interned = taints::Sets::new();
    let is_timed = kind.ends_with(TIMED);
    let value = match kind.trim_end_matches(TIMED) {
        "Gt" => "7",
        "Semver" | "CEL" => "v1.2.3",
        _ => "yes",
    };
    let taint = |key: &str, value: &str| Taint {
        key: key.into(),
        value: value.into(),
        effect: "NoSchedule".into(),
        ..Taint::default()
    };
    (0..NODES)
        .map(|number| {
            let mut node = NodeView::default();
            node.metadata.name = format!("node-{number}").into();
            node.spec.taints = vec![taint("dedicated.example.com/pool", value)];
            let other = Taint { effect: "PreferNoSchedule".into(), ..taint("set", &(number % sets).to_string()) };
            node.spec.taints.push(other);
            if is_timed {
                let second = i64::try_from(number).unwrap_or_default();
                let time = Timestamp { seconds: second, nanos: 0 };
                node.spec.taints.iter_mut().for_each(|taint| taint.time_added = Some(time));
            }
            Node::new(&node, &interned)
        })
        .collect()
}

fn tolerations(kind: &str) -> Vec<Toleration> {
    let key = "dedicated.example.com/pool";
    let plain = |operator: &str, value: &str| Toleration {
        key: key.into(),
        operator: operator.into(),
        value: value.into(),
        ..Toleration::default()
    };
    match kind.trim_end_matches(TIMED) {
        "Equal" | "gates-off" => vec![plain("Equal", "yes")],
        "Gt" => vec![plain("Gt", "5")],
        "Semver" => vec![plain("SemverGt", "v1.0.0")],
        "CEL" => vec![Toleration {
            expression: format!("taint.key == '{key}' && semver.compare(taint.value, '>=1.0.0')").into(),
            ..Toleration::default()
        }],
        _ => Vec::new(),
    }
}

/// Number of matching pairs.
fn run(kind: &str, nodes: &[Node]) -> usize {
    let start = Instant::now();
    let capacity = NonZeroUsize::new(1024).unwrap_or(NonZeroUsize::MIN);
    let Ok(cache) = CompileCache::new(capacity, Arc::new(move || start.elapsed())) else { return 0 };
    let features = if kind == "gates-off" { Features::default() } else { Features::ALL };
    let spec = PodSpec::from(PodSpecPart { tolerations: tolerations(kind), ..PodSpecPart::default() });
    let mut fitting = 0;
    for _ in 0..PODS {
        let matcher = PodMatcher::new(&spec, &cache, &features);
        fitting += nodes.iter().filter(|node| matcher.fits(node)).count();
    }
    fitting
}
