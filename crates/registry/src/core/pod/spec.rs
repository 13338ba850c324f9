//! The spec of a pod, in pods and in templates.
//!
//! Follows `ValidatePodSpec` and `ValidatePodTemplateSpec`.

use api::field::{Errors, Path};
use api::json::{Object, Value};
use api::names;
use api::well_known::{ANNOTATION_CONFIG_MIRROR, ANNOTATION_POD_DELETION_COST};

use super::containers::{self, Pod};
use super::options::Options;
use super::placement;
use super::{resources, security, volumes};
use crate::core::addresses;
use crate::meta::{self, invalid, validate_labels};
use crate::render;
use crate::seen::SeenKeys;

/// Validates a spec; `metadata` is that of the pod or template.
pub(crate) fn validate(spec: &Value, metadata: &Value, options: &Options<'_>, at: &Path<'_>, errors: &mut Errors) {
    let expressions = placement::open_expressions(spec, options);
    let options = &options.for_expressions(&expressions);
    if !spec.has("terminationGracePeriodSeconds") {
        errors.required(at.child("terminationGracePeriodSeconds"), "");
    }
    let name = metadata.text("name");
    let volumes = volumes::validate(spec.list("volumes"), name, options, &at.child("volumes"), errors);
    let claim_names = resources::claim_names(spec);
    validate_claims(spec, metadata, &at.child("resourceClaims"), errors);
    let pod = Pod { spec, volumes, claim_names, options };
    containers::validate(&pod, &at.child("containers"), errors);
    containers::validate_init(&pod, &at.child("initContainers"), errors);
    containers::validate_ephemeral(&pod, &at.child("ephemeralContainers"), errors);
    resources::validate_pod(spec, &pod.claim_names, options, &at.child("resources"), errors);
    validate_host_network(spec, options, &at.child("containers"), errors);
    one_of(spec, "restartPolicy", &["Always", "OnFailure", "Never"], at, errors);
    one_of(spec, "dnsPolicy", &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"], at, errors);
    validate_labels(spec.map("nodeSelector"), &at.child("nodeSelector"), errors);
    security::validate_pod(spec.field("securityContext"), spec, options, &at.child("securityContext"), errors);
    if spec.flag("shareProcessNamespace") && spec.flag("hostPID") {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.invalid(at.child("shareProcessNamespace"), true, detail);
    }
    placement::validate_affinity(spec.field("affinity"), options, &at.child("affinity"), errors);
    validate_dns(spec, &at.child("dnsConfig"), errors);
    let gates = at.child("readinessGates");
    for (index, gate) in spec.list("readinessGates").iter().enumerate() {
        let name = gate.text("conditionType");
        invalid(names::qualified_name(name), name, gates.index(index).child("conditionType"), errors);
    }
    validate_scheduling_gates(spec, &at.child("schedulingGates"), errors);
    let constraints = at.child("topologySpreadConstraints");
    placement::validate_spread(spec.list("topologySpreadConstraints"), options, &constraints, errors);
    security::validate_host_process(spec, at, errors);
    validate_host_users(spec, options, at, errors);
    validate_names(spec, at, errors);
    let tolerations = at.child("tolerations");
    placement::validate_tolerations(spec.list("tolerations"), options, &tolerations, errors);
    placement::validate_expressions(&expressions, options, at, errors);
    validate_host_aliases(spec, &at.child("hostAliases"), errors);
    named(spec.text("priorityClassName"), names::dns1123_subdomain, at.child("priorityClassName"), errors);
    if let Some(class) = spec.optional_text("runtimeClassName") {
        invalid(names::dns1123_subdomain(class), class, at.child("runtimeClassName"), errors);
    }
    if spec.has("preemptionPolicy") {
        one_of(spec, "preemptionPolicy", &["PreemptLowerPriority", "Never"], at, errors);
    }
    resources::validate_overhead(spec, options, &at.child("overhead"), errors);
    security::validate_os(spec, at, errors);
    validate_file_references(spec, at, errors);
}

fn one_of(spec: &Value, name: &str, supported: &[&str], at: &Path<'_>, errors: &mut Errors) {
    let value = spec.text(name);
    if value.is_empty() {
        errors.required(at.child(name), "");
    } else if !supported.contains(&value) {
        errors.not_supported(at.child(name), value, supported);
    }
}

fn named(name: &str, rule: meta::NameRule, at: Path<'_>, errors: &mut Errors) {
    if !name.is_empty() {
        invalid(rule(name), name, at, errors);
    }
}

/// Names of other objects and of the pod itself.
fn validate_names(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    if let Some(name) = spec.optional_text("hostnameOverride") {
        let here = at.child("hostnameOverride");
        if spec.flag("setHostnameAsFQDN") {
            errors.forbidden(here, "may not be specified when setHostnameAsFQDN is true");
        }
        if spec.flag("hostNetwork") {
            errors.forbidden(here, "may not be specified when hostNetwork is true");
        }
        if name.len() > 64 {
            errors.too_long(here, 64);
        }
        invalid(names::dns1123_subdomain(name), name, here, errors);
    }
    named(spec.text("serviceAccountName"), names::dns1123_subdomain, at.child("serviceAccountName"), errors);
    named(spec.text("nodeName"), names::dns1123_subdomain, at.child("nodeName"), errors);
    if let Some(seconds) = spec.optional_int("activeDeadlineSeconds")
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        let detail = "must be between 1 and 2147483647, inclusive";
        errors.invalid(at.child("activeDeadlineSeconds"), seconds, detail);
    }
    named(spec.text("hostname"), names::dns1123_label, at.child("hostname"), errors);
    named(spec.text("subdomain"), names::dns1123_label, at.child("subdomain"), errors);
}

