//! Heartbeats of a node, by its status and its lease.
//!
//! Times are those at which this controller observed a heartbeat, not those reported by the node. Follows
//! `tryUpdateNodeHealth` of Kubernetes' node lifecycle controller.

use std::time::Duration;

use api::core::v1::{Node, NodeCondition};
use api::json::Value;
use api::time::Timestamp;

/// The conditions that become unknown; the network's is others'.
const CONDITIONS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// The last heartbeat of a node.
#[derive(Debug, Clone, PartialEq)]
pub struct Health {
    /// Time of the heartbeat.
    pub heard_at: Timestamp,
    /// The heartbeat in its Ready condition; nothing if it had none.
    heartbeat: Option<Option<Timestamp>>,
    /// Time of the lease's renewal.
    lease: Option<Timestamp>,
}

/// Grace periods for missing heartbeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grace {
    /// A node that has reported.
    pub running: Duration,
    /// A node that never has.
    pub starting: Duration,
}

impl Default for Grace {
    fn default() -> Self {
        Grace { running: Duration::from_secs(50), starting: Duration::from_secs(60) }
    }
}

/// A node's Ready condition.
#[must_use]
pub fn ready(node: &Node) -> Option<&NodeCondition> {
    node.status.conditions.iter().find(|it| it.condition_type == "Ready")
}

/// Records the heartbeat of a node.
#[must_use]
pub fn received(before: Option<&Health>, node: &Node, lease: Option<Timestamp>, now: Timestamp) -> Health {
    let heartbeat = ready(node).map(|it| it.last_heartbeat_time);
    let mut health = match before {
        Some(before) if before.heartbeat == heartbeat => before.clone(),
        Some(before) => Health { heard_at: now, heartbeat, lease: before.lease },
        None => {
            // A node that has never reported is silent since it was made.
            let since = if heartbeat.is_none() { node.metadata.creation_timestamp } else { None };
            Health { heard_at: since.unwrap_or(now), heartbeat, lease: None }
        }
    };
    if lease.is_some() && lease > health.lease {
        health.lease = lease;
        health.heard_at = now;
    }
    health
}

/// Whether the node has been silent for too long.
#[must_use]
pub fn is_silent(health: &Health, grace: Grace, now: Timestamp) -> bool {
    let allowed = if health.heartbeat.is_some() { grace.running } else { grace.starting };
    now > health.heard_at.plus(allowed)
}

/// Returns the node's document with all conditions unknown; `None` if Ready already is.
#[must_use]
pub fn silenced(node: &Node, document: &Value, now: Timestamp) -> Option<Value> {
    if ready(node).is_some_and(|it| it.status == "Unknown") {
        return None;
    }
    let mut document = document.clone();
    let fields = document.as_object_mut()?;
    let status = fields.get_or_insert("status", Value::object).as_object_mut()?;
    let conditions = status.get_or_insert("conditions", || Value::Array(Vec::new())).as_array_mut()?;
    for name in CONDITIONS {
        let known = conditions.iter_mut().find(|it| it.str_at(&["type"]) == Some(name));
        match known.and_then(Value::as_object_mut) {
            Some(condition) if condition.get("status").and_then(Value::as_str) == Some("Unknown") => {}
            Some(condition) => {
                condition.insert("status", "Unknown");
                condition.insert("reason", "NodeStatusUnknown");
                condition.insert("message", "Kubelet stopped posting node status.");
                condition.insert("lastTransitionTime", now.to_string());
            }
            None => conditions.push(api::json!({
                "type": name,
                "status": "Unknown",
                "lastHeartbeatTime": (node.metadata.creation_timestamp.map(|time| time.to_string())),
                "lastTransitionTime": (now.to_string()),
                "reason": "NodeStatusNeverUpdated",
                "message": "Kubelet never posted node status.",
            })),
        }
    }
    Some(document)
}

#[cfg(test)]
mod tests {
    use api::json::from_value;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp { seconds, nanos: 0 }
    }

    fn node(heartbeat: Option<&str>) -> Node {
        let conditions: Vec<Value> = heartbeat
            .into_iter()
            .map(|time| api::json!({"type": "Ready", "status": "True", "lastHeartbeatTime": time}))
            .collect();
        let node = api::json!({
            "metadata": {"creationTimestamp": "1970-01-01T00:00:00Z"},
            "status": {"conditions": conditions},
        });
        from_value(&node).unwrap()
    }

    #[test]
    fn status_and_lease_are_both_signs_of_life() {
        let grace = Grace::default();
        let node_then = node(Some("1970-01-01T00:00:01Z"));
        let mut health = received(None, &node_then, Some(at(5)), at(10));
        assert!(!is_silent(&health, grace, at(60)));
        assert!(is_silent(&health, grace, at(61)));
        health = received(Some(&health), &node_then, Some(at(50)), at(55));
        assert_eq!(health.heard_at, at(55));
        // An unchanged or older lease is not a heartbeat.
        health = received(Some(&health), &node_then, Some(at(40)), at(70));
        assert_eq!(health.heard_at, at(55));
        health = received(Some(&health), &node(Some("1970-01-01T00:01:00Z")), None, at(80));
        assert_eq!(health.heard_at, at(80));
    }

    #[test]
    fn a_node_that_never_reported_has_more_time() {
        let never = node(None);
        let health = received(None, &never, None, at(30));
        assert!(!is_silent(&health, Grace::default(), at(60)));
        assert!(is_silent(&health, Grace::default(), at(61)));
        let document = silenced(&never, &Value::object(), at(61)).unwrap();
        let conditions = document.array_at(&["status", "conditions"]).unwrap();
        assert_eq!(conditions.len(), 4);
        assert_eq!(conditions[0].str_at(&["reason"]), Some("NodeStatusNeverUpdated"));
    }

    #[test]
    fn unknown_conditions_are_not_rewritten() {
        let mut silent = node(Some("1970-01-01T00:00:01Z"));
        silent.status.conditions[0].status = "Unknown".into();
        assert_eq!(silenced(&silent, &Value::object(), at(61)), None);
    }
}
