//! Commands whose output cannot be written: they end without a panic, quietly if the reader has left.

use std::fs::File;
use std::process::{Command, Stdio};

use crate::shell::EXAMPLES;

/// Commands that print and end.
const COMMANDS: [&[&str]; 11] = [
    &["version"],
    &["version", "-o", "json"],
    &["version", "-o", "yaml"],
    &["completion", "bash"],
    &["man"],
    &["cel", "eval", "1 + 1"],
    &["cel", "cost", "1 + 1"],
    &["cel", "check", "1 + 1"],
    &["cel", "ast", "1 + 1"],
    &["check", "-f", "."],
    &["up", "--dry-run", "--ephemeral"],
];

/// Exit code and standard error of a command with this standard output.
fn run(arguments: &[&str], output: Stdio) -> (i32, String) {
    let child = Command::new(env!("CARGO_BIN_EXE_celplane"))
        .args(arguments)
        .current_dir(EXAMPLES)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let ended = child.wait_with_output().unwrap();
    (ended.status.code().unwrap(), String::from_utf8(ended.stderr).unwrap())
}

#[test]
fn closed_pipe_ends_commands_quietly() {
    for arguments in COMMANDS {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        assert_eq!(run(arguments, writer.into()), (0, String::new()), "{arguments:?}");
    }
}

/// As in `celplane up --wait | head -1`: the control plane stays, and the command has succeeded.
#[test]
fn closed_pipe_leaves_the_control_plane_running() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let _down = crate::up::Down(&data);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let up = ["up", "--wait", "--port", "0", "--ephemeral", "--nodes", "0", "--data-dir", data.to_str().unwrap()];
    assert_eq!(run(&up, writer.into()), (0, String::new()));
    let kubeconfig = data.join("admin.kubeconfig");
    let scan = ["scan", "--kubeconfig", kubeconfig.to_str().unwrap()];
    let scanned = Command::new(env!("CARGO_BIN_EXE_celplane")).args(scan).output().unwrap();
    assert!(scanned.status.success(), "{scanned:?}");
}

#[cfg(unix)]
#[test]
fn help_of_envtest_assets_ends_quietly() {
    let directory = tempfile::tempdir().unwrap();
    let link = directory.path().join("kube-apiserver");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_celplane"), &link).unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let ended = Command::new(link).arg("--help").stdin(Stdio::null()).stdout(writer).output().unwrap();
    assert_eq!((ended.status.code(), String::from_utf8(ended.stderr).unwrap()), (Some(0), String::new()));
}

#[cfg(target_os = "linux")]
#[test]
fn full_disk_is_an_error_that_names_the_output() {
    for arguments in COMMANDS {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let (code, errors) = run(arguments, full.into());
        assert_eq!(code, 1, "{arguments:?}: {errors}");
        let expected = "error: cannot write to standard output: No space left on device";
        assert!(errors.starts_with(expected), "{arguments:?}: {errors}");
    }
}

/// If neither output can be written, the exit code remains.
#[cfg(target_os = "linux")]
#[test]
fn full_disk_for_errors_is_no_panic() {
    let full = || Stdio::from(File::options().write(true).open("/dev/full").unwrap());
    for (arguments, code) in [(&["check", "-f", "nowhere"][..], 2), (&["version"], 1), (&["cel", "eval", "("], 1)] {
        let ended = Command::new(env!("CARGO_BIN_EXE_celplane"))
            .args(arguments)
            .stdout(full())
            .stderr(full())
            .status()
            .unwrap();
        assert_eq!(ended.code(), Some(code), "{arguments:?}");
    }
}
