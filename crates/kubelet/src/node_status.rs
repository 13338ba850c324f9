//! What a node says of itself: that it is ready and under no pressure.
//!
//! Follows `nodestatus/setters.go` of Kubernetes' kubelet.

use std::net::{IpAddr, SocketAddr};

use api::core::v1::{Node, NodeCondition};
use api::json::Value;
use api::time::Timestamp;

use crate::pod_addresses;

const HEALTHY: [(&str, &str, &str, &str); 4] = [
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
];
const NOT_READY: (&str, &str, &str, &str) = ("Ready", "False", "KubeletNotReady", "the simulation was told so");

/// The four conditions. One whose status stays keeps the time of its last change.
#[must_use]
pub fn conditions(known: &[NodeCondition], is_ready: bool, now: Timestamp) -> Vec<Value> {
    wanted(is_ready)
        .map(|(name, status, reason, message)| {
            let old = known.iter().find(|it| it.condition_type == name && it.status == status);
            let since = old.and_then(|it| it.last_transition_time).unwrap_or(now);
            api::json!({
                "type": name,
                "status": status,
                "lastHeartbeatTime": (now.to_string()),
                "lastTransitionTime": (since.to_string()),
                "reason": reason,
                "message": message,
            })
        })
        .collect()
}

/// Whether the node's conditions say what they should, whenever that was written.
#[must_use]
pub fn says(node: &Node, is_ready: bool) -> bool {
    wanted(is_ready).all(|(name, status, reason, _)| {
        node.status.conditions.iter().any(|it| it.condition_type == name && it.status == status && it.reason == reason)
    })
}

/// When the node was last heard of through its status.
#[must_use]
pub fn last_heartbeat(node: &Node) -> Option<Timestamp> {
    node.status.conditions.iter().find(|it| it.condition_type == "Ready").and_then(|it| it.last_heartbeat_time)
}

/// Where the node is: at the address of the agent, if others can reach it, or else at a simulated one.
#[must_use]
pub fn addresses(name: &str, number: usize, endpoint: Option<SocketAddr>) -> Value {
    let address = endpoint.map_or_else(|| IpAddr::V4(pod_addresses::of_node(number)), |endpoint| endpoint.ip());
    let address = address.to_string();
    api::json!([{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}])
}

/// The port at which the agent answers, 0 for none.
#[must_use]
pub fn endpoints(endpoint: Option<SocketAddr>) -> Value {
    let port = i32::from(endpoint.map_or(0, |endpoint| endpoint.port()));
    api::json!({"kubeletEndpoint": {"Port": port}})
}

/// A strategic merge patch of a node's status.
#[must_use]
pub fn patch(node: &Node, is_ready: bool, now: Timestamp) -> Value {
    api::json!({"status": {"conditions": (conditions(&node.status.conditions, is_ready, now))}})
}

/// A merge patch of the status of a node that registered when its agent was elsewhere.
#[must_use]
pub fn moved(name: &str, number: usize, endpoint: SocketAddr) -> Value {
    let addresses = addresses(name, number, Some(endpoint));
    api::json!({"status": {"addresses": addresses, "daemonEndpoints": (endpoints(Some(endpoint)))}})
}

type Row = (&'static str, &'static str, &'static str, &'static str);

fn wanted(is_ready: bool) -> impl Iterator<Item = Row> {
    HEALTHY.into_iter().map(move |row| if row.0 == "Ready" && !is_ready { NOT_READY } else { row })
}
