//! Endpoints of services: `Endpoints` and `EndpointSlice`.
//!
//! Special-purpose addresses are not valid endpoints. Loopback is allowed, unlike in Kubernetes, because
//! simulated nodes use it. Follows `pkg/apis/discovery/validation` and the part of `pkg/apis/core/validation`
//! about Endpoints.

use api::field::{Errors, Path};
use api::json::Value;
use api::names;
use api::well_known::{
    CONTROLLER_ENDPOINT_SLICE, CONTROLLER_ENDPOINT_SLICE_MIRRORING, LABEL_ENDPOINT_SLICE_MANAGED_BY,
    LABEL_ENDPOINTS_MANAGED_BY, LABEL_HOSTNAME,
};

use crate::core::addresses;
use crate::core::pod::probes::validate_port_number;
use crate::core::service::validate_ordinary_address;
use crate::document::same;
use crate::generic;
use crate::meta::{self, invalid};
use crate::seen::SeenKeys;
use crate::strategy::Strategy;

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const ADDRESS_TYPES: [&str; 3] = ["FQDN", "IPv4", "IPv6"];
const ENDPOINTS_MAX: usize = 1000;
const ADDRESSES_MAX: usize = 100;
const PORTS_MAX: usize = 20_000;
const HINTS_MAX: usize = 8;

pub(crate) const ENDPOINTS: Strategy = Strategy {
    validate_create: |endpoints, _, errors| {
        meta::validate(endpoints, true, names::dns1123_subdomain, errors);
        validate_subsets(endpoints, errors);
    },
    warn: |endpoints, _, _| warn_subsets(endpoints),
    validate_update: |endpoints, old, _, errors| {
        meta::validate_update(endpoints, old, errors);
        // What was accepted once may stay.
        if !same(endpoints.field("subsets"), old.field("subsets")) {
            validate_subsets(endpoints, errors);
        }
    },
    ..generic::NAMED
};

pub(crate) const SLICE: Strategy = Strategy {
    prepare_create: |slice, context| {
        (generic::COUNTED_WITH_LABELS.prepare_create)(slice, context);
        drop_topology(slice, None);
    },
    prepare_update: |slice, old, context| {
        // The generation counts the change as it was sent.
        (generic::COUNTED_WITH_LABELS.prepare_update)(slice, old, context);
        drop_topology(slice, Some(old));
    },
    warn: |slice, old, _| warn_slice(slice, old),
    validate_create: |slice, _, errors| {
        meta::validate(slice, true, names::dns1123_subdomain, errors);
        validate_slice(slice, None, errors);
    },
    validate_update: |slice, old, _, errors| {
        meta::validate_update(slice, old, errors);
        validate_slice(slice, Some(old), errors);
    },
    ..generic::COUNTED_WITH_LABELS
};

/// Drops `deprecatedTopology`, which is read-only since v1. A node that stood there moves to its field.
fn drop_topology(slice: &mut Value, old: Option<&Value>) {
    if old.is_some_and(|old| same(old.field("endpoints"), slice.field("endpoints"))) {
        return;
    }
    let node = |endpoint: &Value| endpoint.field("deprecatedTopology").text(LABEL_HOSTNAME).to_owned();
    let known: SeenKeys<String> = old.map(|old| old.list("endpoints").iter().map(node).collect()).unwrap_or_default();
    for endpoint in slice.list_mut("endpoints") {
        let name = node(endpoint);
        let is_kept = !name.is_empty() && known.contains(&name) && names::dns1123_subdomain(&name).is_empty();
        if is_kept && !endpoint.has("nodeName") {
            endpoint.set("nodeName", name);
        }
        endpoint.unset("deprecatedTopology");
    }
}

fn warn_slice(slice: &Value, old: Option<&Value>) -> Vec<String> {
    let mut warnings = Vec::new();
    if old.is_none() && slice.text("addressType") == "FQDN" {
        warnings.push("spec.addressType: FQDN endpoints are deprecated".to_owned());
    }
    // Kubernetes' own controllers write addresses in canonical form.
    let manager = slice.field("metadata").field("labels").text(LABEL_ENDPOINT_SLICE_MANAGED_BY);
    if matches!(manager, CONTROLLER_ENDPOINT_SLICE | CONTROLLER_ENDPOINT_SLICE_MIRRORING) {
        return warnings;
    }
    let list = Path::new("endpoints");
    for (index, endpoint) in slice.list("endpoints").iter().enumerate() {
        let here = list.index(index);
        let list = here.child("addresses");
        let addresses = endpoint.texts("addresses").enumerate();
        warnings.extend(addresses.filter_map(|(index, address)| addresses::warn(address, &list.index(index))));
    }
    warnings
}

