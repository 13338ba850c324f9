//! The part of the CEL specification's conformance suite that is about addresses: those functions are Kubernetes'.
//!
//! The suite's other parts run in the crate `cel`, which also documents how its cases are read. `CEL_SPEC_DIR`
//! names the folder. Every case passes, or is listed in `known_gaps.txt` with its reason; a listed case that
//! passes is an error, too.

#[path = "../../cel/tests/conformance/case.rs"]
mod case;
#[path = "../../cel/tests/conformance/proto.rs"]
mod proto;

/// The environment of a case.
mod environment {
    use cel::env::Env;
    use cel_kubernetes::libraries::{Minor, base};

    use super::case::Case;

    /// The base environment of Kubernetes.
    pub(crate) fn of(_: &Case) -> Env {
        base(Minor::CURRENT).build().unwrap()
    }
}

use std::collections::BTreeSet;
use std::path::PathBuf;

use case::Case;

const FOLDER_VARIABLE: &str = "CEL_SPEC_DIR";

#[test]
fn the_specification_of_addresses_holds() {
    let Some(folder) = std::env::var_os(FOLDER_VARIABLE).map(PathBuf::from) else {
        println!("skipped: {FOLDER_VARIABLE} does not name the folder with the conformance suite");
        return;
    };
    let cases = std::fs::read_to_string(folder.join("network_ext.jsonl")).unwrap();
    let cases: Vec<Case> = cases.lines().map(Case::read).collect();
    let gaps: BTreeSet<&str> = include_str!("conformance/known_gaps.txt").lines().filter_map(gap).collect();
    let (mut passed, mut surprises) = (0, Vec::new());
    for case in &cases {
        let id = case.id();
        match (case.difference(), gaps.contains(id.as_str())) {
            (None, false) => passed += 1,
            (None, true) => surprises.push(format!("{id}: passes, but is listed in known_gaps.txt")),
            (Some(difference), false) => surprises.push(format!("{id}: {}\n    {difference}", case.expr)),
            (Some(_), true) => {}
        }
    }
    println!("network_ext {passed} passed, {} known gaps", gaps.len());
    assert!(surprises.is_empty(), "{} surprises:\n{}", surprises.len(), surprises.join("\n"));
    assert_eq!(passed + gaps.len(), cases.len(), "every gap is a case");
}

/// `file/section/name: reason`, or a line that starts with `#` and says more.
fn gap(line: &str) -> Option<&str> {
    (!line.starts_with('#')).then(|| line.split_once(": ").expect("every gap has a reason").0)
}