fn validate_claims(spec: &Value, metadata: &Value, at: &Path<'_>, errors: &mut Errors) {
    let mut seen = SeenKeys::default();
    for (index, claim) in spec.list("resourceClaims").iter().enumerate() {
        if metadata.map("annotations").contains_key(ANNOTATION_CONFIG_MIRROR) {
            errors.forbidden(Path::new(""), "static pods do not support resource claims");
            continue;
        }
        let here = at.index(index);
        let name = claim.text("name");
        if name.is_empty() {
            errors.required(here.child("name"), "");
        } else if seen.contains(&name) {
            errors.duplicate(here.child("name"), name);
        } else {
            invalid(names::dns1123_label(name), name, here.child("name"), errors);
            seen.insert(name);
        }
        let (own, template) =
            (claim.optional_text("resourceClaimName"), claim.optional_text("resourceClaimTemplateName"));
        let detail = match (own, template) {
            (Some(_), Some(_)) => "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
            (None, None) => "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            _ => "",
        };
        if !detail.is_empty() {
            errors.invalid(here, render::core("PodResourceClaim", claim), detail);
        }
        for (field, name) in [("resourceClaimName", own), ("resourceClaimTemplateName", template)] {
            if let Some(name) = name {
                invalid(names::dns1123_subdomain(name), name, here.child(field), errors);
            }
        }
    }
}

fn validate_host_network(spec: &Value, options: &Options<'_>, at: &Path<'_>, errors: &mut Errors) {
    if !spec.flag("hostNetwork") {
        return;
    }
    for (index, container) in spec.list("containers").iter().enumerate() {
        let here = at.index(index);
        let list = here.child("ports");
        for (index, port) in container.list("ports").iter().enumerate() {
            let number = port.int("hostPort");
            if (options.is_pod || number != 0) && number != port.int("containerPort") {
                let detail = "must match `containerPort` when `hostNetwork` is true";
                errors.invalid(list.index(index).child("hostPort"), number, detail);
            }
        }
    }
}

fn validate_dns(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    let config = spec.field("dnsConfig");
    if spec.text("dnsPolicy") == "None" {
        if config.is_null() {
            errors.required(*at, "must provide `dnsConfig` when `dnsPolicy` is None");
            return;
        }
        if config.list("nameservers").is_empty() {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            errors.required(at.child("nameservers"), detail);
            return;
        }
    }
    let list = at.child("nameservers");
    if config.list("nameservers").len() > 3 {
        errors.invalid(list, config.field("nameservers").clone(), "must not have more than 3 nameservers");
    }
    for (index, server) in config.texts("nameservers").enumerate() {
        addresses::validate(server, &[], list.index(index), errors);
    }
    let list = at.child("searches");
    let searches: Vec<&str> = config.texts("searches").collect();
    if searches.len() > 32 {
        errors.invalid(list, config.field("searches").clone(), "must not have more than 32 search paths");
    }
    if searches.join(" ").len() > 2048 {
        let detail = "must not have more than 2048 characters (including spaces) in the search list";
        errors.invalid(list, config.field("searches").clone(), detail);
    }
    for (index, search) in searches.iter().enumerate().filter(|(_, search)| **search != ".") {
        let search = search.strip_suffix('.').unwrap_or(search);
        let complaints = underscored_subdomain(search);
        invalid(complaints, search, list.index(index), errors);
    }
    let list = at.child("options");
    for (index, option) in config.list("options").iter().enumerate() {
        if option.text("name").is_empty() {
            errors.required(list.index(index), "must not be empty");
        }
    }
}

/// A subdomain in which labels may have underscores.
fn underscored_subdomain(name: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if name.len() > 253 {
        complaints.push("must be no more than 253 characters".to_owned());
    }
    let is_end = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &str| {
        let bytes = label.strip_prefix('_').unwrap_or(label).as_bytes();
        bytes.first().is_some_and(is_end)
            && bytes.last().is_some_and(is_end)
            && bytes.iter().all(|byte| is_end(byte) || matches!(byte, b'-' | b'_'))
    };
    if !name.split('.').all(is_label) {
        complaints.push("a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')".to_owned());
    }
    complaints
}

