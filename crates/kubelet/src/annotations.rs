//! Names of the annotations that change how nodes and pods are simulated.
//!
//! They begin with `sim.celplane.dev/`. The older prefix `sim/` is accepted for one release, with a warning. An
//! invalid name or value has no effect and is reported.

use api::meta::v1::StringMap;

use crate::slice_template::SliceTemplate;

/// The prefix of all annotations of the simulation.
pub const PREFIX: &str = "sim.celplane.dev/";
/// The prefix that earlier releases used.
pub const OLD_PREFIX: &str = "sim/";

/// The full name of an annotation: `sim.celplane.dev/run-seconds`.
#[must_use]
pub fn full(name: &str) -> String {
    format!("{PREFIX}{name}")
}

/// The value of an annotation, under its name or its older one.
#[must_use]
pub fn get<'a>(annotations: &'a StringMap, name: &str) -> Option<&'a str> {
    let find = |prefix: &str| {
        let mut entries = annotations.iter();
        entries.find(|(key, _)| key.strip_prefix(prefix) == Some(name)).map(|(_, value)| value.as_str())
    };
    find(PREFIX).or_else(|| find(OLD_PREFIX))
}

/// Whether an object has annotations of the simulation.
#[must_use]
pub fn has_any(annotations: &StringMap) -> bool {
    annotations.keys().any(|key| short(key).is_some())
}

/// The name without its prefix, and whether that is the older one.
fn short(key: &str) -> Option<(&str, bool)> {
    let new = key.strip_prefix(PREFIX).map(|name| (name, false));
    new.or_else(|| key.strip_prefix(OLD_PREFIX).map(|name| (name, true)))
}

/// Invalid annotations.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Problems {
    /// Unknown names, and values that cannot be read: they change nothing.
    pub errors: Vec<String>,
    /// Names with the older prefix.
    pub deprecated: Vec<String>,
}

impl Problems {
    /// Checks the annotations of a pod.
    #[must_use]
    pub fn of_pod(annotations: &StringMap) -> Self {
        Self::find(annotations, "pod", &POD_NAMES, |name, text| match name {
            "prepare" => text == "fail",
            "exit-now" => text.parse::<i32>().is_ok(),
            "fail-indexes" => text.split(',').all(|it| it.trim().parse::<u32>().is_ok()),
            "loaded" => text.parse::<bool>().is_ok(),
            "replicas" => text.parse::<usize>().is_ok(),
            _ => crate::simulation::is_readable(name, text).unwrap_or(false),
        })
    }

    /// Checks the annotations of a node.
    #[must_use]
    pub fn of_node(annotations: &StringMap) -> Self {
        let is_duration = |text: &str| crate::simulation::seconds(text).is_some();
        Self::find(annotations, "node", &NODE_NAMES, |name, text| match name {
            "heartbeat" => text == "stopped",
            "ready" | "node" => text.parse::<bool>().is_ok(),
            "flap-seconds" => is_duration(text) && text.parse::<f64>().is_ok_and(|it| it >= 1.0),
            "slow-seconds" => is_duration(text),
            "device-driver" => matches!(text, "failing" | "gone"),
            "devices" => text.parse::<SliceTemplate>().is_ok(),
            _ => text.parse::<usize>().is_ok(),
        })
    }

    fn find(annotations: &StringMap, kind: &str, names: &[&str], is_readable: impl Fn(&str, &str) -> bool) -> Self {
        let mut problems = Self::default();
        for (key, value) in annotations {
            let Some((name, is_old)) = short(key) else { continue };
            if !names.contains(&name) {
                let known = names.join(", ");
                problems.errors.push(format!("unknown annotation `{key}` on a {kind} (known after {PREFIX}: {known})"));
            } else if !is_readable(name, value) {
                problems.errors.push(format!("annotation `{key}` cannot be `{value}`"));
            } else if is_old {
                problems.deprecated.push(format!("annotation `{key}` is deprecated: use `{PREFIX}{name}`"));
            }
        }
        problems
    }
}

const POD_NAMES: [&str; 19] = [
    "cpu-usage",
    "exit-code",
    "exit-now",
    "fail-code",
    "fail-indexes",
    "failure-rate",
    "init-seconds",
    "loaded",
    "log",
    "memory-usage",
    "phase",
    "prepare",
    "ready",
    "ready-seconds",
    "replicas",
    "restart",
    "run-seconds",
    "start-seconds",
    "terminate-seconds",
];

const NODE_NAMES: [&str; 8] =
    ["device-driver", "devices", "flap-seconds", "heartbeat", "node", "ready", "replicas", "slow-seconds"];

#[cfg(test)]
mod tests {
    use super::*;

    fn annotations(pairs: &[(&str, &str)]) -> StringMap {
        pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    #[test]
    fn new_prefix_wins_over_the_old_one() {
        let both = annotations(&[("sim/ready", "false"), ("sim.celplane.dev/ready", "true"), ("sim/log", "x")]);
        assert_eq!((get(&both, "ready"), get(&both, "log"), get(&both, "phase")), (Some("true"), Some("x"), None));
        assert!(has_any(&both));
        assert!(!has_any(&annotations(&[("simple/ready", "1")])));
    }

    #[test]
    fn typos_in_names_and_values_are_reported() {
        let of_pod = |name: &str, value: &str| Problems::of_pod(&annotations(&[(name, value)]));
        let errors = of_pod("sim.celplane.dev/run-seconds", "abc").errors;
        assert_eq!(errors, ["annotation `sim.celplane.dev/run-seconds` cannot be `abc`"]);
        assert!(of_pod("sim/foo", "1").errors[0].starts_with("unknown annotation `sim/foo` on a pod (known after"));
        let old = of_pod("sim/run-seconds", "2");
        assert_eq!((old.errors.len(), old.deprecated.len()), (0, 1));
        assert_eq!(old.deprecated, ["annotation `sim/run-seconds` is deprecated: use `sim.celplane.dev/run-seconds`"]);
        let readable = [("exit-now", "3"), ("fail-indexes", "0, 2"), ("phase", "Pending"), ("run-seconds", "never")];
        for (name, value) in readable {
            assert_eq!(of_pod(&full(name), value), Problems::default(), "{name}");
        }
        let of_node = |name: &str, value: &str| Problems::of_node(&annotations(&[(&full(name), value)]));
        assert_eq!(of_node("devices", "rong:8").errors, ["annotation `sim.celplane.dev/devices` cannot be `rong:8`"]);
        assert_eq!(of_node("devices", "ring:8"), Problems::default());
        assert_eq!(of_node("heartbeat", "stoped").errors.len(), 1);
        assert_eq!(of_node("flap-seconds", "0").errors.len(), 1);
    }
}
