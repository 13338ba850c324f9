//! Quotas, autoscalers, webhooks and policies of admission, certificates, definitions, attachments, and scales.

use api::json::Value;
use api::time::Timestamp;

use super::{
    AGE, Column, NAME, PLAIN, Printer, age, condition, human_duration, name, number, or, or_none, since, text,
};

const fn flag(name: &'static str, description: &'static str, priority: u8) -> Column {
    Column { name, kind: "boolean", description, priority }
}

pub(crate) const QUOTAS: Printer = Printer {
    columns: &[
        NAME,
        text("Request", "What is requested and may be."),
        text("Limit", "What is limited and may be."),
        AGE,
    ],
    cells: |it, now| {
        let (mut requests, mut limits) = (Vec::new(), Vec::new());
        let hard = it.object_at(&["status", "hard"]);
        let mut names: Vec<&str> = hard.into_iter().flat_map(|hard| hard.keys()).collect();
        names.sort_unstable();
        for resource in names {
            let amount = |part| it.str_at(&["status", part, resource]).unwrap_or("0");
            let shown = format!("{resource}: {}/{}", amount("used"), amount("hard"));
            if resource.starts_with("limits.") { limits.push(shown) } else { requests.push(shown) }
        }
        vec![name(it), requests.join(", ").into(), limits.join(", ").into(), age(it, now)]
    },
    ..PLAIN
};

pub(crate) const AUTOSCALERS: Printer = Printer {
    columns: &[
        NAME,
        text("Reference", "What is scaled."),
        text("Targets", "What is measured, and what it should be."),
        text("MinPods", "Never fewer pods than this."),
        text("MaxPods", "Never more than this."),
        text("Replicas", "How many there are."),
        AGE,
    ],
    cells: |it, now| {
        let target = |field| it.text_at(&["spec", "scaleTargetRef", field]);
        let min = it.i64_at(&["spec", "minReplicas"]);
        let metrics = metrics(it.list_at(&["spec", "metrics"]), it.list_at(&["status", "currentMetrics"]));
        vec![
            name(it),
            format!("{}/{}", target("kind"), target("name")).into(),
            metrics.into(),
            min.map_or_else(|| "<unset>".to_owned(), |min| min.to_string()).into(),
            it.int_at(&["spec", "maxReplicas"]).into(),
            it.int_at(&["status", "currentReplicas"]).into(),
            age(it, now),
        ]
    },
    ..PLAIN
};

/// The first two metrics, as current and wanted values.
fn metrics(wanted: &[Value], current: &[Value]) -> String {
    if wanted.is_empty() {
        return "<none>".to_owned();
    }
    let shown: Vec<String> =
        wanted.iter().enumerate().take(2).map(|(index, metric)| one_metric(metric, current.get(index))).collect();
    match wanted.len().saturating_sub(shown.len()) {
        0 => shown.join(", "),
        more => format!("{} + {more} more...", shown.join(", ")),
    }
}

fn one_metric(metric: &Value, current: Option<&Value>) -> String {
    let (field, has_name) = match metric.text("type") {
        "External" => ("external", false),
        "Pods" => ("pods", false),
        "Object" => ("object", false),
        "Resource" => ("resource", true),
        "ContainerResource" => ("containerResource", true),
        _ => return "<unknown type>".to_owned(),
    };
    let shown = |value: Option<&Value>| match value {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text.to_string()),
        Some(other) => Some(other.to_string()),
    };
    let target = |part: &str| shown(metric.at(&[field, "target", part]));
    let now = |part: &str| shown(current.and_then(|current| current.at(&[field, "current", part])));
    let unknown = || "<unknown>".to_owned();
    let prefix = if has_name { format!("{}: ", metric.text_at(&[field, "name"])) } else { String::new() };
    match (target("averageValue"), has_name) {
        (Some(wanted), _) => {
            let suffix = if matches!(field, "external" | "object") { " (avg)" } else { "" };
            format!("{prefix}{}/{wanted}{suffix}", now("averageValue").unwrap_or_else(unknown))
        }
        (None, true) => {
            let percent = |value: Option<String>, other: &str| value.map_or(other.to_owned(), |it| format!("{it}%"));
            let (current, wanted) = (now("averageUtilization"), target("averageUtilization"));
            format!("{prefix}{}/{}", percent(current, "<unknown>"), percent(wanted, "<auto>"))
        }
        (None, false) => {
            format!("{}/{}", now("value").unwrap_or_else(unknown), target("value").unwrap_or_else(|| "0".to_owned()))
        }
    }
}

