//! The status of a ResourceClaim: what was allocated, for whom, and what drivers say.

use api::field::{Errors, Path};
use api::json::Value;
use api::names;

use super::claim::Requests;
use super::{Findings, config, validate_binding_conditions, validate_driver, validate_pool_name, validate_toleration};
use crate::conditions;
use crate::core::addresses;
use crate::core::node_selector::{self, Cel};
use crate::core::pod::prepare;
use crate::document::{Edit, Read, same, without_empty};
use crate::meta::{self, invalid};
use crate::strategy::Context;

const MAX_CONDITIONS: usize = 8;
const MAX_INTERFACE_NAME: usize = 256;
const MAX_HARDWARE_ADDRESS: usize = 128;
const MAX_ADDRESSES: usize = 16;

pub(super) fn validate(claim: &Value, old: &Value, _: &Context<'_>, errors: &mut Errors) {
    meta::validate_update(claim, old, errors);
    let mut findings = Findings::default();
    let (status, old_status, at) = (claim.field("status"), old.field("status"), Path::new("status"));
    let requests = Requests::new(claim.field("spec"));
    validate_consumers(status, &at.child("reservedFor"), &mut findings);
    validate_devices(status, &at.child("devices"), &mut findings);
    if !status.list("reservedFor").is_empty() {
        let here = at.child("reservedFor");
        let is_deleted = claim.field("metadata").has("deletionTimestamp");
        let is_new = |it: &Value| !old_status.list("reservedFor").iter().any(|old| same(old, it));
        if !status.has("allocation") {
            findings.written.forbidden(here, "may not be specified when `allocated` is not set");
        } else if is_deleted && status.list("reservedFor").iter().any(is_new) {
            let detail = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
            findings.written.forbidden(here, detail);
        }
    }
    match (status.optional("allocation"), old_status.optional("allocation")) {
        (Some(new), Some(old)) => {
            if !same(new, old) {
                findings.declared.invalid(at.child("allocation"), Value::Null, "field cannot be modified once set");
            }
        }
        (Some(allocation), None) => validate_allocation(allocation, &requests, &at.child("allocation"), &mut findings),
        (None, _) => {}
    }
    findings.finish(errors);
}

/// What names a device, and a share of it.
const NAMES: &[&str] = &["driver", "pool", "device", "shareID"];

fn is_same_device(left: &Value, right: &Value) -> bool {
    NAMES.iter().all(|name| left.text(name) == right.text(name))
}

/// Keeps a claim from being deleted while it has devices.
const PROTECTION: &str = "resource.kubernetes.io/delete-protection";

/// Keeps the metadata as it was, but for the finalizer that a claim may get in the write in which it gets devices.
///
/// Kubernetes: a write to the status changes no metadata, so that its scheduler needs two writes.
pub(super) fn reset_metadata(claim: &mut Value, old: &Value) {
    let has_devices = |claim: &Value| claim.field("status").has("allocation");
    let is_protected = |claim: &Value| claim.field("metadata").texts("finalizers").any(|it| it == PROTECTION);
    let is_deleted = old.field("metadata").has("deletionTimestamp");
    let protects = has_devices(claim) && !has_devices(old) && is_protected(claim) && !is_protected(old) && !is_deleted;
    prepare::reset_metadata(claim, old);
    if protects {
        let metadata = claim.make("metadata");
        let mut finalizers = metadata.list("finalizers").to_vec();
        finalizers.push(PROTECTION.into());
        metadata.set("finalizers", Value::Array(finalizers));
    }
}

/// What drivers say of devices goes with the devices.
pub(super) fn drop_deallocated(claim: &mut Value, old: &Value) {
    let results = |claim: &Value| claim.field("status").field("allocation").field("devices").list("results").to_vec();
    let (after, before) = (results(claim), results(old));
    let is_in = |list: &[Value], device: &Value| list.iter().any(|it| is_same_device(it, device));
    let devices = claim.field("status").list("devices");
    let kept: Vec<Value> = devices.iter().filter(|it| !is_in(&before, it) || is_in(&after, it)).cloned().collect();
    if kept.len() == devices.len() {
        return;
    }
    let status = claim.make("status");
    if kept.is_empty() {
        status.unset("devices");
    } else {
        status.set("devices", Value::Array(kept));
    }
}

