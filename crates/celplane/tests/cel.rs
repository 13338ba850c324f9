//! `celplane cel`, as it is called from a shell.

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
    check(&["eval", "-1"], 0, "-1\n", "");
}

#[test]
fn variables_have_the_type_of_their_value() {
    check(&["eval", "s + 'b'", "--var", "s=a"], 0, "\"ab\"\n", "");
    check(&["eval", "l.map(i, i * x)", "--var", "l=[1, 2]", "--var", "x=3"], 0, "[3, 6]\n", "");
    check(&["eval", "u / 2u", "--var", "u:uint=7"], 0, "3u\n", "");
    check(&["eval", "t.getFullYear()", "--var", "t:timestamp=2026-01-01T00:00:00Z"], 0, "2026\n", "");
}

#[test]
fn compile_errors_show_their_position() {
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
fn distinct_of_a_failed_list_names_the_cause() {
    let message = "ERROR: internal error: a failed operand has no size: no such key: b\n";
    check(&["eval", "[{'a': 1}].map(x, x.b).distinct().size() == 1"], 1, "", message);
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

const TAINT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/cel/taint.yaml");
const NODE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/cel/node.json");
const DEVICES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/cel/devices.yaml");
const DEFINITION: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/cel/definition.yaml");
const GATEWAY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/cel/gateway.yaml");

#[test]
fn expressions_are_evaluated_at_their_place() {
    let starts = "taint.key.startsWith('gpu.')";
    check(&["eval", "--env", "toleration", "--input", TAINT, starts], 0, "true\n", "");
    check(&["eval", "--env", "toleration", "--var", "taint={\"key\": \"cpu\"}", starts], 0, "false\n", "");
    check(&["eval", "--env", "affinity", "--input", NODE, "node.labels['zone'] == 'eu-1'"], 0, "true\n", "");
    let apart = "devices.map(d, d.attributes['gpu.example.com'].index).max() == 2";
    check(&["eval", "--env", "devices", "--input", DEVICES, apart], 0, "true\n", "");
    let device = r#"device={"driver": "a.example.com", "attributes": {"cores": {"int": 4}}}"#;
    let cores = "device.attributes['a.example.com'].cores > 2";
    check(&["eval", "--env", "device", "--var", device, cores], 0, "true\n", "");
    check(&["eval", "--env", "base", "--var", "s=1", "--var", "u=2", "s + string(u)"], 0, "\"12\"\n", "");
}

#[test]
fn columns_and_rules_see_an_object_of_a_definition() {
    let column = ["--env", "column", "--schema", DEFINITION, "--input", GATEWAY];
    let eval = |expression| [&["eval"][..], &column, &[expression]].concat();
    check(&eval("self.spec.hosts.filter(h, h.startsWith('prod.'))"), 0, "[\"prod.example.com\"]\n", "");
    check(&eval("format('%s: %d', self.metadata.name, self.spec.replicas)"), 0, "\"web: 3\"\n", "");
    let picture = "ERROR: <input>:1:10: undefined field 'host'\n | self.spec.host\n | .........^\n";
    check(&eval("self.spec.host"), 1, "", picture);
    let old = ["check", "--env", "column", "--schema", DEFINITION, "--version", "v1beta1", "self.spec.host"];
    check(&old, 0, "type  string\ncost  3\n", "");
    let rule = ["eval", "--env", "rule", "--schema", DEFINITION, "--var", "self={\"spec\": {\"replicas\": 2}}"];
    let rule = [&rule[..], &["--var", "oldSelf={\"spec\": {\"replicas\": 1}}"]].concat();
    check(&[&rule[..], &["self.spec.replicas >= oldSelf.spec.replicas"]].concat(), 0, "true\n", "");
}

#[test]
fn our_own_functions_are_there_unless_kubernetes_is_asked_for() {
    let compare = "semver.compare(taint.value, '>=1.28.0')";
    check(&["eval", "--env", "toleration", "--input", TAINT, compare], 0, "true\n", "");
    let picture = "ERROR: <input>:1:1: undeclared reference to 'semver' (in container '')\n \
                   | semver.compare(taint.value, '>=1.28.0')\n | ^\n\
                   ERROR: <input>:1:15: undeclared reference to 'compare' (in container '')\n \
                   | semver.compare(taint.value, '>=1.28.0')\n | ..............^\n";
    check(&["eval", "--env", "toleration", "--kubernetes", "--input", TAINT, compare], 1, "", picture);
    check(
        &["eval", "semver.compare('1.30.0', '<2') && quantity('1Gi').isGreaterThan(quantity('1Mi'))"],
        0,
        "true\n",
        "",
    );
}

#[test]
fn environment_determines_result_type_and_cost_limit() {
    let message = "ERROR: must evaluate to bool or the unknown type, not string\n";
    check(&["check", "--env", "toleration", "taint.key"], 1, "", message);
    let message = "ERROR: no such key: timeAdded\n";
    check(&["eval", "--env", "toleration", "--input", TAINT, "taint.timeAdded < timestamp(0)"], 1, "", message);
    let nested = "node.labels.all(a, node.labels.all(b, node.labels.all(c, a + b != c)))";
    let run = Command::new(env!("CARGO_BIN_EXE_celplane")).args(["cel", "check", "--env", "affinity", nested]).output();
    let run = run.unwrap();
    let errors = String::from_utf8(run.stderr).unwrap();
    assert!(errors.starts_with("ERROR: too complex, exceeds cost limit: estimated cost "), "{errors}");
    assert_eq!(run.status.code(), Some(1));
}

#[test]
fn costs_are_estimated_and_with_an_input_counted() {
    let starts = "taint.key.startsWith('gpu.')";
    check(&["cost", "--env", "toleration", starts], 0, "estimated  3\nlimit      1000000\n", "");
    let counted = "estimated  3\nlimit      1000000\nactual     3\n";
    check(&["cost", "--env", "toleration", "--input", TAINT, starts], 0, counted, "");
    let json =
        "{\n  \"estimated\": {\n    \"min\": 3,\n    \"max\": 3\n  },\n  \"limit\": 1000000,\n  \"actual\": 3\n}\n";
    check(&["cost", "--env", "toleration", "--input", TAINT, "-o", "json", starts], 0, json, "");
    check(&["cost", "1 + 2"], 0, "estimated  1\nactual     1\n", "");
}

#[test]
fn programs_read_answers_as_json_or_yaml() {
    let yaml = "value: true\ntype: bool\ncost: 3\n";
    let starts = "taint.key.startsWith('gpu.')";
    check(&["eval", "--env", "toleration", "--input", TAINT, "-o", "yaml", starts], 0, yaml, "");
    let yaml = "value:\n  - 1\n  - a: \"90s\"\ntype: \"list(dyn)\"\ncost: 42\n";
    check(&["eval", "[1, {'a': duration(d)}]", "--var", "d=90s", "-o", "yaml"], 0, yaml, "");
    let yaml = "type: bool\ncost:\n  min: 3\n  max: 3\n";
    check(&["check", "--env", "toleration", "-o", "yaml", starts], 0, yaml, "");
    let yaml =
        "error: |-\n  ERROR: <input>:1:5: undeclared reference to 'x' (in container '')\n   | 1 + x\n   | ....^\n";
    check(&["check", "-o", "yaml", "1 + x"], 1, yaml, "");
    let yaml = "kind: call\nname: \"_+_\"\ntype: int\nchildren:\n  - kind: literal\n    name: \"1\"\n    type: int\n  \
                - kind: ident\n    name: x\n    type: int\n";
    check(&["ast", "--types", "-o", "yaml", "1 + x", "--var", "x=2"], 0, yaml, "");
}

#[test]
fn an_input_that_cannot_be_read_is_named() {
    let message = "error: `nowhere.yaml`: No such file or directory (os error 2)\n";
    check(&["eval", "--env", "toleration", "--input", "nowhere.yaml", "true"], 2, "", message);
    let message = "error: devices are a list\n";
    check(&["eval", "--env", "devices", "--input", TAINT, "true"], 1, "", message);
    let message = "error: the definition has no version `v2`\n";
    check(&["check", "--env", "column", "--schema", DEFINITION, "--version", "v2", "1"], 1, "", message);
}

#[test]
fn an_input_may_come_from_a_pipe() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_celplane"))
        .args(["cel", "eval", "--env", "toleration", "--input", "-", "taint.key"])
        .args(["-o", "json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"key: a").unwrap();
    let run = child.wait_with_output().unwrap();
    let value = "{\n  \"value\": \"a\",\n  \"type\": \"string\",\n  \"cost\": 2\n}\n";
    assert_eq!((run.status.code(), String::from_utf8(run.stdout).unwrap().as_str()), (Some(0), value));
    let warning = "warning: as a whole, the expression must evaluate to bool or the unknown type, not string\n";
    check(&["eval", "--env", "toleration", "--input", TAINT, "taint.key"], 0, "\"gpu.example.com/driver\"\n", warning);
}

#[test]
fn usage_errors_have_their_own_exit_code() {
    for arguments in [
        &["eval"][..],
        &["eval", "1", "--var", "1x=1"],
        &["eval", "1", "--nope"],
        &["nope"],
        &["eval", "true", "--env", "nowhere"],
        &["eval", "true", "--kubernetes"],
        &["eval", "true", "--env", "column"],
        &["eval", "true", "--env", "toleration", "--schema", DEFINITION],
        &["eval", "true", "--schema", DEFINITION],
        &["eval", "true", "--env", "base", "--var", "x:int=1"],
        &["eval", "true", "--version", "v1"],
        &["eval", "true", "-o", "xml"],
    ] {
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
                    {\"id\":\"b\",\"env\":\"base\",\"expr\":\"x\",\"input\":{\"x\":1},\"error\":\"input `x`: `1` is not a typed value\"}\n";
    assert_eq!((code, answers.as_str()), (Some(0), expected));
}

#[test]
fn a_line_that_is_not_a_question_is_said_and_the_others_are_answered() {
    let question = "{\"id\":\"a\",\"env\":\"base\",\"expr\":\"1\"}";
    let (code, answers, _) = batch(&format!("{question}\nnonsense\n{question}\n"));
    let lines: Vec<&str> = answers.lines().collect();
    assert_eq!((code, lines.len()), (Some(1), 3), "{answers}");
    assert!(lines[1].starts_with("{\"line\":2,\"error\":\"expected"), "{answers}");
    assert_eq!(lines[0], lines[2]);
}
