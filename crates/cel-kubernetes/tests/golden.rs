//! Recorded results of the reference implementation in Kubernetes' environments: errors, types, values,
//! estimated and actual costs.
//!
//! `tests/data/golden/` holds the recorded cases that need Kubernetes' libraries or environments; those that
//! need only the language are in the crate `cel`, and are run here, too.

#[path = "../../cel/tests/golden/suite.rs"]
mod suite;

use std::path::Path;

use cel_kubernetes::recorded::{Answer, Question, Respondent};
use serde::Deserialize;
use serde_json::value::RawValue;
use suite::Outcome;

#[derive(Deserialize)]
struct Case {
    id: String,
    env: String,
    expr: String,
    input: Option<Box<RawValue>>,
    schema: Option<Box<RawValue>>,
    expect: Answer,
}

#[test]
fn recorded_answers_are_ours() {
    // Unoptimized code takes more room for deeply nested expressions than a test's thread has.
    std::thread::Builder::new().stack_size(STACK_BYTES).spawn(compare_all).unwrap().join().unwrap();
}

const STACK_BYTES: usize = 8 << 20;

fn compare_all() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let folders = [tests.join("data/golden"), tests.join("../../cel/tests/data/golden")];
    let mut respondent = Respondent::default();
    suite::run(&folders, &folders[0].join("known_gaps.txt"), |line| run(line, &mut respondent));
}

fn run(line: &str, respondent: &mut Respondent) -> Outcome {
    // Values may be nested deeper than JSON readers like.
    let mut reader = serde_json::Deserializer::from_str(line);
    reader.disable_recursion_limit();
    let case = Case::deserialize(&mut reader).unwrap();
    let answer = respondent.answer(&Question {
        place: &case.env,
        expression: &case.expr,
        input: case.input.as_deref().map(RawValue::get),
        schema: case.schema.as_deref().map(RawValue::get),
    });
    let difference = case.expect.difference(&answer.unwrap_or_else(|error| panic!("{}: {error}", case.id)));
    Outcome { id: case.id, expression: case.expr, difference }
}
