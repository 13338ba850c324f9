//! Offline commands on files that cause far more work than their size: bounded memory, no panic, and
//! termination.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::shell::run;

/// Address space of a command: the bound on its memory, with room for the program, its threads and its allocator.
const ADDRESS_SPACE_KB: u32 = 1 << 20;

/// Exit code and all output under a limit on memory.
fn run_limited(arguments: &[&str]) -> (Option<i32>, String) {
    let program = env!("CARGO_BIN_EXE_celplane");
    let ended = Command::new("sh")
        .args(["-c", &format!("ulimit -v {ADDRESS_SPACE_KB} && exec \"$@\""), "sh", program])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let output = [ended.stdout, ended.stderr].concat();
    (ended.status.code(), String::from_utf8_lossy(&output).into_owned())
}

fn file(directory: &tempfile::TempDir, name: &str, text: &str) -> String {
    let path: PathBuf = directory.path().join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

/// 300 kB that would become 60 GB.
fn aliases() -> String {
    let head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
    format!("{head}z: &a \"{}\"\ny: [{}]\n", "x".repeat(200_000), vec!["*a"; 30_000].join(","))
}

#[test]
fn aliases_are_refused_by_every_consumer() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory, "aliases.yaml", &aliases());
    for arguments in [
        &["check", "-f", &path][..],
        &["scan", "-f", &path],
        &["simulate", "-f", &path],
        &["simulate", "-f", ".", "--config", &path],
        &["why", "--pod", &path, "-f", &path],
        &["cel", "eval", "--env", "toleration", "--input", &path, "true"],
        &["up", "--ephemeral", "--dry-run", "--load", &path],
        &["up", "--ephemeral", "--dry-run", "--simulation", &path],
    ] {
        let (code, errors) = run_limited(arguments);
        assert!(errors.contains("document contains excessive aliasing"), "{arguments:?}: {code:?} {errors}");
        assert!(matches!(code, Some(1 | 2)), "{arguments:?}: {code:?} {errors}");
        assert!(!errors.contains("panicked"), "{arguments:?}: {errors}");
    }
}

#[test]
fn devices_are_not_read() {
    for arguments in [&["check", "-f", "/dev/zero"][..], &["simulate", "-f", "/dev/zero"], &["scan", "-f", "/dev/zero"]]
    {
        let (code, errors) = run_limited(arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {errors}");
        assert!(errors.contains("it is a device, not a file"), "{arguments:?}: {errors}");
    }
}

#[test]
fn commands_end_at_their_time_limit() {
    // The pipe has no writer activity, so that reading it never ends by itself.
    let (reader, writer) = std::io::pipe().unwrap();
    for arguments in [["check", "-f", "-", "--timeout", "20ms"], ["simulate", "-f", "-", "--timeout", "20ms"]] {
        let ended = Command::new(env!("CARGO_BIN_EXE_celplane"))
            .args(arguments)
            .stdin(Stdio::from(reader.try_clone().unwrap()))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
            .wait_with_output()
            .unwrap();
        let errors = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(2), "{errors}");
        assert_eq!(errors, "error: not finished after 0.02 s; --timeout sets another limit\n");
    }
    drop(writer);
    let (code, _, errors) = run(&["check", "-f", "nowhere", "--timeout", "-1s"], "");
    assert_eq!(code, 2, "{errors}");
}
