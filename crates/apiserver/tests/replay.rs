//! Replays requests that a real API server answered, and compares the answers after volatile values are masked.
//!
//! What does not agree yet is listed in `known_gaps.txt`, one scenario and step per line; a listed step that agrees fails
//! the test as well, so that the list only shrinks. `CELPLANE_GAPS=write` writes the list anew.

mod mask;
mod player;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

/// The recordings, and what a gap in them most likely is.
const FILES: &[(&str, &str)] = &[
    ("health", "health endpoints differ in their checks"),
    ("discovery", "groups and forms that are not served"),
    ("openapi", "protobuf forms and the version 2 document"),
    ("crud", "defaults, validation, apply and tables of the kind"),
    ("patch", "defaults and validation of the kind"),
    ("ssa", "apply"),
    ("list", "defaults and validation of the kind"),
    ("watch", "defaults and forms of the kind"),
    ("table", "columns of the kind"),
    ("deletion", "defaults and validation of the kind"),
    ("subresources", "defaults and validation of the kind"),
    ("crd", "managed fields and apply of custom resources"),
    ("protobuf", "forms that are sent as JSON"),
    ("errors", "reviews, quota, protobuf and impersonation"),
    ("validation", "validation of the kind"),
    ("defaulting", "defaults of the kind"),
    ("defaulting-no-serviceaccount-admission", "defaults of the kind"),
    ("dra", "claims and slices of devices"),
];

#[test]
fn recorded_answers_agree() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/http");
    let gaps_path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/replay/known_gaps.txt");
    let known = std::fs::read_to_string(&gaps_path).unwrap_or_default();
    let reasons: BTreeMap<&str, &str> = known.lines().filter_map(|line| line.split_once(" # ")).collect();
    let known: Vec<&str> = reasons.keys().copied().collect();
    let only = std::env::var("CELPLANE_REPLAY").ok();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    let mut report = String::new();
    let mut list = String::from("# Steps whose answers differ from the recorded ones, each with the likely reason.\n");
    let (mut passed, mut failed, mut wrong, mut all) = (0, 0, Vec::new(), Vec::new());
    for (file, reason) in FILES {
        let text = std::fs::read_to_string(data.join(format!("{file}.jsonl"))).unwrap();
        let mut scenarios: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for line in text.lines() {
            let step: Value = serde_json::from_str(line).unwrap();
            scenarios.entry(step["scenario"].as_str().unwrap().to_owned()).or_default().push(step);
        }
        let results = runtime.block_on(async {
            let mut tasks = Vec::new();
            for (name, steps) in scenarios {
                if only.as_ref().is_none_or(|only| name.contains(only.as_str())) {
                    tasks.push(tokio::spawn(player::play(name, steps)));
                }
            }
            let mut results = Vec::new();
            for task in tasks {
                results.extend(task.await.unwrap());
            }
            results
        });
        let (mut file_passed, mut file_failed) = (0, 0);
        for result in results {
            let id = result.id;
            match result.difference {
                None => {
                    file_passed += 1;
                    if known.contains(&id.as_str()) {
                        wrong.push(format!("{id}: agrees now, take it off the list"));
                    }
                }
                Some(difference) => {
                    file_failed += 1;
                    let reason = reasons.get(id.as_str()).unwrap_or(reason);
                    let _ = writeln!(list, "{id} # {reason}");
                    all.push(format!("{id}: {difference}"));
                    if !known.contains(&id.as_str()) {
                        wrong.push(format!("{id}: {difference}"));
                    }
                }
            }
        }
        let _ = writeln!(report, "{file}: {file_passed} of {} agree", file_passed + file_failed);
        passed += file_passed;
        failed += file_failed;
    }
    println!("{report}{passed} of {} steps agree", passed + failed);
    if std::env::var("CELPLANE_GAPS").as_deref() == Ok("write") {
        std::fs::write(gaps_path, list).unwrap();
        std::fs::write(std::env::temp_dir().join("celplane_replay.txt"), all.join("\n")).unwrap();
        return;
    }
    assert!(wrong.is_empty(), "{} steps are not as listed:\n{}", wrong.len(), wrong.join("\n"));
}
