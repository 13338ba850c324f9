//! Streams of real containers with `kubectl`: exec, attach, cp, logs and debug.

use std::io::BufRead as _;

use super::machine::Machine;

/// Pods whose streams are used.
pub(super) const PODS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: talks}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: "registry.local/busybox:1", command: [sh, -c, "for i in 1 2 3 4 5; do echo line $i; done; while ! test -e /tmp/more; do sleep 0.2; done; echo line 6; while ! test -e /tmp/err; do sleep 0.2; done; echo err >&2; while ! test -e /tmp/end; do sleep 0.2; done"]}
  restartPolicy: Never
---
apiVersion: v1
kind: Pod
metadata: {name: reads}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: "registry.local/busybox:1", stdin: true, stdinOnce: true, command: [sh, -c, "while read line; do echo got $line; done; echo end of input"]}
  restartPolicy: Never
---
apiVersion: v1
kind: Pod
metadata: {name: crashes}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: "registry.local/busybox:1", command: [sh, -c, "echo run; exit 1"]}
"#;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace('\r', "")
}

/// Commands read their whole input, see its end, and have terminals.
pub(super) fn exec_has_input_and_terminals(machine: &Machine) {
    machine.wait("pod/talks", "condition=Ready");
    let output =
        machine.try_kubectl(&["exec", "-i", "talks", "--", "sh", "-c", "wc -c; echo end"], &"x".repeat(2_000_000));
    assert_eq!(text(&output.stdout), "2000000\nend\n");
    let output = machine.kubectl_in_terminal("exec -it talks -- sh -c 'tty; exit 5'", "");
    assert!(text(&output.stdout).contains("/dev/pts/") && output.status.code() == Some(5), "{output:?}");
    let output = machine.kubectl_in_terminal("exec -it talks -- sh", "echo sum $((40 + 2))\nexit 7\n");
    assert!(text(&output.stdout).contains("sum 42") && output.status.code() == Some(7), "{output:?}");
    let output = machine.try_kubectl(&["exec", "talks", "--", "/no/such/program"], "");
    let why = text(&output.stderr);
    assert!(!output.status.success() && why.contains("no such file or directory"), "{why}");
    let output = machine.try_kubectl(&["exec", "talks", "-c", "other", "--", "true"], "");
    assert!(text(&output.stderr).contains("container other is not valid"), "{}", text(&output.stderr));
}

/// Directories are copied both ways, byte by byte.
pub(super) fn files_are_copied_both_ways(machine: &Machine) {
    let bytes: Vec<u8> = (0..300_000_u32).map(|it| (it % 251) as u8).collect();
    std::fs::create_dir_all(machine.path("there/deep")).unwrap();
    std::fs::write(machine.path("there/deep/bytes"), &bytes).unwrap();
    std::fs::write(machine.path("there/name with blanks"), "text\n").unwrap();
    let (there, back) = (machine.path("there").display().to_string(), machine.path("back").display().to_string());
    machine.kubectl(&["cp", &there, "talks:/tmp/copied"]);
    machine.kubectl(&["cp", "talks:/tmp/copied", &back]);
    assert!(std::fs::read(machine.path("back/deep/bytes")).unwrap() == bytes, "the copy differs");
    assert_eq!(std::fs::read_to_string(machine.path("back/name with blanks")).unwrap(), "text\n");
}

/// A container's own input and output are attached, and end with them.
pub(super) fn attach_reaches_the_first_process(machine: &Machine) {
    machine.wait("pod/reads", "condition=Ready");
    let output = machine.try_kubectl(&["attach", "-i", "reads"], "one\ntwo\n");
    let shown = text(&output.stdout);
    assert!(shown.contains("got one\ngot two\n") && output.status.success(), "{shown}");
    machine.wait("pod/reads", "jsonpath={.status.phase}=Succeeded");
    assert_eq!(machine.kubectl(&["logs", "reads"]), "got one\ngot two\nend of input\n");
    let output = machine.try_kubectl(&["attach", "reads"], "");
    assert!(text(&output.stderr).contains("completed pod"), "{}", text(&output.stderr));
}

/// Ephemeral containers see the processes of their target.
pub(super) fn debug_containers_see_their_target(machine: &Machine) {
    let image = "--image=registry.local/busybox:1";
    machine.kubectl(&["debug", "talks", image, "--target=c", "-c", "debugger", "--", "sh", "-c", "ps; echo seen"]);
    let state = "jsonpath={.status.ephemeralContainerStatuses[0].state.terminated.exitCode}=0";
    machine.wait("pod/talks", state);
    let shown = machine.kubectl(&["logs", "talks", "-c", "debugger"]);
    assert!(shown.contains("/tmp/more") && shown.ends_with("seen\n"), "{shown}");
}

