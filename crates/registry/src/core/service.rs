//! Services. Addresses and ports of the cluster are not handed out here.
//!
//! Follows `validateService` of `pkg/apis/core/validation`; fields that allocation fills in are not required.

use std::net::IpAddr;

use api::field::{BadValue, Errors, Path};
use api::json::Value;
use api::names;
use api::well_known::{ANNOTATION_TOPOLOGY_AWARE_HINTS, ANNOTATION_TOPOLOGY_MODE};

use super::addresses;
use super::pod::probes::{validate_port, validate_port_number};
use crate::generic;
use crate::meta::{self, invalid};
use crate::seen::SeenKeys;
use crate::strategy::Strategy;

const MAX_AFFINITY_SECONDS: i64 = 86_400;
const ONLY_LOAD_BALANCER: &str = "may only be used when `type` is 'LoadBalancer'";
const UNCHANGED: &str = "may not change once set";
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

pub(crate) const STRATEGY: Strategy = Strategy {
    warn: |service, _, _| super::service_warnings::warnings(service),
    validate_create: |service, _, errors| {
        // Addresses are allocated before the rest is validated.
        validate_addresses(service, None, &Path::new("spec"), errors);
        if !errors.is_empty() {
            return;
        }
        meta::validate(service, true, names::dns1123_label, errors);
        validate(service, None, errors);
    },
    validate_update: |service, old, _, errors| {
        meta::validate_update(service, old, errors);
        validate_address_change(service, old, errors);
        validate_family_change(service, old, errors);
        validate_class(service, Some(old), errors);
        if needs_health_check(old) && needs_health_check(service) {
            let port = |service: &Value| service.field("spec").int("healthCheckNodePort");
            if port(service) != port(old) {
                errors.forbidden(Path::new("spec.healthCheckNodePort"), "field is immutable");
            }
        }
        validate(service, Some(old), errors);
    },
    ..generic::WITH_STATUS
};

fn kind(service: &Value) -> &str {
    service.field("spec").text("type")
}

fn is_headless(service: &Value) -> bool {
    let addresses = service.field("spec").list("clusterIPs");
    matches!(addresses, [one] if one.as_str() == Some("None"))
}

fn needs_health_check(service: &Value) -> bool {
    kind(service) == "LoadBalancer" && service.field("spec").text("externalTrafficPolicy") == "Local"
}

fn list_shown(spec: &Value, name: &str) -> BadValue {
    match spec.field(name) {
        Value::Null => BadValue::Rendered("null".to_owned()),
        value => BadValue::Value(value.clone()),
    }
}

fn validate(service: &Value, old: Option<&Value>, errors: &mut Errors) {
    let annotations = service.field("metadata").field("annotations");
    if let (Some(mode), Some(hints)) = (
        annotations.optional_text(ANNOTATION_TOPOLOGY_MODE),
        annotations.optional_text(ANNOTATION_TOPOLOGY_AWARE_HINTS),
    ) && mode != hints
    {
        let at = Path::new("metadata.annotations");
        let detail = format!("must match annotations[{ANNOTATION_TOPOLOGY_AWARE_HINTS}] when both are specified");
        errors.invalid(at.key(ANNOTATION_TOPOLOGY_MODE), mode, detail);
    }
    let (spec, at) = (service.field("spec"), Path::new("spec"));
    let ports = spec.list("ports");
    if ports.is_empty() && !is_headless(service) && kind(service) != "ExternalName" {
        errors.required(at.child("ports"), "");
    }
    validate_kind(service, &at, errors);
    let list = at.child("ports");
    let mut seen = SeenKeys::default();
    for (index, port) in ports.iter().enumerate() {
        validate_service_port(port, ports.len() > 1, &mut seen, &list.index(index), errors);
    }
    meta::validate_labels(spec.map("selector"), &at.child("selector"), errors);
    validate_affinity(spec, &at, errors);
    validate_addresses(service, old, &at, errors);
    validate_external_addresses(spec, old, &at, errors);
    match kind(service) {
        "" => errors.required(at.child("type"), ""),
        "ClusterIP" | "NodePort" | "LoadBalancer" | "ExternalName" => {}
        other => {
            let kinds = &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
            errors.not_supported(at.child("type"), other, kinds);
        }
    }
    validate_port_sets(service, &list, errors);
    validate_source_ranges(service, old, &at, errors);
    if spec.has("allocateLoadBalancerNodePorts") && kind(service) != "LoadBalancer" {
        errors.forbidden(at.child("allocateLoadBalancerNodePorts"), ONLY_LOAD_BALANCER);
    }
    if !spec.has("allocateLoadBalancerNodePorts") && kind(service) == "LoadBalancer" {
        errors.required(Path::new("allocateLoadBalancerNodePorts"), "");
    }
    validate_class(service, None, errors);
    validate_traffic(service, &at, errors);
}

