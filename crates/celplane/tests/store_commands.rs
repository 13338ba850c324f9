//! `celplane store`: beside a running server, and after it.

use std::path::Path;
use std::process::{Command, Output};

use crate::cluster::Cluster;

fn store(arguments: &[&str], data: &Path) -> Output {
    let (command, rest) = arguments.split_first().unwrap();
    let mut process = Command::new(env!("CARGO_BIN_EXE_celplane"));
    process.args(["store", command, "--data-dir"]).arg(data).args(rest).output().unwrap()
}

#[track_caller]
fn succeeds(arguments: &[&str], data: &Path) -> String {
    let output = store(arguments, data);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn fails(arguments: &[&str], data: &Path) -> String {
    let output = store(arguments, data);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout)
}

#[test]
fn a_store_is_backed_up_beside_its_server_checked_compacted_and_restored() {
    let cluster = Cluster::start_in(tempfile::tempdir().unwrap());
    let data = cluster.directory.path().join("data");
    let online = cluster.directory.path().join("online.backup");
    let online = online.to_str().unwrap();
    let said = succeeds(&["backup", online], &data);
    assert!(said.starts_with("Wrote "), "{said}");
    assert!(fails(&["backup", online], &data).contains("exists already"));
    assert!(succeeds(&["check", "--backup", online], &data).starts_with("The backup is complete: "));
    let exported = succeeds(&["export", "--prefix", "/registry/core/namespaces/"], &data);
    let keys: Vec<String> = exported
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["key"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(
        keys,
        ["default", "kube-node-lease", "kube-public", "kube-system"]
            .map(|it| format!("/registry/core/namespaces/{it}"))
    );
    for command in ["check", "compact"] {
        assert!(fails(&[command], &data).contains("stop the server first"), "{command}");
    }
    let directory = cluster.stop();

    let checked = succeeds(&["check"], &data);
    assert!(checked.ends_with("No damage found\n"), "{checked}");
    let before = succeeds(&["export"], &data);
    assert!(succeeds(&["compact"], &data).contains(" bytes now"));
    assert_eq!(succeeds(&["export"], &data), before);
    let offline = directory.path().join("offline.backup");
    let offline = offline.to_str().unwrap();
    succeeds(&["backup", offline], &data);
    assert_eq!(succeeds(&["export", "--backup", offline], &data), before);

    assert!(fails(&["restore", offline], &data).contains("use `--replace` to move it away"));
    let said = succeeds(&["restore", "--replace", offline], &data);
    assert!(said.contains("it continues at revision 1000"), "{said}");
    assert!(data.join("store.redb.replaced").exists());
    assert_eq!(succeeds(&["export"], &data), before);
    let cluster = Cluster::start_in(directory);
    let after = succeeds(&["export", "--prefix", "/registry/core/namespaces/"], &data);
    assert_eq!(after, exported, "the server goes on with what was restored");
    drop(cluster);
}

#[test]
fn directory_of_a_server_on_etcd_is_named() {
    let data = tempfile::tempdir().unwrap();
    let run = |command: &str| store(&[command, "x"][..if command == "check" { 1 } else { 2 }], data.path());
    let text = format!("there is no file `{}`", data.path().join("store.redb").display());
    for has_certificates in [false, true] {
        if has_certificates {
            std::fs::create_dir(data.path().join("pki")).unwrap();
        }
        for command in ["backup", "check", "salvage"] {
            let output = run(command);
            let errors = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(2), "{errors}");
            assert!(errors.contains(&text), "{errors}");
            assert_eq!(errors.contains("`etcdctl snapshot save FILE`"), has_certificates, "{command}: {errors}");
        }
    }
    assert!(!std::path::Path::new("x").exists());
}

