//! The conformance suite of the CEL specification, as JSON lines in the folder that `CEL_SPEC_DIR` names.
//!
//! Out of scope are protobuf messages, `cel.@block`, and the network functions, which the crate `cel-kubernetes` has and runs.
//! Every other case passes, or stands in `known_gaps.txt` with its reason; a listed case that passes is an error too.

mod case;
mod environment;
mod proto;
mod scope;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use case::Case;

const FOLDER_VARIABLE: &str = "CEL_SPEC_DIR";

#[test]
fn the_specification_holds() {
    let Some(folder) = std::env::var_os(FOLDER_VARIABLE).map(PathBuf::from) else {
        println!("skipped: {FOLDER_VARIABLE} does not name the folder with the conformance suite");
        return;
    };
    let gaps = known_gaps(include_str!("conformance/known_gaps.txt"));
    let (mut total, mut surprises, mut met) = (Tally::default(), Vec::new(), BTreeSet::new());
    for path in files(&folder) {
        let mut tally = Tally::default();
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            let case = Case::read(line);
            if !scope::holds(&case, line) {
                tally.skipped += 1;
                continue;
            }
            let id = case.id();
            let difference = case.difference();
            match &difference {
                None => tally.passed += 1,
                Some(_) => tally.failed += 1,
            }
            match (difference, gaps.contains(&id)) {
                (Some(difference), false) => surprises.push(format!("{id}: {}\n    {difference}", case.expr)),
                (None, true) => surprises.push(format!("{id}: passes, but is listed in known_gaps.txt")),
                _ => {}
            }
            met.insert(id);
        }
        println!("{:<16}{tally}", path.file_stem().unwrap().to_str().unwrap());
        total.add(&tally);
    }
    println!("{:<16}{total}, {} known gaps", "total", gaps.len());
    surprises.extend(gaps.difference(&met).map(|gap| format!("{gap}: is listed in known_gaps.txt, but was not run")));
    assert!(total.passed > 0, "there are no cases in {}", folder.display());
    assert!(surprises.is_empty(), "{} surprises:\n{}", surprises.len(), surprises.join("\n"));
}

fn files(folder: &Path) -> BTreeSet<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "jsonl")).collect()
}

/// `file/section/name: reason`, one a line; lines that start with `#` say more.
fn known_gaps(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split_once(": ").expect("every gap has a reason").0.to_owned()).collect()
}

#[derive(Default)]
struct Tally {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:>6} passed {:>6} failed {:>6} skipped", self.passed, self.failed, self.skipped)
    }
}
