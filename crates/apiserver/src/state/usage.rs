//! Usage of resources by pods and nodes, as `metrics.k8s.io` shows it.
//!
//! Agents of nodes count processor time from the start of a container; usage is the difference between two samples.
//! Follows `pkg/storage` of metrics-server.

use std::collections::HashMap;

use locks::{Mutex, MutexGuard};

/// A container that has run for less time has no usage before its second sample.
const FIRST_WINDOW_MILLIS: i64 = 10_000;

/// Usage at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Billionths of a processor.
    pub cpu_nanocores: u64,
    /// Bytes of the working set.
    pub memory_bytes: u64,
}

/// Usage of one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerUsage {
    /// Name of the container in its pod.
    pub name: String,
    /// Its usage.
    pub usage: Usage,
}

/// A value, and the period that it was measured in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Measurement<T> {
    /// End of the period, in milliseconds since 1970.
    pub(crate) at_millis: i64,
    pub(crate) window_millis: i64,
    pub(crate) value: T,
}

/// Counters of a container or node at one moment. Times are milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Point {
    pub(crate) at_millis: i64,
    pub(crate) started_millis: Option<i64>,
    pub(crate) cpu_nanos: u64,
    pub(crate) memory_bytes: u64,
}

/// Namespace and name of a pod.
pub(crate) type PodKey = (String, String);

/// One sample of a node.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Sample {
    pub(crate) node: Option<Point>,
    pub(crate) pods: HashMap<PodKey, HashMap<String, Point>>,
}

/// The newest point, and the one before.
#[derive(Debug, Clone, Copy)]
struct Points {
    last: Point,
    previous: Option<Point>,
}

impl Points {
    fn new(last: Point, known: Option<Points>) -> Self {
        match known {
            Some(known) if known.last.at_millis >= last.at_millis => known,
            Some(known) => Self { last, previous: Some(known.last) },
            None => Self { last, previous: None },
        }
    }

    fn usage(&self) -> Option<Measurement<Usage>> {
        let last = self.last;
        let is_same_run = |it: &Point| {
            it.at_millis < last.at_millis
                && it.cpu_nanos <= last.cpu_nanos
                && last.started_millis.is_none_or(|started| started <= it.at_millis)
        };
        let start = || last.started_millis.filter(|it| last.at_millis.saturating_sub(*it) >= FIRST_WINDOW_MILLIS);
        let (since, cpu) = match self.previous.filter(is_same_run) {
            Some(previous) => (previous.at_millis, previous.cpu_nanos),
            None => (start()?, 0),
        };
        let window = last.at_millis.saturating_sub(since);
        let spent = u128::from(last.cpu_nanos.saturating_sub(cpu)).saturating_mul(1000);
        let rate = spent.checked_div(u128::try_from(window).ok()?)?;
        let usage = Usage { cpu_nanocores: u64::try_from(rate).unwrap_or(u64::MAX), memory_bytes: last.memory_bytes };
        Some(Measurement { at_millis: last.at_millis, window_millis: window, value: usage })
    }
}

/// The samples of one node.
#[derive(Debug, Default)]
struct NodePoints {
    node: Option<Points>,
    pods: HashMap<PodKey, HashMap<String, Points>>,
    /// Whether the last attempt to read the node failed.
    is_outdated: bool,
}

/// The samples of all nodes whose agents are read.
#[derive(Debug, Default)]
pub(crate) struct Samples(Mutex<HashMap<String, NodePoints>>);