#[test]
fn a_damaged_store_is_a_sentence_and_not_a_panic() {
    let data = Cluster::start_in(tempfile::tempdir().unwrap()).stop();
    let path = data.path().join("data/store.redb");
    let whole = std::fs::read(&path).unwrap();
    let mut sentences = 0;
    for round in 0..12 {
        let mut damaged = whole.clone();
        let used = whole.iter().rposition(|byte| *byte != 0).unwrap();
        for at in (4096 + round * 512..used).step_by(7919) {
            damaged[at] ^= 0x55;
        }
        std::fs::write(&path, damaged).unwrap();
        let checked = store(&["check"], &data.path().join("data"));
        let text = String::from_utf8_lossy(&checked.stderr).into_owned() + &String::from_utf8_lossy(&checked.stdout);
        assert!(!text.contains("panicked"), "{text}");
        assert_eq!(checked.status.code(), Some(1), "{text}");
        assert!(text.contains("damaged") || text.contains("problem"), "{text}");
        sentences += usize::from(text.contains("damaged"));
    }
    assert!(sentences > 0);
    std::fs::write(&path, &whole[..whole.len() / 3]).unwrap();
    let arguments = ["apiserver", "--port", "0", "--data-dir"];
    let started = Command::new(env!("CARGO_BIN_EXE_celplane")).args(arguments).arg(data.path().join("data")).output();
    let started = started.unwrap();
    let errors = String::from_utf8_lossy(&started.stderr);
    assert_eq!(started.status.code(), Some(1));
    assert!(errors.contains("the stored data is damaged") && errors.contains("`celplane store check`"), "{errors}");
    assert!(!errors.contains("panicked"), "{errors}");
}

#[test]
fn start_on_a_full_disk_serves_stored_objects() {
    let directory = Cluster::start_in(tempfile::tempdir().unwrap()).stop();
    let cluster = Cluster::start_with(directory, &["--store-reserve-bytes", "1152921504606846976"]);
    let exported =
        succeeds(&["export", "--prefix", "/registry/core/namespaces/"], &cluster.directory.path().join("data"));
    assert_eq!(exported.lines().count(), 4);
}

/// Changes one byte in the last value that holds this text.
fn damage(path: &Path, text: &str) {
    let mut bytes = std::fs::read(path).unwrap();
    let found: Vec<usize> =
        (0..bytes.len() - text.len()).filter(|at| bytes[*at..].starts_with(text.as_bytes())).collect();
    assert!(!found.is_empty());
    for at in found {
        bytes[at] ^= 1;
    }
    std::fs::write(path, bytes).unwrap();
}

fn exported_keys(text: &str) -> Vec<String> {
    let key = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["key"].as_str().unwrap().to_owned();
    text.lines().map(key).collect()
}

#[test]
fn damaged_store_is_salvaged_without_the_damaged_objects() {
    let directory = Cluster::start_in(tempfile::tempdir().unwrap()).stop();
    let data = directory.path().join("data");
    let path = data.join("store.redb");
    let before = exported_keys(&succeeds(&["export"], &data));
    let whole = directory.path().join("whole.backup");
    let said = succeeds(&["salvage", whole.to_str().unwrap()], &data);
    assert!(said.starts_with(&format!("Wrote {} objects as of revision ", before.len())), "{said}");

    // In every copy of one object, so that no older one remains.
    damage(&path, r#""name":"kube-public""#);
    let some = directory.path().join("some.backup");
    let said = fails(&["salvage", some.to_str().unwrap()], &data);
    assert!(said.contains("  lost           /registry/core/namespaces/kube-public\n"), "{said}");
    let salvaged = exported_keys(&succeeds(&["export", "--backup", some.to_str().unwrap()], &data));
    let missing: Vec<_> = before.iter().filter(|key| !salvaged.contains(key)).collect();
    assert!(missing.contains(&&"/registry/core/namespaces/kube-public".to_owned()), "{missing:?}");
    assert!(missing.len() < 5, "{missing:?}");

    succeeds(&["restore", "--replace", some.to_str().unwrap()], &data);
    assert!(succeeds(&["check"], &data).ends_with("No damage found\n"));
}

#[test]
fn store_with_broken_pages_is_scanned() {
    let directory = Cluster::start_in(tempfile::tempdir().unwrap()).stop();
    let data = directory.path().join("data");
    let path = data.join("store.redb");
    let before = exported_keys(&succeeds(&["export"], &data));
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[..512].fill(0x55);
    std::fs::write(&path, &bytes).unwrap();
    let backup = directory.path().join("some.backup");
    let said = fails(&["salvage", backup.to_str().unwrap()], &data);
    assert!(said.contains("All pages were scanned"), "{said}");
    let salvaged = exported_keys(&succeeds(&["export", "--backup", backup.to_str().unwrap()], &data));
    let missing: Vec<_> = before.iter().filter(|key| !salvaged.contains(key)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert_eq!(std::fs::read(&path).unwrap(), bytes, "the file stays as it is");
    succeeds(&["restore", "--replace", backup.to_str().unwrap()], &data);
    assert!(succeeds(&["check"], &data).ends_with("No damage found\n"));
}
