//! Namespaces, configuration, services and events.

use api::json::Value;
use api::time::Timestamp;

use super::Description::{Field, Text};
use super::{AGE, Column, NAME, PLAIN, Printer, age, label_text, name, or, or_none, since, text, wide};

pub(crate) const NAMESPACES: Printer = Printer {
    columns: &[NAME, text("Status", Text("The status of the namespace")), AGE],
    cells: |it, now| vec![name(it), or(it, &["status", "phase"], ""), age(it, now)],
    ..PLAIN
};

fn entries(object: &Value) -> i64 {
    let count = |field: &str| object.get(field).and_then(Value::as_object).map_or(0, api::json::Object::len);
    i64::try_from(count("data").saturating_add(count("binaryData"))).unwrap_or(i64::MAX)
}

pub(crate) const CONFIG_MAPS: Printer = Printer {
    columns: &[NAME, text("Data", Field("io.k8s.api.core.v1.ConfigMap", "data")), AGE],
    cells: |it, now| vec![name(it), entries(it).into(), age(it, now)],
    ..PLAIN
};

pub(crate) const SECRETS: Printer = Printer {
    columns: &[
        NAME,
        text("Type", Field("io.k8s.api.core.v1.Secret", "type")),
        text("Data", Field("io.k8s.api.core.v1.Secret", "data")),
        AGE,
    ],
    cells: |it, now| vec![name(it), or(it, &["type"], ""), entries(it).into(), age(it, now)],
    ..PLAIN
};

pub(crate) const SERVICES: Printer = Printer {
    columns: &[
        NAME,
        text("Type", Field("io.k8s.api.core.v1.ServiceSpec", "type")),
        text("Cluster-IP", Field("io.k8s.api.core.v1.ServiceSpec", "clusterIP")),
        text("External-IP", Field("io.k8s.api.core.v1.ServiceSpec", "externalIPs")),
        text("Port(s)", Field("io.k8s.api.core.v1.ServiceSpec", "ports")),
        AGE,
        wide("Selector", Field("io.k8s.api.core.v1.ServiceSpec", "selector")),
    ],
    cells: |it, now| {
        vec![
            name(it),
            or(it, &["spec", "type"], ""),
            or_none(it, &["spec", "clusterIP"]),
            external(it).into(),
            ports(it).into(),
            age(it, now),
            label_text(it.at(&["spec", "selector"])).into(),
        ]
    },
    ..PLAIN
};

fn external(service: &Value) -> String {
    let texts = |path: &[&str]| -> Vec<String> {
        service.list_at(path).iter().filter_map(Value::as_str).map(ToOwned::to_owned).collect()
    };
    let given = texts(&["spec", "externalIPs"]);
    match service.str_at(&["spec", "type"]) {
        Some("ExternalName") => service.text_at(&["spec", "externalName"]).to_owned(),
        Some("LoadBalancer") => {
            let ingress = service.list_at(&["status", "loadBalancer", "ingress"]);
            let mut all: Vec<String> = ingress
                .iter()
                .filter_map(|it| it.str_at(&["ip"]).or_else(|| it.str_at(&["hostname"])))
                .map(ToOwned::to_owned)
                .collect();
            all.extend(given);
            if all.is_empty() { "<pending>".to_owned() } else { all.join(",") }
        }
        _ if given.is_empty() => "<none>".to_owned(),
        _ => given.join(","),
    }
}

fn ports(service: &Value) -> String {
    let ports: Vec<String> = service
        .list_at(&["spec", "ports"])
        .iter()
        .map(|port| {
            let protocol = port.text("protocol");
            match port.int("nodePort") {
                0 => format!("{}/{protocol}", port.int("port")),
                node_port => format!("{}:{node_port}/{protocol}", port.int("port")),
            }
        })
        .collect();
    if ports.is_empty() { "<none>".to_owned() } else { ports.join(",") }
}

pub(crate) const EVENTS: Printer = Printer {
    columns: &[
        text("Last Seen", Field("io.k8s.api.core.v1.Event", "lastTimestamp")),
        text("Type", Field("io.k8s.api.core.v1.Event", "type")),
        text("Reason", Field("io.k8s.api.core.v1.Event", "reason")),
        text("Object", Field("io.k8s.api.core.v1.Event", "involvedObject")),
        wide("Subobject", Field("io.k8s.api.core.v1.ObjectReference", "fieldPath")),
        wide("Source", Field("io.k8s.api.core.v1.Event", "source")),
        text("Message", Field("io.k8s.api.core.v1.Event", "message")),
        wide("First Seen", Field("io.k8s.api.core.v1.Event", "firstTimestamp")),
        wide("Count", Field("io.k8s.api.core.v1.Event", "count")),
        Column { priority: 1, ..NAME },
    ],
    cells: event,
    ..PLAIN
};

fn event(event: &Value, now: Timestamp) -> Vec<Value> {
    let text = |path: &[&str]| event.text_at(path);
    let first = match text(&["firstTimestamp"]) {
        "" => text(&["eventTime"]),
        time => time,
    };
    let series = event.str_at(&["series", "lastObservedTime"]);
    let last = match (series, text(&["lastTimestamp"])) {
        (Some(time), _) => time,
        (None, "") => first,
        (None, time) => time,
    };
    let series_count = event.i64_at(&["series", "count"]);
    let count = series_count.unwrap_or_else(|| event.int("count").max(1));
    let kind = text(&["involvedObject", "kind"]).to_lowercase();
    let object = match text(&["involvedObject", "name"]) {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let component = match text(&["source", "component"]) {
        "" => text(&["reportingComponent"]),
        component => component,
    };
    let host = match text(&["source", "host"]) {
        "" => text(&["reportingInstance"]),
        host => host,
    };
    let source = if host.is_empty() { component.to_owned() } else { format!("{component}, {host}") };
    vec![
        since(Some(last), now).into(),
        text(&["type"]).into(),
        text(&["reason"]).into(),
        object.into(),
        text(&["involvedObject", "fieldPath"]).into(),
        source.into(),
        text(&["message"]).trim().into(),
        since(Some(first), now).into(),
        count.into(),
        name(event),
    ]
}