/// Logs are cut, dated, followed to their end, and kept of the run before.
pub(super) fn logs_are_selected_and_followed(machine: &Machine) {
    let all = "line 1\nline 2\nline 3\nline 4\nline 5\n";
    assert_eq!(machine.kubectl(&["logs", "talks", "-c", "c"]), all);
    assert_eq!(machine.kubectl(&["logs", "talks", "-c", "c", "--tail=2"]), "line 4\nline 5\n");
    assert_eq!(machine.kubectl(&["logs", "talks", "-c", "c", "--limit-bytes=6"]), "line 1");
    assert_eq!(machine.kubectl(&["logs", "talks", "-c", "c", "--since=1h"]), all);
    let dated = machine.kubectl(&["logs", "talks", "-c", "c", "--timestamps", "--tail=1"]);
    let (date, line) = dated.split_once(' ').unwrap();
    assert!(api::time::Timestamp::parse(date).is_ok() && line == "line 5\n", "{dated}");
    let (mut child, output) = machine.beside(&["logs", "-f", "talks", "-c", "c", "--tail=1"]);
    let mut lines = output.lines().map(Result::unwrap);
    assert_eq!(lines.next().as_deref(), Some("line 5"));
    machine.kubectl(&["exec", "talks", "-c", "c", "--", "touch", "/tmp/more"]);
    assert_eq!(lines.next().as_deref(), Some("line 6"));
    // The runtime reads both outputs of a container independently.
    machine.kubectl(&["exec", "talks", "-c", "c", "--", "touch", "/tmp/err"]);
    assert_eq!(lines.next().as_deref(), Some("err"));
    // What was written after a moment is what comes after it.
    let since = machine.kubectl(&["logs", "talks", "-c", "c", "--timestamps", "--tail=2"]);
    let since = format!("--since-time={}", since.split(' ').next().unwrap());
    assert_eq!(machine.kubectl(&["logs", "talks", "-c", "c", &since]), "line 6\nerr\n");
    // The stream ends with the container.
    machine.kubectl(&["exec", "talks", "-c", "c", "--", "touch", "/tmp/end"]);
    assert_eq!(lines.next(), None);
    assert!(child.wait().unwrap().success());
    machine.wait("pod/crashes", "jsonpath={.status.containerStatuses[0].lastState.terminated.exitCode}=1");
    assert_eq!(machine.kubectl(&["logs", "crashes", "--previous"]), "run\n");
}

/// A log that is rotated while it is followed loses no line and repeats none.
pub(super) fn rotated_logs_are_followed_completely(machine: &Machine) {
    const LINES: usize = 200_000;
    let text = "x".repeat(80);
    // More than two files of 10 MiB, in parts: the agent looks for long files every ten seconds.
    let write = format!(
        "for i in $(seq 1 20); do seq $((($i - 1) * 10000 + 1)) $(($i * 10000)) | sed s/$/{text}/; sleep 1; done"
    );
    machine.apply(&super::once("writes", &write, ""));
    machine.wait("pod/writes", "jsonpath={.status.containerStatuses[0].started}=true");
    let (mut child, output) = machine.beside(&["logs", "-f", "writes"]);
    let mut count = 0;
    for (index, line) in output.lines().map(Result::unwrap).enumerate() {
        assert_eq!(line, format!("{}{text}", index + 1));
        count = index + 1;
    }
    assert_eq!(count, LINES);
    assert!(child.wait().unwrap().success());
    let uid = machine.kubectl(&["get", "pod", "writes", "-o", "jsonpath={.metadata.uid}"]);
    let data = machine.path("data").display().to_string();
    let rotated = machine.run("find", &[&data, "-path", &format!("*/default_writes_{uid}/c/0.log.1")]);
    assert_eq!(rotated.lines().count(), 1, "{rotated}");
}

/// Names in paths do not lead out of a pod's files, and strangers do not reach a node's agent.
pub(super) fn paths_and_identities_are_checked(machine: &Machine) {
    let node = &machine.name;
    let refused = |path: &str, who: &[&str]| {
        let output = machine.try_kubectl(&[&["get", "--raw", path], who].concat(), "");
        assert!(!output.status.success(), "{path} {who:?}: {}", text(&output.stdout));
        text(&output.stderr)
    };
    for path in [
        "/api/v1/namespaces/default/pods/talks/log?container=../c",
        "/api/v1/namespaces/default/pods/talks/log?container=..%2F..%2Fetc",
        "/api/v1/namespaces/default/pods/..%2F..%2Ftalks/log",
    ] {
        refused(path, &[]);
    }
    let proxy = format!("/api/v1/nodes/{node}/proxy");
    for path in [
        "/containerLogs/default/talks/..%2F..%2F..%2Fetc%2Fpasswd",
        "/containerLogs/../../etc/passwd",
        "/logs/../../../etc/passwd",
    ] {
        let why = refused(&format!("{proxy}{path}"), &[]);
        assert!(!why.contains("root:"), "{why}");
    }
    assert!(machine.kubectl(&["get", "--raw", &format!("{proxy}/healthz")]).contains("ok"));
    // Readers of pods may read logs, but run no commands and reach no agent.
    machine.kubectl(&["create", "clusterrolebinding", "viewers", "--clusterrole=view", "--user=viewer"]);
    let viewer = ["--as", "viewer"];
    machine.kubectl(&["logs", "reads", "--as", "viewer"]);
    assert!(refused(&format!("{proxy}/healthz"), &viewer).contains("Forbidden"));
    for arguments in
        [&["exec", "crashes", "--", "true"][..], &["attach", "crashes"], &["port-forward", "crashes", "1:1"]]
    {
        let output = machine.try_kubectl(&[&viewer, arguments].concat(), "");
        assert!(text(&output.stderr).to_lowercase().contains("forbidden"), "{arguments:?}: {}", text(&output.stderr));
    }
}
