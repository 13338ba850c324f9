//! Network policies: ports and peers.
//!
//! Follows `ValidateNetworkPolicy` of `pkg/apis/networking/validation`.

use api::field::{Errors, Path};
use api::json::Value;
use api::names;

use crate::core::addresses;
use crate::core::pod::probes::validate_port_number;
use crate::generic;
use crate::meta::{self, invalid};
use crate::strategy::Strategy;

pub(crate) const POLICY: Strategy = Strategy {
    validate_create: |policy, _, errors| {
        meta::validate(policy, true, names::dns1123_subdomain, errors);
        validate_spec(policy.field("spec"), None, errors);
    },
    validate_update: |policy, old, _, errors| {
        meta::validate_update(policy, old, errors);
        validate_spec(policy.field("spec"), Some(old.field("spec")), errors);
    },
    ..generic::WITH_GENERATION
};

/// Invalid values that may stay.
struct ToleratedValues<'a> {
    bad_selector_values: bool,
    ranges: Vec<&'a str>,
}

const RULES: [(&str, &str); 2] = [("ingress", "from"), ("egress", "to")];

fn validate_spec(spec: &Value, old: Option<&Value>, errors: &mut Errors) {
    let at = Path::new("spec");
    let kept = ToleratedValues {
        bad_selector_values: old.is_some_and(|old| meta::has_bad_values(old.field("podSelector"))),
        ranges: old.map(ranges).unwrap_or_default(),
    };
    meta::validate_selector(spec.field("podSelector"), kept.bad_selector_values, &at.child("podSelector"), errors);
    for (list, peers) in RULES {
        let rules = at.child(list);
        for (index, rule) in spec.list(list).iter().enumerate() {
            let here = rules.index(index);
            let ports = here.child("ports");
            for (index, port) in rule.list("ports").iter().enumerate() {
                validate_port(port, &ports.index(index), errors);
            }
            let here = here.child(peers);
            for (index, peer) in rule.list(peers).iter().enumerate() {
                validate_peer(peer, &kept, &here.index(index), errors);
            }
        }
    }
    validate_policy_types(spec, at.child("policyTypes"), errors);
    // A declared rule: it comes behind the written ones.
    for (list, peers) in RULES {
        let rules = at.child(list);
        for (index, rule) in spec.list(list).iter().enumerate() {
            let here = rules.index(index);
            let here = here.child(peers);
            for (index, peer) in rule.list(peers).iter().enumerate() {
                if peer.has("ipBlock") && peer.field("ipBlock").text("cidr").is_empty() {
                    errors.required(here.index(index).child("ipBlock").child("cidr"), "");
                }
            }
        }
    }
}

fn validate_policy_types(spec: &Value, here: Path<'_>, errors: &mut Errors) {
    if spec.list("policyTypes").len() > 2 {
        errors.invalid(here, spec.field("policyTypes").clone(), "may not specify more than two policyTypes");
        return;
    }
    for (index, policy_type) in spec.texts("policyTypes").enumerate() {
        if !matches!(policy_type, "Ingress" | "Egress") {
            errors.not_supported(here.index(index), policy_type, &["Ingress", "Egress"]);
        }
    }
}

/// All ranges that a policy names.
fn ranges(spec: &Value) -> Vec<&str> {
    let mut ranges = Vec::new();
    for (list, peers) in RULES {
        for peer in spec.list(list).iter().flat_map(|rule| rule.list(peers)) {
            let block = peer.field("ipBlock");
            ranges.push(block.text("cidr"));
            ranges.extend(block.texts("except"));
        }
    }
    ranges
}

fn validate_port(port: &Value, at: &Path<'_>, errors: &mut Errors) {
    if let Some(protocol) = port.optional_text("protocol")
        && !matches!(protocol, "TCP" | "UDP" | "SCTP")
    {
        errors.not_supported(at.child("protocol"), protocol, &["TCP", "UDP", "SCTP"]);
    }
    let (end, end_at) = (port.optional_int("endPort"), at.child("endPort"));
    match port.optional("port") {
        None => {
            if let Some(end) = end {
                errors.invalid(end_at, end, "may not be specified when `port` is not specified");
            }
        }
        Some(Value::String(name)) => {
            if let Some(end) = end {
                errors.invalid(end_at, end, "may not be specified when `port` is non-numeric");
            }
            invalid(names::port_name(name), name, at.child("port"), errors);
        }
        Some(number) => {
            let number = number.as_i64().unwrap_or_default();
            validate_port_number(number, at.child("port"), errors);
            if let Some(end) = end {
                if end < number {
                    errors.invalid(end_at, end, "must be greater than or equal to `port`");
                }
                validate_port_number(end, end_at, errors);
            }
        }
    }
}

fn validate_peer(peer: &Value, kept: &ToleratedValues<'_>, at: &Path<'_>, errors: &mut Errors) {
    let mut count = 0_usize;
    for name in ["podSelector", "namespaceSelector"] {
        if let Some(selector) = peer.optional(name) {
            count = count.saturating_add(1);
            meta::validate_selector(selector, kept.bad_selector_values, &at.child(name), errors);
        }
    }
    let block = peer.optional("ipBlock");
    if let Some(block) = block {
        validate_block(block, kept, &at.child("ipBlock"), errors);
    }
    match (count, block) {
        (0, None) => errors.required(*at, "must specify a peer"),
        (1.., Some(_)) => errors.forbidden(*at, "may not specify both ipBlock and another peer"),
        _ => {}
    }
}

fn validate_block(block: &Value, kept: &ToleratedValues<'_>, at: &Path<'_>, errors: &mut Errors) {
    let cidr = block.text("cidr");
    if cidr.is_empty() {
        return;
    }
    let validate = |text: &str, at: Path<'_>, errors: &mut Errors| {
        if !kept.ranges.contains(&text) {
            addresses::validate_range(text, at, errors);
        }
        addresses::parse_range(text)
    };
    let Some(network) = validate(cidr, at.child("cidr"), errors) else { return };
    let except = at.child("except");
    for (index, text) in block.texts("except").enumerate() {
        let Some((inner, _)) = validate(text, except.index(index), errors) else { continue };
        // Kubernetes compares the lengths as written, also where one address is IPv4 mapped into IPv6.
        if !addresses::contains(network, inner) || addresses::written_length(cidr) >= addresses::written_length(text) {
            errors.invalid(except.index(index), text, "must be a strict subset of `cidr`");
        }
    }
}
