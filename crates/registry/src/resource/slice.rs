//! ResourceSlices: the devices that a driver offers.

use std::cmp::Ordering;

use api::Quantity;
use api::field::{BadValue, Errors, Path};
use api::json::Value;
use api::names;
use api::semver::Version;

use super::{Findings, TAINT_EFFECTS, validate_binding_conditions, validate_pool_name, validate_qualified_name};
use crate::core::node_selector::{self, Cel};
use crate::core::pod::prepare::count_generation;
use crate::core::volume_sources::validate_driver_name;
use crate::document::same;
use crate::meta::{self, IMMUTABLE, invalid, validate_label_name};
use crate::render;
use crate::strategy::{PLAIN, Strategy};

const RULES: node_selector::Rules<'static> =
    node_selector::Rules { allow_bad_values: false, allow_semver: false, cel: Cel::Never };

pub(crate) const RESOURCE_SLICE: Strategy = Strategy {
    prepare_create: |slice, _| {
        slice.make("metadata").set("generation", 1_i64);
        drop_disabled_fields(slice.make("spec"));
    },
    validate_create: |slice, _, errors| {
        meta::validate(slice, false, names::dns1123_subdomain, errors);
        validate_spec(slice.field("spec"), None, errors);
    },
    prepare_update: |slice, old, _| {
        drop_disabled_fields(slice.make("spec"));
        count_generation(slice, old);
    },
    validate_update: |slice, old, _, errors| {
        meta::validate_update(slice, old, errors);
        validate_spec(slice.field("spec"), Some(old.field("spec")), errors);
    },
    ..PLAIN
};

/// Drops what belongs to upstream features that are off here.
fn drop_disabled_fields(spec: &mut Value) {
    for name in ["partitionTypeAttribute", "skipNodeOperations"] {
        spec.unset(name);
    }
    for device in spec.list_mut("devices") {
        device.unset("nodeAllocatableResources");
        if let Some(attributes) = device.get_mut("attributes").and_then(Value::as_object_mut) {
            for attribute in attributes.values_mut() {
                for name in ["ints", "bools", "strings", "versions"] {
                    attribute.unset(name);
                }
            }
        }
    }
}

fn validate_spec(spec: &Value, old: Option<&Value>, errors: &mut Errors) {
    let at = Path::new("spec");
    let mut findings = Findings::default();
    let written = &mut findings.written;
    validate_driver_name(spec.text("driver"), at.child("driver"), written);
    let (pool, here) = (spec.field("pool"), at.child("pool"));
    validate_pool_name(pool.text("name"), here.child("name"), written);
    if pool.int("resourceSliceCount") <= 0 {
        let count = pool.int("resourceSliceCount");
        written.invalid(here.child("resourceSliceCount"), count, "must be greater than zero");
    }
    if pool.int("generation") < 0 {
        written.invalid(here.child("generation"), pool.int("generation"), "must be greater than or equal to zero");
    }
    if let Some(old) = old {
        if pool.text("name") != old.field("pool").text("name") {
            written.invalid(here.child("name"), pool.text("name"), IMMUTABLE);
        }
        for name in ["driver", "nodeName"] {
            if spec.field(name) != old.field(name) {
                written.invalid(at.child(name), spec.field(name).clone(), IMMUTABLE);
            }
        }
    }
    validate_nodes(spec, &at, written);
    if spec.has("sharedCounters") && spec.has("devices") {
        written.invalid(at, "", "only one of `sharedCounters` or `devices` is allowed");
    }
    validate_devices(spec, old, &at.child("devices"), &mut findings);
    validate_counter_sets(spec.list("sharedCounters"), &at.child("sharedCounters"), &mut findings);
    findings.finish(errors);
}

