//! Containers of all three kinds: regular, init (with sidecars) and ephemeral.

use std::collections::{BTreeMap, BTreeSet};

use api::field::{Errors, Path};
use api::json::Value;
use api::names;

use super::options::Options;
use super::{env, mounts, probes, resources, security};
use crate::meta::invalid;
use crate::seen::SeenKeys;

/// Properties of the pod for the validation of its containers.
pub(super) struct Pod<'a> {
    pub(super) spec: &'a Value,
    /// Volumes that are valid themselves, by name.
    pub(super) volumes: BTreeMap<&'a str, &'a Value>,
    pub(super) claim_names: BTreeSet<&'a str>,
    pub(super) options: &'a Options<'a>,
}

impl Pod<'_> {
    fn grace(&self) -> Option<i64> {
        self.spec.optional_int("terminationGracePeriodSeconds")
    }
}

/// The regular containers.
pub(super) fn validate(pod: &Pod<'_>, at: &Path<'_>, errors: &mut Errors) {
    let containers = pod.spec.list("containers");
    if containers.is_empty() {
        errors.required(*at, "");
        return;
    }
    let mut seen = SeenKeys::default();
    for (index, container) in containers.iter().enumerate() {
        let here = at.index(index);
        validate_common(container, pod, &here, errors);
        let name = container.text("name");
        if seen.contains(&name) {
            errors.duplicate(here.child("name"), name);
        } else {
            seen.insert(name);
        }
        if let Some(lifecycle) = container.optional("lifecycle") {
            probes::validate_lifecycle(lifecycle, pod.grace(), &here.child("lifecycle"), errors);
        }
        probes::validate_all(container, pod.grace(), &here, errors);
        validate_restart_rules(container, &here, errors);
    }
    validate_host_ports(containers.iter().enumerate(), at, errors);
}

/// Validates the init containers; those with restart policy Always are sidecars.
pub(super) fn validate_init(pod: &Pod<'_>, at: &Path<'_>, errors: &mut Errors) {
    const DETAIL: &str = "may not be set for init containers without restartPolicy=Always";
    let mut seen: SeenKeys<&str> = pod.spec.list("containers").iter().map(|it| it.text("name")).collect();
    for (index, container) in pod.spec.list("initContainers").iter().enumerate() {
        let here = at.index(index);
        validate_common(container, pod, &here, errors);
        let is_sidecar = container.text("restartPolicy") == "Always";
        if container.has("restartPolicy") {
            validate_restart_rules(container, &here, errors);
        } else if !container.list("restartPolicyRules").is_empty() {
            let detail = "must specify restartPolicy when restart rules are used";
            errors.required(here.child("restartPolicy"), detail);
        }
        let name = container.text("name");
        if seen.contains(&name) {
            errors.duplicate(here.child("name"), name);
        } else if !name.is_empty() {
            seen.insert(name);
        }
        validate_host_ports(std::iter::once((0, container)), at, errors);
        if is_sidecar {
            if let Some(lifecycle) = container.optional("lifecycle") {
                probes::validate_lifecycle(lifecycle, pod.grace(), &here.child("lifecycle"), errors);
            }
            probes::validate_all(container, pod.grace(), &here, errors);
        } else {
            for name in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if container.has(name) {
                    errors.forbidden(here.child(name), DETAIL);
                }
            }
        }
        if !is_sidecar && !pod.options.allow_restart_for_init {
            let list = here.child("resizePolicy");
            for (index, policy) in container.list("resizePolicy").iter().enumerate() {
                if policy.text("restartPolicy") == "RestartContainer" {
                    let detail = "must not be set to 'RestartContainer' for non-sidecar initContainers";
                    errors.invalid(list.index(index).child("restartPolicy"), "RestartContainer", detail);
                }
            }
        }
    }
}