fn validate_kind(service: &Value, at: &Path<'_>, errors: &mut Errors) {
    let spec = service.field("spec");
    match kind(service) {
        kind @ ("LoadBalancer" | "NodePort") if is_headless(service) => {
            let list = at.child("clusterIPs");
            errors.invalid(list.index(0), "None", format!("may not be set to 'None' for {kind} services"));
        }
        "ExternalName" => {
            let forbidden = "may not be set for ExternalName services";
            for name in ["clusterIPs", "ipFamilies"] {
                if !spec.list(name).is_empty() {
                    errors.forbidden(at.child(name), forbidden);
                }
            }
            if spec.has("ipFamilyPolicy") {
                errors.forbidden(at.child("ipFamilyPolicy"), forbidden);
            }
            let name = spec.text("externalName");
            match name.strip_suffix('.').unwrap_or(name) {
                "" => errors.required(at.child("externalName"), ""),
                name => invalid(names::dns1123_subdomain(name), name, at.child("externalName"), errors),
            }
        }
        _ => {}
    }
}

fn validate_service_port<'a>(
    port: &'a Value,
    needs_name: bool,
    seen: &mut SeenKeys<&'a str>,
    at: &Path<'_>,
    errors: &mut Errors,
) {
    let name = port.text("name");
    if !name.is_empty() {
        invalid(names::dns1123_label(name), name, at.child("name"), errors);
        if seen.contains(&name) {
            errors.duplicate(at.child("name"), name);
        } else {
            seen.insert(name);
        }
    } else if needs_name {
        errors.required(at.child("name"), "");
    }
    validate_port_number(port.int("port"), at.child("port"), errors);
    match port.text("protocol") {
        "" => errors.required(at.child("protocol"), ""),
        "TCP" | "UDP" | "SCTP" => {}
        other => errors.not_supported(at.child("protocol"), other, &["SCTP", "TCP", "UDP"]),
    }
    validate_port(port.field("targetPort"), at.child("targetPort"), errors);
    if let Some(protocol) = port.optional_text("appProtocol") {
        invalid(names::qualified_name(protocol), protocol, at.child("appProtocol"), errors);
    }
}

fn validate_affinity(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    let here = at.child("sessionAffinityConfig");
    match spec.text("sessionAffinity") {
        "" => errors.required(at.child("sessionAffinity"), ""),
        "None" => {
            if spec.has("sessionAffinityConfig") {
                errors.forbidden(here, "must not be set when session affinity is None");
            }
        }
        "ClientIP" => {
            const WHEN: &str = "when session affinity type is ClientIP";
            let here_client = here.child("clientIP");
            let config = spec.field("sessionAffinityConfig");
            if config.is_null() {
                errors.required(here, WHEN);
            } else if !config.has("clientIP") {
                errors.required(here_client, WHEN);
            } else {
                let here = here_client.child("timeoutSeconds");
                match config.field("clientIP").optional_int("timeoutSeconds") {
                    None => errors.required(here, WHEN),
                    Some(seconds) if seconds <= 0 || seconds > MAX_AFFINITY_SECONDS => {
                        let detail = format!("must be greater than 0 and less than {MAX_AFFINITY_SECONDS}");
                        errors.invalid(here, seconds, detail);
                    }
                    Some(_) => {}
                }
            }
        }
        other => errors.not_supported(at.child("sessionAffinity"), other, &["ClientIP", "None"]),
    }
}

