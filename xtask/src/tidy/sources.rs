//! Shape and wording of the files: headers, names, length, and words that do not belong.

use super::{Findings, Tree};
use anyhow::Result;

const LINES_MAX: usize = 900;
const LINES_LARGE: usize = 600;

/// Marks a file that a generator wrote, on its first line; such a file may have any length.
const GENERATED: &str = "@generated";

/// File names that do not describe the contents.
const EMPTY_NAMES: &[&str] = &["common.rs", "util.rs", "utils.rs", "helper.rs", "helpers.rs", "misc.rs"];

/// Text that may stand in no source: unfinished work and skipped tests.
/// Here and below each is written in two parts, so that the lists do not find themselves.
const FORBIDDEN_IN_CODE: &[(&str, &str)] = &[
    (concat!("to", "do!("), "unfinished work"),
    (concat!("unimple", "mented!("), "unfinished work"),
    (concat!("FIX", "ME"), "unfinished work"),
    (concat!("XX", "X:"), "unfinished work"),
    (concat!("#[ig", "nore"), "a skipped test; assert the known wrong result and explain it"),
];

/// Text that may stand in no source, page or manifest: paths that exist on one machine only.
const FORBIDDEN: &[(&str, &str)] = &[
    (concat!("../sha", "red"), "a path outside the project"),
    (concat!("/ro", "ot/"), "a path of one machine"),
    (concat!("/wo", "rk/"), "a path of one machine"),
];

/// Turns of speech that make readers stop, in lower case.
const NOT_PLAIN: &[(&str, &str)] =
    &[(concat!("so ", "many "), "say how many, or this many"), (concat!("hangs ", "on "), "say depends on")];

pub(super) fn check(tree: &Tree, findings: &mut Findings) -> Result<()> {
    for file in &tree.files {
        if is_data(file) {
            continue;
        }
        let is_rust = file.ends_with(".rs");
        if !is_rust && !file.ends_with(".md") && !file.ends_with(".toml") {
            continue;
        }
        let text = tree.text(file)?;
        let mut forbidden = FORBIDDEN.to_vec();
        if is_rust {
            forbidden.extend(FORBIDDEN_IN_CODE);
            check_rust(file, &text, findings);
            check_logged_errors(file, &text, findings);
        }
        for (number, line) in text.lines().enumerate() {
            let lower = line.to_lowercase();
            let found = forbidden.iter().filter(|(word, _)| line.contains(word));
            for (word, why) in found.chain(NOT_PLAIN.iter().filter(|(word, _)| lower.contains(word))) {
                findings.errors.push(format!("{file}:{}: `{word}`: {why}", number.saturating_add(1)));
            }
        }
    }
    Ok(())
}

/// Text that may follow the key of an error: an error with its causes, or a text without causes.
const LOGGED: &[&str] = &["chain(", "logs::chain(", "telemetry::logs::chain(", "why", "message", "unplaced.message"];

/// Finds errors that are logged without their causes: alone, an error prints only its topmost message.
fn check_logged_errors(file: &str, text: &str, findings: &mut Findings) {
    for (number, line) in text.lines().enumerate() {
        let Some((_, logged)) = line.split_once(concat!("err = ", "%")) else { continue };
        if !LOGGED.iter().any(|allowed| logged.starts_with(allowed)) {
            let number = number.saturating_add(1);
            findings.errors.push(format!("{file}:{number}: log an error with its causes: `err = %chain(&error)`"));
        }
    }
}

/// Recorded facts of others, which keep their wording.
pub(super) fn is_data(file: &str) -> bool {
    file.contains("/tests/data/") || file.contains("/tests/cases/")
}

/// Whether a generator wrote the file.
pub(super) fn is_generated(text: &str) -> bool {
    text.lines().next().is_some_and(|line| line.contains(GENERATED))
}

