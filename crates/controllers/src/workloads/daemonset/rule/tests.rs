//! Daemon pods on a few nodes, each described by a code.

use api::json::{Value, from_value};

use super::*;

const NOW: Timestamp = Timestamp { seconds: 1000, nanos: 0 };

/// `node=word,word`: pods on a node. `new` or `old`, with `!` not ready, `-` being deleted, `x` failed.
fn pods(text: &str) -> PodsByNode {
    let mut nodes = PodsByNode::new();
    for part in text.split_whitespace() {
        let (node, words) = part.split_once('=').unwrap();
        for (number, word) in words.split(',').enumerate() {
            nodes.entry(node.into()).or_default().push(Arc::new(pod(node, number, word)));
        }
    }
    nodes
}

fn pod(node: &str, number: usize, word: &str) -> Pod {
    let hash = if word.starts_with("new") { "h2" } else { "h1" };
    let ready = if word.contains('!') { "False" } else { "True" };
    let phase = if word.contains('x') { "Failed" } else { "Running" };
    let name = format!("{node}{number}");
    let mut pod: Pod = from_value(&api::json!({
        "metadata": {
            "name": name, "namespace": "ns", "labels": {"controller-revision-hash": hash},
            "creationTimestamp": (Timestamp { seconds: i64::try_from(number).unwrap(), nanos: 0 }.to_string()),
        },
        "spec": {"nodeName": node},
        "status": {"phase": phase, "conditions": [
            {"type": "Ready", "status": ready, "lastTransitionTime": "1970-01-01T00:00:00Z"}
        ]},
    }))
    .unwrap();
    if word.contains('-') {
        pod.metadata.deletion_timestamp = Some(NOW);
    }
    pod
}

/// `+` a pod should run, `~` one may stay, `-` none may.
fn nodes(text: &str) -> BTreeMap<Text, Placement> {
    let place = |word: &str| {
        let (mark, name) = word.split_at(1);
        (Text::from(name), Placement { should_run: mark == "+", should_continue: mark != "-" })
    };
    text.split_whitespace().map(place).collect()
}

fn set(strategy: Value) -> DaemonSet {
    from_value(&api::json!({"metadata": {"name": "d"}, "spec": {"updateStrategy": strategy}})).unwrap()
}

fn unavailable_at_most(count: i32) -> Value {
    api::json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": count, "maxSurge": 0}})
}

fn surge_at_most(count: i32) -> Value {
    api::json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": count}})
}

fn text(change: &Change) -> String {
    let created = change.create.iter().map(|node| format!("+{node}"));
    let deleted = change.delete.iter().map(|pod| format!("-{}", pod.metadata.name));
    created.chain(deleted).collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn check_managed(strategy: Value, on: &str, there: &str, expected: &str) {
    let (set, nodes, pods) = (set(strategy), nodes(on), pods(there));
    let seen = ObservedState { set: &set, nodes: &nodes, pods: &pods, hash: "h2", now: NOW };
    assert_eq!(text(&manage(&seen, &mut Backoff::default())), expected);
}

#[track_caller]
fn check_replaced(strategy: Value, on: &str, there: &str, expected: &str) {
    let (set, nodes, pods) = (set(strategy), nodes(on), pods(there));
    let seen = ObservedState { set: &set, nodes: &nodes, pods: &pods, hash: "h2", now: NOW };
    assert_eq!(text(&replace(&seen)), expected);
}

#[test]
fn one_pod_on_every_node_that_should_have_one() {
    let strategy = unavailable_at_most(1);
    check_managed(strategy.clone(), "+a +b ~c -d", "b=new c=new d=new", "+a -d0");
    check_managed(strategy.clone(), "+a", "a=new,new,new", "-a1 -a2");
    check_managed(strategy.clone(), "+a", "a=newx", "-a0");
    // A terminating pod occupies its place.
    check_managed(strategy.clone(), "+a -b", "a=new- b=new-", "");
    // A pod on an unknown node is left to other controllers.
    check_managed(strategy, "+a", "a=new b=new", "");
}

#[test]
fn a_surging_set_has_two_pods_until_the_new_one_works() {
    check_managed(surge_at_most(1), "+a", "a=old,new!", "");
    check_managed(surge_at_most(1), "+a", "a=old,new", "-a0");
    check_managed(surge_at_most(1), "+a", "a=old!,new!", "-a0");
    check_managed(surge_at_most(1), "+a", "a=old,new!,old,new!", "-a2 -a3");
    // The old one goes: the new one need not wait for it.
    check_managed(surge_at_most(1), "+a", "a=old-", "+a");
    check_managed(unavailable_at_most(1), "+a", "a=old-", "");
}

#[test]
fn pods_are_replaced_as_many_at_a_time_as_may_be_missing() {
    check_replaced(unavailable_at_most(1), "+a +b +c", "a=old b=old c=old", "-a0");
    check_replaced(unavailable_at_most(2), "+a +b +c", "a=old b=old c=old", "-a0 -b0");
    check_replaced(unavailable_at_most(1), "+a +b +c", "a=new! b=old c=old", "");
    check_replaced(unavailable_at_most(1), "+a +b +c", "b=old c=old", "");
    check_replaced(unavailable_at_most(1), "+a +b +c", "a=new b=old c=old", "-b0");
    // Unavailable pods are replaced at once.
    check_replaced(unavailable_at_most(1), "+a +b +c", "a=old! b=old! c=old", "-a0 -b0");
    check_replaced(unavailable_at_most(0), "+a +b", "a=old b=old", "-a0");
    let percent = api::json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "50%"}});
    check_replaced(percent, "+a +b +c", "a=old b=old c=old", "-a0 -b0");
    check_replaced(api::json!({"type": "OnDelete"}), "+a", "a=old", "");
}

#[test]
fn surging_makes_new_pods_before_old_ones_go() {
    check_replaced(surge_at_most(1), "+a +b", "a=old b=old", "+a");
    check_replaced(surge_at_most(1), "+a +b", "a=old,new! b=old", "");
    check_replaced(surge_at_most(1), "+a +b", "a=old,new b=old", "+b -a0");
    check_replaced(surge_at_most(1), "+a +b", "a=old! b=old!", "+a +b");
    // No longer wanted here: goes when there are enough elsewhere.
    check_replaced(surge_at_most(1), "~a +b", "a=old b=new", "-a0");
    check_replaced(surge_at_most(1), "~a +b", "a=old b=new!", "");
}

#[test]
fn a_pod_that_fails_again_and_again_is_not_made_at_once() {
    let (set, nodes) = (set(unavailable_at_most(1)), nodes("+a"));
    let mut backoff = Backoff::default();
    let pods = pods("a=newx");
    let seen = ObservedState { set: &set, nodes: &nodes, pods: &pods, hash: "h2", now: NOW };
    let first = manage(&seen, &mut backoff);
    assert_eq!((text(&first).as_str(), first.events.len()), ("-a0", 1));
    let second = manage(&seen, &mut backoff);
    assert_eq!((text(&second).as_str(), second.again), ("", Some(Duration::from_secs(1))));
}