fn validate_addresses(service: &Value, old: Option<&Value>, at: &Path<'_>, errors: &mut Errors) {
    if kind(service) == "ExternalName" {
        return;
    }
    let spec = service.field("spec");
    let (list, addresses) = (at.child("clusterIPs"), spec.texts("clusterIPs").collect::<Vec<_>>());
    let shown = || list_shown(spec, "clusterIPs");
    match (spec.text("clusterIP"), addresses.first()) {
        ("", Some(_)) => errors.invalid(list, shown(), "must be empty when `clusterIP` is not specified"),
        ("", None) => {}
        (_, None) => errors.required(list, ""),
        (one, Some(first)) if one != *first => errors.invalid(list, shown(), "first value must match `clusterIP`"),
        _ => {}
    }
    let families: Vec<&str> = spec.texts("ipFamilies").collect();
    let here = at.child("ipFamilies");
    let mut seen = SeenKeys::default();
    for (index, family) in families.iter().enumerate() {
        if !matches!(*family, "IPv4" | "IPv6") {
            errors.not_supported(here.index(index), *family, &["IPv4", "IPv6"]);
        }
        if !seen.insert(*family) {
            errors.duplicate(here.index(index), *family);
        }
    }
    match spec.optional_text("ipFamilyPolicy") {
        None | Some("SingleStack" | "PreferDualStack" | "RequireDualStack") => {}
        Some(other) => {
            let policies = &["PreferDualStack", "RequireDualStack", "SingleStack"];
            errors.not_supported(at.child("ipFamilyPolicy"), other, policies);
        }
    }
    let known: Vec<&str> = old.map(|old| old.field("spec").texts("clusterIPs").collect()).unwrap_or_default();
    let before = errors.len();
    for (index, address) in addresses.iter().enumerate() {
        if index == 0 && *address == "None" {
            if addresses.len() > 1 {
                errors.invalid(list, shown(), "'None' must be the first and only value");
            }
        } else {
            addresses::validate(address, &known, list.index(index), errors);
        }
    }
    let has_bad = errors.len() > before;
    if addresses.len() > 2 {
        errors.invalid(list, shown(), "may only hold up to 2 values");
    }
    if has_bad {
        return;
    }
    if addresses.len() > 1 && addresses::is_dual_stack(addresses.iter().copied()) != Some(true) {
        errors.invalid(list, shown(), "may specify no more than one IP for each IP family");
    }
    if is_headless(service) {
        return;
    }
    for (index, (address, family)) in addresses.iter().zip(&families).enumerate() {
        let is_six = addresses::parse_sloppy(address).is_some_and(|it| it.is_ipv6());
        if (*family == "IPv4" && is_six) || (*family == "IPv6" && !is_six) {
            let detail = format!("expected an {family} value as indicated by `ipFamilies[{index}]`");
            errors.invalid(list.index(index), *address, detail);
        }
    }
}

fn validate_external_addresses(spec: &Value, old: Option<&Value>, at: &Path<'_>, errors: &mut Errors) {
    let known: Vec<&str> = old.map(|old| old.field("spec").texts("externalIPs").collect()).unwrap_or_default();
    let list = at.child("externalIPs");
    for (index, address) in spec.texts("externalIPs").enumerate() {
        let here = list.index(index);
        let before = errors.len();
        addresses::validate(address, &known, here, errors);
        if errors.len() == before {
            validate_ordinary_address(address, here, errors);
        }
    }
}

