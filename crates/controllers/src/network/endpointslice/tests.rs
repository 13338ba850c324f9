//! Slices, pod by pod.

use api::json::from_value;
use api::metadata;

use super::*;

fn service(spec: &str) -> Service {
    let text = format!(
        r#"{{"metadata": {{"name": "web", "namespace": "a", "uid": "u"}}, "spec": {{"selector": {{"app": "web"}}, "clusterIP": "1.2.3.4", {spec}}}}}"#
    );
    from_value(&api::json::parse(text.as_bytes()).expect("JSON")).expect("a service")
}

fn pod(number: usize) -> Pod {
    let (name, ip) = (format!("p{number:03}"), format!("10.0.{}.{}", number / 250, number % 250));
    let (uid, other) = (name.clone(), ip.clone());
    from_value(&api::json!({
        "metadata": {"name": name, "namespace": "a", "uid": uid},
        "spec": {"nodeName": "n"},
        "status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": other}],
            "conditions": [{"type": "Ready", "status": "True"}]},
    }))
    .expect("a pod")
}

const PORT: &str = r#""ports": [{"port": 80, "protocol": "TCP"}]"#;

/// The slices after the actions: updated in place, created with new names.
fn apply(slices: &[Value], actions: &[Action]) -> Vec<Value> {
    let mut slices = slices.to_vec();
    for action in actions {
        match action {
            Action::Create { object, .. } => {
                let mut object = object.clone();
                object.set_at(&["metadata", "name"], format!("web-{}", slices.len()));
                slices.push(object);
            }
            Action::Update { object, .. } => {
                let name = metadata::name(object).to_owned();
                let slot = slices.iter_mut().find(|it| metadata::name(it) == name).expect("a slice of that name");
                *slot = object.clone();
            }
            Action::Delete { name, .. } => slices.retain(|it| metadata::name(it) != name.as_str()),
            other => panic!("{other:?}"),
        }
    }
    slices
}

fn run(service: &Service, pods: &[Pod], slices: &[Value]) -> (Vec<Action>, Vec<Value>) {
    let node = Node::default();
    let pods: Vec<&Pod> = pods.iter().collect();
    let known: Vec<&Value> = slices.iter().collect();
    let actions = reconcile(service, &pods, |_| Some(&node), &known, None, &mut Topology::default());
    let after = apply(slices, &actions);
    (actions, after)
}

fn sizes(slices: &[Value]) -> Vec<usize> {
    slices.iter().map(|it| it.get("endpoints").and_then(Value::as_array).map_or(0, <[Value]>::len)).collect()
}

#[test]
fn a_service_without_pods_has_an_empty_slice_that_is_used_later() {
    let service = service(PORT);
    let (actions, slices) = run(&service, &[], &[]);
    assert!(matches!(actions.as_slice(), [Action::Create { .. }]));
    assert_eq!(run(&service, &[], &slices).0, []);
    let (actions, slices) = run(&service, &[pod(1)], &slices);
    assert!(matches!(actions.as_slice(), [Action::Update { .. }]), "{actions:?}");
    assert_eq!(sizes(&slices), [1]);
    assert_eq!(run(&service, &[pod(1)], &slices).0, []);
    let (actions, slices) = run(&service, &[], &slices);
    assert!(matches!(actions.as_slice(), [Action::Update { .. }]), "{actions:?}");
    assert_eq!(slices[0].get("ports"), Some(&api::json!([])));
}

#[test]
fn slices_are_filled_and_left_alone() {
    let service = service(PORT);
    let pods: Vec<Pod> = (0..150).map(pod).collect();
    let (_, slices) = run(&service, &pods, &[]);
    assert_eq!(sizes(&slices), [100, 50]);
    let more: Vec<Pod> = (0..160).map(pod).collect();
    let (actions, slices) = run(&service, &more, &slices);
    assert_eq!(actions.len(), 1);
    assert_eq!(sizes(&slices), [100, 60]);
    let fewer: Vec<Pod> = (0..99).map(pod).collect();
    let (_, slices) = run(&service, &fewer, &slices);
    assert_eq!(sizes(&slices), [99]);
}

#[test]
fn a_pod_that_ends_still_serves() {
    let service = service(PORT);
    let mut ending = pod(1);
    ending.metadata.deletion_timestamp = Some(Timestamp { seconds: 1, nanos: 0 });
    let (_, slices) = run(&service, &[ending], &[]);
    let conditions = api::json!({"ready": false, "serving": true, "terminating": true});
    let endpoint = slices[0].get("endpoints").and_then(Value::as_array).and_then(|it| it.first()).expect("an endpoint");
    assert_eq!(endpoint.get("conditions"), Some(&conditions));
}

#[test]
fn hints_follow_the_traffic_distribution() {
    let near = service(&format!(r#"{PORT}, "trafficDistribution": "PreferSameNode""#));
    let (_, slices) = run(&near, &[pod(1)], &[]);
    let hints = |slices: &[Value]| {
        slices[0].get("endpoints").and_then(Value::as_array).and_then(|it| it.first()?.get("hints").cloned())
    };
    assert_eq!(hints(&slices), Some(api::json!({"forNodes": [{"name": "n"}]})));
    let (actions, slices) = run(&service(PORT), &[pod(1)], &slices);
    assert_eq!(actions.len(), 1);
    assert_eq!(hints(&slices), None);
}

#[test]
fn both_families_have_their_own_slices_and_a_dropped_one_none() {
    let both = service(&format!(r#"{PORT}, "ipFamilies": ["IPv4", "IPv6"]"#));
    let (_, slices) = run(&both, &[pod(1)], &[]);
    assert_eq!(sizes(&slices), [1, 0]);
    let one = service(&format!(r#"{PORT}, "ipFamilies": ["IPv4"]"#));
    let (actions, _) = run(&one, &[pod(1)], &slices);
    assert!(matches!(actions.as_slice(), [Action::Delete { .. }]), "{actions:?}");
}

#[test]
fn a_slice_of_an_earlier_service_of_that_name_goes() {
    let service = service(PORT);
    let (_, mut slices) = run(&service, &[pod(1)], &[]);
    slices[0].set_at(&["metadata", "ownerReferences"], api::json!([{"kind": "Service", "uid": "old"}]));
    let (actions, _) = run(&service, &[pod(1)], &slices);
    assert!(matches!(actions.as_slice(), [Action::Create { .. }, Action::Delete { .. }]), "{actions:?}");
}
