//! Volumes of pods.
//!
//! Follows `ValidateVolumes` and `validateVolumeSource`; sources that PersistentVolumes have too are in
//! [`volume_sources`](crate::core::volume_sources).

use std::collections::BTreeMap;

use api::field::{Errors, Path};
use api::json::Value;
use api::names;

use super::options::Options;
use super::{env, projections};
use crate::core::{volume_claim, volume_sources};
use crate::meta::invalid;
use crate::seen::SeenKeys;

/// Kinds of sources in the order in which they are validated: field, path of errors inside, path if there are
/// several.
const SOURCES: &[(&str, &str, &str)] = &[
    ("emptyDir", "emptyDir", "emptyDir"),
    ("hostPath", "hostPath", "hostPath"),
    ("gitRepo", "gitRepo", "gitRepo"),
    ("gcePersistentDisk", "persistentDisk", "gcePersistentDisk"),
    ("awsElasticBlockStore", "awsElasticBlockStore", "awsElasticBlockStore"),
    ("secret", "secret", "secret"),
    ("nfs", "nfs", "nfs"),
    ("iscsi", "iscsi", "iscsi"),
    ("glusterfs", "glusterfs", "glusterfs"),
    ("flocker", "flocker", "flocker"),
    ("persistentVolumeClaim", "persistentVolumeClaim", "persistentVolumeClaim"),
    ("rbd", "rbd", "rbd"),
    ("cinder", "cinder", "cinder"),
    ("cephfs", "cephfs", "cephFS"),
    ("quobyte", "quobyte", "quobyte"),
    ("downwardAPI", "downwardAPI", "downwarAPI"),
    ("fc", "fc", "fc"),
    ("flexVolume", "flexVolume", "flexVolume"),
    ("configMap", "configMap", "configMap"),
    ("azureFile", "azureFile", "azureFile"),
    ("vsphereVolume", "vsphereVolume", "vsphereVolume"),
    ("photonPersistentDisk", "photonPersistentDisk", "photonPersistentDisk"),
    ("portworxVolume", "portworxVolume", "portworxVolume"),
    ("azureDisk", "azureDisk", "azureDisk"),
    ("storageos", "storageos", "storageos"),
    ("projected", "projected", "projected"),
    ("scaleIO", "scaleIO", "scaleIO"),
    ("csi", "csi", "csi"),
    ("ephemeral", "ephemeral", "ephemeral"),
    ("image", "image", "image"),
];

const BAD_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

/// Validates the volumes and gives back those that containers may refer to, by name.
pub(super) fn validate<'a>(
    volumes: &'a [Value],
    pod_name: &str,
    options: &Options<'_>,
    at: &Path<'_>,
    errors: &mut Errors,
) -> BTreeMap<&'a str, &'a Value> {
    let ephemeral = volumes.iter().filter(|it| it.has("ephemeral") && !pod_name.is_empty());
    let created: SeenKeys<String> = ephemeral.map(|it| format!("{pod_name}-{}", it.text("name"))).collect();
    let mut valid: BTreeMap<&str, &Value> = BTreeMap::new();
    for (index, volume) in volumes.iter().enumerate() {
        let here = at.index(index);
        let before = errors.len();
        validate_source(volume, pod_name, options, &here, errors);
        let name = volume.text("name");
        if name.is_empty() {
            errors.required(here.child("name"), "");
        } else {
            invalid(names::dns1123_label(name), name, here.child("name"), errors);
        }
        if valid.contains_key(name) {
            errors.duplicate(here.child("name"), name);
        }
        if errors.len() == before {
            valid.insert(name, volume);
        }
        if let Some(claim) = volume.optional("persistentVolumeClaim") {
            let name = claim.text("claimName");
            if created.contains(&name.to_owned()) {
                let detail = "must not reference a PVC that gets created for an ephemeral volume";
                errors.invalid(here.child("persistentVolumeClaim").child("claimName"), name, detail);
            }
        }
    }
    valid
}

fn validate_source(volume: &Value, pod_name: &str, options: &Options<'_>, at: &Path<'_>, errors: &mut Errors) {
    let mut count = 0_usize;
    for (kind, inside, several) in SOURCES {
        let Some(source) = volume.optional(kind) else { continue };
        if count > 0 {
            errors.forbidden(at.child(several), "may not specify more than 1 volume type");
        } else {
            count = 1;
            validate_one(kind, source, volume.text("name"), pod_name, options, &at.child(inside), at, errors);
        }
        if *kind == "iscsi" && source.has("initiatorName") {
            let name = volume.text("name");
            if name.len().saturating_add(source.text("targetPortal").len()) >= 64 {
                errors.invalid(at.child("name"), name, volume_sources::TOO_LONG);
            }
        }
    }
    if count == 0 {
        errors.required(*at, "must specify a volume type");
    }
}