/// Containers that were added to a running pod.
pub(super) fn validate_ephemeral(pod: &Pod<'_>, at: &Path<'_>, errors: &mut Errors) {
    // In the order of the struct.
    const FORBIDDEN: &[&str] = &[
        "ports",
        "resources",
        "resizePolicy",
        "restartPolicy",
        "restartPolicyRules",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle",
    ];
    const DETAIL: &str = "cannot be set for an Ephemeral Container";
    let names =
        || ["containers", "initContainers"].iter().flat_map(|kind| pod.spec.list(kind)).map(|it| it.text("name"));
    let others: SeenKeys<&str> = names().collect();
    let mut seen: SeenKeys<&str> = names().collect();
    for (index, container) in pod.spec.list("ephemeralContainers").iter().enumerate() {
        let here = at.index(index);
        validate_common(container, pod, &here, errors);
        validate_image_spaces(container, &here, errors);
        let name = container.text("name");
        if seen.contains(&name) {
            errors.duplicate(here.child("name"), name);
        } else {
            seen.insert(name);
        }
        let target = container.text("targetContainerName");
        if !target.is_empty() && !others.contains(&target) {
            errors.not_found(here.child("targetContainerName"), target);
        }
        let is_set = |name: &str| match container.field(name) {
            Value::Object(fields) => !fields.is_empty() || name != "resources",
            Value::Array(items) => !items.is_empty(),
            other => !other.is_null(),
        };
        for name in FORBIDDEN.iter().filter(|name| is_set(name)) {
            errors.forbidden(here.child(name), DETAIL);
        }
        let list = here.child("volumeMounts");
        for (index, mount) in container.list("volumeMounts").iter().enumerate() {
            for name in ["subPath", "subPathExpr"] {
                if !mount.text(name).is_empty() {
                    errors.forbidden(list.index(index).child(name), DETAIL);
                }
            }
        }
    }
}

fn validate_common(container: &Value, pod: &Pod<'_>, at: &Path<'_>, errors: &mut Errors) {
    let name = container.text("name");
    if name.is_empty() {
        errors.required(at.child("name"), "");
    } else {
        invalid(names::dns1123_label(name), name, at.child("name"), errors);
    }
    if container.text("image").is_empty() {
        errors.required(at.child("image"), "");
    }
    match container.text("terminationMessagePolicy") {
        "File" | "FallbackToLogsOnError" => {}
        "" => errors.required(at.child("terminationMessagePolicy"), ""),
        other => {
            let here = at.child("terminationMessagePolicy");
            errors.not_supported(here, other, &["File", "FallbackToLogsOnError"]);
        }
    }
    validate_ports(container.list("ports"), &at.child("ports"), errors);
    env::validate(container.list("env"), &at.child("env"), errors);
    env::validate_from(container.list("envFrom"), &at.child("envFrom"), errors);
    mounts::validate_mounts(container, &pod.volumes, &at.child("volumeMounts"), errors);
    mounts::validate_devices(container, &pod.volumes, &at.child("volumeDevices"), errors);
    validate_pull_policy(container.text("imagePullPolicy"), at.child("imagePullPolicy"), errors);
    let requirements = container.field("resources");
    resources::validate_container(requirements, &pod.claim_names, pod.options, &at.child("resources"), errors);
    validate_resize_policies(container, pod.spec.text("restartPolicy"), at.child("resizePolicy"), errors);
    let uses_host_users = pod.spec.optional_flag("hostUsers") != Some(false);
    let context = container.field("securityContext");
    security::validate_container(context, uses_host_users, pod.options, &at.child("securityContext"), errors);
}

fn validate_ports(ports: &[Value], at: &Path<'_>, errors: &mut Errors) {
    const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
    let mut seen = SeenKeys::default();
    for (index, port) in ports.iter().enumerate() {
        let here = at.index(index);
        let name = port.text("name");
        if !name.is_empty() {
            let complaints = names::port_name(name);
            if !complaints.is_empty() {
                invalid(complaints, name, here.child("name"), errors);
            } else if seen.contains(&name) {
                errors.duplicate(here.child("name"), name);
            } else {
                seen.insert(name);
            }
        }
        match port.int("containerPort") {
            0 => errors.required(here.child("containerPort"), ""),
            number => probes::validate_port_number(number, here.child("containerPort"), errors),
        }
        if port.int("hostPort") != 0 {
            probes::validate_port_number(port.int("hostPort"), here.child("hostPort"), errors);
        }
        let protocol = port.text("protocol");
        if protocol.is_empty() {
            errors.required(here.child("protocol"), "");
        } else if !PROTOCOLS.contains(&protocol) {
            errors.not_supported(here.child("protocol"), protocol, PROTOCOLS);
        }
    }
}

