//! Runs recorded cases, one a line, in files by group, and compares what is known to fail with what fails.
//!
//! Shared by the crates that run recorded cases.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Outcome of one case.
pub(crate) struct Outcome {
    pub(crate) id: String,
    pub(crate) expression: String,
    /// Description of the difference, if there is one.
    pub(crate) difference: Option<String>,
}

/// Runs all cases of some folders. A case differs exactly if it stands in the list of known gaps.
pub(crate) fn run(folders: &[PathBuf], known_gaps: &Path, mut run_case: impl FnMut(&str) -> Outcome) {
    let gaps = read_gaps(&std::fs::read_to_string(known_gaps).unwrap());
    let (mut total, mut surprises) = (Tally::default(), Vec::new());
    let mut known = BTreeSet::new();
    for (group, files) in groups(folders) {
        let mut tally = Tally::default();
        for text in files {
            for line in text.lines() {
                let Outcome { id, expression, difference } = run_case(line);
                tally.count(difference.is_none());
                match (difference, gaps.contains(&id)) {
                    (Some(difference), false) => {
                        surprises.push(format!("{id}: {}\n    {difference}", shorten(&expression)));
                    }
                    (None, true) => surprises.push(format!("{id}: passes, but is listed in known_gaps.txt")),
                    _ => {}
                }
                assert!(known.insert(id), "a case is there twice: {line}");
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

/// The files of all folders by name, in the order of their names.
fn groups(folders: &[PathBuf]) -> BTreeMap<String, Vec<String>> {
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for folder in folders {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "jsonl") {
                let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
                groups.entry(name).or_default().push(std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    groups
}

/// `id  reason`, one a line; lines that start with `#` say more.
fn read_gaps(text: &str) -> BTreeSet<String> {
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
