//! How long does one evaluation take, program and variables standing ready?
//!
//! Beside other engines.

use bench::report::{EVALUATE, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    run(&EVALUATE, &celplane_peers::ENGINES)
}