/// Validates the node selection: exactly one form is required.
fn validate_nodes(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    const DETAIL: &str = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    let mut set: Vec<&str> = Vec::new();
    match spec.optional_text("nodeName") {
        Some("") => {
            let detail = "must be either unset or set to a non-empty string";
            errors.invalid(at.child("nodeName"), "", detail);
        }
        Some(name) => {
            set.push("`nodeName`");
            invalid(names::dns1123_subdomain(name), name, at.child("nodeName"), errors);
        }
        None => {}
    }
    if let Some(selector) = spec.optional("nodeSelector") {
        set.push("`nodeSelector`");
        let here = at.child("nodeSelector");
        node_selector::validate(selector, RULES, &here, errors);
        let terms = selector.list("nodeSelectorTerms");
        if terms.len() != 1 {
            let shown = match selector.field("nodeSelectorTerms") {
                Value::Null => BadValue::Rendered("null".to_owned()),
                _ => render::list("k8s.io/api/core/v1", "NodeSelectorTerm", terms),
            };
            errors.invalid(here.child("nodeSelectorTerms"), shown, "must have exactly one node selector term");
        }
    }
    for (name, shown) in [("allNodes", "`allNodes`"), ("perDeviceNodeSelection", "`perDeviceNodeSelection`")] {
        match spec.optional_flag(name) {
            Some(true) => set.push(shown),
            Some(false) => errors.invalid(at.child(name), false, "must be either unset or set to true"),
            None => {}
        }
    }
    match set.as_slice() {
        [] => errors.required(*at, DETAIL),
        [_] => {}
        several => {
            let shown = format!("{{{}}}", several.join(", "));
            errors.invalid(*at, shown, format!("{DETAIL}, but multiple fields are set"));
        }
    }
}

fn validate_devices(spec: &Value, old: Option<&Value>, at: &Path<'_>, findings: &mut Findings) {
    let devices = spec.list("devices");
    let is_advanced = |it: &Value| !it.list("taints").is_empty() || !it.list("consumesCounters").is_empty();
    let max = if devices.iter().any(is_advanced) { 64 } else { 128 };
    if devices.len() > max {
        findings.written.too_many(*at, Some(devices.len()), max);
        return;
    }
    let per_device = spec.flag("perDeviceNodeSelection");
    for (index, device) in devices.iter().enumerate() {
        let name = device.text("name");
        let old = old.and_then(|old| old.list("devices").iter().find(|it| it.text("name") == name));
        validate_device(device, old, per_device, &at.index(index), findings);
    }
    for index in crate::seen::repeats(devices.iter().map(|it| it.text("name"))) {
        findings.written.duplicate(at.index(index), devices.get(index).map_or("", |it| it.text("name")));
    }
}

fn validate_device(device: &Value, old: Option<&Value>, per_device: bool, at: &Path<'_>, findings: &mut Findings) {
    let name = device.text("name");
    invalid(names::dns1123_label(name), name, at.child("name"), &mut findings.written);
    let (attributes, capacity) = (device.map("attributes"), device.map("capacity"));
    let count = attributes.len().saturating_add(capacity.len());
    if count > 32 {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let detail = "the total number of attributes and capacities must not exceed 32";
        findings.written.invalid(*at, count, detail);
    }
    let here = at.child("attributes");
    for (key, attribute) in attributes.iter() {
        validate_qualified_name(key, false, here, &mut findings.written);
        validate_attribute(attribute, &here.key(key), findings);
    }
    if old.is_none_or(|old| !same(old.field("capacity"), device.field("capacity"))) {
        let here = at.child("capacity");
        let is_shared = device.flag("allowMultipleAllocations");
        for (key, capacity) in device.map("capacity").iter() {
            validate_qualified_name(key, false, here, &mut findings.written);
            if let Some(policy) = capacity.optional("requestPolicy") {
                let here = here.key(key);
                let here = here.child("requestPolicy");
                if is_shared {
                    validate_policy(capacity.field("value"), policy, &here, &mut findings.written);
                } else {
                    findings.written.forbidden(here, "allowMultipleAllocations must be true");
                }
            }
        }
    }
    validate_taints(device, old, &at.child("taints"), findings);
    validate_consumption(device.list("consumesCounters"), &at.child("consumesCounters"), findings);
    validate_device_nodes(device, per_device, at, &mut findings.written);
    validate_binding_conditions(device, at, findings);
}

fn validate_attribute(attribute: &Value, at: &Path<'_>, findings: &mut Findings) {
    const NAMES: &[&str] = &["int", "bool", "string", "version", "ints", "bools", "strings", "versions"];
    if let Some(text) = attribute.optional_text("string")
        && text.len() > 64
    {
        findings.written.too_long(at.child("string"), 64);
    }
    if let Some(text) = attribute.optional_text("version") {
        if Version::parse(text).is_err() {
            let detail = "must be a string compatible with semver.org spec 2.0.0";
            findings.written.invalid(at.child("version"), text, detail);
        }
        if text.len() > 64 {
            findings.written.too_long(at.child("version"), 64);
        }
    }
    // Empty lists do not count.
    let is_set = |value: &Value| value.as_array().map_or(!value.is_null(), |items| !items.is_empty());
    let quoted = NAMES.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let set: Vec<&str> = NAMES.iter().copied().filter(|name| is_set(attribute.field(name))).collect();
    match set.as_slice() {
        [] => findings.declared.invalid(*at, "", format!("must specify one of: {quoted}")),
        [_] => {}
        several => {
            let detail = format!("must specify exactly one of: {quoted}");
            findings.declared.invalid(*at, format!("{{{}}}", several.join(", ")), detail);
        }
    }
}