/// Special-purpose addresses are not valid endpoints.
pub(crate) fn validate_ordinary_address(text: &str, at: Path<'_>, errors: &mut Errors) {
    let Some(address) = addresses::parse_sloppy(text) else {
        errors.invalid(at, text, "must be a valid IP address");
        return;
    };
    if address.is_unspecified() {
        errors.invalid(at, text, format!("may not be unspecified ({text})"));
    }
    if address.is_loopback() {
        errors.invalid(at, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    let (is_local, is_multicast) = match address {
        IpAddr::V4(it) => (it.is_link_local(), matches!(it.octets(), [224, 0, 0, _])),
        IpAddr::V6(it) => {
            let first = it.segments().first().copied().unwrap_or_default();
            (first & 0xffc0 == 0xfe80, first & 0xff0f == 0xff02)
        }
    };
    if is_local {
        errors.invalid(at, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    }
    if is_multicast {
        errors.invalid(at, text, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
    }
}

fn validate_port_sets(service: &Value, list: &Path<'_>, errors: &mut Errors) {
    let ports = service.field("spec").list("ports");
    if kind(service) == "ClusterIP" {
        for (index, _) in ports.iter().enumerate().filter(|(_, port)| port.int("nodePort") != 0) {
            let here = list.index(index);
            errors.forbidden(here.child("nodePort"), "may not be used when `type` is 'ClusterIP'");
        }
    }
    let mut node_ports = SeenKeys::default();
    for (index, port) in ports.iter().enumerate().filter(|(_, port)| port.int("nodePort") != 0) {
        if !node_ports.insert((port.text("protocol"), port.int("nodePort"))) {
            errors.duplicate(list.index(index).child("nodePort"), port.int("nodePort"));
        }
    }
    let mut numbers = SeenKeys::default();
    for (index, port) in ports.iter().enumerate() {
        if !numbers.insert((port.text("protocol"), port.int("port"))) {
            let key = api::json!({"protocol": (port.text("protocol")), "port": (port.int("port"))});
            errors.duplicate(list.index(index), crate::render::core("ServicePort", &key));
        }
    }
}

fn validate_source_ranges(service: &Value, old: Option<&Value>, at: &Path<'_>, errors: &mut Errors) {
    let spec = service.field("spec");
    let annotation = |service: &Value| {
        service.field("metadata").field("annotations").optional_text(SOURCE_RANGES).map(ToOwned::to_owned)
    };
    if !spec.list("loadBalancerSourceRanges").is_empty() {
        let list = at.child("LoadBalancerSourceRanges");
        if kind(service) != "LoadBalancer" {
            errors.forbidden(list, ONLY_LOAD_BALANCER);
        }
        let known: Vec<&str> = old
            .map(|old| old.field("spec").texts("loadBalancerSourceRanges").map(str::trim).collect())
            .unwrap_or_default();
        for (index, range) in spec.texts("loadBalancerSourceRanges").map(str::trim).enumerate() {
            if !known.contains(&range) {
                addresses::validate_range(range, list.index(index), errors);
            }
        }
    } else if let Some(text) = annotation(service) {
        let here = Path::new("metadata.annotations");
        let here = here.key(SOURCE_RANGES);
        if kind(service) != "LoadBalancer" {
            errors.forbidden(here, ONLY_LOAD_BALANCER);
        }
        let is_new = old.and_then(annotation).as_ref() != Some(&text);
        if is_new && !text.trim().is_empty() {
            text.trim().split(',').for_each(|range| addresses::validate_range(range.trim(), here, errors));
        }
    }
}

fn validate_class(service: &Value, old: Option<&Value>, errors: &mut Errors) {
    let at = Path::new("spec.loadBalancerClass");
    let class = |service: &Value| service.field("spec").optional_text("loadBalancerClass").map(ToOwned::to_owned);
    let is_balancer = kind(service) == "LoadBalancer";
    if let Some(old) = old
        && is_balancer
        && kind(old) == "LoadBalancer"
        && class(old) != class(service)
    {
        errors.invalid(at, service.field("spec").field("loadBalancerClass").clone(), UNCHANGED);
    }
    match class(service) {
        Some(class) if is_balancer => invalid(names::qualified_name(&class), &class, at, errors),
        Some(_) => errors.forbidden(at, ONLY_LOAD_BALANCER),
        None => {}
    }
}

fn validate_traffic(service: &Value, at: &Path<'_>, errors: &mut Errors) {
    let spec = service.field("spec");
    let is_external = matches!(kind(service), "LoadBalancer" | "NodePort")
        || (kind(service) == "ClusterIP" && !spec.list("externalIPs").is_empty());
    let here = at.child("externalTrafficPolicy");
    match spec.text("externalTrafficPolicy") {
        "" if is_external => errors.required(here, ""),
        "" => {}
        other if !is_external => errors.invalid(here, other, "may only be set for externally-accessible services"),
        "Cluster" | "Local" => {}
        other => errors.not_supported(here, other, &["Cluster", "Local"]),
    }
    let port = spec.int("healthCheckNodePort");
    if port != 0 {
        let here = at.child("healthCheckNodePort");
        if needs_health_check(service) {
            validate_port_number(port, here, errors);
        } else {
            let detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            errors.invalid(here, port, detail);
        }
    }
    let here = at.child("internalTrafficPolicy");
    match spec.optional_text("internalTrafficPolicy") {
        None if matches!(kind(service), "ClusterIP" | "NodePort" | "LoadBalancer") => errors.required(here, ""),
        None | Some("Cluster" | "Local") => {}
        Some(other) => errors.not_supported(here, other, &["Cluster", "Local"]),
    }
    match spec.optional_text("trafficDistribution") {
        None | Some("PreferClose" | "PreferSameZone" | "PreferSameNode") => {}
        Some(other) => {
            let values = &["PreferClose", "PreferSameZone", "PreferSameNode"];
            errors.not_supported(at.child("trafficDistribution"), other, values);
        }
    }
}

fn validate_address_change(service: &Value, old: &Value, errors: &mut Errors) {
    if kind(service) == "ExternalName" || kind(old) == "ExternalName" || (is_headless(service) && is_headless(old)) {
        return;
    }
    let (spec, list) = (service.field("spec"), Path::new("spec.clusterIPs"));
    let now: Vec<&str> = spec.texts("clusterIPs").collect();
    let before: Vec<&str> = old.field("spec").texts("clusterIPs").collect();
    let shown = || list_shown(spec, "clusterIPs");
    if now.len() == before.len() {
        for (index, _) in now.iter().zip(&before).enumerate().filter(|(_, (now, before))| now != before) {
            errors.invalid(list.index(index), shown(), UNCHANGED);
        }
        return;
    }
    if now.is_empty() {
        errors.invalid(list.index(0), shown(), "primary clusterIP can not be unset");
    }
    if let (Some(now), Some(before)) = (now.first(), before.first())
        && now != before
    {
        errors.invalid(list.index(0), shown(), UNCHANGED);
    }
    if now.len() == 1 && before.len() > 1 {
        require_single_stack(spec, "must be set to 'SingleStack' when releasing the secondary clusterIP", errors);
    }
}

fn validate_family_change(service: &Value, old: &Value, errors: &mut Errors) {
    let is_other = kind(service) == "ExternalName" || kind(old) == "ExternalName";
    if is_other || is_headless(service) || is_headless(old) {
        return;
    }
    let (spec, list) = (service.field("spec"), Path::new("spec.ipFamilies"));
    let now: Vec<&str> = spec.texts("ipFamilies").collect();
    let before: Vec<&str> = old.field("spec").texts("ipFamilies").collect();
    if now.len() == before.len() {
        for _ in now.iter().zip(&before).filter(|(now, before)| now != before) {
            errors.invalid(list.index(0), list_shown(spec, "ipFamilies"), UNCHANGED);
        }
        return;
    }
    if now.len() < before.len() && spec.list("clusterIPs").is_empty() {
        errors.invalid(list.index(0), list_shown(spec, "ipFamilies"), "primary ipFamily can not be unset");
    }
    if let (Some(now), Some(before)) = (now.first(), before.first())
        && now != before
    {
        errors.invalid(list.index(0), list_shown(spec, "clusterIPs"), UNCHANGED);
    }
    if now.len() == 1 && before.len() > 1 {
        require_single_stack(spec, "must be set to 'SingleStack' when releasing the secondary ipFamily", errors);
    }
}

fn require_single_stack(spec: &Value, detail: &str, errors: &mut Errors) {
    if spec.text("ipFamilyPolicy") != "SingleStack" {
        errors.invalid(Path::new("spec.ipFamilyPolicy"), spec.field("ipFamilyPolicy").clone(), detail);
    }
}
