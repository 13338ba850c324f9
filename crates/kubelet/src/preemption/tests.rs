//! Pods that are evicted for a critical pod, and pods that are not.

use api::json::from_value;

use super::*;

/// A pod by its requests, such as `cpu=500m memory=1Gi`; `limited` ones have the same as limits.
fn pod(name: &str, requests: &str, limited: bool, priority: Option<i32>) -> Pod {
    let amounts: api::json::Object = requests.split_whitespace().filter_map(|it| it.split_once('=')).collect();
    let limits = if limited { amounts.clone() } else { api::json::Object::new() };
    let pod = api::json!({"metadata": {"name": name}, "spec": {
        "priority": (priority.map_or(api::json::Value::Null, Into::into)),
        "containers": [{"name": "c", "resources": {"requests": amounts, "limits": limits}}],
    }});
    from_value(&pod).unwrap()
}

fn short(resource: &str, amount: i64) -> Rejection {
    Rejection { shortage: Some((resource.into(), amount)), ..Rejection::new("OutOf", "") }
}

fn critical() -> Pod {
    pod("critical", "", false, Some(CRITICAL_PRIORITY))
}

#[track_caller]
fn check(needs: &[(&str, i64)], others: &[Pod], expected: &[&str]) {
    let objections = needs.iter().map(|(name, amount)| short(name, *amount)).collect();
    let chosen = victims(&critical(), objections, others.iter()).unwrap();
    let mut names: Vec<&str> = chosen.iter().map(|pod| pod.metadata.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, expected);
}

#[test]
fn the_lowest_class_that_frees_enough_goes_and_no_more_than_needed() {
    let others = [
        pod("none", "", false, None),
        pod("small", "cpu=100m memory=100", false, None),
        pod("large", "cpu=1 memory=1000", false, None),
        pod("guaranteed", "cpu=1 memory=1000", true, None),
    ];
    check(&[], &others, &[]);
    check(&[("pods", 1)], &others, &["none"]);
    check(&[("cpu", 100)], &others, &["small"]);
    check(&[("cpu", 500)], &others, &["large"]);
    check(&[("cpu", 1100)], &others, &["large", "small"]);
    check(&[("cpu", 1500)], &others, &["guaranteed", "large"]);
    check(&[("memory", 2100), ("pods", 4)], &others, &["guaranteed", "large", "none", "small"]);
}

#[test]
fn pods_that_are_as_important_stay() {
    let mut from_file = pod("from-file", "cpu=1", false, None);
    from_file.metadata.annotations.insert("kubernetes.io/config.source".into(), "file".into());
    let others = [from_file, pod("equal", "cpu=1", false, Some(CRITICAL_PRIORITY))];
    let refused = victims(&critical(), vec![short("cpu", 1000)], others.iter()).unwrap_err();
    assert_eq!(refused.reason, "UnexpectedAdmissionError");
    assert!(refused.message.ends_with("no set of running pods found to reclaim resources: [(res: cpu, q: 1000), ]"));
    let more = pod("more", "", false, Some(CRITICAL_PRIORITY + 1000));
    let chosen = victims(&more, vec![short("cpu", 1000)], others.iter()).unwrap();
    assert_eq!(chosen.iter().map(|pod| pod.metadata.name.as_str()).collect::<Vec<_>>(), ["equal"]);
}

#[test]
fn an_ordinary_pod_is_turned_away_and_a_critical_one_for_other_reasons_only() {
    let others = [pod("small", "cpu=1", false, None)];
    let objections = || vec![short("cpu", 10), Rejection::new("NodePorts", "")];
    let ordinary = pod("ordinary", "", false, Some(1000));
    assert_eq!(victims(&ordinary, objections(), others.iter()).unwrap_err().reason, "OutOf");
    assert_eq!(victims(&critical(), objections(), others.iter()).unwrap_err().reason, "NodePorts");
}