fn validate_consumers(status: &Value, at: &Path<'_>, findings: &mut Findings) {
    let consumers = status.list("reservedFor");
    if !findings.fits(consumers, 256, *at) {
        return;
    }
    findings.unique(consumers, at, |it| it.text("uid"));
    for (index, consumer) in consumers.iter().enumerate() {
        for name in ["resource", "name", "uid"] {
            if consumer.text(name).is_empty() {
                findings.written.required(at.index(index).child(name), "");
            }
        }
    }
}

fn validate_devices(status: &Value, at: &Path<'_>, findings: &mut Findings) {
    let results = status.field("allocation").field("devices").list("results");
    let devices = status.list("devices");
    for (index, device) in devices.iter().enumerate() {
        let here = at.index(index);
        let name = device.text("device");
        let written = &mut findings.written;
        crate::core::volume_sources::validate_driver_name(device.text("driver"), here.child("driver"), written);
        validate_pool_name(device.text("pool"), here.child("pool"), written);
        invalid(names::dns1123_label(name), name, here.child("device"), written);
        if !results.iter().any(|it| is_same_device(it, device)) {
            let shown = api::json!({
                "Driver": (device.text("driver")),
                "Pool": (device.text("pool")),
                "Device": name,
                "ShareID": (device.text("shareID"))
            });
            written.invalid(here, shown, "must be an allocated device in the claim");
        }
        let conditions = device.list("conditions");
        if conditions.len() > MAX_CONDITIONS {
            written.too_many(here.child("conditions"), Some(conditions.len()), MAX_CONDITIONS);
        }
        conditions::validate(conditions, &here.child("conditions"), written);
        if device.has("data") {
            config::validate_raw(device.field("data"), false, here.child("data"), written);
        }
        let (network, list) = (device.field("networkData"), here.child("networkData"));
        let list = list.child("ips");
        for (index, address) in network.texts("ips").enumerate() {
            addresses::validate_interface(address, list.index(index), written);
        }
    }
    // Declared rules come behind, lists before what is in them.
    for (index, device) in devices.iter().enumerate() {
        if devices.iter().take(index).any(|it| is_same_device(it, device)) {
            findings.declared.duplicate(at.index(index), without_empty(device));
        }
    }
    for (index, device) in devices.iter().enumerate() {
        let here = at.index(index);
        if let Some(id) = device.optional_text("shareID") {
            validate_uuid(id, here.child("shareID"), &mut findings.declared);
        }
        if let Some(data) = device.optional("networkData") {
            validate_network_data(data, &here.child("networkData"), findings);
        }
    }
}

fn validate_network_data(data: &Value, at: &Path<'_>, findings: &mut Findings) {
    if data.text("interfaceName").len() > MAX_INTERFACE_NAME {
        findings.declared.too_long(at.child("interfaceName"), MAX_INTERFACE_NAME);
    }
    let (addresses, list) = (data.list("ips"), at.child("ips"));
    if findings.fits(addresses, MAX_ADDRESSES, list) {
        findings.unique(addresses, &list, |it| it.as_str().unwrap_or_default());
    }
    if data.text("hardwareAddress").len() > MAX_HARDWARE_ADDRESS {
        findings.declared.too_long(at.child("hardwareAddress"), MAX_HARDWARE_ADDRESS);
    }
}

fn validate_uuid(id: &str, at: Path<'_>, errors: &mut Errors) {
    let is_uuid = id.len() == 36
        && id.bytes().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        });
    if !is_uuid {
        errors.invalid(at, id, "must be a lowercase UUID in 8-4-4-4-12 format");
    }
}

