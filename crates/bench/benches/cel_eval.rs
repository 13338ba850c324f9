//! How long does one evaluation take, program and variables standing ready?

use celplane_bench::recorded;
use celplane_bench::report::{Bench, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    run(&Bench {
        question: "How long does one evaluation take, program and variables standing ready?",
        work: |engine, case| (engine.evaluate)(case).map(|evaluation| evaluation.batch),
        recorded: Some((recorded::LABEL, recorded::evaluate_ns)),
        note: recorded::EVALUATE_NOTE,
    })
}