fn validate_taints(device: &Value, old: Option<&Value>, at: &Path<'_>, findings: &mut Findings) {
    let taints = device.list("taints");
    if old.is_none_or(|old| !same(old.field("taints"), device.field("taints"))) {
        if taints.len() > 16 {
            findings.written.too_many(*at, Some(taints.len()), 16);
            return;
        }
        for (index, taint) in taints.iter().enumerate() {
            let here = at.index(index);
            validate_label_name(taint.text("key"), here.child("key"), &mut findings.written);
            let value = taint.text("value");
            invalid(names::label_value(value), value, here.child("value"), &mut findings.written);
        }
    }
    for (index, taint) in taints.iter().enumerate() {
        let here = at.index(index);
        let effect = taint.text("effect");
        if effect.is_empty() {
            findings.declared.required(here.child("effect"), "");
        } else if !TAINT_EFFECTS.contains(&effect) {
            findings.declared.not_supported(here.child("effect"), effect, TAINT_EFFECTS);
        }
    }
}

fn validate_consumption(list: &[Value], at: &Path<'_>, findings: &mut Findings) {
    if !findings.fits(list, 2, *at) {
        return;
    }
    findings.unique(list, at, |it| it.text("counterSet"));
    for (index, consumption) in list.iter().enumerate() {
        let here = at.index(index);
        validate_counter_name(consumption.text("counterSet"), here.child("counterSet"), findings);
        validate_counters(consumption, here.child("counters"), findings);
    }
}

fn validate_counter_sets(list: &[Value], at: &Path<'_>, findings: &mut Findings) {
    if !findings.fits(list, 8, *at) {
        return;
    }
    findings.unique(list, at, |it| it.text("name"));
    for (index, set) in list.iter().enumerate() {
        let here = at.index(index);
        validate_counter_name(set.text("name"), here.child("name"), findings);
        validate_counters(set, here.child("counters"), findings);
    }
}

fn validate_counter_name(name: &str, at: Path<'_>, findings: &mut Findings) {
    if name.is_empty() {
        findings.declared.required(at, "");
    } else {
        invalid(names::dns1123_label(name), name, at, &mut findings.declared);
    }
}

fn validate_counters(set: &Value, at: Path<'_>, findings: &mut Findings) {
    let counters = set.map("counters");
    if counters.is_empty() {
        findings.declared.required(at, "");
        return;
    }
    if counters.len() > 32 {
        findings.written.too_many(at, Some(counters.len()), 32);
        return;
    }
    for name in counters.keys() {
        invalid(names::dns1123_label(name), name, at, &mut findings.declared);
    }
}

fn validate_device_nodes(device: &Value, per_device: bool, at: &Path<'_>, errors: &mut Errors) {
    const DETAIL: &str = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    if !per_device {
        if ["nodeName", "nodeSelector", "allNodes"].iter().any(|name| device.has(name)) {
            let detail = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
            errors.invalid(*at, Value::Null, detail);
        }
        return;
    }
    let mut set: Vec<&str> = Vec::new();
    match device.optional_text("nodeName") {
        Some("") => errors.invalid(at.child("nodeName"), "", "must not be empty"),
        Some(name) => {
            set.push("`nodeName`");
            invalid(names::dns1123_subdomain(name), name, at.child("nodeName"), errors);
        }
        None => {}
    }
    if let Some(selector) = device.optional("nodeSelector") {
        set.push("`nodeSelector`");
        node_selector::validate(selector, RULES, &at.child("nodeSelector"), errors);
    }
    match device.optional_flag("allNodes") {
        Some(true) => set.push("`allNodes`"),
        Some(false) => errors.invalid(at.child("allNodes"), false, "must be either unset or set to true"),
        None => {}
    }
    match set.as_slice() {
        [] => errors.required(*at, DETAIL),
        [_] => {}
        several => errors.invalid(*at, format!("{{{}}}", several.join(", ")), DETAIL),
    }
}

