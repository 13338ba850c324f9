//! Services: what is valid. Follows Kubernetes' `ValidateService`.

use std::net::IpAddr;

use api::field::{Errors, Path};
use api::json::Value;
use api::names;

use super::addresses;
use super::pod::probes::{validate_port, validate_port_number};
use crate::document::Read;
use crate::generic;
use crate::meta;
use crate::strategy::Strategy;

pub(crate) const STRATEGY: Strategy = Strategy {
    validate_create: |service, _, errors| {
        meta::validate(service, true, names::dns1123_label, errors);
        validate(service.field("spec"), None, errors);
    },
    validate_update: |service, old, _, errors| {
        meta::validate_update(service, old, errors);
        let (spec, before) = (service.field("spec"), old.field("spec"));
        validate_addresses_kept(spec, before, errors);
        validate_class_kept(spec, before, errors);
        validate(spec, Some(before), errors);
    },
    ..generic::WITH_STATUS
};

/// The address of a service that wants none.
const NONE: &str = "None";
const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];
const POLICIES: [&str; 3] = ["PreferDualStack", "RequireDualStack", "SingleStack"];
const EXTERNAL: &str = "may not be set for ExternalName services";
const FIXED: &str = "may not change once set";
const BALANCED: &str = "may only be used when `type` is 'LoadBalancer'";

fn needs_node_ports(spec: &Value) -> bool {
    matches!(spec.text("type"), "NodePort" | "LoadBalancer")
}

fn needs_health_check(spec: &Value) -> bool {
    spec.text("type") == "LoadBalancer" && spec.text("externalTrafficPolicy") == "Local"
}

fn is_external(spec: &Value) -> bool {
    needs_node_ports(spec) || spec.text("type") == "ClusterIP" && !spec.list("externalIPs").is_empty()
}

fn is_headless(spec: &Value) -> bool {
    spec.texts("clusterIPs").len() == 1 && spec.texts("clusterIPs").next() == Some(NONE)
}

fn validate(spec: &Value, old: Option<&Value>, errors: &mut Errors) {
    let at = Path::new("spec");
    let kind = spec.text("type");
    let ports = spec.list("ports");
    if ports.is_empty() && !is_headless(spec) && kind != "ExternalName" {
        errors.required(at.child("ports"), "");
    }
    match kind {
        "LoadBalancer" | "NodePort" if is_headless(spec) => {
            let detail = format!("may not be set to 'None' for {kind} services");
            errors.invalid(at.child("clusterIPs").index(0), NONE, detail);
        }
        "ExternalName" => validate_external_name(spec, &at, errors),
        _ => {}
    }
    validate_ports(ports, &at.child("ports"), errors);
    meta::validate_labels(spec.map("selector"), &at.child("selector"), errors);
    validate_affinity(spec, &at, errors);
    if kind != "ExternalName" {
        validate_addresses(spec, old, &at, errors);
    }
    let known: Vec<&str> = old.into_iter().flat_map(|old| old.texts("externalIPs")).collect();
    for (index, address) in spec.texts("externalIPs").enumerate() {
        let externals = at.child("externalIPs");
        addresses::validate(address, &known, externals.index(index), errors);
    }
    if !matches!(kind, "ClusterIP" | "ExternalName" | "LoadBalancer" | "NodePort") {
        errors.not_supported(at.child("type"), kind, &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]);
    }
    validate_numbers(spec, &at.child("ports"), errors);
    validate_balancing(spec, &at, errors);
    let traffic = [
        ("internalTrafficPolicy", ["Cluster", "Local"].as_slice()),
        ("trafficDistribution", &["PreferClose", "PreferSameNode", "PreferSameZone"]),
    ];
    for (name, supported) in traffic {
        if let Some(policy) = spec.optional_text(name).filter(|it| !supported.contains(it)) {
            errors.not_supported(at.child(name), policy, supported);
        }
    }
    if !spec.has("internalTrafficPolicy") && matches!(kind, "ClusterIP" | "LoadBalancer" | "NodePort") {
        errors.required(at.child("internalTrafficPolicy"), "");
    }
}

fn validate_external_name(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    for name in ["clusterIPs", "ipFamilies"] {
        if !spec.list(name).is_empty() {
            errors.forbidden(at.child(name), EXTERNAL);
        }
    }
    if spec.has("ipFamilyPolicy") {
        errors.forbidden(at.child("ipFamilyPolicy"), EXTERNAL);
    }
    let name = spec.text("externalName");
    // The dot at the end says that the name is whole.
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.is_empty() {
        errors.required(at.child("externalName"), "");
    } else {
        meta::invalid(names::dns1123_subdomain(name), name, at.child("externalName"), errors);
    }
}

