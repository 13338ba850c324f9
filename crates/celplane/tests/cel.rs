//! `celplane cel`, as it is called from a shell.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::arithmetic_side_effects,
    reason = "tests"
)]

use std::io::Write;
use std::process::{Command, Stdio};

/// Runs `celplane cel` and compares exit code, standard output and standard error.
#[track_caller]
fn check(arguments: &[&str], code: i32, output: &str, errors: &str) {
    let run = Command::new(env!("CARGO_BIN_EXE_celplane")).arg("cel").args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (expected, actual) = ((Some(code), output, errors), (run.status.code(), text(run.stdout), text(run.stderr)));
    assert_eq!(expected, (actual.0, actual.1.as_str(), actual.2.as_str()), "celplane cel {arguments:?}");
}

#[test]
fn values_print_as_cel_writes_them() {
    check(&["eval", "1 + 2 == 3"], 0, "true\n", "");
    check(&["eval", "[1, 2u, 'three', duration('90s')]"], 0, "[1, 2u, \"three\", duration(\"90s\")]\n", "");
    check(&["eval", "{'a': 1.0, 'b': null}"], 0, "{\"a\": 1.0, \"b\": null}\n", "");
    check(&["eval", "--json", "-1"], 0, "{\"int\":\"-1\"}\n", "");
}

#[test]
fn variables_have_the_type_of_their_value() {
    check(&["eval", "s + 'b'", "--var", "s=a"], 0, "\"ab\"\n", "");
    check(&["eval", "l.map(i, i * x)", "--var", "l=[1, 2]", "--var", "x=3"], 0, "[3, 6]\n", "");
    check(&["eval", "u / 2u", "--var", "u:uint=7"], 0, "3u\n", "");
    check(&["eval", "t.getFullYear()", "--var", "t:timestamp=2026-01-01T00:00:00Z"], 0, "2026\n", "");
}

#[test]
fn what_does_not_compile_is_shown_with_its_place() {
    let picture = "ERROR: <input>:1:5: undeclared reference to 'x' (in container '')\n | 1 + x\n | ....^\n";
    check(&["eval", "1 + x"], 1, "", picture);
    check(&["check", "1 + x"], 1, "", picture);
    check(&["ast", "--types", "1 + x"], 1, "", picture);
}

#[test]
fn an_error_of_evaluation_is_a_failure() {
    check(&["eval", "1 / 0"], 1, "", "ERROR: division by zero\n");
    check(&["eval", "int('x')"], 1, "", "ERROR: type conversion error from 'string' to 'int'\n");
    let text = "ERROR: operation cancelled: actual cost limit exceeded\n";
    check(&["eval", "--cost-limit", "10", "[1, 2, 3].map(i, i).size() > 2"], 1, "", text);
}

#[test]
fn checking_says_type_and_cost() {
    check(&["check", "s.startsWith('a')", "--var", "s=x"], 0, "type  bool\ncost  2\n", "");
    check(&["check", "s + s", "--var", "s=x"], 0, "type  string\ncost  2 to 1844674407370955266\n", "");
    check(&["check", "l.all(i, i > 0)", "--var", "l=[1]"], 0, "type  bool\ncost  at least 2\n", "");
}

#[test]
fn costs_are_shown_beside_the_value() {
    check(&["eval", "--cost", "x + 1", "--var", "x=1"], 0, "2\n", "cost: 2\n");
}

#[test]
fn trees_print_one_node_a_line() {
    let tree = "call _||_\n  has b\n    ident a\n  call startsWith\n    target: ident s\n    literal \"x\"\n";
    check(&["ast", "has(a.b) || s.startsWith('x')"], 0, tree, "");
    let typed = "list  (list(int))\n  literal 1  (int)\n  ident x  (int)\n";
    check(&["ast", "--types", "[1, x]", "--var", "x=1"], 0, typed, "");
}

#[test]
fn macros_are_shown_expanded() {
    let tree = "comprehension i into @result\n  range: ident l\n  init: literal true\n  condition: call @not_strictly_false\n    \
                ident @result\n  step: call _&&_\n    ident @result\n    call _>_\n      ident i\n      literal 0\n  \
                result: ident @result\n";
    check(&["ast", "l.all(i, i > 0)"], 0, tree, "");
}

#[test]
fn usage_errors_have_their_own_exit_code() {
    for arguments in [&["eval"][..], &["eval", "1", "--var", "1x=1"], &["eval", "1", "--nope"], &["nope"]] {
        let run = Command::new(env!("CARGO_BIN_EXE_celplane")).arg("cel").args(arguments).output().unwrap();
        assert_eq!(run.status.code(), Some(2), "celplane cel {arguments:?}");
    }
}

/// Sends lines to `celplane cel batch`.
fn batch(lines: &str) -> (Option<i32>, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_celplane"))
        .args(["cel", "batch"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let lines = lines.to_owned();
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let run = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    (run.status.code(), String::from_utf8(run.stdout).unwrap(), String::from_utf8(run.stderr).unwrap())
}

#[test]
fn a_batch_is_answered_line_by_line_in_the_recorded_format() {
    let recorded = include_str!("data/batch.jsonl");
    // What was recorded is ignored and found out again.
    let (code, answers, errors) = batch(recorded);
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    for (expected, answer) in recorded.lines().zip(answers.lines()) {
        assert_eq!(expected, answer);
    }
    assert_eq!(recorded.lines().count(), answers.lines().count());
}

#[test]
fn an_unknown_environment_is_an_error_of_its_line() {
    let (code, answers, _) = batch(
        "{\"id\":\"a\",\"env\":\"nowhere\",\"expr\":\"1\"}\n{\"id\":\"b\",\"env\":\"base\",\"expr\":\"x\",\"input\":{\"x\":1}}\n",
    );
    let expected = "{\"id\":\"a\",\"env\":\"nowhere\",\"expr\":\"1\",\"error\":\"unknown environment `nowhere`\"}\n\
                    {\"id\":\"b\",\"env\":\"base\",\"expr\":\"x\",\"input\":{\"x\":1},\"error\":\"input `x`: `1` is no typed value\"}\n";
    assert_eq!((code, answers.as_str()), (Some(0), expected));
}

#[test]
fn a_line_that_is_no_question_ends_the_batch() {
    let (code, answers, errors) = batch("{\"id\":\"a\",\"env\":\"base\",\"expr\":\"1\"}\nnonsense\n");
    assert_eq!((code, answers.lines().count()), (Some(1), 1));
    assert!(errors.starts_with("error: line 2: "), "{errors}");
}
