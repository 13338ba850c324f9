//! Validation of changes to a pod's status.
//!
//! Follows `ValidatePodStatusUpdate`.

use std::collections::BTreeMap;

use api::field::{Errors, Path};
use api::json::Value;
use api::names;
use api::well_known::CONDITION_POD_SCHEDULED;

use super::update;
use crate::core::addresses;
use crate::meta::{self, invalid};
use crate::render;
use crate::seen::SeenKeys;
use crate::strategy::Context;

const CORE: &str = "k8s.io/api/core/v1";

pub(super) fn validate(pod: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
    let options = update::options(old, context);
    meta::validate_update(pod, old, errors);
    update::validate_annotations(pod, old, &options, errors);
    let (status, old_status, at) = (pod.field("status"), old.field("status"), Path::new("status"));
    validate_conditions(status, &at.child("conditions"), errors);
    validate_nominated_node(status, old_status, old, at.child("nominatedNodeName"), errors);
    if status.int("observedGeneration") < 0 {
        let detail = "must be a non-negative integer";
        errors.invalid(at.child("observedGeneration"), status.int("observedGeneration"), detail);
    }
    if status.text("qosClass") != old_status.text("qosClass") {
        errors.invalid(at.child("qosClass"), status.text("qosClass"), meta::IMMUTABLE);
    }
    for (kind, list) in [
        ("containerStatuses", Some("containers")),
        ("initContainerStatuses", Some("initContainers")),
        ("ephemeralContainerStatuses", None),
    ] {
        validate_transitions(status, old_status, kind, list, old.field("spec"), &at.child(kind), errors);
    }
    validate_claims(status, pod.field("spec"), &at.child("resourceClaimStatuses"), errors);
    let extended = status.field("extendedResourceClaimStatus");
    validate_extended_claim(extended, pod.field("spec"), &at.child("extendedResourceClaimStatus"), errors);
    validate_addresses(status, old_status, "podIPs", "podIP", &at.child("podIPs"), errors);
    validate_addresses(status, old_status, "hostIPs", "hostIP", &at.child("hostIPs"), errors);
}

fn validate_conditions(status: &Value, at: &Path<'_>, errors: &mut Errors) {
    for (index, condition) in status.list("conditions").iter().enumerate() {
        let here = at.index(index);
        let generation = condition.int("observedGeneration");
        if generation < 0 {
            errors.invalid(here.child("observedGeneration"), generation, "must be a non-negative integer");
        }
        let kind = condition.text("type");
        if !matches!(kind, CONDITION_POD_SCHEDULED | "Ready" | "Initialized") {
            invalid(names::qualified_name(kind), kind, here.child("Type"), errors);
        }
    }
}

fn validate_nominated_node(status: &Value, old_status: &Value, old: &Value, at: Path<'_>, errors: &mut Errors) {
    let node = status.text("nominatedNodeName");
    if node.is_empty() || node == old_status.text("nominatedNodeName") {
        return;
    }
    invalid(names::dns1123_subdomain(node), node, at, errors);
    if !old.field("spec").text("nodeName").is_empty() {
        errors.forbidden(at, "may not be set on pods that are already bound to a node");
    }
}

/// A container that has ended runs again only if its policy restarts it.
fn validate_transitions(
    status: &Value,
    old_status: &Value,
    kind: &str,
    list: Option<&str>,
    spec: &Value,
    at: &Path<'_>,
    errors: &mut Errors,
) {
    if list.is_some() && all_could_restart(spec) {
        return;
    }
    for (index, old) in old_status.list(kind).iter().enumerate() {
        let Some(terminated) = old.field("state").optional("terminated") else { continue };
        let name = old.text("name");
        let runs = |it: &&Value| it.text("name") == name && !it.field("state").has("terminated");
        let containers = list.map(|list| spec.list(list)).unwrap_or_default();
        let is_allowed = containers
            .iter()
            .find(|it| it.text("name") == name)
            .is_some_and(|container| restarts(container, spec, terminated.int("exitCode")));
        if status.list(kind).iter().find(runs).is_some() && !is_allowed {
            errors.forbidden(at.index(index).child("state"), "may not be transitioned to non-terminated state");
        }
    }
}

fn all_could_restart(spec: &Value) -> bool {
    let mut rules = ["containers", "initContainers"]
        .iter()
        .flat_map(|kind| spec.list(kind))
        .flat_map(|container| container.list("restartPolicyRules"));
    rules.any(|rule| rule.text("action") == "RestartAllContainers")
}

/// Whether a container that ended with `exit_code` is started again.
fn restarts(container: &Value, spec: &Value, exit_code: i64) -> bool {
    for rule in container.list("restartPolicyRules") {
        let codes = rule.field("exitCodes");
        let is_listed = codes.list("values").iter().any(|it| it.as_i64() == Some(exit_code));
        let matches = match codes.text("operator") {
            "In" => is_listed,
            "NotIn" => !is_listed,
            _ => false,
        };
        if matches && rule.text("action") == "Restart" {
            return true;
        }
    }
    let policy = container.optional_text("restartPolicy").unwrap_or_else(|| spec.text("restartPolicy"));
    match policy {
        "Always" => true,
        "OnFailure" => exit_code != 0,
        _ => false,
    }
}

