//! The status of a ResourceClaim: allocation, consumers, and reports of drivers.

use std::collections::BTreeMap;

use api::field::{Errors, Path};
use api::json::Value;
use api::names;
use api::well_known::FINALIZER_RESOURCE_CLAIM;

use super::claim::Requests;
use super::{Findings, config, validate_binding_conditions, validate_driver, validate_pool_name, validate_toleration};
use crate::conditions;
use crate::core::addresses;
use crate::core::node_selector::{self, Cel};
use crate::core::pod::prepare;
use crate::document::{same, without_empty};
use crate::meta::{self, invalid};
use crate::seen::{SeenKeys, repeats};
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
        // Their uids are unique.
        let known: BTreeMap<&str, &Value> =
            old_status.list("reservedFor").iter().map(|it| (it.text("uid"), it)).collect();
        let is_new = |it: &Value| !known.get(it.text("uid")).is_some_and(|old| same(old, it));
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

/// The fields that identify a device, and a share of it.
fn identity(device: &Value) -> [&str; 4] {
    ["driver", "pool", "device", "shareID"].map(|name| device.text(name))
}

/// Restores the metadata, except for the finalizer that may be added together with an allocation.
///
/// Kubernetes: a write to the status changes no metadata, so that its scheduler needs two writes.
pub(super) fn reset_metadata(claim: &mut Value, old: &Value) {
    let has_devices = |claim: &Value| claim.field("status").has("allocation");
    let is_protected =
        |claim: &Value| claim.field("metadata").texts("finalizers").any(|it| it == FINALIZER_RESOURCE_CLAIM);
    let is_deleted = old.field("metadata").has("deletionTimestamp");
    let protects = has_devices(claim) && !has_devices(old) && is_protected(claim) && !is_protected(old) && !is_deleted;
    prepare::reset_metadata(claim, old);
    if protects {
        let metadata = claim.make("metadata");
        let mut finalizers = metadata.list("finalizers").to_vec();
        finalizers.push(FINALIZER_RESOURCE_CLAIM.into());
        metadata.set("finalizers", Value::Array(finalizers));
    }
}

/// The allocated devices.
fn allocated(status: &Value) -> SeenKeys<[&str; 4]> {
    status.field("allocation").field("devices").list("results").iter().map(identity).collect()
}

/// Drops reports of drivers about deallocated devices.
pub(super) fn drop_deallocated(claim: &mut Value, old: &Value) {
    let (after, before) = (allocated(claim.field("status")), allocated(old.field("status")));
    let devices = claim.field("status").list("devices");
    let is_kept = |device: &Value| !before.contains(&identity(device)) || after.contains(&identity(device));
    let kept: Vec<Value> = devices.iter().filter(|it| is_kept(it)).cloned().collect();
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
    let (allocated, devices) = (allocated(status), status.list("devices"));
    for (index, device) in devices.iter().enumerate() {
        let here = at.index(index);
        let name = device.text("device");
        let written = &mut findings.written;
        crate::core::volume_sources::validate_driver_name(device.text("driver"), here.child("driver"), written);
        validate_pool_name(device.text("pool"), here.child("pool"), written);
        invalid(names::dns1123_label(name), name, here.child("device"), written);
        if !allocated.contains(&identity(device)) {
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
    for (index, device) in repeats(devices.iter().map(identity)).filter_map(|index| Some((index, devices.get(index)?)))
    {
        findings.declared.duplicate(at.index(index), without_empty(device));
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
        check(&claim(FINALIZER_RESOURCE_CLAIM, &allocated), &claim("", &waiting), FINALIZER_RESOURCE_CLAIM);
        check(
            &claim(FINALIZER_RESOURCE_CLAIM, &allocated),
            &claim("other", &waiting),
            &format!("other {FINALIZER_RESOURCE_CLAIM}"),
        );
        check(
            &claim(&format!("mine {FINALIZER_RESOURCE_CLAIM}"), &allocated),
            &claim("", &waiting),
            FINALIZER_RESOURCE_CLAIM,
        );
        // Not without devices, not by itself, and not for a claim that has them already or is going away.
        check(&claim(FINALIZER_RESOURCE_CLAIM, &waiting), &claim("", &waiting), "");
        check(&claim("mine", &allocated), &claim("", &waiting), "");
        check(&claim(FINALIZER_RESOURCE_CLAIM, &allocated), &claim("", &allocated), "");
        let mut going = claim("other", &waiting);
        going.make("metadata").set("deletionTimestamp", "2030-01-01T00:00:00Z");
        check(&claim(FINALIZER_RESOURCE_CLAIM, &allocated), &going, "other");
    }

    #[test]
    fn driver_report_is_dropped_with_the_device() {
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
