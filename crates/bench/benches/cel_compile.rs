//! How long from text to something that can be evaluated?

use celplane_bench::report::{COMPILE, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    run(&COMPILE, &[])
}
