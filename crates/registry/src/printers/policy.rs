//! Budgets, priorities, leases, roles, definitions and device claims.

use api::json::Value;

use super::Description::{Field, Text};
use super::{AGE, Column, NAME, PLAIN, Printer, age, is_deleting, name, number, or, text, wide};

pub(crate) const BUDGETS: Printer = Printer {
    columns: &[
        NAME,
        text("Min Available", Text("The minimum number of pods that must be available.")),
        text("Max Unavailable", Text("The maximum number of pods that may be unavailable.")),
        number("Allowed Disruptions", Text("Calculated number of pods that may be disrupted at this time.")),
        AGE,
    ],
    cells: |it, now| {
        let shown = |field: &str| match it.at(&["spec", field]) {
            None | Some(Value::Null) => "N/A".to_owned(),
            Some(Value::String(text)) => text.to_string(),
            Some(other) => other.to_string(),
        };
        let allowed = it.int_at(&["status", "disruptionsAllowed"]);
        vec![name(it), shown("minAvailable").into(), shown("maxUnavailable").into(), allowed.into(), age(it, now)]
    },
    ..PLAIN
};

pub(crate) const PRIORITY_CLASSES: Printer = Printer {
    columns: &[
        NAME,
        number("Value", Field("io.k8s.api.scheduling.v1.PriorityClass", "value")),
        Column {
            name: "Global-Default",
            kind: "boolean",
            description: Field("io.k8s.api.scheduling.v1.PriorityClass", "globalDefault"),
            priority: 0,
        },
        AGE,
        text("PreemptionPolicy", Field("io.k8s.api.scheduling.v1.PriorityClass", "preemptionPolicy")),
    ],
    cells: |it, now| {
        let default = it.get("globalDefault").and_then(Value::as_bool).unwrap_or_default();
        vec![name(it), it.int("value").into(), default.into(), age(it, now), or(it, &["preemptionPolicy"], "")]
    },
    ..PLAIN
};

pub(crate) const LEASES: Printer = Printer {
    columns: &[NAME, text("Holder", Field("io.k8s.api.coordination.v1.LeaseSpec", "holderIdentity")), AGE],
    cells: |it, now| vec![name(it), or(it, &["spec", "holderIdentity"], ""), age(it, now)],
    ..PLAIN
};

const CREATED_AT: Column = Column { name: "Created At", kind: "date", description: AGE.description, priority: 0 };

pub(crate) const CREATED: Printer = Printer {
    columns: &[NAME, CREATED_AT],
    cells: |it, _| vec![name(it), or(it, &["metadata", "creationTimestamp"], "")],
    ..PLAIN
};

pub(crate) const DEFINITIONS: Printer = Printer {
    columns: &[
        NAME,
        text("Scope", Text("Cluster/Namespaced")),
        text("Versions", Text("Served versions")),
        CREATED_AT,
        wide("Group", Text("API group")),
        wide("Kind", Text("CustomResource kind")),
        wide("ShortNames", Text("Short names")),
        Column { name: "Established", kind: "boolean", description: Text("Established status"), priority: 1 },
    ],
    cells: |it, _| {
        let is = |version: &Value, field: &str| version.get(field).and_then(Value::as_bool) == Some(true);
        let served = it.list_at(&["spec", "versions"]).iter().filter(|version| is(version, "served"));
        let mut versions: Vec<String> = served
            .map(|version| {
                let name = version.text("name");
                if is(version, "storage") { format!("{name}(storage)") } else { name.to_owned() }
            })
            .collect();
        versions.sort();
        let short_names = it.list_at(&["spec", "names", "shortNames"]).iter().filter_map(Value::as_str);
        vec![
            name(it),
            or(it, &["spec", "scope"], ""),
            versions.join(",").into(),
            or(it, &["metadata", "creationTimestamp"], ""),
            or(it, &["spec", "group"], ""),
            or(it, &["spec", "names", "kind"], ""),
            short_names.collect::<Vec<_>>().join(",").into(),
            crate::definition_status::is_true(it, "Established").into(),
        ]
    },
    ..PLAIN
};

pub(crate) const ROLE_BINDINGS: Printer = Printer {
    columns: &[
        NAME,
        text(
            "Role",
            Text(
                "roleRef can reference a Role in the current namespace or a ClusterRole in the global namespace. If the RoleRef cannot be resolved, the Authorizer must return an error.",
            ),
        ),
        AGE,
        wide("Users", Text("Users in the roleBinding")),
        wide("Groups", Text("Groups in the roleBinding")),
        wide("ServiceAccounts", Text("ServiceAccounts in the roleBinding")),
    ],
    cells: |it, now| {
        let role = |field: &str| it.text_at(&["roleRef", field]);
        let subjects = |kind: &str| {
            let chosen = it.list("subjects").iter().filter(|subject| subject.str_at(&["kind"]) == Some(kind));
            let names = chosen.map(|subject| {
                let name = subject.text("name");
                match kind {
                    "ServiceAccount" => format!("{}/{name}", subject.text("namespace")),
                    _ => name.to_owned(),
                }
            });
            Value::from(names.collect::<Vec<_>>().join(", "))
        };
        vec![
            name(it),
            format!("{}/{}", role("kind"), role("name")).into(),
            age(it, now),
            subjects("User"),
            subjects("Group"),
            subjects("ServiceAccount"),
        ]
    },
    ..PLAIN
};

pub(crate) const CLUSTER_ROLE_BINDINGS: Printer = Printer {
    columns: &[
        NAME,
        text(
            "Role",
            Text(
                "roleRef can only reference a ClusterRole in the global namespace. If the RoleRef cannot be resolved, the Authorizer must return an error.",
            ),
        ),
        AGE,
        wide("Users", Text("Users in the clusterRoleBinding")),
        wide("Groups", Text("Groups in the clusterRoleBinding")),
        wide("ServiceAccounts", Text("ServiceAccounts in the clusterRoleBinding")),
    ],
    ..ROLE_BINDINGS
};

pub(crate) const RESOURCE_CLAIMS: Printer = Printer {
    columns: &[NAME, text("State", Text("A summary of the current state (allocated, pending, reserved, etc.).")), AGE],
    cells: |it, now| {
        let mut states = Vec::new();
        if is_deleting(it) {
            states.push("deleted");
        }
        if it.at(&["status", "allocation"]).is_some_and(|value| !value.is_null()) {
            states.push("allocated");
            if !it.list_at(&["status", "reservedFor"]).is_empty() {
                states.push("reserved");
            }
        } else if states.is_empty() {
            states.push("pending");
        }
        vec![name(it), states.join(",").into(), age(it, now)]
    },
    ..PLAIN
};

pub(crate) const RESOURCE_SLICES: Printer = Printer {
    columns: &[
        NAME,
        text("Node", Field("io.k8s.api.resource.v1.ResourceSliceSpec", "nodeName")),
        text("Driver", Field("io.k8s.api.resource.v1.ResourceSliceSpec", "driver")),
        text("Pool", Field("io.k8s.api.resource.v1.ResourcePool", "name")),
        AGE,
    ],
    cells: |it, now| {
        let text = |path: &[&str]| or(it, path, "");
        let (node, driver) = (text(&["spec", "nodeName"]), text(&["spec", "driver"]));
        vec![name(it), node, driver, text(&["spec", "pool", "name"]), age(it, now)]
    },
    ..PLAIN
};
