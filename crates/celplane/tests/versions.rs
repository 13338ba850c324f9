//! Data directories of other versions: older ones are taken over, newer ones are refused and stay as they are.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use store::{EmbeddedStore, ListOptions, Outcome, Store as _, Write};

use crate::cluster::Cluster;

const LIMIT: Duration = Duration::from_secs(60);

/// Converts a store to the form of the first versions: the position of the version in four bytes precedes each
/// object, and the directory does not record the version that wrote it.
async fn make_first(data: &Path) -> usize {
    let store = EmbeddedStore::open(data.join("store.redb"), store::Options::default()).unwrap();
    let entries = store.list("/registry/", ListOptions::default()).await.unwrap().entries;
    let mut count = 0;
    for entry in entries {
        // An outline is of twenty bytes, and the text follows.
        if entry.value.get(20) == Some(&b'{') {
            let value = [&entry.value[..4], &entry.value[20..]].concat();
            let written = store.write(Write::update(&*entry.key, entry.revision, value)).await;
            assert!(matches!(written, Ok(Outcome::Done { .. })), "{written:?}");
            count += 1;
        }
    }
    store.close().await.unwrap();
    std::fs::remove_file(data.join("version.json")).unwrap();
    count
}

fn celplane(arguments: &[&str], data: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_celplane"));
    command.args(arguments).arg("--data-dir").arg(data).output().unwrap()
}

#[track_caller]
fn until_running(cluster: &Cluster, count: usize) {
    let started = Instant::now();
    loop {
        let pods = cluster.kubectl(&["get", "pods", "-l", "app=web"], "");
        if pods.lines().filter(|line| line.contains(" Running ")).count() == count {
            return;
        }
        assert!(started.elapsed() < LIMIT, "{pods}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_directory_of_the_first_versions_is_taken_over() {
    if Cluster::is_missing() {
        return;
    }
    let cluster = Cluster::up(tempfile::tempdir().unwrap(), &["--nodes", "1"]);
    let started = Instant::now();
    while !cluster.run(&["get", "serviceaccount", "default"], "").status.success() {
        assert!(started.elapsed() < LIMIT, "the controllers do not work");
    }
    cluster.kubectl(&["create", "deployment", "web", "--image=nginx", "--replicas=2"], "");
    cluster.kubectl(&["create", "configmap", "old", "--from-literal=a=b"], "");
    until_running(&cluster, 2);
    let uid = ["get", "configmap", "old", "-o", "jsonpath={.metadata.uid} {.data.a}"];
    let before = cluster.kubectl(&uid, "");
    let directory = cluster.stop();
    let data = directory.path().join("data");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let count = runtime.block_on(make_first(&data));
    assert!(count > 50, "{count} objects were changed");
    let checked = celplane(&["store", "check"], &data);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));

    let cluster = Cluster::up(directory, &["--nodes", "1"]);
    assert_eq!(cluster.kubectl(&uid, ""), before);
    until_running(&cluster, 2);
    // What is written from now on has the newest form; both are read side by side.
    cluster.kubectl(&["scale", "deployment/web", "--replicas=3"], "");
    cluster.kubectl(&["label", "configmap", "old", "seen=yes"], "");
    until_running(&cluster, 3);
    let directory = cluster.stop();
    let version = std::fs::read_to_string(data.join("version.json")).unwrap();
    assert!(version.contains("\"format\": 1"), "{version}");
    let cluster = Cluster::up(directory, &["--nodes", "1"]);
    assert_eq!(cluster.kubectl(&uid, ""), before);
    until_running(&cluster, 3);
}

/// All files except the log and the lock, which are not part of the data.
fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => all.extend(files(&path)),
            false if path.ends_with("celplane.log") || path.ends_with("celplane.lock") => {}
            false => drop(all.insert(path.clone(), std::fs::read(path).unwrap())),
        }
    }
    all
}

#[test]
fn a_directory_of_a_newer_version_is_refused_and_stays_as_it_is() {
    let cluster = Cluster::start_in(tempfile::tempdir().unwrap());
    let directory = cluster.stop();
    let data = directory.path().join("data");
    let backup = directory.path().join("backup").display().to_string();
    assert!(celplane(&["store", "backup", &backup], &data).status.success());
    std::fs::write(data.join("version.json"), r#"{"format": 2, "version": "2.0.0"}"#).unwrap();
    let before = files(&data);
    let other = directory.path().join("other").display().to_string();
    for command in [
        &["up", "--port", "0"][..],
        &["up", "--port", "0", "--wait"],
        &["up", "--port", "0", "--dry-run"],
        &["apiserver", "--port", "0"],
        &["store", "check"],
        &["store", "compact"],
        &["store", "export"],
        &["store", "backup", &other],
        &["store", "restore", "--replace", &backup],
    ] {
        let refused = celplane(command, &data);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(1), "{command:?}: {said}");
        let sentence = format!("`{}` was written by celplane 2.0.0 in format 2; this is celplane ", data.display());
        assert!(said.contains(&sentence) && said.contains("use that version, or another directory"), "{said}");
        assert!(files(&data) == before, "{command:?} has changed the directory");
    }
    assert!(!Path::new(&other).exists());

    // The backup's own format is reported, too.
    let mut bytes = std::fs::read(&backup).unwrap();
    let digit = bytes.iter().position(|byte| *byte == b'\n').unwrap() - 1;
    bytes[digit] = b'2';
    std::fs::write(&backup, bytes).unwrap();
    let refused = celplane(&["store", "restore", &backup], &directory.path().join("new"));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("the data has format 2, and this version reads formats up to 1"), "{said}");
}
