//! The cases of Kubernetes' replica calculator tests as facts, and properties for any pods and metrics.
#![allow(clippy::arithmetic_side_effects, reason = "tests")]

use api::json::{self, Value};
use proptest::prelude::*;

use super::*;

/// One case in a line: `by` is a function of [`Calculator`], `levels` are values by pod (and container), and pods have two
/// containers with the same request. `started` is `hot` for a pod that was just started and `cool` for an older one.
const CASES: &str = include_str!("replicas.jsonl");
const NOW: Timestamp = Timestamp { seconds: 1_800_000_000, nanos: 0 };
const DEFAULT: Tolerances = Tolerances { down: 0.1, up: 0.1 };

fn calculator(pods: &[Arc<Pod>], tolerances: Tolerances) -> Calculator<'_> {
    let (cpu_initialization, initial_readiness_delay) = (Duration::from_secs(120), Duration::from_secs(10));
    Calculator { pods, now: NOW, tolerances, cpu_initialization, initial_readiness_delay }
}

fn list<'a>(case: &'a Value, field: &str) -> &'a [Value] {
    case.get(field).and_then(Value::as_array).unwrap_or_default()
}

fn number(case: &Value, field: &str) -> i64 {
    case.get(field).and_then(Value::as_i64).unwrap_or_default()
}

fn pod(case: &Value, index: usize) -> Arc<Pod> {
    let text =
        |field: &str, default: &str| list(case, field).get(index).and_then(Value::as_str).unwrap_or(default).to_owned();
    let mut pod = Pod::default();
    pod.metadata.name = format!("pod-{index}").as_str().into();
    let is_deleted = list(case, "deleted").get(index).and_then(Value::as_bool) == Some(true);
    pod.metadata.deletion_timestamp = is_deleted.then_some(NOW);
    pod.status.phase = text("phases", "Running").as_str().into();
    pod.status.start_time = Some(match text("started", "").as_str() {
        "hot" => NOW,
        "cool" => NOW.plus_seconds(-180),
        _ => Timestamp::ZERO,
    });
    let ready = api::json!({"type": "Ready", "status": (text("ready", "True"))});
    pod.status.conditions = vec![json::from_value(&ready).unwrap()];
    let container = |name: &str| {
        let mut container = Container { name: name.into(), ..Container::default() };
        if let Some(request) = list(case, "requests").get(index).and_then(Value::as_str) {
            container.resources.requests.insert("cpu".into(), Quantity::parse(request).unwrap());
        }
        container
    };
    pod.spec.containers = vec![container("container1"), container("container2")];
    Arc::new(pod)
}

fn metrics(case: &Value) -> PodMetrics {
    let name = |index: usize| match list(case, "pods").get(index).and_then(Value::as_str) {
        Some(name) => name.to_owned(),
        None => format!("pod-{index}"),
    };
    // A container without a level has no metric.
    let value = |level: &Value| match (level.as_array(), case.str_at(&["container"])) {
        (None, _) => level.as_i64(),
        (Some(all), None) => Some(all.iter().filter_map(Value::as_i64).sum()),
        (Some(all), Some(container)) => all.get(usize::from(container == "container2")).and_then(Value::as_i64),
    };
    let metric = |value: i64| PodMetric { value, at: Timestamp::ZERO, window: Duration::from_secs(60) };
    let levels = list(case, "levels").iter().enumerate();
    levels.filter_map(|(at, level)| Some((name(at).as_str().into(), metric(value(level)?)))).collect()
}

/// Replicas, utilization in percent, and value.
fn compute(case: &Value) -> Result<(i64, i64, i64), String> {
    let current = i32::try_from(number(case, "current")).unwrap();
    let count = usize::try_from(current).unwrap().max(list(case, "phases").len());
    let pods: Vec<Arc<Pod>> = (0..count).map(|index| pod(case, index)).collect();
    let tolerances = match list(case, "tolerances") {
        [down, up] => Tolerances { down: down.as_f64().unwrap(), up: up.as_f64().unwrap() },
        _ => DEFAULT,
    };
    let (calculator, target) = (calculator(&pods, tolerances), number(case, "target"));
    let values = || list(case, "levels").iter().filter_map(Value::as_i64).fold(0, i64::saturating_add);
    let container = case.str_at(&["container"]).unwrap_or_default();
    match case.str_at(&["by"]).unwrap() {
        "utilization" => {
            let target = i32::try_from(target).unwrap();
            let found = calculator.by_utilization(current, target, "cpu", container, metrics(case))?;
            Ok((found.replicas.into(), found.percent.into(), found.average))
        }
        "average" => calculator.by_average(current, target, "", metrics(case)).map(|it| (it.0.into(), 0, it.1)),
        "value" => calculator.by_value(current, target, values()).map(|it| (it.into(), 0, values())),
        "value per pod" => {
            let (replicas, usage) = calculator.by_value_per_pod(current, target, values());
            Ok((replicas.into(), 0, usage))
        }
        other => panic!("{other}"),
    }
}

