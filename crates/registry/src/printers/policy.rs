//! Budgets, priorities, leases, roles, definitions and device claims.

use api::json::Value;

use super::{AGE, Column, NAME, PLAIN, Printer, age, is_deleting, name, number, or, text, wide};

pub(crate) const BUDGETS: Printer = Printer {
    columns: &[
        NAME,
        text("Min Available", "How many pods must stay."),
        text("Max Unavailable", "How many pods may go."),
        number("Allowed Disruptions", "How many may go now."),
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
        number("Value", "The priority."),
        Column {
            name: "Global-Default",
            kind: "boolean",
            description: "Whether pods have it by default.",
            priority: 0,
        },
        AGE,
        text("PreemptionPolicy", "Whether it displaces others."),
    ],
    cells: |it, now| {
        let default = it.get("globalDefault").and_then(Value::as_bool).unwrap_or_default();
        vec![name(it), it.int("value").into(), default.into(), age(it, now), or(it, &["preemptionPolicy"], "")]
    },
    ..PLAIN
};

pub(crate) const LEASES: Printer = Printer {
    columns: &[NAME, text("Holder", "Who holds it."), AGE],
    cells: |it, now| vec![name(it), or(it, &["spec", "holderIdentity"], ""), age(it, now)],
    ..PLAIN
};

pub(crate) const CREATED: Printer = Printer {
    columns: &[NAME, Column { name: "Created At", kind: "date", description: "When it was created.", priority: 0 }],
    cells: |it, _| vec![name(it), or(it, &["metadata", "creationTimestamp"], "")],
    ..PLAIN
};

pub(crate) const DEFINITIONS: Printer = Printer {
    columns: &[
        NAME,
        text("Scope", "Cluster/Namespaced"),
        text("Versions", "Served versions"),
        Column { name: "Created At", kind: "date", description: "When it was created.", priority: 0 },
        wide("Group", "API group"),
        wide("Kind", "CustomResource kind"),
        wide("ShortNames", "Short names"),
        Column { name: "Established", kind: "boolean", description: "Established status", priority: 1 },
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

pub(crate) const BINDINGS: Printer = Printer {
    columns: &[
        NAME,
        text("Role", "The role that is granted."),
        AGE,
        wide("Users", "To which users."),
        wide("Groups", "To which groups."),
        wide("ServiceAccounts", "To which accounts."),
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

pub(crate) const RESOURCE_CLAIMS: Printer = Printer {
    columns: &[NAME, text("State", "Whether it is allocated, reserved or going away."), AGE],
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
        text("Node", "The node that has the devices."),
        text("Driver", "The driver of the devices."),
        text("Pool", "The pool of the devices."),
        AGE,
    ],
    cells: |it, now| {
        let text = |path: &[&str]| or(it, path, "");
        let (node, driver) = (text(&["spec", "nodeName"]), text(&["spec", "driver"]));
        vec![name(it), node, driver, text(&["spec", "pool", "name"]), age(it, now)]
    },
    ..PLAIN
};
