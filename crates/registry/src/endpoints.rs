//! Where the traffic of services ends: `Endpoints` and `EndpointSlice`.
//!
//! Addresses with a meaning of their own are no ends. Loopback is allowed, unlike in Kubernetes: there simulated nodes are.
//! Follows `pkg/apis/discovery/validation` and the part of `pkg/apis/core/validation` about Endpoints.

use api::field::{Errors, Path};
use api::json::Value;
use api::names;

use crate::core::addresses;
use crate::core::pod::probes::validate_port_number;
use crate::core::service::validate_ordinary_address;
use crate::document::{Read, same};
use crate::generic;
use crate::meta::{self, invalid};
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
    validate_reachable(ip, at.child("ip"), errors);
}

fn validate_reachable(address: &str, at: Path<'_>, errors: &mut Errors) {
    if !addresses::parse_sloppy(address).is_some_and(|it| it.is_loopback()) {
        validate_ordinary_address(address, at, errors);
    }
}

fn validate_port(port: &Value, needs_name: bool, at: &Path<'_>, errors: &mut Errors) {
    match port.text("name") {
        "" if needs_name => errors.required(at.child("name"), ""),
        "" => {}
        name => invalid(names::dns1123_label(name), name, at.child("name"), errors),
    }
    validate_port_number(port.int("port"), at.child("port"), errors);
    validate_protocols(port, at, errors);
}

fn validate_protocols(port: &Value, at: &Path<'_>, errors: &mut Errors) {
    match port.text("protocol") {
        "" => errors.required(at.child("protocol"), ""),
        protocol if !PROTOCOLS.contains(&protocol) => {
            errors.not_supported(at.child("protocol"), protocol, &PROTOCOLS);
        }
        _ => {}
    }
    if let Some(protocol) = port.optional_text("appProtocol") {
        meta::validate_label_name(protocol, at.child("appProtocol"), errors);
    }
}

fn validate_slice(slice: &Value, old: Option<&Value>, errors: &mut Errors) {
    validate_ports(slice.list("ports"), errors);
    let kind = slice.text("addressType");
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
    } else if old_kind.is_some_and(|old| old != kind) {
        errors.invalid(at, kind, "field is immutable");
    } else if old_kind.is_none() && !ADDRESS_TYPES.contains(&kind) {
        errors.not_supported(at, kind, &ADDRESS_TYPES);
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
        validate_protocols(port, &here, errors);
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
    validate_reachable(address, here, errors);
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
