//! Rows that code refers to by name.
//!
//! Each is looked up at compile time: code that names a row which is renamed or removed does not compile, and needs no
//! branch for a missing row.

use super::Resource;
use super::table::RESOURCES;

/// A row of the table.
type Row = &'static Resource<'static>;

macro_rules! rows {
    ($($name:ident = $plural:literal in $group:literal;)+) => {
        $(
            #[doc = concat!("The row of `", $plural, "`.")]
            pub const $name: Row = row($group, $plural);
        )+
    };
}

rows! {
    CONFIG_MAPS = "configmaps" in "";
    ENDPOINTS = "endpoints" in "";
    EVENTS = "events" in "";
    LIMIT_RANGES = "limitranges" in "";
    NAMESPACES = "namespaces" in "";
    NODES = "nodes" in "";
    PERSISTENT_VOLUME_CLAIMS = "persistentvolumeclaims" in "";
    PERSISTENT_VOLUMES = "persistentvolumes" in "";
    PODS = "pods" in "";
    RESOURCE_QUOTAS = "resourcequotas" in "";
    SECRETS = "secrets" in "";
    SERVICE_ACCOUNTS = "serviceaccounts" in "";
    SERVICES = "services" in "";
    DEFINITIONS = "customresourcedefinitions" in "apiextensions.k8s.io";
    API_SERVICES = "apiservices" in "apiregistration.k8s.io";
    DEVICE_CLASSES = "deviceclasses" in "resource.k8s.io";
    RESOURCE_CLAIMS = "resourceclaims" in "resource.k8s.io";
    JOBS = "jobs" in "batch";
    LEASES = "leases" in "coordination.k8s.io";
    ENDPOINT_SLICES = "endpointslices" in "discovery.k8s.io";
    FLOW_SCHEMAS = "flowschemas" in "flowcontrol.apiserver.k8s.io";
    PRIORITY_LEVELS = "prioritylevelconfigurations" in "flowcontrol.apiserver.k8s.io";
    IP_ADDRESSES = "ipaddresses" in "networking.k8s.io";
    SERVICE_CIDRS = "servicecidrs" in "networking.k8s.io";
    RUNTIME_CLASSES = "runtimeclasses" in "node.k8s.io";
    POD_DISRUPTION_BUDGETS = "poddisruptionbudgets" in "policy";
    CLUSTER_ROLE_BINDINGS = "clusterrolebindings" in "rbac.authorization.k8s.io";
    CLUSTER_ROLES = "clusterroles" in "rbac.authorization.k8s.io";
    ROLE_BINDINGS = "rolebindings" in "rbac.authorization.k8s.io";
    ROLES = "roles" in "rbac.authorization.k8s.io";
    PRIORITY_CLASSES = "priorityclasses" in "scheduling.k8s.io";
    CSI_DRIVERS = "csidrivers" in "storage.k8s.io";
    STORAGE_CLASSES = "storageclasses" in "storage.k8s.io";
}

#[expect(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic,
    reason = "evaluated at compile time: a panic is an error of the compiler"
)]
const fn row(group: &str, plural: &str) -> Row {
    let mut at = 0;
    while at < RESOURCES.len() {
        let row = &RESOURCES[at];
        if is_equal(row.group, group) && is_equal(row.plural, plural) {
            return row;
        }
        at += 1;
    }
    panic!("the table has no such row");
}

#[expect(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "evaluated at compile time")]
const fn is_equal(left: &str, right: &str) -> bool {
    let (left, right) = (left.as_bytes(), right.as_bytes());
    if left.len() != right.len() {
        return false;
    }
    let mut at = 0;
    while at < left.len() {
        if left[at] != right[at] {
            return false;
        }
        at += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_by_group_and_name() {
        assert_eq!((PODS.group, PODS.kind), ("", "Pod"));
        // Both groups of events have rows of this name.
        assert_eq!(EVENTS.group, "");
        assert_eq!(RUNTIME_CLASSES.key("", "a"), "/registry/node.k8s.io/runtimeclasses/a");
    }
}