#[test]
fn results_agree_with_kubernetes() {
    let mut count = 0;
    for line in CASES.lines() {
        let case = json::parse(line.as_bytes()).unwrap();
        match (compute(&case), case.str_at(&["error"])) {
            (Err(found), Some(expected)) => assert!(found.contains(expected), "{line}: {found}"),
            (found, _) => {
                let expected = (number(&case, "replicas"), number(&case, "percent"), number(&case, "value"));
                assert_eq!(found, Ok(expected), "{line}");
            }
        }
        count += 1;
    }
    assert_eq!(count, 75);
}

#[test]
fn readiness_decides_about_processor_time_only() {
    let at = |seconds: i64| NOW.plus_seconds(-seconds);
    // Start and change of readiness in seconds before now, readiness, age and window of the metric; whether it counts.
    for (started, changed, ready, age, window, counts) in [
        (60, 30, "True", 0, 30, true),
        (60, 30, "True", 0, 60, false),
        (600, 594, "False", 0, 60, false),
        (180, 180, "True", 120, 60, true),
        (600, 540, "False", 0, 60, true),
        (600, 590, "False", 0, 60, true),
        (60, 60, "False", 0, 1, false),
    ] {
        let mut pod = (*pod(&Value::object(), 0)).clone();
        pod.status.start_time = Some(at(started));
        pod.status.conditions[0].status = ready.into();
        pod.status.conditions[0].last_transition_time = Some(at(changed));
        let metric = PodMetric { value: 1, at: at(age), window: Duration::from_secs(window) };
        let pods = [Arc::new(pod)];
        let group = |resource: &str| {
            let mut metrics = PodMetrics::from([("pod-0".into(), metric)]);
            calculator(&pods, DEFAULT).group(&mut metrics, resource).is_ok_and(|groups| groups.ready == 1)
        };
        assert_eq!((group("cpu"), group("memory")), (counts, true), "{started} {changed} {ready}");
    }
}

#[test]
fn requests_are_those_of_containers_or_of_the_pod() {
    let case = json::parse(br#"{"requests": ["100m"]}"#).unwrap();
    let mut with_sidecar = (*pod(&case, 0)).clone();
    let mut sidecar = with_sidecar.spec.containers[0].clone();
    (sidecar.name, sidecar.restart_policy) = ("sidecar".into(), Some("Always".into()));
    let plain_init = Container { name: "init".into(), ..Container::default() };
    with_sidecar.spec.init_containers = vec![sidecar, plain_init];
    assert_eq!(request(&with_sidecar, "", "cpu"), Ok(300));
    assert_eq!(request(&with_sidecar, "sidecar", "cpu"), Ok(100));
    let missing = "missing request for memory in container container1 of Pod pod-0";
    assert_eq!(request(&with_sidecar, "", "memory"), Err(missing.to_owned()));
    assert_eq!(request(&with_sidecar, "x", "cpu"), Err("container x not found in Pod pod-0".to_owned()));
    let mut own = api::core::v1::ResourceRequirements::default();
    own.requests.insert("cpu".into(), Quantity::parse("1").unwrap());
    with_sidecar.spec.resources = Some(own);
    assert_eq!((request(&with_sidecar, "", "cpu"), request(&with_sidecar, "container1", "cpu")), (Ok(1000), Ok(100)));
    let missing = "missing pod-level request for memory in Pod pod-0";
    assert_eq!(request(&with_sidecar, "", "memory"), Err(missing.to_owned()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// More usage never calls for fewer replicas, and usage at the target changes nothing.
    #[test]
    fn replicas_grow_with_usage(
        states in proptest::collection::vec((0_u8..4, 0_i64..3000), 1..12),
        extra in 0_i64..2000,
        target in 1_i64..2000,
    ) {
        let name = |index: usize| -> Text { format!("pod-{index}").as_str().into() };
        let pods: Vec<Arc<Pod>> = states.iter().enumerate().map(|(index, (state, _))| {
            let mut pod = (*pod(&Value::object(), index)).clone();
            if *state == 1 {
                pod.status.phase = "Pending".into();
            }
            Arc::new(pod)
        }).collect();
        let current = i32::try_from(pods.len()).unwrap();
        let with = |change: &dyn Fn(i64) -> i64| {
            // State 2 is a pod without metrics.
            let known = states.iter().enumerate().filter(|(_, (state, _))| *state != 2);
            let metrics = known.map(|(index, (_, value))| {
                (name(index), PodMetric { value: change(*value), at: NOW, window: Duration::ZERO })
            });
            calculator(&pods, DEFAULT).by_average(current, target, "", metrics.collect())
        };
        if let (Ok((less, _)), Ok((more, _))) = (with(&|value| value), with(&|value| value + extra)) {
            prop_assert!(less <= more, "{less} {more}");
            prop_assert!(less >= 0);
        }
        if let Ok((same, _)) = with(&|_| target) {
            prop_assert_eq!(same, current);
        }
    }
}