/// No port of the host is taken twice.
fn validate_host_ports<'a>(containers: impl Iterator<Item = (usize, &'a Value)>, at: &Path<'_>, errors: &mut Errors) {
    let mut seen = SeenKeys::default();
    for (index, container) in containers {
        let here = at.index(index);
        let list = here.child("ports");
        for (index, port) in container.list("ports").iter().enumerate() {
            let number = port.int("hostPort");
            if number == 0 {
                continue;
            }
            let key = format!("{}/{}/{number}", port.text("protocol"), port.text("hostIP"));
            if seen.contains(&key) {
                errors.duplicate(list.index(index).child("hostPort"), key);
            } else {
                seen.insert(key);
            }
        }
    }
}

pub(super) fn validate_pull_policy(policy: &str, at: Path<'_>, errors: &mut Errors) {
    match policy {
        "Always" | "IfNotPresent" | "Never" => {}
        "" => errors.required(at, ""),
        other => errors.not_supported(at, other, &["Always", "IfNotPresent", "Never"]),
    }
}

fn validate_resize_policies(container: &Value, restart_policy: &str, at: Path<'_>, errors: &mut Errors) {
    let mut seen = SeenKeys::default();
    for (index, policy) in container.list("resizePolicy").iter().enumerate() {
        let (name, restart) = (policy.text("resourceName"), policy.text("restartPolicy"));
        if seen.contains(&name) {
            errors.duplicate(at.index(index), name);
        }
        seen.insert(name);
        match name {
            "cpu" | "memory" => {}
            "" => errors.required(at, ""),
            other => errors.not_supported(at, other, &["cpu", "memory"]),
        }
        match restart {
            "NotRequired" | "RestartContainer" => {}
            "" => errors.required(at, ""),
            other => errors.not_supported(at, other, &["NotRequired", "RestartContainer"]),
        }
        if restart_policy == "Never" && restart != "NotRequired" {
            errors.invalid(at, restart, "must be 'NotRequired' when pod `restartPolicy` is 'Never'");
        }
    }
}

fn validate_restart_rules(container: &Value, at: &Path<'_>, errors: &mut Errors) {
    let rules = container.list("restartPolicyRules");
    match container.optional_text("restartPolicy") {
        None if rules.is_empty() => return,
        None => errors.required(at.child("restartPolicy"), "must specify restartPolicy when restart rules are used"),
        Some("Always" | "Never" | "OnFailure") => {}
        Some(other) => errors.not_supported(at.child("restartPolicy"), other, &["Always", "Never", "OnFailure"]),
    }
    let list = at.child("restartPolicyRules");
    if rules.len() > 20 {
        errors.too_many(list, Some(rules.len()), 20);
    }
    for (index, rule) in rules.iter().enumerate() {
        let here = list.index(index);
        let action = rule.text("action");
        if !matches!(action, "Restart" | "RestartAllContainers") {
            errors.not_supported(here.child("action"), action, &["Restart", "RestartAllContainers"]);
        }
        let Some(codes) = rule.optional("exitCodes") else {
            errors.required(here.child("exitCodes"), "must be specified");
            continue;
        };
        let here = here.child("exitCodes");
        let operator = codes.text("operator");
        if !matches!(operator, "In" | "NotIn") {
            errors.not_supported(here.child("operator"), operator, &["In", "NotIn"]);
        }
        let count = codes.list("values").len();
        if count > 255 {
            errors.too_many(here.child("values"), Some(count), 255);
        }
    }
}

/// Pods, unlike templates, take no spaces around the name of an image.
pub(super) fn validate_image_spaces(container: &Value, at: &Path<'_>, errors: &mut Errors) {
    let image = container.text("image");
    if image.trim().len() != image.len() {
        errors.invalid(at.child("image"), image, "must not have leading or trailing whitespace");
    }
}
