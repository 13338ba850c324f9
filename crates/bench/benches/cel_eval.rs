//! How long does one evaluation take, program and variables standing ready?

use celplane_bench::report::{EVALUATE, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    run(&EVALUATE, &[])
}