fn validate_allocation(allocation: &Value, requests: &Requests<'_>, at: &Path<'_>, findings: &mut Findings) {
    let (devices, here) = (allocation.field("devices"), at.child("devices"));
    let list = here.child("results");
    if findings.fits(devices.list("results"), 32, list) {
        for (index, result) in devices.list("results").iter().enumerate() {
            validate_result(result, requests, &list.index(index), findings);
        }
    }
    let list = here.child("config");
    if findings.fits(devices.list("config"), 64, list) {
        for (index, item) in devices.list("config").iter().enumerate() {
            let here = list.index(index);
            match item.text("source") {
                "FromClass" | "FromClaim" => {}
                "" => findings.declared.required(here.child("source"), ""),
                other => findings.declared.not_supported(here.child("source"), other, &["FromClaim", "FromClass"]),
            }
            requests.validate_list(item.list("requests"), here.child("requests"), findings);
            config::validate(item, false, &here, findings);
        }
    }
    if let Some(selector) = allocation.optional("nodeSelector") {
        let rules = node_selector::Rules { allow_bad_values: false, allow_semver: false, cel: Cel::Never };
        node_selector::validate(selector, rules, &at.child("nodeSelector"), &mut findings.written);
    }
}

fn validate_result(result: &Value, requests: &Requests<'_>, at: &Path<'_>, findings: &mut Findings) {
    requests.validate(result.text("request"), at.child("request"), &mut findings.written);
    validate_driver(result.text("driver"), at.child("driver"), &mut findings.declared);
    validate_pool_name(result.text("pool"), at.child("pool"), &mut findings.declared);
    let device = result.text("device");
    invalid(names::dns1123_label(device), device, at.child("device"), &mut findings.written);
    validate_binding_conditions(result, at, findings);
    let list = at.child("tolerations");
    for (index, toleration) in result.list("tolerations").iter().enumerate() {
        validate_toleration(toleration, &list.index(index), findings);
    }
    if let Some(id) = result.optional_text("shareID") {
        validate_uuid(id, at.child("shareID"), &mut findings.declared);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_finalizer_that_protects_devices_comes_with_them() {
        let allocated = api::json!({"allocation": {}});
        let claim = |finalizers: &str, status: &Value| {
            let finalizers = Value::Array(finalizers.split_terminator(' ').map(Value::from).collect());
            api::json!({"metadata": {"finalizers": finalizers}, "status": (status.clone())})
        };
        let check = |new: &Value, old: &Value, expected: &str| {
            let mut claim = new.clone();
            reset_metadata(&mut claim, old);
            let finalizers: Vec<&str> = claim.field("metadata").texts("finalizers").collect();
            assert_eq!(finalizers.join(" "), expected);
        };
        let waiting = Value::object();
        check(&claim(PROTECTION, &allocated), &claim("", &waiting), PROTECTION);
        check(&claim(PROTECTION, &allocated), &claim("other", &waiting), &format!("other {PROTECTION}"));
        check(&claim(&format!("mine {PROTECTION}"), &allocated), &claim("", &waiting), PROTECTION);
        // Not without devices, not by itself, and not for a claim that has them already or is going away.
        check(&claim(PROTECTION, &waiting), &claim("", &waiting), "");
        check(&claim("mine", &allocated), &claim("", &waiting), "");
        check(&claim(PROTECTION, &allocated), &claim("", &allocated), "");
        let mut going = claim("other", &waiting);
        going.make("metadata").set("deletionTimestamp", "2030-01-01T00:00:00Z");
        check(&claim(PROTECTION, &allocated), &going, "other");
    }

    #[test]
    fn what_a_driver_said_goes_with_the_device() {
        let device = |name: &str| api::json!({"driver": "d", "pool": "p", "device": name});
        let claim = |allocated: &[&str], said: &[&str]| {
            let list = |names: &[&str]| Value::Array(names.iter().map(|name| device(name)).collect());
            api::json!({"status": {"allocation": {"devices": {"results": (list(allocated))}}, "devices": (list(said))}})
        };
        let after = |mut new: Value, old: &Value| {
            drop_deallocated(&mut new, old);
            new.field("status").list("devices").iter().map(|it| it.text("device").to_owned()).collect::<Vec<_>>()
        };
        let old = claim(&["a", "b"], &["a", "b"]);
        assert_eq!(after(claim(&["a", "b"], &["a", "b"]), &old), ["a", "b"]);
        assert_eq!(after(claim(&[], &["a", "b"]), &old), [""; 0]);
        // A device that was never there stays, and is refused.
        assert_eq!(after(claim(&["a"], &["a", "b", "x"]), &old), ["a", "x"]);
    }
}