fn validate_ports(ports: &[Value], at: &Path<'_>, errors: &mut Errors) {
    let mut seen: Vec<&str> = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        let at = at.index(index);
        let name = port.text("name");
        if !name.is_empty() {
            meta::invalid(names::dns1123_label(name), name, at.child("name"), errors);
            if seen.contains(&name) {
                errors.duplicate(at.child("name"), name);
            }
            seen.push(name);
        } else if ports.len() > 1 {
            errors.required(at.child("name"), "");
        }
        validate_port_number(port.int("port"), at.child("port"), errors);
        let protocol = port.text("protocol");
        if !matches!(protocol, "TCP" | "UDP" | "SCTP") {
            errors.not_supported(at.child("protocol"), protocol, &["SCTP", "TCP", "UDP"]);
        }
        validate_port(port.field("targetPort"), at.child("targetPort"), errors);
        if let Some(protocol) = port.optional_text("appProtocol") {
            meta::invalid(names::qualified_name(protocol), protocol, at.child("appProtocol"), errors);
        }
    }
}

/// Ports of nodes where there are none, and numbers that occur twice.
fn validate_numbers(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    let ports = spec.list("ports");
    if spec.text("type") == "ClusterIP" {
        for (index, _) in ports.iter().enumerate().filter(|(_, port)| port.int("nodePort") != 0) {
            errors.forbidden(at.index(index).child("nodePort"), "may not be used when `type` is 'ClusterIP'");
        }
    }
    let repeated = |index: usize, name: &str| {
        let key = |port: &Value| (port.text("protocol").to_owned(), port.int(name));
        ports.get(index).is_some_and(|port| ports.iter().take(index).any(|other| key(other) == key(port)))
    };
    for (index, port) in ports.iter().enumerate() {
        let number = port.int("nodePort");
        if number != 0 && repeated(index, "nodePort") {
            errors.duplicate(at.index(index).child("nodePort"), number);
        }
    }
    for (index, port) in ports.iter().enumerate() {
        if repeated(index, "port") {
            let shown = api::json!({
                "Name": "", "Protocol": (port.field("protocol").clone()), "AppProtocol": null,
                "Port": (port.field("port").clone()), "TargetPort": 0, "NodePort": 0
            });
            errors.duplicate(at.index(index), shown);
        }
    }
}

fn validate_affinity(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    let affinity = spec.text("sessionAffinity");
    match affinity {
        "None" => {
            if spec.has("sessionAffinityConfig") {
                let detail = "must not be set when session affinity is None";
                errors.forbidden(at.child("sessionAffinityConfig"), detail);
            }
        }
        "ClientIP" => {
            let config = at.child("sessionAffinityConfig");
            let client = config.child("clientIP");
            let seconds = spec.field("sessionAffinityConfig").field("clientIP").optional_int("timeoutSeconds");
            match seconds {
                None => errors.required(client.child("timeoutSeconds"), ""),
                Some(1..=86_400) => {}
                Some(other) => {
                    errors.invalid(client.child("timeoutSeconds"), other, "must be greater than 0 and less than 86400");
                }
            }
        }
        other => errors.not_supported(at.child("sessionAffinity"), other, &["ClientIP", "None"]),
    }
}

