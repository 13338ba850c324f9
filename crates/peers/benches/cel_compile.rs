//! How long from text to something that can be evaluated?
//!
//! Beside other engines. They only parse; ours parses, checks types, estimates the cost and plans.

use bench::report::{COMPILE, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    run(&COMPILE, &celplane_peers::ENGINES)
}
