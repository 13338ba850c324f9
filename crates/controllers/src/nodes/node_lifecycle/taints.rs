//! Taints of a node, derived from its conditions.
//!
//! `NoSchedule` follows the conditions at once; `NoExecute` is the [monitor](super::monitor)'s. A change is one step, adding
//! before removing: the next step follows when this one is seen. Follows `doNoScheduleTaintingPass` and
//! `SwapNodeControllerTaint` of Kubernetes' node lifecycle controller.

use api::core::v1::{Node, Taint};
use api::json::{Value, to_value};
use api::time::Timestamp;
use api::well_known::{
    EFFECT_NO_SCHEDULE, TAINT_DISK_PRESSURE, TAINT_MEMORY_PRESSURE, TAINT_NETWORK_UNAVAILABLE, TAINT_NOT_READY,
    TAINT_PID_PRESSURE, TAINT_UNREACHABLE, TAINT_UNSCHEDULABLE,
};

/// Condition, status, and the key of the corresponding taint.
const BY_CONDITION: [(&str, &str, &str); 6] = [
    ("Ready", "False", TAINT_NOT_READY),
    ("Ready", "Unknown", TAINT_UNREACHABLE),
    ("MemoryPressure", "True", TAINT_MEMORY_PRESSURE),
    ("DiskPressure", "True", TAINT_DISK_PRESSURE),
    ("NetworkUnavailable", "True", TAINT_NETWORK_UNAVAILABLE),
    ("PIDPressure", "True", TAINT_PID_PRESSURE),
];

/// Returns the taints that follow from a node's conditions and cordon, if they differ.
#[must_use]
pub fn by_conditions(node: &Node, now: Timestamp) -> Option<Vec<Taint>> {
    let is_ours = |taint: &&Taint| {
        let is_known = taint.key == TAINT_UNSCHEDULABLE || BY_CONDITION.iter().any(|(_, _, key)| taint.key == *key);
        taint.effect == EFFECT_NO_SCHEDULE && is_known
    };
    let ours: Vec<&Taint> = node.spec.taints.iter().filter(is_ours).collect();
    let of_conditions = node.status.conditions.iter().filter_map(|condition| {
        let row = BY_CONDITION
            .iter()
            .find(|(name, status, _)| condition.condition_type == *name && condition.status == *status);
        row.map(|(_, _, key)| *key)
    });
    let wanted: Vec<&str> = of_conditions.chain(node.spec.unschedulable.then_some(TAINT_UNSCHEDULABLE)).collect();
    let missing: Vec<&str> = wanted.iter().copied().filter(|key| !ours.iter().any(|taint| taint.key == *key)).collect();
    if !missing.is_empty() {
        let added = missing.iter().map(|key| added(key, EFFECT_NO_SCHEDULE, now));
        return Some(node.spec.taints.iter().cloned().chain(added).collect());
    }
    let surplus: Vec<&&Taint> = ours.iter().filter(|taint| !wanted.contains(&taint.key.as_str())).collect();
    if surplus.is_empty() {
        return None;
    }
    let stays = |taint: &&Taint| !surplus.iter().any(|it| it.key == taint.key && it.effect == taint.effect);
    Some(node.spec.taints.iter().filter(stays).cloned().collect())
}

/// A taint as this controller adds it.
pub(super) fn added(key: &str, effect: &str, now: Timestamp) -> Taint {
    Taint { key: key.into(), effect: effect.into(), time_added: Some(now), ..Taint::default() }
}

/// Whether the node has a taint with this key and effect.
pub(super) fn has(node: &Node, key: &str, effect: &str) -> bool {
    node.spec.taints.iter().any(|taint| taint.key == key && taint.effect == effect)
}

/// The node's taints with one more.
pub(super) fn with(node: &Node, key: &str, effect: &str, now: Timestamp) -> Vec<Taint> {
    node.spec.taints.iter().cloned().chain([added(key, effect, now)]).collect()
}

/// The node's taints without some of one effect.
pub(super) fn without(node: &Node, keys: &[&str], effect: &str) -> Vec<Taint> {
    let stays = |taint: &&Taint| !(taint.effect == effect && keys.contains(&taint.key.as_str()));
    node.spec.taints.iter().filter(stays).cloned().collect()
}

/// Returns a patch that sets the taints, guarded by the node's version.
#[must_use]
pub fn patch(node: &Node, taints: &[Taint]) -> Value {
    let taints = match taints {
        [] => Value::Null,
        taints => to_value(&taints).unwrap_or_default(),
    };
    api::json!({
        "metadata": {"resourceVersion": (node.metadata.resource_version.clone())},
        "spec": {"taints": taints},
    })
}

#[cfg(test)]
mod tests {
    use api::json::from_value;

    use super::*;

    /// Conditions as `Ready=False`, taints as `key:Effect`, each list separated by blanks.
    #[track_caller]
    fn check(conditions: &str, cordoned: bool, taints: &str, expected: Option<&str>) {
        let pair = |text: &str, mark: char| text.split_once(mark).map(|(l, r)| (l.to_owned(), r.to_owned())).unwrap();
        let conditions: Vec<Value> = conditions
            .split_whitespace()
            .map(|it| pair(it, '='))
            .map(|(name, status)| api::json!({"type": name, "status": status}))
            .collect();
        let taints: Vec<Value> = taints
            .split_whitespace()
            .map(|it| pair(it, ':'))
            .map(|(key, effect)| {
                let key = if key.contains('/') { key } else { format!("node.kubernetes.io/{key}") };
                api::json!({"key": key, "effect": effect})
            })
            .collect();
        let node = api::json!({
            "spec": {"unschedulable": cordoned, "taints": taints},
            "status": {"conditions": conditions},
        });
        let node: Node = from_value(&node).unwrap();
        let now = Timestamp { seconds: 7, nanos: 0 };
        let next = by_conditions(&node, now).map(|taints| {
            let words = taints.iter().map(|it| {
                let mark = if it.time_added == Some(now) { "!" } else { "" };
                format!("{}:{}{mark}", it.key.trim_start_matches("node.kubernetes.io/"), it.effect)
            });
            words.collect::<Vec<_>>().join(" ")
        });
        assert_eq!(next.as_deref(), expected);
    }

    #[test]
    fn taints_follow_conditions_and_cordon() {
        check("Ready=True", false, "", None);
        check("Ready=True", false, "not-ready:NoSchedule x/y:NoSchedule", Some("x/y:NoSchedule"));
        check("Ready=False MemoryPressure=True", false, "", Some("not-ready:NoSchedule! memory-pressure:NoSchedule!"));
        check("Ready=True", true, "", Some("unschedulable:NoSchedule!"));
        check("Ready=True", true, "unschedulable:NoSchedule", None);
        check("Ready=True", false, "unschedulable:NoSchedule", Some(""));
        // NoExecute taints are ignored here.
        check("Ready=True", false, "unreachable:NoExecute", None);
    }

    #[test]
    fn missing_taints_are_added_before_surplus_is_removed() {
        check("Ready=Unknown", false, "not-ready:NoSchedule", Some("not-ready:NoSchedule unreachable:NoSchedule!"));
        check("Ready=Unknown", false, "not-ready:NoSchedule unreachable:NoSchedule", Some("unreachable:NoSchedule"));
    }
}