impl Samples {
    fn nodes(&self) -> MutexGuard<'_, HashMap<String, NodePoints>> {
        self.0.lock()
    }

    /// Adds a sample of a node; none means that it could not be read, and has no usage until it can.
    pub(crate) fn add(&self, node: &str, sample: Option<Sample>) {
        let mut nodes = self.nodes();
        let known = nodes.entry(node.to_owned()).or_default();
        let Some(sample) = sample else {
            known.is_outdated = true;
            return;
        };
        known.is_outdated = false;
        known.node = sample.node.map(|point| Points::new(point, known.node));
        let of_pod = |(key, containers): (PodKey, HashMap<String, Point>)| {
            let before = known.pods.get(&key);
            let known_points = |name: &String| before.and_then(|it| it.get(name)).copied();
            let points = containers.into_iter().map(|(name, point)| {
                let points = Points::new(point, known_points(&name));
                (name, points)
            });
            (key, points.collect())
        };
        known.pods = sample.pods.into_iter().map(of_pod).collect();
    }

    /// Forgets all other nodes.
    pub(crate) fn retain(&self, is_there: impl Fn(&str) -> bool) {
        self.nodes().retain(|name, _| is_there(name));
    }

    /// The usage of a node.
    pub(crate) fn node(&self, name: &str) -> Option<Measurement<Usage>> {
        let nodes = self.nodes();
        nodes.get(name).filter(|it| !it.is_outdated)?.node?.usage()
    }

    /// The usage of the containers of a pod, by name; none unless that of all is known.
    pub(crate) fn pod(&self, node: &str, namespace: &str, name: &str) -> Option<Measurement<Vec<ContainerUsage>>> {
        let nodes = self.nodes();
        let points = nodes.get(node).filter(|it| !it.is_outdated)?;
        let containers = points.pods.get(&(namespace.to_owned(), name.to_owned()))?;
        let measured = containers.iter().map(|(name, points)| Some((name, points.usage()?)));
        let mut measured: Vec<(&String, Measurement<Usage>)> = measured.collect::<Option<_>>()?;
        measured.sort_by_key(|(name, _)| *name);
        let earliest = measured.iter().map(|(_, it)| it).min_by_key(|it| it.at_millis)?;
        let (at_millis, window_millis) = (earliest.at_millis, earliest.window_millis);
        let value = measured.iter().map(|(name, it)| ContainerUsage { name: (*name).clone(), usage: it.value });
        Some(Measurement { at_millis, window_millis, value: value.collect() })
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "tests")]
mod tests {
    use super::*;

    fn point(at_seconds: i64, started_seconds: i64, cpu_seconds: u64) -> Point {
        Point {
            at_millis: at_seconds * 1000,
            started_millis: Some(started_seconds * 1000),
            cpu_nanos: cpu_seconds * 1_000_000_000,
            memory_bytes: 7,
        }
    }

    /// The usage in processors and the window in seconds after some samples of one container.
    #[track_caller]
    fn check(points: &[Point], expected: Option<(u64, i64)>) {
        let samples = Samples::default();
        let key = ("d".to_owned(), "p".to_owned());
        for point in points {
            let pods = HashMap::from([(key.clone(), HashMap::from([("c".to_owned(), *point)]))]);
            samples.add("n", Some(Sample { node: Some(*point), pods }));
        }
        let of_pod = samples.pod("n", "d", "p");
        let short = |it: &Measurement<Usage>| (it.value.cpu_nanocores / 1_000_000_000, it.window_millis / 1000);
        assert_eq!(samples.node("n").as_ref().map(short), expected);
        assert_eq!(
            of_pod.map(|it| (it.value[0].usage.cpu_nanocores / 1_000_000_000, it.window_millis / 1000)),
            expected
        );
    }

    #[test]
    fn usage_is_the_difference_of_two_samples() {
        check(&[], None);
        check(&[point(100, 95, 4)], None);
        check(&[point(100, 80, 40)], Some((2, 20)));
        check(&[point(100, 0, 4), point(115, 0, 34)], Some((2, 15)));
        // The same sample again, and one that is older.
        check(&[point(100, 0, 4), point(115, 0, 34), point(115, 0, 34), point(90, 0, 1)], Some((2, 15)));
        // A container that was started again counts from zero.
        check(&[point(100, 0, 400), point(115, 105, 20)], Some((2, 10)));
        check(&[point(100, 0, 400), point(115, 110, 20)], None);
    }

    #[test]
    fn node_that_cannot_be_read_has_no_usage() {
        let samples = Samples::default();
        let sample = |at| Some(Sample { node: Some(point(at, 0, 0)), ..Sample::default() });
        samples.add("n", sample(100));
        samples.add("n", None);
        assert_eq!(samples.node("n"), None);
        samples.add("n", sample(130));
        assert_eq!(samples.node("n").map(|it| it.window_millis), Some(30_000));
        samples.retain(|name| name != "n");
        assert_eq!(samples.node("n"), None);
    }
}