fn validate_scheduling_gates(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    let mut seen = SeenKeys::default();
    for (index, gate) in spec.list("schedulingGates").iter().enumerate() {
        let name = gate.text("name");
        invalid(names::qualified_name(name), name, at.index(index), errors);
        if seen.contains(&name) {
            errors.duplicate(at.index(index), name);
        }
        seen.insert(name);
    }
}

fn validate_host_users(spec: &Value, options: &Options<'_>, at: &Path<'_>, errors: &mut Errors) {
    const DETAIL: &str = "when `hostUsers` is false";
    if spec.optional_flag("hostUsers") != Some(false) {
        return;
    }
    if spec.flag("hostNetwork") && !options.allow_user_namespace_with_host_network {
        errors.forbidden(at.child("hostNetwork"), DETAIL);
    }
    for (name, shown) in [("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if spec.flag(name) {
            errors.forbidden(at.child(shown), DETAIL);
        }
    }
    if !options.allow_user_namespace_with_devices {
        for (list, index, container) in super::containers(spec) {
            if !container.list("volumeDevices").is_empty() {
                let list = at.child(list);
                errors.forbidden(list.index(index).child("volumeDevices"), DETAIL);
            }
        }
    }
}

fn validate_host_aliases(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    for (index, alias) in spec.list("hostAliases").iter().enumerate() {
        let here = at.index(index);
        addresses::validate(alias.text("ip"), &[], here.child("ip"), errors);
        let list = here.child("hostnames");
        for (index, name) in alias.texts("hostnames").enumerate() {
            invalid(names::dns1123_subdomain(name), name, list.index(index), errors);
        }
    }
}

/// Variables that come from files of an `emptyDir`.
fn validate_file_references(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    for (list, index, container) in super::containers(spec) {
        let list = at.child(list);
        let here = list.index(index);
        let variables = here.child("env");
        for (index, variable) in container.list("env").iter().enumerate() {
            let Some(reference) = variable.field("valueFrom").optional("fileKeyRef") else { continue };
            let name = reference.text("volumeName");
            let here = variables.index(index);
            let here = here.child("valueFrom");
            let here = here.child("fileKeyRef");
            match spec.list("volumes").iter().rev().find(|it| it.text("name") == name) {
                None => errors.not_found(here.child("volumeName"), name),
                Some(volume) if !volume.has("emptyDir") => {
                    errors.invalid(here.child("volumeName"), name, "referenced volume must be of type emptyDir");
                }
                Some(_) => {}
            }
        }
    }
}

/// Annotations that mean something for pods.
pub(crate) fn validate_annotations(
    annotations: &Object,
    spec: &Value,
    options: &Options<'_>,
    at: &Path<'_>,
    errors: &mut Errors,
) {
    let text = |key: &str| annotations.get(key).and_then(Value::as_str);
    if let Some(value) = text(ANNOTATION_CONFIG_MIRROR)
        && spec.text("nodeName").is_empty()
    {
        let detail = "must set spec.nodeName if mirror pod annotation is set";
        errors.invalid(at.key(ANNOTATION_CONFIG_MIRROR), value, detail);
    }
    if let Some(tolerations) = text("scheduler.alpha.kubernetes.io/tolerations").filter(|it| !it.is_empty()) {
        let key = "scheduler.alpha.kubernetes.io/tolerations";
        match api::json::parse(tolerations.as_bytes()) {
            Err(error) => errors.invalid(*at, key, error.to_string()),
            Ok(parsed) => {
                let list = parsed.as_array().unwrap_or_default();
                placement::validate_tolerations(list, options, &at.child(key), errors);
            }
        }
    }
    if !options.allow_bad_deletion_cost && super::has_bad_deletion_cost(annotations) {
        let key = ANNOTATION_POD_DELETION_COST;
        errors.invalid(at.key(key), text(key).unwrap_or_default(), "must be a 32bit integer");
    }
    security::validate_annotations(annotations, spec, at, errors);
}

/// The template of a workload.
pub(crate) fn validate_template(template: &Value, options: &Options<'_>, at: &Path<'_>, errors: &mut Errors) {
    let (metadata, spec) = (template.field("metadata"), template.field("spec"));
    // Kubernetes leaves `metadata` out of these paths.
    let annotations = at.child("annotations");
    validate_labels(metadata.map("labels"), &at.child("labels"), errors);
    meta::validate_annotations(metadata.map("annotations"), &annotations, errors);
    validate_annotations(metadata.map("annotations"), spec, options, &annotations, errors);
    let here = at.child("spec");
    validate(spec, &Value::Null, options, &here, errors);
    super::profiles::validate(metadata, spec, &here, errors);
    if !spec.list("ephemeralContainers").is_empty() {
        errors.forbidden(here.child("ephemeralContainers"), "ephemeral containers not allowed in pod template");
    }
}