fn validate_claims(status: &Value, spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    let claims: SeenKeys<&str> = spec.list("resourceClaims").iter().map(|it| it.text("name")).collect();
    let mut seen = SeenKeys::default();
    for (index, claim) in status.list("resourceClaimStatuses").iter().enumerate() {
        let here = at.index(index);
        let name = claim.text("name");
        if !claims.contains(&name) {
            let detail = "must match the name of an entry in `spec.resourceClaims`";
            errors.invalid(here.child("name"), name, detail);
        }
        if seen.contains(&name) {
            errors.duplicate(here.child("name"), name);
        }
        seen.insert(name);
        if let Some(name) = claim.optional_text("resourceClaimName") {
            invalid(names::dns1123_subdomain(name), name, here.child("resourceClaimName"), errors);
        }
    }
}

/// The claim for extended resources. Kubernetes reports the name of a request without its index.
fn validate_extended_claim(status: &Value, spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    if status.is_null() {
        return;
    }
    let mappings = at.child("requestMappings");
    if status.list("requestMappings").is_empty() {
        errors.required(mappings, "at least one request mapping is required");
    }
    let containers = || spec.list("initContainers").iter().chain(spec.list("containers"));
    let containers: BTreeMap<&str, &Value> = containers().map(|it| (it.text("name"), it)).collect();
    let mut seen = SeenKeys::default();
    for (index, mapping) in status.list("requestMappings").iter().enumerate() {
        let here = mappings.index(index);
        let fields = ["containerName", "resourceName", "requestName"].map(|field| (field, mapping.text(field)));
        let [(_, container), (_, resource), (_, request)] = fields;
        match containers.get(container) {
            Some(found) if found.field("resources").field("requests").get(resource).is_none() => {
                let detail = "must match the extended resource name of an entry in \
                    spec.initContainers.resources.requests or spec.containers.resources.requests";
                errors.invalid(here.child("resourceName"), resource, detail);
            }
            Some(_) => {}
            None => {
                let detail = "must match the name of an entry in spec.initContainers.name or spec.containers.name";
                errors.invalid(here.child("containerName"), container, detail);
            }
        }
        invalid(names::dns1123_label(request), request, at.child("requestName"), errors);
        if seen.contains(&(container, resource, request)) {
            for (field, value) in fields {
                errors.duplicate(here.child(field), value);
            }
        }
        seen.insert((container, resource, request));
    }
    let name = status.text("resourceClaimName");
    if name.is_empty() {
        errors.required(at.child("resourceClaimName"), "");
    } else {
        invalid(names::dns1123_subdomain(name), name, at.child("resourceClaimName"), errors);
    }
}

fn validate_addresses(
    status: &Value,
    old_status: &Value,
    list: &str,
    single: &str,
    at: &Path<'_>,
    errors: &mut Errors,
) {
    let addresses = || status.list(list).iter().map(|it| it.text("ip"));
    let is_pod = list == "podIPs";
    let shown = || match status.list(list) {
        [] => api::field::BadValue::Rendered("null".to_owned()),
        items => render::list(CORE, if is_pod { "PodIP" } else { "HostIP" }, items),
    };
    let first = addresses().next();
    if let (false, Some(first)) = (is_pod, first)
        && first != status.text(single)
    {
        errors.invalid(at.index(0).child("ip"), first, format!("must be equal to `{single}`"));
    }
    let known: Vec<&str> = old_status.list(list).iter().map(|it| it.text("ip")).collect();
    for (index, address) in addresses().enumerate() {
        addresses::validate(address, &known, at.index(index), errors);
    }
    if addresses().count() > 1 {
        let is_dual = addresses::is_dual_stack(addresses());
        if is_dual.is_none() {
            let bad = addresses().find(|it| addresses::parse_sloppy(it).is_none()).unwrap_or_default();
            let detail = format!("failed to check for dual stack with error:invalid IP address: {bad}");
            errors.internal(*at, detail);
        }
        if is_dual != Some(true) || addresses().count() > 2 {
            errors.invalid(*at, shown(), "may specify no more than one IP for each IP family");
        }
    }
    if is_pod {
        let has_single = !status.text(single).is_empty();
        match first {
            Some(first) if has_single && first != status.text(single) => {
                errors.invalid(at.index(0).child("ip"), first, "must be equal to `podIP`");
            }
            first if first.is_some() != has_single => {
                errors.invalid(*at, shown(), "podIP and podIPs must either both be set or both be unset");
            }
            _ => {}
        }
    }
}
