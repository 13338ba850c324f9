//! Volumes in containers: mounts and devices.

use std::collections::BTreeMap;

use api::field::{Errors, Path};
use api::json::Value;

use super::volumes::{validate_descending_path, validate_no_backsteps};
use crate::seen::SeenKeys;

/// The mounts of a container.
pub(super) fn validate_mounts(container: &Value, volumes: &BTreeMap<&str, &Value>, at: &Path<'_>, errors: &mut Errors) {
    let devices = container.list("volumeDevices");
    let device_names: SeenKeys<&str> = devices.iter().map(|it| it.text("name")).collect();
    let device_paths: SeenKeys<&str> = devices.iter().map(|it| it.text("devicePath")).collect();
    let mut seen = SeenKeys::default();
    for (index, mount) in container.list("volumeMounts").iter().enumerate() {
        let here = at.index(index);
        let (name, path) = (mount.text("name"), mount.text("mountPath"));
        if name.is_empty() {
            errors.required(here.child("name"), "");
        }
        if !volumes.contains_key(name) {
            errors.not_found(here.child("name"), name);
        }
        if path.is_empty() {
            errors.required(here.child("mountPath"), "");
        }
        if seen.contains(&path) {
            errors.invalid(here.child("mountPath"), path, "must be unique");
        }
        seen.insert(path);
        if device_names.contains(&name) {
            errors.invalid(here.child("name"), name, "must not already exist in volumeDevices");
        }
        if device_paths.contains(&path) {
            errors.invalid(here.child("mountPath"), path, "must not already exist as a path in volumeDevices");
        }
        let (sub_path, expression) = (mount.text("subPath"), mount.text("subPathExpr"));
        if !sub_path.is_empty() {
            validate_descending_path(sub_path, at.child("subPath"), errors);
        }
        if !expression.is_empty() {
            if !sub_path.is_empty() {
                let detail = "subPathExpr and subPath are mutually exclusive";
                errors.invalid(here.child("subPathExpr"), expression, detail);
            }
            validate_descending_path(expression, at.child("subPathExpr"), errors);
        }
        validate_propagation(mount, container, at.child("mountPropagation"), errors);
        validate_recursive_read_only(mount, at.child("recursiveReadOnly"), errors);
    }
}

fn validate_propagation(mount: &Value, container: &Value, at: Path<'_>, errors: &mut Errors) {
    const MODES: &[&str] = &["Bidirectional", "HostToContainer", "None"];
    let Some(mode) = mount.optional_text("mountPropagation") else { return };
    if !MODES.contains(&mode) {
        errors.not_supported(at, mode, MODES);
    }
    if mode == "Bidirectional" && !container.field("securityContext").flag("privileged") {
        errors.forbidden(at, "Bidirectional mount propagation is available only to privileged containers");
    }
}

fn validate_recursive_read_only(mount: &Value, at: Path<'_>, errors: &mut Errors) {
    match mount.optional_text("recursiveReadOnly") {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            if !mount.flag("readOnly") {
                errors.forbidden(at, "may only be specified when readOnly is true");
            }
            if mount.optional_text("mountPropagation").is_some_and(|it| it != "None") {
                errors.forbidden(at, "may only be specified when mountPropagation is None or not specified");
            }
        }
        Some(other) => errors.not_supported(at, other, &["Disabled", "Enabled", "IfPossible"]),
    }
}

/// The block devices of a container.
pub(super) fn validate_devices(
    container: &Value,
    volumes: &BTreeMap<&str, &Value>,
    at: &Path<'_>,
    errors: &mut Errors,
) {
    let mounts = container.list("volumeMounts");
    let mount_names: SeenKeys<&str> = mounts.iter().map(|it| it.text("name")).collect();
    let mount_paths: SeenKeys<&str> = mounts.iter().map(|it| it.text("mountPath")).collect();
    let (mut seen_names, mut seen_paths): (SeenKeys<&str>, SeenKeys<&str>) = (SeenKeys::default(), SeenKeys::default());
    for (index, device) in container.list("volumeDevices").iter().enumerate() {
        let here = at.index(index);
        let (name, path) = (device.text("name"), device.text("devicePath"));
        let volume = volumes.get(name);
        if name.is_empty() {
            errors.required(here.child("name"), "");
        }
        if seen_names.contains(&name) {
            errors.invalid(here.child("name"), name, "must be unique");
        }
        match volume {
            Some(it) if !it.has("persistentVolumeClaim") && !it.has("ephemeral") => {
                let detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                errors.invalid(here.child("name"), name, detail);
            }
            Some(_) => {}
            None => errors.not_found(here.child("name"), name),
        }
        if path.is_empty() {
            errors.required(here.child("devicePath"), "");
        }
        if seen_paths.contains(&path) {
            errors.invalid(here.child("devicePath"), path, "must be unique");
        }
        let mut backsteps = Errors::new();
        validate_no_backsteps(path, Path::NIL, &mut backsteps);
        if backsteps.is_empty() {
            seen_paths.insert(path);
        } else {
            errors.invalid(here.child("devicePath"), path, "can not contain backsteps ('..')");
        }
        if mount_names.contains(&name) {
            errors.invalid(here.child("name"), name, "must not already exist in volumeMounts");
        }
        if mount_paths.contains(&path) {
            errors.invalid(here.child("devicePath"), path, "must not already exist as a path in volumeMounts");
        }
        if !name.is_empty() {
            seen_names.insert(name);
        }
    }
}
