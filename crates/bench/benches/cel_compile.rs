//! How long from text to something that can be evaluated?
//!
//! The peers only parse; ours parses, checks types, estimates cost and plans.

use celplane_bench::recorded;
use celplane_bench::report::{Bench, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    run(&Bench {
        question: "How long from text to something that can be evaluated? (peers: parse only)",
        work: |engine, case| (engine.compile)(case),
        recorded: None,
        note: recorded::COMPILE_NOTE,
    })
}