pub(crate) const WEBHOOKS: Printer = Printer {
    columns: &[NAME, number("Webhooks", "How many there are."), AGE],
    cells: |it, now| vec![name(it), count(it.list("webhooks")), age(it, now)],
    ..PLAIN
};

fn count(items: &[Value]) -> Value {
    i64::try_from(items.len()).unwrap_or(i64::MAX).into()
}

fn param_kind(it: &Value) -> Value {
    match it.at(&["spec", "paramKind"]).filter(|it| !it.is_null()) {
        Some(kind) => {
            let text = |field| kind.text(field);
            format!("{}/{}", text("apiVersion"), text("kind")).into()
        }
        None => "<unset>".into(),
    }
}

pub(crate) const VALIDATING_POLICIES: Printer = Printer {
    columns: &[NAME, number("Validations", "How many there are."), text("ParamKind", "What configures it."), AGE],
    cells: |it, now| vec![name(it), count(it.list_at(&["spec", "validations"])), param_kind(it), age(it, now)],
    ..PLAIN
};

pub(crate) const MUTATING_POLICIES: Printer = Printer {
    columns: &[NAME, number("Mutations", "How many there are."), text("ParamKind", "What configures it."), AGE],
    cells: |it, now| vec![name(it), count(it.list_at(&["spec", "mutations"])), param_kind(it), age(it, now)],
    ..PLAIN
};

pub(crate) const POLICY_BINDINGS: Printer = Printer {
    columns: &[NAME, text("PolicyName", "The policy."), text("ParamRef", "What configures it."), AGE],
    cells: |it, now| {
        let param = it.at(&["spec", "paramRef"]).filter(|it| !it.is_null()).map(|param| {
            let text = |field| param.text(field);
            match (text("namespace"), text("name")) {
                (_, "") => super::selector_text(param.get("selector")),
                ("", name) => format!("*/{name}"),
                (namespace, name) => format!("{namespace}/{name}"),
            }
        });
        let param = param.unwrap_or_else(|| "<unset>".to_owned());
        vec![name(it), or(it, &["spec", "policyName"], ""), param.into(), age(it, now)]
    },
    ..PLAIN
};

pub(crate) const SIGNING_REQUESTS: Printer = Printer {
    columns: &[
        NAME,
        AGE,
        text("SignerName", "Who is to sign."),
        text("Requestor", "Who asks."),
        text("RequestedDuration", "For how long."),
        text("Condition", "What became of it."),
    ],
    cells: |it, now| {
        let duration = it.i64_at(&["spec", "expirationSeconds"]).map(human_duration);
        let has = |name: &str| condition(it, name).is_some();
        let mut state = match (has("Denied"), has("Approved")) {
            (true, _) => "Denied",
            (false, true) => "Approved",
            (false, false) => "Pending",
        }
        .to_owned();
        if has("Failed") {
            state.push_str(",Failed");
        }
        if it.str_at(&["status", "certificate"]).is_some_and(|text| !text.is_empty()) {
            state.push_str(",Issued");
        }
        vec![
            name(it),
            age(it, now),
            or_none(it, &["spec", "signerName"]),
            or(it, &["spec", "username"], ""),
            duration.unwrap_or_else(|| "<none>".to_owned()).into(),
            state.into(),
        ]
    },
    ..PLAIN
};

pub(crate) const POD_CERTIFICATE_REQUESTS: Printer = Printer {
    columns: &[
        NAME,
        text("PodName", "Whose certificate it is."),
        text("ServiceAccountName", "As whom the pod runs."),
        text("NodeName", "Where the pod runs."),
        text("SignerName", "Who is to sign."),
        text("State", "Is the request Pending, Issued, Denied, or Failed?"),
        text("UnverifiedUserAnnotations", "What the author of the pod tells the signer."),
    ],
    cells: |it, _| {
        let reported = it.object_at(&["spec", "unverifiedUserAnnotations"]);
        let pairs = reported.into_iter().flat_map(|reported| reported.iter());
        let mut pairs: Vec<String> =
            pairs.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
        pairs.sort_unstable();
        let mut types = it.list_at(&["status", "conditions"]).iter().filter_map(|it| it.str_at(&["type"]));
        let state = types.rfind(|it| matches!(*it, "Issued" | "Denied" | "Failed")).unwrap_or("Pending");
        vec![
            name(it),
            or(it, &["spec", "podName"], ""),
            or(it, &["spec", "serviceAccountName"], ""),
            or(it, &["spec", "nodeName"], ""),
            or(it, &["spec", "signerName"], ""),
            state.into(),
            if pairs.is_empty() { "<none>".into() } else { pairs.join(",").into() },
        ]
    },
    ..PLAIN
};