fn warn_subsets(endpoints: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    let manager = endpoints.field("metadata").field("labels").text(LABEL_ENDPOINTS_MANAGED_BY);
    if manager == "endpoint-controller" {
        return warnings;
    }
    let list = Path::new("subsets");
    for (index, subset) in endpoints.list("subsets").iter().enumerate() {
        let here = list.index(index);
        for kind in ["addresses", "notReadyAddresses"] {
            let list = here.child(kind);
            for (index, address) in subset.list(kind).iter().enumerate() {
                let here = list.index(index);
                warnings.extend(addresses::warn(address.text("ip"), &here.child("ip")));
            }
        }
    }
    warnings
}

fn validate_subsets(endpoints: &Value, errors: &mut Errors) {
    let list = Path::new("subsets");
    for (index, subset) in endpoints.list("subsets").iter().enumerate() {
        let here = list.index(index);
        let kinds = ["addresses", "notReadyAddresses"];
        if kinds.iter().all(|kind| subset.list(kind).is_empty()) {
            errors.required(here, "must specify `addresses` or `notReadyAddresses`");
        }
        for kind in kinds {
            let list = here.child(kind);
            for (index, address) in subset.list(kind).iter().enumerate() {
                validate_address(address, &list.index(index), errors);
            }
        }
        let (ports, list) = (subset.list("ports"), here.child("ports"));
        for (index, port) in ports.iter().enumerate() {
            validate_port(port, ports.len() > 1, &list.index(index), errors);
        }
    }
}

fn validate_address(address: &Value, at: &Path<'_>, errors: &mut Errors) {
    let ip = address.text("ip");
    addresses::validate(ip, &[], at.child("ip"), errors);
    let host = address.text("hostname");
    if !host.is_empty() {
        invalid(names::dns1123_label(host), host, at.child("hostname"), errors);
    }
    if let Some(node) = address.optional_text("nodeName") {
        invalid(names::dns1123_subdomain(node), node, at.child("nodeName"), errors);
    }
    validate_ordinary_address(ip, at.child("ip"), errors);
}

fn validate_port(port: &Value, needs_name: bool, at: &Path<'_>, errors: &mut Errors) {
    match port.text("name") {
        "" if needs_name => errors.required(at.child("name"), ""),
        "" => {}
        name => invalid(names::dns1123_label(name), name, at.child("name"), errors),
    }
    validate_port_number(port.int("port"), at.child("port"), errors);
    validate_protocols(port, true, at, errors);
}

/// In Endpoints (`is_plain`) an empty protocol is a missing one, in slices a wrong one.
fn validate_protocols(port: &Value, is_plain: bool, at: &Path<'_>, errors: &mut Errors) {
    match port.optional_text("protocol") {
        None => errors.required(at.child("protocol"), ""),
        Some("") if is_plain => errors.required(at.child("protocol"), ""),
        Some(protocol) if !PROTOCOLS.contains(&protocol) => {
            errors.not_supported(at.child("protocol"), protocol, &PROTOCOLS);
        }
        Some(_) => {}
    }
    if let Some(protocol) = port.optional_text("appProtocol") {
        meta::validate_label_name(protocol, at.child("appProtocol"), errors);
    }
}

fn validate_slice(slice: &Value, old: Option<&Value>, errors: &mut Errors) {
    let kind = slice.text("addressType");
    // A changed type is immutable first of all for the declared rules, so that the written one remains in front.
    let is_changed = old.is_some_and(|old| old.text("addressType") != kind);
    if is_changed && !kind.is_empty() && !ADDRESS_TYPES.contains(&kind) {
        errors.not_supported(Path::new("addressType"), kind, &ADDRESS_TYPES);
    }
    validate_ports(slice.list("ports"), errors);
    let endpoints = slice.list("endpoints");
    let is_kept = old.is_some_and(|old| same(old.field("endpoints"), slice.field("endpoints")));
    let list = Path::new("endpoints");
    if !is_kept && endpoints.len() > ENDPOINTS_MAX {
        errors.too_many(list, Some(endpoints.len()), ENDPOINTS_MAX);
    }
    let is_looked_at = !is_kept && endpoints.len() <= ENDPOINTS_MAX;
    if is_looked_at {
        for (index, endpoint) in endpoints.iter().enumerate() {
            validate_endpoint(endpoint, kind, &list.index(index), errors);
        }
    }
    // Declared rules come behind the written ones.
    let at = Path::new("addressType");
    let old_kind = old.map(|old| old.text("addressType"));
    if kind.is_empty() {
        errors.required(at, "");
    } else if old_kind.is_none() && !ADDRESS_TYPES.contains(&kind) {
        errors.not_supported(at, kind, &ADDRESS_TYPES);
    }
    if old_kind.is_some_and(|old| old != kind) {
        errors.invalid(at, kind, "field is immutable");
    }
    if is_looked_at {
        for (index, endpoint) in endpoints.iter().enumerate() {
            let count = endpoint.list("addresses").len();
            let here = list.index(index);
            match count {
                0 => errors.required(here.child("addresses"), ""),
                count if count > ADDRESSES_MAX => {
                    errors.too_many(here.child("addresses"), Some(count), ADDRESSES_MAX);
                }
                _ => {}
            }
        }
    }
}