/// Validates the policy for requests of a shared capacity.
fn validate_policy(value: &Value, policy: &Value, at: &Path<'_>, errors: &mut Errors) {
    let (values, range) = (policy.list("validValues"), policy.optional("validRange"));
    if !values.is_empty() && range.is_some() {
        let detail =
            "exactly one policy can be specified, cannot specify \"validValues\" and \"validRange\" at the same time";
        errors.forbidden(*at, detail);
        return;
    }
    let Some(max) = value.as_quantity() else { return };
    let default = policy.quantity("default");
    if !values.is_empty() {
        match default {
            None => errors.required(at.child("default"), "required when validValues is defined"),
            Some(default) => validate_values(&default, &max, values, &at.child("validValues"), errors),
        }
    } else if let Some(range) = range {
        match default {
            None => errors.required(at.child("default"), "required when validRange is defined"),
            Some(default) => validate_range(&default, &max, range, &at.child("validRange"), errors),
        }
    }
}

fn validate_values(default: &Quantity, max: &Quantity, values: &[Value], at: &Path<'_>, errors: &mut Errors) {
    let values: Vec<Quantity> = values.iter().filter_map(Value::as_quantity).collect();
    for (index, pair) in values.windows(2).enumerate() {
        if let [left, right] = pair
            && left.cmp(right) == Ordering::Greater
        {
            let here = at.index(index.saturating_add(1));
            errors.invalid(here, right.to_string(), "values must be sorted in ascending order");
        }
    }
    if values.len() > 10 {
        errors.too_many(*at, Some(values.len()), 10);
        return;
    }
    for (index, value) in values.iter().enumerate() {
        if value.cmp(max) == Ordering::Greater {
            let detail = format!("option is larger than capacity value: {max}");
            errors.invalid(at.index(index), value.to_string(), detail);
        }
    }
    for (index, value) in values.iter().enumerate() {
        if values.iter().take(index).any(|it| it.value() == value.value()) {
            errors.duplicate(at.index(index), value.value().to_string());
        }
    }
    if !values.iter().any(|it| it.cmp(default) == Ordering::Equal) {
        errors.invalid(*at, default.to_string(), "default value is not valid according to the requestPolicy");
    }
}

fn validate_range(default: &Quantity, capacity: &Quantity, range: &Value, at: &Path<'_>, errors: &mut Errors) {
    let Some(min) = range.quantity("min") else {
        errors.required(at.child("min"), "required when validRange is defined");
        return;
    };
    let is_more = |left: &Quantity, right: &Quantity| left.cmp(right) == Ordering::Greater;
    if is_more(&min, capacity) {
        let detail = format!("min is larger than capacity value: {capacity}");
        errors.invalid(at.child("min"), min.to_string(), detail);
    }
    if is_more(&min, default) {
        errors.invalid(at.child("default"), default.to_string(), format!("default is less than min: {min}"));
    }
    let max = range.quantity("max");
    if let Some(max) = &max {
        if is_more(&min, max) {
            errors.invalid(at.child("max"), min.to_string(), format!("min is larger than max: {max}"));
        }
        if is_more(max, capacity) {
            let detail = format!("max is larger than capacity value: {capacity}");
            errors.invalid(at.child("max"), max.to_string(), detail);
        }
        if is_more(default, max) {
            errors.invalid(at.child("default"), default.to_string(), format!("default is more than max: {max}"));
        }
    }
    let Some(step) = range.quantity("step") else { return };
    if step.sign() <= 0 {
        errors.invalid(at.child("step"), step.to_string(), "must be greater than zero");
        return;
    }
    let mut added = min.clone();
    added.add(&step);
    if is_more(&added, capacity) {
        let detail = format!("one step {added} is larger than capacity value: {capacity}");
        errors.invalid(at.child("step"), step.to_string(), detail);
    }
    for value in [Some(default), max.as_ref()].into_iter().flatten() {
        let distance = value.value().wrapping_sub(min.value());
        if distance.checked_rem(step.value()).is_some_and(|rest| rest != 0) {
            let detail = format!("value is not a multiple of a given step ({step}) from ({min})");
            errors.invalid(at.child("step"), value.to_string(), detail);
        }
    }
}