#[expect(clippy::too_many_arguments, reason = "two paths: of the source and of the volume")]
fn validate_one(
    kind: &str,
    source: &Value,
    name: &str,
    pod_name: &str,
    options: &Options<'_>,
    at: &Path<'_>,
    volume_at: &Path<'_>,
    errors: &mut Errors,
) {
    match kind {
        "emptyDir" => {
            if source.quantity("sizeLimit").is_some_and(|it| it.sign() < 0) {
                errors.forbidden(at.child("sizeLimit"), "SizeLimit field must be a valid resource quantity");
            }
        }
        "gitRepo" => {
            if source.text("repository").is_empty() {
                errors.required(at.child("repository"), "");
            }
            validate_descending_path(source.text("directory"), at.child("directory"), errors);
        }
        "secret" => validate_keys(source, "secretName", at, errors),
        "configMap" => validate_keys(source, "name", at, errors),
        "persistentVolumeClaim" => {
            if source.text("claimName").is_empty() {
                errors.required(at.child("claimName"), "");
            }
        }
        "downwardAPI" => {
            validate_mode(source, "defaultMode", at, errors);
            for file in source.list("items") {
                validate_downward_file(file, at, errors);
            }
        }
        "projected" => {
            validate_mode(source, "defaultMode", at, errors);
            projections::validate(source, options, at, errors);
        }
        "ephemeral" => {
            match source.optional("volumeClaimTemplate") {
                None => errors.required(at.child("volumeClaimTemplate"), ""),
                Some(template) => {
                    volume_claim::validate_template(template, &at.child("volumeClaimTemplate"), errors);
                }
            }
            if !pod_name.is_empty() && !name.is_empty() {
                let claim = format!("{pod_name}-{name}");
                for complaint in names::dns1123_subdomain(&claim) {
                    let detail = format!("PVC name {}: {complaint}", api::go_text::quote(&claim));
                    errors.invalid(volume_at.child("name"), name, detail);
                }
            }
        }
        "image" => {
            if !options.allow_empty_image_reference && source.text("reference").is_empty() {
                errors.required(at.child("reference"), "");
            }
            super::containers::validate_pull_policy(source.text("pullPolicy"), at.child("pullPolicy"), errors);
        }
        _ => volume_sources::validate(kind, source, name, false, at, errors),
    }
}

fn validate_keys(source: &Value, name: &str, at: &Path<'_>, errors: &mut Errors) {
    if source.text(name).is_empty() {
        errors.required(at.child(name), "");
    }
    validate_mode(source, "defaultMode", at, errors);
    let list = at.child("items");
    for (index, item) in source.list("items").iter().enumerate() {
        validate_key_to_path(item, &list.index(index), errors);
    }
}

fn validate_mode(source: &Value, name: &str, at: &Path<'_>, errors: &mut Errors) {
    if let Some(mode) = source.optional_int(name)
        && !(0..=0o777).contains(&mode)
    {
        errors.invalid(at.child(name), mode, BAD_MODE);
    }
}

pub(super) fn validate_key_to_path(item: &Value, at: &Path<'_>, errors: &mut Errors) {
    for name in ["key", "path"] {
        if item.text(name).is_empty() {
            errors.required(at.child(name), "");
        }
    }
    validate_own_path(item.text("path"), at.child("path"), errors);
    validate_mode(item, "mode", at, errors);
}

pub(super) fn validate_downward_file(file: &Value, at: &Path<'_>, errors: &mut Errors) {
    let path = file.text("path");
    if path.is_empty() {
        errors.required(at.child("path"), "");
    }
    validate_own_path(path, at.child("path"), errors);
    match (file.optional("fieldRef"), file.optional("resourceFieldRef")) {
        (Some(field), resource) => {
            env::validate_field(field, env::VOLUME_FIELDS, &at.child("fieldRef"), errors);
            if resource.is_some() {
                errors.invalid(*at, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously");
            }
        }
        (None, Some(resource)) => {
            env::validate_resource_field(resource, true, &at.child("resourceFieldRef"), errors);
        }
        (None, None) => errors.required(*at, "one of fieldRef and resourceFieldRef is required"),
    }
    validate_mode(file, "mode", at, errors);
}

/// Validates a path relative to a volume; it must not start with `..`, the prefix of files that kubelets create in volumes.
pub(super) fn validate_own_path(path: &str, at: Path<'_>, errors: &mut Errors) {
    validate_descending_path(path, at, errors);
    if path.starts_with("..") && !path.starts_with("../") {
        errors.invalid(at, path, "must not start with '..'");
    }
}

/// A relative path that does not leave its directory.
pub(crate) fn validate_descending_path(path: &str, at: Path<'_>, errors: &mut Errors) {
    if path.starts_with('/') {
        errors.invalid(at, path, "must be a relative path");
    }
    validate_no_backsteps(path, at, errors);
}

pub(crate) fn validate_no_backsteps(path: &str, at: Path<'_>, errors: &mut Errors) {
    if path.split('/').any(|part| part == "..") {
        errors.invalid(at, path, "must not contain '..'");
    }
}

/// Whether a projected token of the spec has a path that is refused today.
pub(super) fn has_foreign_token_path(spec: &Value) -> bool {
    let sources = spec.list("volumes").iter().flat_map(|it| it.field("projected").list("sources"));
    let mut tokens = sources.filter_map(|it| it.optional("serviceAccountToken"));
    tokens.any(|token| {
        let mut errors = Errors::new();
        validate_own_path(token.text("path"), Path::NIL, &mut errors);
        !errors.is_empty()
    })
}