fn validate_ports(ports: &[Value], errors: &mut Errors) {
    let list = Path::new("ports");
    if ports.len() > PORTS_MAX {
        errors.too_many(list, Some(ports.len()), PORTS_MAX);
        return;
    }
    let mut seen = std::collections::BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let here = list.index(index);
        let name = port.text("name");
        if !name.is_empty() {
            invalid(names::dns1123_label(name), name, here.child("name"), errors);
        }
        if !seen.insert(name) {
            errors.duplicate(here.child("name"), name);
        }
        validate_protocols(port, false, &here, errors);
    }
}

fn validate_endpoint(endpoint: &Value, kind: &str, at: &Path<'_>, errors: &mut Errors) {
    let list = at.child("addresses");
    for (index, address) in endpoint.texts("addresses").enumerate() {
        validate_end(address, kind, &list, index, errors);
    }
    if let Some(node) = endpoint.optional_text("nodeName") {
        invalid(names::dns1123_subdomain(node), node, at.child("nodeName"), errors);
    }
    if let Some(host) = endpoint.optional_text("hostname") {
        invalid(names::dns1123_label(host), host, at.child("hostname"), errors);
    }
    let hints = at.child("hints");
    for (field, rule) in [("forZones", names::label_value as meta::NameRule), ("forNodes", names::dns1123_subdomain)] {
        let (items, list) = (endpoint.field("hints").list(field), hints.child(field));
        if items.len() > HINTS_MAX {
            errors.too_many(list, Some(items.len()), HINTS_MAX);
            return;
        }
        for (index, item) in items.iter().enumerate() {
            let (name, here) = (item.text("name"), list.index(index));
            if items.iter().take(index).any(|it| it.text("name") == name) {
                errors.duplicate(here.child("name"), name);
            }
            invalid(rule(name), name, here.child("name"), errors);
        }
    }
}

fn validate_end(address: &str, kind: &str, list: &Path<'_>, index: usize, errors: &mut Errors) {
    let here = list.index(index);
    if kind == "FQDN" {
        validate_domain(address, here, errors);
        return;
    }
    let is_four = match kind {
        "IPv4" => true,
        "IPv6" => false,
        _ => return,
    };
    let before = errors.len();
    addresses::validate(address, &[], here, errors);
    if errors.len() > before {
        return;
    }
    let found = addresses::parse_sloppy(address);
    if !is_four && let Some(found) = found.filter(|found| found.to_string() != address) {
        errors.invalid(here, address, format!("must be in canonical form (\"{found}\")"));
        return;
    }
    if found.is_some_and(|found| found.is_ipv4() != is_four) {
        let detail = if is_four { "must be an IPv4 address" } else { "must be an IPv6 address" };
        errors.invalid(*list, address, detail);
    }
    validate_ordinary_address(address, here, errors);
}

fn validate_domain(address: &str, at: Path<'_>, errors: &mut Errors) {
    let name = address.strip_suffix('.').unwrap_or(address);
    let complaints = names::dns1123_subdomain(name);
    if address.is_empty() {
        errors.required(at, "");
    } else if !complaints.is_empty() {
        errors.invalid(at, name, complaints.join(","));
    } else if !name.contains('.') {
        errors.invalid(at, name, "should be a domain with at least two segments separated by dots");
    } else if let Some((label, wrong)) =
        name.split('.').map(|label| (label, names::dns1123_label(label))).find(|(_, wrong)| !wrong.is_empty())
    {
        errors.invalid(at, label, wrong.join(","));
    }
}