pub(crate) const REVISIONS: Printer = Printer {
    columns: &[NAME, text("Controller", "Whose revision it is."), text("Revision", "Its number."), AGE],
    cells: |it, now| {
        let owners = it.list_at(&["metadata", "ownerReferences"]);
        let owner = owners.iter().find(|owner| owner.get("controller").and_then(Value::as_bool) == Some(true));
        let owner = owner.map(|owner| {
            let text = |field| owner.text(field);
            let group = text("apiVersion").split_once('/').map(|(group, _)| format!(".{group}")).unwrap_or_default();
            format!("{}{}/{}", text("kind").to_lowercase(), group.to_lowercase(), text("name"))
        });
        let owner = owner.unwrap_or_else(|| "<none>".to_owned());
        vec![name(it), owner.into(), it.int("revision").into(), age(it, now)]
    },
    ..PLAIN
};

pub(crate) const RUNTIME_CLASSES: Printer = Printer {
    columns: &[NAME, text("Handler", "What runs the pods."), AGE],
    cells: |it, now| vec![name(it), or(it, &["handler"], ""), age(it, now)],
    ..PLAIN
};

pub(crate) const ATTRIBUTES_CLASSES: Printer = Printer {
    columns: &[NAME, text("DriverName", "Which driver knows it."), AGE],
    cells: |it, now| vec![name(it), or(it, &["driverName"], ""), age(it, now)],
    ..PLAIN
};

pub(crate) const ATTACHMENTS: Printer = Printer {
    columns: &[
        NAME,
        text("Attacher", "Who attaches it."),
        text("PV", "The volume."),
        text("Node", "The node."),
        flag("Attached", "Whether it is attached.", 0),
        AGE,
    ],
    cells: |it, now| {
        vec![
            name(it),
            or(it, &["spec", "attacher"], ""),
            or(it, &["spec", "source", "persistentVolumeName"], ""),
            or(it, &["spec", "nodeName"], ""),
            it.flag_at(&["status", "attached"]).into(),
            age(it, now),
        ]
    },
    ..PLAIN
};

pub(crate) const COMPONENT_STATUSES: Printer = Printer {
    columns: &[
        NAME,
        text("Status", "Whether it is healthy."),
        text("Message", "What it says."),
        text("Error", "What is wrong."),
    ],
    cells: |it, _| {
        let healthy = it.list("conditions").iter().find(|it| it.str_at(&["type"]) == Some("Healthy"));
        let part = |field| healthy.and_then(|it| it.str_at(&[field])).unwrap_or_default();
        let status = match (healthy, part("status")) {
            (None, _) => "Unknown",
            (Some(_), "True") => "Healthy",
            _ => "Unhealthy",
        };
        vec![name(it), status.into(), part("message").into(), part("error").into()]
    },
    ..PLAIN
};

pub(crate) const DEVICE_TAINTS: Printer = Printer {
    columns: &[
        NAME,
        text("Key", "The taint's key."),
        text("Value", "Its value."),
        text("Effect", "What it does."),
        text("TimeAdded", "Since when."),
        AGE,
    ],
    cells: |it, now| {
        let part = |field| or(it, &["spec", "taint", field], "");
        let added = it.str_at(&["spec", "taint", "timeAdded"]).map(|time| since(Some(time), now)).unwrap_or_default();
        vec![name(it), part("key"), part("value"), part("effect"), added.into(), age(it, now)]
    },
    ..PLAIN
};

/// The table of `…/scale`.
pub const SCALES: Printer = Printer {
    columns: &[NAME, number("Desired", "How many there should be."), number("Available", "How many there are."), AGE],
    cells: scale,
    ..PLAIN
};

fn scale(it: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(it), it.int_at(&["spec", "replicas"]).into(), it.int_at(&["status", "replicas"]).into(), age(it, now)]
}
