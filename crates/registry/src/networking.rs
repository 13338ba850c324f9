//! Kinds of `networking.k8s.io`: ranges of services and addresses that are given out, whose names mean something; ingresses; policies.
//!
//! Follows `pkg/apis/networking/validation`.

pub(crate) mod ingress;
pub(crate) mod policy;
mod service_range;

use std::net::IpAddr;

use api::field::{Errors, Path};
use api::json::Value;
use api::names;

use crate::core::addresses;
use crate::document::same;
use crate::meta;
use crate::strategy::{PLAIN, Strategy};

pub(crate) use self::service_range::SERVICE_RANGE;

pub(crate) const ADDRESS: Strategy = Strategy {
    validate_create: |address, _, errors| {
        meta::validate(address, false, wrong_address, errors);
        validate_parent(address.field("spec"), Rules::Both, errors);
    },
    validate_update: |address, old, _, errors| {
        meta::validate(address, false, wrong_address, errors);
        let at = Path::new("spec.parentRef");
        let parent = |address: &Value| address.field("spec").field("parentRef").clone();
        let is_changed = !same(&parent(address), &parent(old));
        if is_changed && !parent(address).is_null() {
            // The declared rules stop at the change itself: what the written ones find inside remains.
            validate_parent(address.field("spec"), Rules::Written, errors);
        }
        meta::validate_update(address, old, errors);
        if is_changed {
            if parent(address).is_null() {
                errors.required(at, "");
            }
            // Kubernetes shows no value here.
            errors.invalid(at, Value::Null, meta::IMMUTABLE);
        }
    },
    ..PLAIN
};

/// The errors of an IPAddress whose name is not an address in canonical form.
fn wrong_address(name: &str) -> Vec<String> {
    let Some(address) = addresses::parse_sloppy(name) else {
        return vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()];
    };
    match name.parse::<IpAddr>() {
        Err(_) => vec!["must not have leading 0s".to_owned()],
        Ok(IpAddr::V6(it)) if it.to_ipv4_mapped().is_some() => {
            vec!["must not be an IPv4-mapped IPv6 address".to_owned()]
        }
        Ok(_) if address.to_string() != name => vec![format!("must be in canonical form (\"{address}\")")],
        Ok(_) => Vec::new(),
    }
}

/// Rules that apply to a parent; declared ones come behind the written ones.
#[derive(Clone, Copy, PartialEq)]
enum Rules {
    Written,
    Both,
}

fn validate_parent(spec: &Value, rules: Rules, errors: &mut Errors) {
    let at = Path::new("spec");
    let at = at.child("parentRef");
    let Some(parent) = spec.optional("parentRef") else {
        errors.required(at, "");
        return;
    };
    let group = parent.text("group");
    if !group.is_empty() {
        meta::invalid(names::dns1123_subdomain(group), group, at.child("group"), errors);
    }
    for field in ["resource", "name", "namespace"] {
        let text = parent.text(field);
        if !text.is_empty() {
            meta::invalid(names::path_segment(text), text, at.child(field), errors);
        } else if rules == Rules::Written && field != "namespace" {
            errors.required(at.child(field), "");
        }
    }
    for field in ["resource", "name"] {
        if rules == Rules::Both && parent.text(field).is_empty() {
            errors.required(at.child(field), "");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, complaint: &str) {
        assert_eq!(wrong_address(name).join(", "), complaint);
    }

    #[test]
    fn names_are_addresses_in_canonical_form() {
        check("10.0.0.1", "");
        check("fe80::1", "");
        check("not-an-ip", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)");
        check("10.0.0.01", "must not have leading 0s");
        check("::ffff:10.0.0.1", "must not be an IPv4-mapped IPv6 address");
        check("FE80::1", "must be in canonical form (\"fe80::1\")");
        check("fe80:0::1", "must be in canonical form (\"fe80::1\")");
    }
}
