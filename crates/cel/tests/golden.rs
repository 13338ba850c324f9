//! Recorded results of the reference implementation: errors, types, values, estimated and actual costs.
//!
//! `tests/data/golden/` holds the recorded cases that need nothing but the language. The crate `cel-kubernetes`
//! runs them too, and those that need more.

mod case;
mod environment;
pub(crate) mod listed;
mod suite;

// The recorded answers are documented once, in the crate that also writes them; this crate must not depend on
// it.
#[path = "../../cel-kubernetes/src/recorded/answer.rs"]
mod answer;
#[path = "../../cel-kubernetes/src/recorded/typed_json.rs"]
mod typed_json;

use std::path::Path;

#[test]
fn recorded_answers_are_ours() {
    // Unoptimized code takes more room for deeply nested expressions than a test's thread has.
    std::thread::Builder::new().stack_size(STACK_BYTES).spawn(compare_all).unwrap().join().unwrap();
}

const STACK_BYTES: usize = 8 << 20;

fn compare_all() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden");
    let env = environment::base();
    let known_gaps = folder.join("known_gaps.txt");
    suite::run(&[folder], &known_gaps, |line| case::run(line, &env));
}
