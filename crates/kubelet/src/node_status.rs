//! Status of a node: whether it is ready, and under pressure.
//!
//! Follows `nodestatus/setters.go` of Kubernetes' kubelet.

use std::net::{IpAddr, SocketAddr};

use api::core::v1::{Node, NodeCondition};
use api::json::Value;
use api::time::Timestamp;

use crate::pod_addresses;
use crate::runtime::Pressure;

const HEALTHY: [(&str, &str, &str, &str); 4] = [
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
];
/// The message of a simulated node that is configured to be not ready.
pub const SIMULATED: &str = "the simulation configures the node as not ready";

/// The four conditions. One whose status stays keeps the time of its last change.
#[must_use]
pub fn conditions(known: &[NodeCondition], fault: Option<&str>, pressure: Pressure, now: Timestamp) -> Vec<Value> {
    wanted(fault, pressure)
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

/// Whether the node's conditions are correct, regardless of their time.
#[must_use]
pub fn says(node: &Node, fault: Option<&str>, pressure: Pressure) -> bool {
    wanted(fault, pressure).all(|(name, status, reason, _)| {
        node.status.conditions.iter().any(|it| it.condition_type == name && it.status == status && it.reason == reason)
    })
}

/// Time of the last heartbeat in the node's status.
#[must_use]
pub fn last_heartbeat(node: &Node) -> Option<Timestamp> {
    node.status.conditions.iter().find(|it| it.condition_type == "Ready").and_then(|it| it.last_heartbeat_time)
}

/// Addresses of the node: that of the agent, if it is reachable, or else a simulated one.
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
pub fn patch(node: &Node, fault: Option<&str>, pressure: Pressure, now: Timestamp) -> Value {
    api::json!({"status": {"conditions": (conditions(&node.status.conditions, fault, pressure, now))}})
}

/// A merge patch of a node's status with the present address of its agent.
#[must_use]
pub fn moved(name: &str, number: usize, endpoint: SocketAddr) -> Value {
    let addresses = addresses(name, number, Some(endpoint));
    api::json!({"status": {"addresses": addresses, "daemonEndpoints": (endpoints(Some(endpoint)))}})
}

type Row<'r> = (&'static str, &'static str, &'static str, &'r str);

fn wanted(fault: Option<&str>, pressure: Pressure) -> impl Iterator<Item = Row<'_>> {
    HEALTHY.into_iter().map(move |row| match (row.0, fault) {
        ("Ready", Some(fault)) => ("Ready", "False", "KubeletNotReady", fault),
        ("MemoryPressure", _) if pressure.memory => {
            ("MemoryPressure", "True", "KubeletHasInsufficientMemory", "kubelet has insufficient memory available")
        }
        ("DiskPressure", _) if pressure.disk => {
            ("DiskPressure", "True", "KubeletHasDiskPressure", "kubelet has disk pressure")
        }
        _ => row,
    })
}
