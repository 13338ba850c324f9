//! Messages of each subcommand for unusable input: one sentence that names it, and an exit code. 2 is for
//! errors in the call (flags, missing files), 1 for the rest; tools with a yes or no result by 0 and 1 use 2
//! for all unreadable input.

use std::net::TcpListener;

use crate::shell::run;

#[track_caller]
fn refuses(arguments: &[&str], code: i32, text: &str) {
    let (ended, output, errors) = run(arguments, "");
    assert_eq!(ended, code, "{arguments:?}: {output}{errors}");
    assert!(errors.contains(text), "{arguments:?}: {text} is not in {errors}");
    assert!(!errors.contains("panicked"), "{errors}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    for arguments in [
        &["check", "-f", "nowhere"][..],
        &["scan", "-f", "nowhere"],
        &["scan", "--kubeconfig", "nowhere"],
        &["why", "--pod", "nowhere", "-f", "cluster"],
        &["why", "--kubeconfig", "nowhere", "pod"],
        &["simulate", "-f", "nowhere"],
        &["simulate", "-f", ".", "--config", "nowhere"],
        &["simulate", "-f", ".", "--add", "nowhere"],
        &["simulate", "--kubeconfig", "nowhere"],
        &["cel", "eval", "--env", "toleration", "--input", "nowhere", "true"],
        &["cel", "eval", "--env", "column", "--schema", "nowhere", "true"],
        &["cel", "batch", "nowhere"],
        &["console", "--kubeconfig", "nowhere"],
        &["scheduler", "--kubeconfig", "nowhere"],
        &["scheduler", "--config", "nowhere"],
        &["controller-manager", "--kubeconfig", "nowhere"],
        &["controller-manager", "--kubeconfig", "x", "--root-ca-file", "nowhere"],
        &["kubelet", "--kubeconfig", "nowhere"],
        &["store", "restore", "nowhere"],
        &["store", "check", "--backup", "nowhere"],
        &["store", "export", "--backup", "nowhere"],
        &["up", "--dry-run", "--node-template", "nowhere"],
        &["up", "--dry-run", "--simulation", "nowhere"],
        &["up", "--dry-run", "--audit-log-path", "-", "--audit-policy-file", "nowhere"],
    ] {
        refuses(arguments, 2, "nowhere");
    }
}

#[test]
fn wrong_flags_and_values_are_usage_errors() {
    for (arguments, text) in [
        (&["unheard"][..], "unrecognized subcommand 'unheard'"),
        (&["check", "--unheard"], "--unheard"),
        (&["check"], "<FILE>"),
        (&["up", "--port", "many"], "--port"),
        (&["up", "--wait=maybe"], "--wait"),
        (&["up", "--console-port", "1"], "--console"),
        (&["console", "--port", "many"], "--port"),
        (&["up", "--logging-format", "xml"], "--logging-format"),
        (&["up", "--ephemeral", "--etcd-servers", "http://127.0.0.1:1"], "--etcd-servers"),
        (&["apiserver", "--tls-cert-file", "x"], "--tls-private-key-file"),
        (&["kubelet", "--nodes", "2", "--hostname-override", "x"], "cannot be used with"),
        (&["completion", "unheard"], "unheard"),
        (&["version", "-o", "unheard"], "unheard"),
        (&["simulate", "-f", ".", "-o", "unheard"], "unheard"),
        (&["cel", "eval", "--env", "unheard", "true"], "unheard"),
        (&["store", "backup"], "<FILE>"),
        (&["down", "--dry-run=server"], "server"),
    ] {
        refuses(arguments, 2, text);
    }
}

#[test]
fn unusable_existing_input_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let garbage = directory.path().join("garbage");
    std::fs::write(&garbage, "neither: [this\nnor that").unwrap();
    let garbage = garbage.to_str().unwrap();
    let data = directory.path().join("data");
    let data = data.to_str().unwrap();
    // Tools whose answer may be no have 1 for that.
    for arguments in [
        &["scan", "--kubeconfig", garbage][..],
        &["simulate", "--kubeconfig", garbage],
        &["why", "--kubeconfig", garbage, "pod"],
    ] {
        refuses(arguments, 2, garbage);
    }
    for arguments in [
        &["scheduler", "--kubeconfig", garbage][..],
        &["controller-manager", "--kubeconfig", garbage],
        &["kubelet", "--kubeconfig", garbage],
        &["console", "--kubeconfig", garbage],
        &["scheduler", "--config", garbage],
        &["store", "restore", "--data-dir", data, garbage],
        &["store", "check", "--backup", garbage],
        &["up", "--dry-run", "--data-dir", data, "--port", "0", "--load", garbage],
        &["up", "--dry-run", "--data-dir", data, "--port", "0", "--token-auth-file", garbage],
    ] {
        refuses(arguments, 1, garbage);
    }
    let backup = directory.path().join("backup");
    for arguments in [
        &["store", "check", "--data-dir", data][..],
        &["store", "compact", "--data-dir", data],
        &["store", "compact", "--dry-run", "--data-dir", data],
        &["store", "export", "--data-dir", data],
        &["store", "backup", "--data-dir", data, backup.to_str().unwrap()],
    ] {
        refuses(arguments, 2, "there is no file");
    }
    for (arguments, text) in [
        (&["up", "--data-dir", data, "--feature-gates", "Unheard=true"][..], "Unheard"),
        (&["up", "--data-dir", data, "--feature-gates", "TaintTolerationCEL=perhaps"], "perhaps"),
        (&["up", "--data-dir", data, "--controllers", "unheard"], "unheard"),
        (&["controller-manager", "--kubeconfig", garbage, "--controllers", "unheard"], "unheard"),
        (&["demo", "--story", "unheard"], "unheard"),
    ] {
        let (ended, output, errors) = run(arguments, "");
        assert!(ended == 1 || ended == 2, "{arguments:?}: {ended} {output}{errors}");
        assert!(errors.contains(text), "{arguments:?}: {errors}");
    }
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let kubeconfig = "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n\
                      contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {token: t}}]\n";
    let path = directory.path().join("kubeconfig");
    std::fs::write(&path, kubeconfig).unwrap();
    for role in ["scheduler", "controller-manager", "kubelet"] {
        let address = format!("cannot listen on 127.0.0.1:{port}");
        refuses(&[role, "--kubeconfig", path.to_str().unwrap(), "--secure-port", &port], 1, &address);
    }
    assert!(!directory.path().join("data").exists(), "nothing was made");
}

#[test]
fn a_name_that_yaml_takes_for_a_boolean_comes_with_a_hint() {
    let node = "apiVersion: v1\nkind: Node\nmetadata: {name: n}\n";
    for (arguments, expected) in [(&["simulate", "-f", "-"][..], 2), (&["check", "-f", "-"], 1)] {
        let (code, output, errors) = run(arguments, node);
        assert_eq!(code, expected, "{output}{errors}");
        let said = output + &errors;
        assert!(said.contains("in YAML, y, n, yes, no, on and off are booleans unless they stand in quotes"), "{said}");
    }
    let directory = tempfile::tempdir().unwrap();
    let template = directory.path().join("nodes.yaml");
    std::fs::write(&template, node).unwrap();
    let up = ["up", "--dry-run", "--port", "0", "--node-template", template.to_str().unwrap()];
    refuses(&up, 1, "hint: in YAML, y, n, yes, no, on and off are booleans");
}
