//! `cargo xtask bench`: builds the program and the benchmarks, measures, and writes the report into `docs/benchmarks`.
//!
//! The measurements are `crates/bench/src/comparison.rs`. Programs of Kubernetes take part if they are found in
//! `--bin-dir` or on the path.

use crate::command::{cargo, program, root, run as run_command};
use anyhow::{Result, bail};
use std::path::PathBuf;

pub(crate) const ABOUT: &str = "measure beside kube-apiserver, kube-scheduler and etcd, write docs/benchmarks [--quick] [--out DIR] [--bin-dir DIR]";

/// Directory of the report, unless another is given.
const OUT: &str = "docs/benchmarks";

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let arguments = complete(arguments)?;
    // One command for both, so that they share their dependencies.
    let packages = ["--package", "celplane", "--package", "celplane-bench"];
    let targets = ["--bin", "celplane", "--bin", "compare"];
    run_command(cargo(["build", "--release", "--locked"]).args(packages).args(targets))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    run_command(&mut program(&target.join("release/compare").to_string_lossy(), arguments))
}

/// Checks the arguments before anything is built, and adds the directory of the report.
fn complete(arguments: &[String]) -> Result<Vec<String>> {
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--quick" => {}
            "--out" | "--bin-dir" => {
                if rest.next().is_none_or(|value| value.starts_with("--")) {
                    bail!("`{argument}` needs a directory");
                }
            }
            other => bail!("unexpected argument `{other}`, expected --quick, --out DIR or --bin-dir DIR"),
        }
    }
    let mut arguments = arguments.to_vec();
    if !arguments.iter().any(|argument| argument == "--out") {
        arguments.extend(["--out", OUT].map(str::to_owned));
    }
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(arguments: &[&str], expected: Result<&[&str], &str>) {
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        match (complete(&arguments), expected) {
            (Ok(complete), Ok(expected)) => assert_eq!(complete, expected),
            (Err(error), Err(expected)) => assert_eq!(error.to_string(), expected),
            (found, _) => panic!("{found:?}"),
        }
    }

    #[test]
    fn report_goes_to_docs_unless_out_is_given() {
        check(&["--quick"], Ok(&["--quick", "--out", "docs/benchmarks"]));
        check(&["--out", "x", "--bin-dir", "y"], Ok(&["--out", "x", "--bin-dir", "y"]));
    }

    #[test]
    fn wrong_arguments_are_rejected_before_the_build() {
        check(&["--out"], Err("`--out` needs a directory"));
        check(&["--bin-dir", "--quick"], Err("`--bin-dir` needs a directory"));
        check(&["--fast"], Err("unexpected argument `--fast`, expected --quick, --out DIR or --bin-dir DIR"));
    }
}
