//! `cargo xtask test`: finds or fetches what the tests need, then runs all of them.
//!
//! With every tool present, `CELPLANE_REQUIRE_TOOLS=1` makes a test that needs one fail instead of
//! skip. With `--require-tools`, or that variable already set, a missing tool is an error at once.
//! `CELPLANE_REQUIRE_BROWSER=1` does the same for the tests of the console, which need chromium.
//! `CEL_SPEC_DIR`, where set, reaches the tests as any other variable does.

use crate::command::{cargo, root, run as run_command};
use crate::{browser, containers, reject_unknown_flags, tools};
use anyhow::{Result, bail};
use std::process::Command;

pub(crate) const ABOUT: &str = "fetch what the tests need, then run them all [--require-tools]";

/// Makes tests that need an external tool fail if it is missing.
const REQUIRE_TOOLS: &str = "CELPLANE_REQUIRE_TOOLS";

/// The crates under test: all but the benchmarks, and the engines that they are compared with.
const CRATES: [&str; 5] = ["--workspace", "--exclude", "celplane-bench", "--exclude", "celplane-peers"];

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    reject_unknown_flags(arguments, &["--require-tools"])?;
    let required = !arguments.is_empty() || std::env::var(REQUIRE_TOOLS).is_ok_and(|value| value == "1");
    let found = tools::provide(&root());
    for missing in &found.missing {
        eprintln!("{missing}");
    }
    if required && !found.missing.is_empty() {
        bail!("tests need tools that are not here");
    }
    let has_suite = std::env::var_os("CEL_SPEC_DIR").is_some();
    let axe = browser::axe();
    let in_environment = |command: &mut Command| -> Result<()> {
        command.env("PATH", &found.path);
        if let Ok(axe) = &axe {
            command.env("CELPLANE_AXE", axe);
        }
        if found.missing.is_empty() {
            command.env(REQUIRE_TOOLS, "1");
        }
        run_command(command)
    };
    let tests = if has_nextest() {
        in_environment(cargo(["nextest", "run", "--no-fail-fast"]).args(CRATES))
    } else {
        // Tests start examples, which this selection of targets does not build.
        in_environment(cargo(["build", "--examples"]).args(CRATES))
            .and_then(|()| in_environment(cargo(["test", "--no-fail-fast", "--lib", "--bins", "--tests"]).args(CRATES)))
    };
    let result = tests.and_then(|()| in_environment(cargo(["test", "--doc"]).args(CRATES)));
    // The last line, because others scroll away.
    let installed = browser::skipped(&axe).into_iter().chain(containers::skipped(&found.path));
    eprintln!("{}", summary(result.is_ok(), has_suite, found.missing.len(), installed));
    result
}

/// The last line: the outcome, and everything that was skipped.
fn summary(passed: bool, has_suite: bool, missing_tools: usize, others: impl IntoIterator<Item = String>) -> String {
    let mut skipped = Vec::from_iter(others);
    if !has_suite {
        skipped.push("the CEL conformance suite (set CEL_SPEC_DIR)".to_owned());
    }
    if missing_tools > 0 {
        skipped.push(format!("tests of {missing_tools} missing tools"));
    }
    let outcome = if passed { "tests passed" } else { "tests failed" };
    match skipped.as_slice() {
        [] => format!("{outcome}, 0 suites skipped"),
        all => format!("{outcome}, {} suites skipped: {}", all.len(), all.join("; ")),
    }
}

fn has_nextest() -> bool {
    cargo(["nextest", "--version"]).output().is_ok_and(|output| output.status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_line_counts_skipped_suites() {
        assert_eq!(summary(true, true, 0, None), "tests passed, 0 suites skipped");
        let expected = "tests passed, 1 suites skipped: the CEL conformance suite (set CEL_SPEC_DIR)";
        assert_eq!(summary(true, false, 0, None), expected);
        assert!(summary(false, false, 2, None).starts_with("tests failed, 2 suites skipped: "));
        let containers = Some("tests of containers".to_owned());
        assert_eq!(summary(true, true, 0, containers), "tests passed, 1 suites skipped: tests of containers");
    }
}
