//! Parts are shared only between identical values, without visible effects.

#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::core::v1::Pod;
use crate::json::{from_value, to_value};

fn pod(name: &str, image: &str, memory: &str) -> Pod {
    from_value(&crate::json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
        "spec": {
            "nodeName": name, "restartPolicy": "Always",
            "containers": [{"name": "c", "image": image, "resources": {"requests": {"memory": memory}}}]
        },
        "status": {"phase": "Running", "podIP": name}
    }))
    .unwrap()
}

#[test]
fn identical_parts_are_shared() {
    let pool = Pool::default();
    let share = |name, image, memory| {
        let mut shared = pod(name, image, memory);
        pool.share(&mut shared);
        assert_eq!(shared, pod(name, image, memory));
        shared
    };
    let first = share("a", "v1", "1Gi");
    let second = share("b", "v1", "1Gi");
    assert!(first.spec.part.is_same(&second.spec.part) && first.metadata.part.is_same(&second.metadata.part));
    assert!(first.status.part.is_same(&second.status.part));
    assert_eq!((second.metadata.name.as_str(), second.spec.node_name.as_str()), ("b", "b"));
    assert!(!first.spec.part.is_same(&share("c", "v2", "1Gi").spec.part));
    // Equal, and yet not written the same.
    let other = share("d", "v1", "1073741824");
    assert_eq!(first.spec.part, other.spec.part);
    assert!(!first.spec.part.is_same(&other.spec.part));
    assert_eq!(other.spec.containers[0].resources.requests["memory"].to_string(), "1073741824");
}

#[test]
fn a_change_is_of_one_object_alone() {
    let pool = Pool::default();
    let (mut first, mut second) = (pod("a", "v1", "1"), pod("b", "v1", "1"));
    pool.share(&mut first);
    pool.share(&mut second);
    second.spec.containers[0].image = "v2".into();
    assert_eq!((first.spec.containers[0].image.as_str(), second.spec.containers[0].image.as_str()), ("v1", "v2"));
    assert!(!first.spec.part.is_same(&second.spec.part));
    let mut changed = second.spec.clone();
    changed.priority = Some(1);
    assert_eq!((changed.priority, second.spec.priority), (Some(1), None));
}

#[test]
fn nothing_is_kept_alive() {
    let pool = Pool::default();
    let mut kept = pod("kept", "v0", "1");
    pool.share(&mut kept);
    for number in 0..10_000 {
        pool.share(&mut pod("a", &format!("v{number}"), "1"));
    }
    assert!(pool.known() <= 2 * SWEEP_MIN, "{}", pool.known());
    let mut later = pod("later", "v0", "1");
    pool.share(&mut later);
    assert!(kept.spec.part.is_same(&later.spec.part));
}

#[test]
fn parts_do_not_show_in_json() {
    let pod = pod("a", "v1", "1Gi");
    let written = to_value(&pod).unwrap();
    let expected = concat!(
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"default","labels":{"app":"web"}},"#,
        r#""spec":{"containers":[{"name":"c","image":"v1","resources":{"requests":{"memory":"1Gi"}}}],"#,
        r#""restartPolicy":"Always","nodeName":"a"},"status":{"phase":"Running","podIP":"a"}}"#
    );
    assert_eq!(crate::json::to_string(&written), expected);
    assert_eq!(from_value::<Pod>(&written).unwrap(), pod);
    assert_eq!(to_value(&Pod::default()).unwrap(), crate::json!({}));
}