fn validate_addresses(spec: &Value, old: Option<&Value>, at: &Path<'_>, errors: &mut Errors) {
    let here = at.child("clusterIPs");
    let list = || spec.field("clusterIPs").clone();
    let single = spec.text("clusterIP");
    let all: Vec<&str> = spec.texts("clusterIPs").collect();
    match (single, all.first()) {
        ("", Some(_)) => errors.invalid(here, list(), "must be empty when `clusterIP` is not specified"),
        ("", None) => {}
        (_, None) => errors.required(here, ""),
        (single, Some(first)) if single != *first => {
            errors.invalid(here, list(), "first value must match `clusterIP`");
        }
        _ => {}
    }
    let families: Vec<&str> = spec.texts("ipFamilies").collect();
    let at_families = at.child("ipFamilies");
    for (index, family) in families.iter().enumerate() {
        if !FAMILIES.contains(family) {
            errors.not_supported(at_families.index(index), *family, &FAMILIES);
        }
        if families.iter().take(index).any(|it| it == family) {
            errors.duplicate(at_families.index(index), *family);
        }
    }
    // Without one it is chosen together with the addresses.
    if let Some(policy) = spec.optional_text("ipFamilyPolicy").filter(|it| !POLICIES.contains(it)) {
        errors.not_supported(at.child("ipFamilyPolicy"), policy, &POLICIES);
    }
    let before = errors.len();
    let known: Vec<&str> = old.into_iter().flat_map(|old| old.texts("clusterIPs")).collect();
    for (index, address) in all.iter().enumerate() {
        if index > 0 || *address != NONE {
            addresses::validate(address, &known, here.index(index), errors);
        } else if all.len() > 1 {
            errors.invalid(here, list(), "'None' must be the first and only value");
        }
    }
    if errors.len() > before {
        return;
    }
    if all.len() > 2 {
        errors.invalid(here, list(), "may only hold up to 2 values");
    }
    let parsed: Vec<IpAddr> = all.iter().filter_map(|it| addresses::parse_sloppy(it)).collect();
    if let [first, second, ..] = parsed.as_slice()
        && first.is_ipv4() == second.is_ipv4()
    {
        errors.invalid(here, list(), "may specify no more than one IP for each IP family");
    }
    for (index, (address, family)) in parsed.iter().zip(&families).enumerate() {
        let actual = if address.is_ipv4() { "IPv4" } else { "IPv6" };
        if *family != actual && FAMILIES.contains(family) {
            let detail = format!("expected an {family} value as indicated by `ipFamilies[{index}]`");
            errors.invalid(here.index(index), address.to_string(), detail);
        }
    }
}

fn validate_balancing(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    let is_balanced = spec.text("type") == "LoadBalancer";
    if !spec.list("loadBalancerSourceRanges").is_empty() && !is_balanced {
        // Kubernetes writes the field's name so.
        errors.forbidden(at.child("LoadBalancerSourceRanges"), BALANCED);
    }
    if spec.has("allocateLoadBalancerNodePorts") && !is_balanced {
        errors.forbidden(at.child("allocateLoadBalancerNodePorts"), BALANCED);
    }
    if let Some(class) = spec.optional_text("loadBalancerClass") {
        if is_balanced {
            meta::invalid(names::qualified_name(class), class, at.child("loadBalancerClass"), errors);
        } else {
            errors.forbidden(at.child("loadBalancerClass"), BALANCED);
        }
    }
    let policy = spec.text("externalTrafficPolicy");
    let here = at.child("externalTrafficPolicy");
    match (is_external(spec), policy) {
        (false, "") | (true, "Cluster" | "Local") => {}
        (false, policy) => errors.invalid(here, policy, "may only be set for externally-accessible services"),
        (true, "") => errors.required(here, ""),
        (true, policy) => errors.not_supported(here, policy, &["Cluster", "Local"]),
    }
    let number = spec.int("healthCheckNodePort");
    let here = at.child("healthCheckNodePort");
    if !needs_health_check(spec) && number != 0 {
        let detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        errors.invalid(here, number, detail);
    } else if number != 0 {
        validate_port_number(number, here, errors);
    }
}

/// An address that was given stays; only a service that had none may get one.
fn validate_addresses_kept(spec: &Value, old: &Value, errors: &mut Errors) {
    let is_name = |spec: &Value| spec.text("type") == "ExternalName";
    if is_name(spec) || is_name(old) || is_headless(spec) && is_headless(old) {
        return;
    }
    let at = Path::new("spec");
    let here = at.child("clusterIPs");
    let (now, before): (Vec<&str>, Vec<&str>) = (spec.texts("clusterIPs").collect(), old.texts("clusterIPs").collect());
    if now.is_empty() && !before.is_empty() {
        errors.invalid(here.index(0), spec.field("clusterIPs").clone(), "primary clusterIP can not be unset");
    }
    for (index, (now, before)) in now.iter().zip(&before).enumerate() {
        if now != before {
            errors.invalid(here.index(index), spec.field("clusterIPs").clone(), FIXED);
        }
    }
    let (now, before): (Vec<&str>, Vec<&str>) = (spec.texts("ipFamilies").collect(), old.texts("ipFamilies").collect());
    let changed = !now.is_empty() && !before.is_empty() && now.first() != before.first();
    if is_headless(spec) == is_headless(old) && changed {
        errors.invalid(at.child("ipFamilies").index(0), spec.field("ipFamilies").clone(), FIXED);
    }
}

fn validate_class_kept(spec: &Value, old: &Value, errors: &mut Errors) {
    let both = [spec, old].iter().all(|it| it.text("type") == "LoadBalancer");
    if both && spec.text("loadBalancerClass") != old.text("loadBalancerClass") {
        let at = Path::new("spec");
        errors.invalid(at.child("loadBalancerClass"), spec.text("loadBalancerClass"), FIXED);
    }
}
