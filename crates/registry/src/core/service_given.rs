//! Allocated parts of services: families, addresses and ports that a change keeps or releases.
//!
//! Allocation happens at the storage; these are the rules that do not depend on other services. Addresses are
//! of one family, IPv4. Follows Kubernetes' `registry/core/service`.

use std::collections::BTreeMap;

use api::field::{Errors, Path};
use api::json::Value;

use super::{addresses, service};
use crate::document::same;
use crate::seen::SeenKeys;
use crate::strategy::{Context, Strategy};

pub(crate) const STRATEGY: Strategy = Strategy {
    prepare_create: |service, _| {
        service.unset("status");
        let spec = service.make("spec");
        let single = spec.text("clusterIP").to_owned();
        if !single.is_empty() && spec.list("clusterIPs").is_empty() {
            spec.set("clusterIPs", vec![Value::from(single)]);
        }
    },
    prepare_update,
    ..service::STRATEGY
};

/// The address of a headless service.
const NONE: &str = "None";

fn needs_address(spec: &Value) -> bool {
    spec.text("type") != "ExternalName"
}

fn needs_node_ports(spec: &Value) -> bool {
    matches!(spec.text("type"), "NodePort" | "LoadBalancer")
}

fn gives_node_ports(spec: &Value) -> bool {
    needs_node_ports(spec) && spec.optional_flag("allocateLoadBalancerNodePorts") != Some(false)
}

fn needs_health_check(spec: &Value) -> bool {
    spec.text("type") == "LoadBalancer" && spec.text("externalTrafficPolicy") == "Local"
}

fn is_external(spec: &Value) -> bool {
    needs_node_ports(spec) || spec.text("type") == "ClusterIP" && !spec.list("externalIPs").is_empty()
}

fn node_ports(spec: &Value) -> Vec<i64> {
    spec.list("ports").iter().map(|port| port.int("nodePort")).filter(|port| *port != 0).collect()
}

fn prepare_update(service: &mut Value, old: &Value, _: &Context<'_>) {
    service.set("status", old.field("status").clone());
    let before = old.field("spec");
    let spec = service.make("spec");
    keep_given(spec, before);
    sync_addresses(spec, before);
    drop_unused(spec, before);
    if spec.text("type") != "LoadBalancer" {
        service.make("status").set("loadBalancer", Value::object());
    }
}

/// Keeps allocated values in an update that omits them.
fn keep_given(spec: &mut Value, old: &Value) {
    if needs_address(old) && needs_address(spec) {
        for name in ["clusterIP", "clusterIPs"] {
            spec.set_default(name, old.field(name).clone());
        }
    }
    if gives_node_ports(old) && gives_node_ports(spec) {
        let kept: SeenKeys<i64> = node_ports(spec).into_iter().collect();
        let given: BTreeMap<&str, i64> =
            old.list("ports").iter().map(|port| (port.text("name"), port.int("nodePort"))).collect();
        for port in spec.list_mut("ports") {
            let given = given.get(port.text("name")).copied().unwrap_or(0);
            if given != 0 && !kept.contains(&given) {
                port.set_default("nodePort", given);
            }
        }
    }
    if needs_health_check(old) && needs_health_check(spec) {
        spec.set_default("healthCheckNodePort", old.field("healthCheckNodePort").clone());
    }
}

/// Synchronizes `clusterIP` and `clusterIPs`; changing one changes both.
fn sync_addresses(spec: &mut Value, old: &Value) {
    let unchanged = same(spec.field("clusterIPs"), old.field("clusterIPs"));
    let (now, before) = (spec.text("clusterIP").to_owned(), old.text("clusterIP"));
    if now == before || !unchanged {
        return;
    }
    if now.is_empty() {
        spec.unset("clusterIPs");
    } else {
        spec.set("clusterIPs", vec![Value::from(now)]);
    }
}

