//! Quotas, autoscalers, webhooks and policies of admission, certificates, definitions, attachments, and scales.

use api::json::Value;
use api::time::Timestamp;

use super::Description::{Field, Text};
use super::{
    AGE, Column, Description, NAME, PLAIN, Printer, age, condition, human_duration, name, number, or, or_none, since,
    text,
};

const fn flag(name: &'static str, description: Description, priority: u8) -> Column {
    Column { name, kind: "boolean", description, priority }
}

pub(crate) const QUOTAS: Printer = Printer {
    columns: &[
        NAME,
        text("Request", Text("Request represents a minimum amount of cpu/memory that a container may consume.")),
        text(
            "Limit",
            Text(
                "Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node.",
            ),
        ),
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
        text("Reference", Field("io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerSpec", "scaleTargetRef")),
        text("Targets", Field("io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerSpec", "metrics")),
        text("MinPods", Field("io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerSpec", "minReplicas")),
        text("MaxPods", Field("io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerSpec", "maxReplicas")),
        text("Replicas", Field("io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerStatus", "currentReplicas")),
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
    columns: &[
        NAME,
        number("Webhooks", Text("Webhooks indicates the number of webhooks registered in this configuration")),
        AGE,
    ],
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
    columns: &[
        NAME,
        number(
            "Validations",
            Text("Validations indicates the number of validation rules defined in this configuration"),
        ),
        text("ParamKind", Text("ParamKind specifies the kind of resources used to parameterize this policy")),
        AGE,
    ],
    cells: |it, now| vec![name(it), count(it.list_at(&["spec", "validations"])), param_kind(it), age(it, now)],
    ..PLAIN
};

pub(crate) const MUTATING_POLICIES: Printer = Printer {
    columns: &[
        NAME,
        number("Mutations", Text("Mutation indicates the number of mutations rules defined in this configuration")),
        text("ParamKind", Text("ParamKind specifies the kind of resources used to parameterize this policy")),
        AGE,
    ],
    cells: |it, now| vec![name(it), count(it.list_at(&["spec", "mutations"])), param_kind(it), age(it, now)],
    ..PLAIN
};

pub(crate) const POLICY_BINDINGS: Printer = Printer {
    columns: &[
        NAME,
        text("PolicyName", Text("PolicyName indicates the policy definition which the policy binding binded to")),
        text("ParamRef", Text("ParamRef indicates the param resource which sets the configuration param")),
        AGE,
    ],
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
        text(
            "SignerName",
            Text(
                "Requested signer for the request. It is a qualified name in the form: `scope-hostname.io/name`. If empty, it will be defaulted:\n 1. If it's a kubelet client certificate, it is assigned\n    \"kubernetes.io/kube-apiserver-client-kubelet\".\n 2. If it's a kubelet serving certificate, it is assigned\n    \"kubernetes.io/kubelet-serving\".\n 3. Otherwise, it is assigned \"kubernetes.io/legacy-unknown\".\nDistribution of trust for signers happens out of band. You can select on this field using `spec.signerName`.",
            ),
        ),
        text("Requestor", Text("Base64-encoded PKCS#10 CSR data")),
        text(
            "RequestedDuration",
            Text(
                "expirationSeconds is the requested duration of validity of the issued certificate. The certificate signer may issue a certificate with a different validity duration so a client must check the delta between the notBefore and and notAfter fields in the issued certificate to determine the actual duration.\n\nThe v1.22+ in-tree implementations of the well-known Kubernetes signers will honor this field as long as the requested duration is not greater than the maximum duration they will honor per the --cluster-signing-duration CLI flag to the Kubernetes controller manager.\n\nCertificate signers may not honor this field for various reasons:\n\n  1. Old signer that is unaware of the field (such as the in-tree\n     implementations prior to v1.22)\n  2. Signer whose configured maximum is shorter than the requested duration\n  3. Signer whose configured minimum is longer than the requested duration\n\nThe minimum valid value for expirationSeconds is 600, i.e. 10 minutes.",
            ),
        ),
        text("Condition", Text("Conditions applied to the request, such as approval or denial.")),
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
        text("PodName", Field("io.k8s.api.certificates.v1.PodCertificateRequestSpec", "podName")),
        text("ServiceAccountName", Field("io.k8s.api.certificates.v1.PodCertificateRequestSpec", "serviceAccountName")),
        text("NodeName", Field("io.k8s.api.certificates.v1.PodCertificateRequestSpec", "nodeName")),
        text("SignerName", Field("io.k8s.api.certificates.v1.PodCertificateRequestSpec", "signerName")),
        text("State", Text("Is the request Pending, Issued, Denied, or Failed?")),
        text(
            "UnverifiedUserAnnotations",
            Field("io.k8s.api.certificates.v1.PodCertificateRequestSpec", "unverifiedUserAnnotations"),
        ),
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
    columns: &[
        NAME,
        text("Controller", Text("Controller of the object")),
        text("Revision", Field("io.k8s.api.apps.v1.ControllerRevision", "revision")),
        AGE,
    ],
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
    // Kubernetes: the description refers to a field that does not exist.
    columns: &[NAME, text("Handler", Text("")), AGE],
    cells: |it, now| vec![name(it), or(it, &["handler"], ""), age(it, now)],
    ..PLAIN
};

pub(crate) const ATTRIBUTES_CLASSES: Printer = Printer {
    columns: &[NAME, text("DriverName", Field("io.k8s.api.storage.v1.VolumeAttributesClass", "driverName")), AGE],
    cells: |it, now| vec![name(it), or(it, &["driverName"], ""), age(it, now)],
    ..PLAIN
};

pub(crate) const ATTACHMENTS: Printer = Printer {
    columns: &[
        NAME,
        text("Attacher", Field("io.k8s.api.storage.v1.VolumeAttachmentSpec", "attacher")),
        text("PV", Field("io.k8s.api.storage.v1.VolumeAttachmentSource", "persistentVolumeName")),
        text("Node", Field("io.k8s.api.storage.v1.VolumeAttachmentSpec", "nodeName")),
        flag("Attached", Field("io.k8s.api.storage.v1.VolumeAttachmentStatus", "attached"), 0),
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
        text("Status", Text("Status of the component conditions")),
        text("Message", Text("Message of the component conditions")),
        text("Error", Text("Error of the component conditions")),
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
        text("Key", Field("io.k8s.api.resource.v1.DeviceTaint", "key")),
        text("Value", Field("io.k8s.api.resource.v1.DeviceTaint", "value")),
        text("Effect", Field("io.k8s.api.resource.v1.DeviceTaint", "effect")),
        text("TimeAdded", Field("io.k8s.api.resource.v1.DeviceTaint", "timeAdded")),
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
    columns: &[
        NAME,
        number("Desired", Field("io.k8s.api.autoscaling.v1.ScaleSpec", "replicas")),
        number("Available", Field("io.k8s.api.autoscaling.v1.ScaleStatus", "replicas")),
        AGE,
    ],
    cells: scale,
    ..PLAIN
};

fn scale(it: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(it), it.int_at(&["spec", "replicas"]).into(), it.int_at(&["status", "replicas"]).into(), age(it, now)]
}
