//! Files become pods, and pods in the API become their mirrors.

use std::fs;
use std::path::Path;

use super::*;

const NOW: Timestamp = Timestamp { seconds: 0, nanos: 0 };

fn manifest(document: Value) -> Manifest {
    Manifest { path: "/manifests/web.yaml".into(), document }
}

fn web() -> Value {
    api::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "c", "image": "app:1"}]}})
}

fn unchecked() -> Check {
    Arc::new(|document, _| Ok(document.clone()))
}

#[test]
fn a_pod_gets_the_name_the_annotations_and_the_toleration_of_its_node() {
    let made = for_node(&manifest(web()), "Node-1", &unchecked(), NOW).unwrap();
    let metadata = &made.pod.metadata;
    assert_eq!((&*metadata.namespace, &*metadata.name), ("default", "web-node-1"));
    assert_eq!(made.pod.spec.node_name, "Node-1");
    let annotation = |name: &str| metadata.annotations.get(name).map(|it| it.as_str());
    assert_eq!(annotation(SOURCE), Some("file"));
    assert_eq!(annotation(HASH), Some(metadata.uid.as_str()));
    assert_eq!(annotation("kubernetes.io/config.seen"), Some("1970-01-01T00:00:00Z"));
    let [toleration] = made.pod.spec.tolerations.as_slice() else { panic!("one toleration") };
    assert_eq!((&*toleration.operator, &*toleration.effect, &*toleration.key), ("Exists", "NoExecute", ""));
}

#[test]
fn uid_hashes_contents_file_and_node() {
    let uid_of = |document: Value, node: &str| uid(&manifest(document), node);
    let first = uid_of(web(), "a");
    assert_eq!(first.len(), 32);
    assert_eq!(first, uid_of(web(), "a"));
    assert_ne!(first, uid_of(web(), "b"));
    assert_ne!(first, uid(&Manifest { path: "/manifests/other.yaml".into(), document: web() }, "a"));
    let mut other = web();
    other.as_object_mut().unwrap().insert("spec", Value::object());
    assert_ne!(first, uid_of(other, "a"));
    let own = api::json!({"metadata": {"name": "web", "uid": "mine"}});
    assert_eq!(uid_of(own, "a"), "mine");
    // The published check value of FNV-1a with 128 bits.
    assert_eq!(fnv(b"a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
}

#[test]
fn a_toleration_of_all_noexecute_taints_loses_its_limit() {
    let mut document = web();
    let tolerations = api::json!([
        {"key": "k", "operator": "Exists"}, {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
    ]);
    document.get_mut("spec").unwrap().as_object_mut().unwrap().insert("tolerations", tolerations);
    let made = for_node(&manifest(document), "n", &unchecked(), NOW).unwrap();
    let seconds: Vec<_> = made.pod.spec.tolerations.iter().map(|it| it.toleration_seconds).collect();
    assert_eq!(seconds, [None, None]);
}

#[test]
fn mirror_is_owned_by_the_node_and_names_its_pod() {
    let made = for_node(&manifest(web()), "n", &unchecked(), NOW).unwrap();
    let mut node = Node::default();
    (node.metadata.name, node.metadata.uid) = ("n".into(), "node-uid".into());
    let document = mirror(&made, &node);
    let owners = document.at(&["metadata", "ownerReferences"]).cloned();
    let expected =
        api::json!([{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "node-uid", "controller": true}]);
    assert_eq!(owners, Some(expected));
    assert_eq!(document.at(&["metadata", "uid"]), None, "the server gives its own");
    let shown: Pod = Pod::read(&document).unwrap();
    assert!(is_mirror(&shown) && is_mirror_of(&shown, &made.pod));
    assert!(!is_mirror(&made.pod));
    let mut changed = made.pod.clone();
    changed.metadata.annotations.insert(HASH.into(), "other".into());
    assert!(!is_mirror_of(&shown, &changed));
}

#[test]
fn rejected_manifest_is_not_a_pod() {
    let check: Check = Arc::new(|_, _| Err("static pods may not reference secrets".to_owned()));
    let refused = for_node(&manifest(web()), "n", &check, NOW).map(|_| ());
    assert_eq!(refused, Err("static pods may not reference secrets".to_owned()));
    let odd = api::json!({"metadata": {"name": "web"}, "spec": "nothing"});
    assert!(for_node(&manifest(odd), "n", &unchecked(), NOW).is_err());
}

fn write(directory: &Path, name: &str, text: &str) {
    fs::write(directory.join(name), text).unwrap();
}

#[test]
fn bad_file_is_reported_and_others_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: b}\n";
    write(path, "b.yaml", pod);
    write(path, "a.json", r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}"#);
    write(path, ".hidden.yaml", "]");
    write(path, "c.yaml", "metadata: [");
    write(path, "d.yaml", "apiVersion: v1\nkind: Node\nmetadata: {name: n}\n");
    write(path, "e.yaml", "apiVersion: v1\nkind: Pod\n");
    write(path, "f.yaml", &format!("{pod}---\n{pod}"));
    fs::create_dir(path.join("g")).unwrap();
    let found = files::read(path).unwrap();
    let names: Vec<_> = found.manifests.iter().map(|it| it.document.str_at(&["metadata", "name"]).unwrap()).collect();
    assert_eq!(names, ["a", "b"]);
    let faults: Vec<_> = found.faults.iter().map(|(path, _)| path.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(faults, ["c.yaml", "d.yaml", "e.yaml", "f.yaml", "g"]);
    assert_eq!(found.faults[2].1, "invalid pod: name is needed for the pod");
}

#[test]
fn a_single_file_that_breaks_changes_nothing_and_one_that_goes_takes_its_pod_along() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("web.yaml");
    write(directory.path(), "web.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n");
    assert_eq!(files::read(&path).unwrap().manifests.len(), 1);
    write(directory.path(), "web.yaml", "metadata: [");
    assert!(files::read(&path).is_err(), "what ran runs on");
    fs::remove_file(&path).unwrap();
    assert_eq!(files::read(&path).unwrap(), files::FoundManifests::default());
}

#[test]
fn metadata_shows_changed_files() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "a", "1");
    let look = files::FileMetadata::at(directory.path());
    assert_eq!(look, files::FileMetadata::at(directory.path()));
    write(directory.path(), "b", "1");
    assert_ne!(look, files::FileMetadata::at(directory.path()));
    assert_eq!(
        files::FileMetadata::at(Path::new("/nothing/there")),
        files::FileMetadata::at(Path::new("/nothing/else"))
    );
}