/// Drops unchanged values that the new type does not use.
fn drop_unused(spec: &mut Value, old: &Value) {
    if needs_address(old) && !needs_address(spec) {
        let kept = |name: &str, spec: &Value| same(spec.field(name), old.field(name));
        if kept("clusterIP", spec) && kept("clusterIPs", spec) {
            spec.unset("clusterIP");
            spec.unset("clusterIPs");
        }
        for name in ["ipFamilies", "ipFamilyPolicy"] {
            if kept(name, spec) {
                spec.unset(name);
            }
        }
    }
    if needs_node_ports(old) && !needs_node_ports(spec) {
        let before: SeenKeys<i64> = node_ports(old).into_iter().collect();
        if node_ports(spec).iter().all(|port| before.contains(port)) {
            spec.list_mut("ports").iter_mut().for_each(|port| port.unset("nodePort"));
        }
    }
    let was_balanced = old.text("type") == "LoadBalancer" && spec.text("type") != "LoadBalancer";
    let dropped = [
        ("healthCheckNodePort", needs_health_check(old) && !needs_health_check(spec)),
        ("allocateLoadBalancerNodePorts", was_balanced),
        ("loadBalancerClass", was_balanced),
        ("externalTrafficPolicy", is_external(old) && !is_external(spec)),
    ];
    for (name, goes) in dropped {
        if goes && same(spec.field(name), old.field(name)) {
            spec.unset(name);
        }
    }
}

/// Sets the address families of a service that does not specify them, before allocation.
///
/// # Errors
/// What a cluster with one family of addresses, IPv4, cannot give.
pub fn init_families(service: &mut Value, old: Option<&Value>) -> Errors {
    let mut errors = Errors::new();
    let spec = service.make("spec");
    let old = old.map(|old| old.field("spec"));
    if !needs_address(spec) {
        return errors;
    }
    let without_selector = spec.text("clusterIP") == NONE && spec.map("selector").is_empty();
    if !spec.has("ipFamilyPolicy") {
        let before = old.and_then(|old| old.optional_text("ipFamilyPolicy"));
        let by_default = if without_selector { "RequireDualStack" } else { "SingleStack" };
        spec.set("ipFamilyPolicy", before.unwrap_or(by_default));
    }
    let mut families: Vec<Value> = spec.list("ipFamilies").to_vec();
    if families.is_empty() {
        let known = spec.texts("clusterIPs").filter_map(addresses::parse_sloppy);
        families = known.map(|it| Value::from(if it.is_ipv4() { "IPv4" } else { "IPv6" })).collect();
    }
    if families.is_empty() {
        families.push(Value::from("IPv4"));
    }
    let is_single = spec.text("ipFamilyPolicy") == "SingleStack";
    if let ([family], true, false) = (families.as_slice(), without_selector, is_single) {
        let other = if family.as_str() == Some("IPv4") { "IPv6" } else { "IPv4" };
        families.push(Value::from(other));
    }
    spec.set("ipFamilies", families);
    let families: Vec<&str> = spec.texts("ipFamilies").collect();
    let all: Vec<&str> = spec.texts("clusterIPs").collect();
    validate_single(spec, &all, &families, &Path::new("spec"), &mut errors);
    errors
}

/// Validates a service in a cluster with one address family.
fn validate_single(spec: &Value, all: &[&str], families: &[&str], at: &Path<'_>, errors: &mut Errors) {
    let policy = spec.text("ipFamilyPolicy");
    let here = at.child("ipFamilyPolicy");
    if policy == "SingleStack" {
        for (length, what) in [(all.len(), "cluster IPs"), (families.len(), "IP families")] {
            if length == 2 {
                let detail =
                    format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified");
                errors.invalid(here, policy, detail);
            }
        }
    }
    if spec.text("clusterIP") == NONE && spec.map("selector").is_empty() {
        return;
    }
    if policy == "RequireDualStack" {
        errors.invalid(here, policy, "this cluster is not configured for dual-stack services");
    }
    for (index, family) in families.iter().enumerate().filter(|(_, family)| **family == "IPv6") {
        errors.invalid(at.child("ipFamilies").index(index), *family, "not configured on this cluster");
    }
}
