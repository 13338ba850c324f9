//! `--dry-run`: planned actions are printed, failures are reported, and nothing is changed.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::up::{DUMP, Down};

/// Exit code, and what was printed to standard output and error.
fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_celplane"));
    let output = command.args(arguments).stdin(Stdio::null()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[track_caller]
fn says(arguments: &[&str], expected: &[&str]) -> String {
    let (code, said, errors) = run(arguments);
    assert_eq!(code, Some(0), "{arguments:?}: {said}{errors}");
    for text in expected {
        assert!(said.contains(text), "{arguments:?}: {text} is not in {said}");
    }
    assert!(said.ends_with("Nothing was started or changed (dry run).\n"), "{said}");
    said
}

#[track_caller]
fn fails(arguments: &[&str], code: i32, expected: &str) {
    let (ended, said, errors) = run(arguments);
    assert_eq!(ended, Some(code), "{arguments:?}: {said}{errors}");
    assert!(errors.contains(expected), "{arguments:?}: {expected} is not in {errors}");
    assert!(!said.contains("dry run"), "{said}");
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_start_is_judged_and_nothing_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let (data, dump) = (directory.path().join("data"), directory.path().join("dump.yaml"));
    std::fs::write(&dump, DUMP).unwrap();
    let (data, dump) = (data.to_str().unwrap(), dump.to_str().unwrap());
    let up = ["up", "--dry-run", "--port", "0", "--data-dir", data];
    let with = |more: &[&'static str]| [&up[..], more].concat();
    let said = says(&up, &["Would serve the API at https://127.0.0.1:", "TaintTolerationCEL", "node-0 to node-2"]);
    assert!(said.contains(&format!("Data: {data}\n")), "{said}");
    says(&with(&["--wait", "--nodes", "0"]), &["only those that ask to be played"]);
    says(&with(&["--kubelet-feature-gates", "TaintTolerationCEL=false"]), &["and off in kubelet."]);
    says(&["apiserver", "--dry-run=client", "--port", "0", "--data-dir", data], &["Would serve the API"]);
    says(
        &[&up[..], &["--load", dump]].concat(),
        &["Would load 1 Node, 1 Pod, 1 ReplicaSet.", "left out: 1 × Secret", "left out: 1 × Pod that has ended"],
    );

    fails(&with(&["--dry-run=server"]), 2, "--dry-run");
    fails(&["up", "--dry-run=server", "--data-dir", data], 2, "invalid value 'server'");
    fails(&with(&["--feature-gates", "Unheard=true"]), 1, "Unheard");
    fails(&with(&["--load", "no-such-file"]), 2, "cannot read `no-such-file`");
    fails(&with(&["--scheduler-config", "no-such-file"]), 2, "cannot use `no-such-file`");
    fails(&with(&["--token-auth-file", "no-such-file"]), 2, "cannot read `no-such-file`");
    fails(&with(&["--event-ttl", "soon"]), 1, "cannot use --event-ttl");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    fails(&["up", "--dry-run", "--data-dir", data, "--port", &port], 1, "is in use by another program");
    fails(&["up", "--dry-run", "--port", "0", "--data-dir", dump], 1, "is not a directory");
    assert_eq!(names(directory.path()), ["dump.yaml"], "nothing was made");
}

#[test]
fn dry_run_leaves_processes_and_data_alone() {
    let directory = tempfile::tempdir().unwrap();
    let (data, dump) = (directory.path().join("data"), directory.path().join("dump.yaml"));
    std::fs::write(&dump, DUMP).unwrap();
    let (path, dump) = (data.clone(), dump.to_str().unwrap().to_owned());
    let data = data.to_str().unwrap();
    let down = Down(&path);
    let (code, said, errors) = run(&["up", "--wait", "--port", "0", "--data-dir", data, "--load", &dump]);
    assert_eq!(code, Some(0), "{said}{errors}");
    fails(&["up", "--dry-run", "--port", "0", "--data-dir", data], 1, "is in use by process ");
    says(&["down", "--dry-run", "--data-dir", data], &["Would stop process "]);
    says(&["down", "--dry-run", "--data-dir", data], &["Would stop process "]);
    let backup = directory.path().join("backup").to_str().unwrap().to_owned();
    assert_eq!(run(&["store", "backup", "--data-dir", data, &backup]).0, Some(0));
    fails(&["store", "compact", "--dry-run", "--data-dir", data], 1, "stop the server first");
    let kubeconfig = path.join("admin.kubeconfig").to_str().unwrap().to_owned();
    for (role, name) in
        [("scheduler", "kube-scheduler"), ("controller-manager", "kube-controller-manager"), ("kubelet", "kubelet")]
    {
        let flags = ["--dry-run", "--secure-port", "0", "--feature-gates", "TaintTolerationCEL=true", "--kubeconfig"];
        let arguments = [&[role][..], &flags].concat();
        let works = format!("{name} would run against https://127.0.0.1:");
        says(&[&arguments[..], &[&kubeconfig]].concat(), &[&works, "Enabled feature gates: TaintTolerationCEL."]);
        fails(&[&arguments[..], &["no-such-file"]].concat(), 2, "cannot use `no-such-file`");
        fails(&[role, "--dry-run"], 1, "--kubeconfig is required");
    }
    for role in ["scheduler", "controller-manager"] {
        let flags = [role, "--dry-run", "--secure-port", "0", "--kubeconfig", &kubeconfig];
        says(&[&flags[..], &["--leader-elect"]].concat(), &[" while it holds the lease;"]);
        says(&[&flags[..], &["--leader-elect=false"]].concat(), &[" without leader election;"]);
    }
    let config = directory.path().join("config.yaml");
    std::fs::write(
        &config,
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: 7\n",
    )
    .unwrap();
    let config = config.to_str().unwrap();
    fails(&["scheduler", "--dry-run", "--kubeconfig", &kubeconfig, "--config", config], 1, "cannot use `");
    drop(down);

    let stored = std::fs::read(path.join("store.redb")).unwrap();
    let before = names(&path);
    says(&["up", "--dry-run", "--port", "0", "--data-dir", data], &["which holds "]);
    let again = ["up", "--dry-run", "--port", "0", "--data-dir", data, "--load", &dump];
    says(&again, &["left out: 1 × Node that is there already"]);
    says(&["store", "compact", "--dry-run", "--data-dir", data], &["would keep "]);
    fails(&["store", "restore", "--dry-run", "--data-dir", data, &backup], 1, "use `--replace` to move it away");
    says(
        &["store", "restore", "--dry-run", "--replace", "--data-dir", data, &backup],
        &["Would move the existing store to ", "Would restore "],
    );
    assert_eq!(names(&path), before);
    assert!(std::fs::read(path.join("store.redb")).unwrap() == stored, "the store has changed");
}