fn check_rust(file: &str, text: &str, findings: &mut Findings) {
    let name = file.rsplit('/').next().unwrap_or(file);
    if name == "mod.rs" {
        findings.errors.push(format!("{file}: name the module's file after the module"));
    }
    if EMPTY_NAMES.contains(&name) {
        findings.errors.push(format!("{file}: the name does not say what is inside"));
    }
    if !has_header(text) {
        findings.errors.push(format!("{file}: does not begin with a `//!` header"));
    }
    let generated = is_generated(text);
    let lines = text.lines().count();
    if lines > LINES_MAX && !generated {
        findings.errors.push(format!("{file}: {lines} lines, at most {LINES_MAX}: which second idea is inside?"));
    } else if lines > LINES_LARGE && !generated {
        findings.warnings.push(format!("{file}: {lines} lines, large above {LINES_LARGE}"));
    }
}

/// Is the first thing, after inner attributes such as `#![allow(…)]`, a `//!` comment?
fn has_header(text: &str) -> bool {
    let mut in_attribute = false;
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if in_attribute || line.starts_with("#![") {
            in_attribute = !line.ends_with(']');
            continue;
        }
        return line.starts_with("//!");
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_stands_first_or_after_inner_attributes() {
        assert!(has_header("//! What it is for.\n"));
        assert!(has_header("#![allow(clippy::panic, reason = \"tests\")]\n\n//! What it is for.\n"));
        assert!(has_header("#![allow(\n    clippy::panic,\n    reason = \"tests\"\n)]\n//! What it is for.\n"));
        assert!(!has_header("use std::fmt;\n//! Too late.\n"));
        assert!(!has_header("// Not a header.\n"));
        assert!(!has_header(""));
    }

    #[track_caller]
    fn errors_of(file: &str, text: &str) -> Vec<String> {
        let mut findings = Findings::default();
        check_rust(file, text, &mut findings);
        findings.errors
    }

    #[test]
    fn names_that_say_nothing_are_refused() {
        assert_eq!(errors_of("crates/cel/src/value.rs", "//! Values.\n"), [""; 0]);
        assert_eq!(errors_of("crates/cel/src/value/mod.rs", "//! Values.\n").len(), 1);
        assert_eq!(errors_of("crates/cel/src/util.rs", "//! Things.\n").len(), 1);
    }

    #[test]
    fn length_has_a_limit_unless_generated() {
        let body = "// line\n".repeat(LINES_MAX);
        assert_eq!(errors_of("a.rs", &format!("//! Long.\n{body}")).len(), 1);
        assert_eq!(errors_of("a.rs", &format!("//! @generated table.\n{body}")), [""; 0]);
        let mut findings = Findings::default();
        check_rust("a.rs", &format!("//! Large.\n{}", "// line\n".repeat(LINES_LARGE)), &mut findings);
        assert_eq!((findings.errors.len(), findings.warnings.len()), (0, 1));
    }

    #[test]
    fn errors_are_logged_with_their_causes() {
        let check = |line: &str| {
            let mut findings = Findings::default();
            check_logged_errors("a.rs", line, &mut findings);
            findings.errors.len()
        };
        let logged = |what: &str| format!(concat!("warn!(err = ", "%{}, \"Watch failed\");"), what);
        assert_eq!(check(&logged("error")), 1, "a planted fault");
        assert_eq!(check(&logged("failure")), 1);
        assert_eq!(check(&logged("chain(&error)")), 0);
        assert_eq!(check(&logged("message")), 0);
        assert_eq!(check("warn!(\"Watch failed\");"), 0);
    }

    #[test]
    fn forbidden_words_are_named_with_their_line_but_not_in_recorded_data() {
        let root = std::env::temp_dir().join(format!("xtask-sources-{}", std::process::id()));
        std::fs::create_dir_all(root.join("c/tests/data")).unwrap();
        let text = format!("//! Header.\nfn f() {{ {}) }}\n", FORBIDDEN_IN_CODE[0].0);
        std::fs::write(root.join("c/lib.rs"), &text).unwrap();
        std::fs::write(root.join("c/tests/data/lib.rs"), &text).unwrap();
        let files = vec!["c/lib.rs".to_owned(), "c/tests/data/lib.rs".to_owned()];
        let tree = Tree { root: root.clone(), files, crates: Vec::new() };
        let mut findings = Findings::default();
        check(&tree, &mut findings).unwrap();
        std::fs::remove_dir_all(root).unwrap();
        assert_eq!(findings.errors, [format!("c/lib.rs:2: `{}`: unfinished work", FORBIDDEN_IN_CODE[0].0)]);
    }
}
