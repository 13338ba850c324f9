//! What the reference implementation answers, case by case: errors, types, values, estimated and actual costs.
//!
//! `tests/data/golden/` holds the recorded cases that need nothing but the language. Texts are compared exactly, except
//! for the wording of syntax errors, which belongs to the reference's parser generator: there, the places must agree.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::arithmetic_side_effects,
    clippy::disallowed_methods,
    reason = "tests"
)]

mod case;
mod environment;
mod typed_json;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use case::Case;

#[test]
fn recorded_answers_are_ours() {
    // Unoptimized code takes more room for deeply nested expressions than a test's thread has.
    std::thread::Builder::new().stack_size(STACK_BYTES).spawn(compare_all).unwrap().join().unwrap();
}

const STACK_BYTES: usize = 8 << 20;

fn compare_all() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden");
    let gaps = known_gaps(&std::fs::read_to_string(folder.join("known_gaps.txt")).unwrap());
    let env = environment::base();
    let (mut total, mut surprises) = (Tally::default(), Vec::new());
    let mut known = BTreeSet::new();
    for (group, text) in groups(&folder) {
        let mut tally = Tally::default();
        for line in text.lines() {
            let case = Case::read(line);
            let difference = case.difference(&env);
            tally.count(difference.is_none());
            known.insert(case.id.clone());
            match (difference, gaps.contains(&case.id)) {
                (Some(difference), false) => {
                    surprises.push(format!("{}: {}\n    {difference}", case.id, shorten(&case.expr)));
                }
                (None, true) => surprises.push(format!("{}: passes, but is listed in known_gaps.txt", case.id)),
                _ => {}
            }
        }
        println!("{group:<16}{tally}");
        total.add(&tally);
    }
    println!("{:<16}{total}, {} known gaps", "total", gaps.len());
    for gap in gaps.iter().filter(|gap| !known.contains(*gap)) {
        surprises.push(format!("{gap}: is listed in known_gaps.txt, but there is no such case"));
    }
    assert!(total.passed > 0, "there are no cases");
    assert!(surprises.is_empty(), "{} surprises:\n{}", surprises.len(), surprises.join("\n"));
}

/// The files, in the order of their names.
fn groups(folder: &Path) -> BTreeMap<String, String> {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files
        .filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
        .map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), std::fs::read_to_string(&path).unwrap()))
        .collect()
}

/// `id  reason`, one a line; lines that start with `#` say more.
fn known_gaps(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (id, reason) = line.split_once(' ').expect("every gap has a reason");
            assert!(!reason.trim().is_empty(), "{id}: every gap has a reason");
            id.to_owned()
        })
        .collect()
}

fn shorten(text: &str) -> String {
    if text.chars().count() <= 200 { text.to_owned() } else { text.chars().take(200).chain(['…']).collect() }
}

#[derive(Default)]
struct Tally {
    passed: usize,
    failed: usize,
}

impl Tally {
    fn count(&mut self, passed: bool) {
        if passed { self.passed += 1 } else { self.failed += 1 }
    }

    fn add(&mut self, other: &Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:>6} passed {:>6} failed", self.passed, self.failed)
    }
}
