//! The ownership graph, change by change.

use api::json::from_value;
use api::meta::v1::ObjectMetaPart;

use super::*;

fn identity(namespace: &str, name: &str) -> Identity {
    Identity {
        kind: "ConfigMap".into(),
        api_version: "v1".into(),
        namespace: namespace.into(),
        name: name.into(),
        uid: format!("uid-{name}").into(),
    }
}

fn owned_by(names: &[(&str, bool)]) -> ObjectMeta {
    let owner = |(name, blocks): &(&str, bool)| OwnerReference {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
        name: (*name).into(),
        uid: format!("uid-{name}").into(),
        block_owner_deletion: Some(*blocks),
        ..OwnerReference::default()
    };
    ObjectMetaPart { owner_references: names.iter().map(owner).collect(), ..ObjectMetaPart::default() }.into()
}

fn deleting(finalizers: &[&str]) -> ObjectMeta {
    let finalizers: Vec<api::json::Value> = finalizers.iter().map(|it| (*it).into()).collect();
    from_value(&api::json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": finalizers})).expect("metadata")
}

fn delete(name: &str) -> Work {
    Work::Delete(format!("uid-{name}").into())
}

#[test]
fn an_unseen_owner_is_looked_up_and_its_absence_reaches_dependents() {
    let mut graph = Graph::default();
    assert_eq!(graph.observe(identity("a", "child"), &owned_by(&[("owner", false)])), [delete("owner")]);
    assert!(!graph.node("uid-owner").expect("a virtual node").observed);
    assert_eq!(graph.absent(&identity("a", "owner")), [delete("child")]);
    assert!(graph.is_absent(&identity("a", "owner")));
    assert!(graph.node("uid-owner").is_none());
}

#[test]
fn an_owner_that_was_seen_first_needs_no_look_up() {
    let mut graph = Graph::default();
    assert_eq!(graph.observe(identity("a", "owner"), &ObjectMeta::default()), []);
    assert_eq!(graph.observe(identity("a", "child"), &owned_by(&[("owner", false)])), []);
    assert_eq!(graph.gone("uid-owner"), [delete("child")]);
}

#[test]
fn an_owner_in_another_namespace_is_reported_and_doubted_in_either_order() {
    let warning = WrongNamespace { dependent: identity("a", "child"), owner: identity("a", "owner") };
    let warning = Work::WrongNamespace(Box::new(warning));
    let mut graph = Graph::default();
    graph.observe(identity("b", "owner"), &ObjectMeta::default());
    let work = graph.observe(identity("a", "child"), &owned_by(&[("owner", false)]));
    assert_eq!(work, [warning.clone(), delete("child")]);

    let mut graph = Graph::default();
    graph.observe(identity("a", "child"), &owned_by(&[("owner", false)]));
    let work = graph.observe(identity("b", "owner"), &ObjectMeta::default());
    assert_eq!(work, [warning, delete("child")]);
    // The server reports that the owner of that name is absent in the dependent's namespace: the real one
    // stays.
    assert_eq!(graph.absent(&identity("a", "owner")), [delete("child")]);
    assert!(graph.node("uid-owner").is_some_and(|node| node.observed));
}

#[test]
fn foreground_deletion_wakes_the_dependents_and_their_end_the_owner() {
    let mut graph = Graph::default();
    graph.observe(identity("a", "owner"), &ObjectMeta::default());
    graph.observe(identity("a", "child"), &owned_by(&[("owner", true)]));
    graph.observe(identity("a", "other"), &owned_by(&[("owner", false)]));
    let work = graph.observe(identity("a", "owner"), &deleting(&[FOREGROUND]));
    assert_eq!(work, [delete("child"), delete("other"), delete("owner")]);
    assert_eq!(graph.observe(identity("a", "owner"), &deleting(&[FOREGROUND])), [], "once");
    let owner = graph.node("uid-owner").expect("a node");
    let blocking: Vec<&str> = graph.blocking_dependents(owner).iter().map(|it| it.identity.name.as_str()).collect();
    assert_eq!(blocking, ["child"]);
    assert_eq!(graph.gone("uid-child"), [delete("owner")]);
    let owner = graph.node("uid-owner").expect("a node");
    assert!(graph.blocking_dependents(owner).is_empty());
}

#[test]
fn a_reference_that_blocks_no_more_wakes_the_owner() {
    let mut graph = Graph::default();
    graph.observe(identity("a", "owner"), &ObjectMeta::default());
    graph.observe(identity("a", "child"), &owned_by(&[("owner", true)]));
    assert_eq!(graph.observe(identity("a", "child"), &owned_by(&[("owner", false)])), [delete("owner")]);
    assert_eq!(graph.observe(identity("a", "child"), &ObjectMeta::default()), []);
    assert!(graph.node("uid-owner").expect("a node").dependents.is_empty());
}

#[test]
fn orphaning_is_its_own_work() {
    let mut graph = Graph::default();
    graph.observe(identity("a", "child"), &owned_by(&[("owner", true)]));
    let work = graph.observe(identity("a", "owner"), &deleting(&[ORPHAN, FOREGROUND]));
    assert_eq!(work, [Work::Orphan("uid-owner".into())]);
}

#[test]
fn virtual_node_takes_the_next_name_when_the_first_is_absent() {
    let mut graph = Graph::default();
    graph.observe(identity("a", "one"), &owned_by(&[("owner", false)]));
    let mut wrong = owned_by(&[("owner", false)]);
    wrong.owner_references[0].name = "zzz".into();
    assert_eq!(graph.observe(identity("a", "two"), &wrong), [delete("two")], "it names the uid otherwise");
    let work = graph.absent(&identity("a", "owner"));
    assert_eq!(work, [delete("one"), Work::DeleteLater("uid-owner".into())]);
    assert_eq!(graph.node("uid-owner").expect("still a virtual node").identity.name, "zzz");
}
