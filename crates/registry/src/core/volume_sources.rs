//! Sources of volumes that pods and PersistentVolumes share.
//!
//! Follows the `validate…VolumeSource` functions of core validation. A source of a PersistentVolume names the namespace
//! of its secret; one of a pod does not.

use api::field::{Errors, Path};
use api::json::Value;
use api::names;

use super::pod::volumes::validate_no_backsteps;
use crate::meta::invalid;

/// Validates the volume source in the field of that name; `owner` is the volume's name. Sources that only pods have are
/// validated elsewhere.
pub(crate) fn validate(
    kind: &str,
    source: &Value,
    owner: &str,
    is_persistent: bool,
    at: &Path<'_>,
    errors: &mut Errors,
) {
    let require = |names: &[&str], errors: &mut Errors| {
        for name in names.iter().filter(|name| source.text(name).is_empty()) {
            errors.required(at.child(name), "");
        }
    };
    match kind {
        "gcePersistentDisk" => {
            require(&["pdName"], errors);
            validate_partition(source, at, errors);
        }
        "awsElasticBlockStore" => {
            require(&["volumeID"], errors);
            validate_partition(source, at, errors);
        }
        "hostPath" => validate_host_path(source, at, errors),
        "local" => {
            require(&["path"], errors);
            validate_no_backsteps(source.text("path"), at.child("path"), errors);
        }
        "nfs" => {
            require(&["server", "path"], errors);
            if !source.text("path").starts_with('/') {
                errors.invalid(at.child("path"), source.text("path"), "must be an absolute path");
            }
        }
        "iscsi" => validate_iscsi(source, owner, is_persistent, at, errors),
        "glusterfs" => {
            require(&["endpoints", "path"], errors);
            if let Some(namespace) = source.optional_text("endpointsNamespace") {
                let here = at.child("endpointsNamespace");
                if namespace.is_empty() {
                    let detail = "if the endpointnamespace is set, it must be a valid namespace name";
                    errors.invalid(here, namespace, detail);
                } else {
                    invalid(names::dns1123_label(namespace), namespace, here, errors);
                }
            }
        }
        "flocker" => validate_flocker(source, at, errors),
        "rbd" => {
            require_list(source, "monitors", at, errors);
            require(&["image"], errors);
        }
        "cephfs" => require_list(source, "monitors", at, errors),
        "cinder" => {
            require(&["volumeID"], errors);
            validate_secret(source, is_persistent, at, errors);
        }
        "quobyte" => validate_quobyte(source, at, errors),
        "fc" => validate_fibre_channel(source, at, errors),
        "flexVolume" => {
            require(&["driver"], errors);
            validate_flex_options(source, at, errors);
        }
        "azureFile" => {
            require(&["secretName", "shareName"], errors);
            if source.optional_text("secretNamespace") == Some("") {
                errors.required(at.child("secretNamespace"), "");
            }
        }
        "azureDisk" => validate_azure_disk(source, at, errors),
        "vsphereVolume" => require(&["volumePath"], errors),
        "photonPersistentDisk" => require(&["pdID"], errors),
        "portworxVolume" => require(&["volumeID"], errors),
        "scaleIO" => require(&["gateway", "system", "volumeName"], errors),
        "storageos" => {
            let name = source.text("volumeName");
            if name.is_empty() {
                errors.required(at.child("volumeName"), "");
            } else {
                invalid(names::dns1123_label(name), name, at.child("volumeName"), errors);
            }
            let namespace = source.text("volumeNamespace");
            if !namespace.is_empty() {
                invalid(names::dns1123_label(namespace), namespace, at.child("volumeNamespace"), errors);
            }
            validate_secret(source, is_persistent, at, errors);
        }
        "csi" => validate_csi(source, is_persistent, at, errors),
        _ => {}
    }
}

fn require_list(source: &Value, name: &str, at: &Path<'_>, errors: &mut Errors) {
    if source.list(name).is_empty() {
        errors.required(at.child(name), "");
    }
}

fn validate_partition(source: &Value, at: &Path<'_>, errors: &mut Errors) {
    let partition = source.int("partition");
    if !(0..=255).contains(&partition) {
        errors.invalid(at.child("partition"), partition, "must be between 1 and 255, inclusive");
    }
}

fn validate_secret(source: &Value, is_persistent: bool, at: &Path<'_>, errors: &mut Errors) {
    let Some(secret) = source.optional("secretRef") else { return };
    let at = at.child("secretRef");
    if secret.text("name").is_empty() {
        errors.required(at.child("name"), "");
    }
    if is_persistent && secret.text("namespace").is_empty() {
        errors.required(at.child("namespace"), "");
    }
}

fn validate_host_path(source: &Value, at: &Path<'_>, errors: &mut Errors) {
    const TYPES: &[&str] =
        &["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
    let path = source.text("path");
    if path.is_empty() {
        errors.required(at.child("path"), "");
        return;
    }
    validate_no_backsteps(path, at.child("path"), errors);
    if let Some(kind) = source.optional_text("type")
        && !TYPES.contains(&kind)
    {
        errors.not_supported(at.child("type"), kind, TYPES);
    }
}

fn is_initiator(name: &str) -> bool {
    let is_hex =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f' | b'A'..=b'F'));
    if let Some(rest) = name.strip_prefix("eui.") {
        return rest.len() == 16 && is_hex(rest);
    }
    if let Some(rest) = name.strip_prefix("naa.") {
        return rest.len() == 32 && is_hex(rest);
    }
    // iqn.YYYY-MM.[[:alnum:]-.]+(:[^,;*&$|\s]+)*$
    let Some(rest) = name.strip_prefix("iqn.") else { return false };
    let (head, tail) = rest.split_once(':').map_or((rest, None), |(head, tail)| (head, Some(tail)));
    let mut parts = head.splitn(2, '.');
    let (date, authority) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let is_date = date.len() == 7
        && date.bytes().enumerate().all(|(index, byte)| if index == 4 { byte == b'-' } else { byte.is_ascii_digit() });
    let is_authority = !authority.is_empty()
        && authority.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'));
    let is_tail = |tail: &str| {
        tail.split(':').all(|part| {
            !part.is_empty()
                && !part.contains(|c: char| matches!(c, ',' | ';' | '*' | '&' | '$' | '|') || c.is_ascii_whitespace())
        })
    };
    is_date && is_authority && tail.is_none_or(is_tail)
}

/// Message for an initiator with a too long volume name and portal.
pub(crate) const TOO_LONG: &str = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.";

fn validate_iscsi(source: &Value, owner: &str, is_persistent: bool, at: &Path<'_>, errors: &mut Errors) {
    let portal = source.text("targetPortal");
    if portal.is_empty() {
        errors.required(at.child("targetPortal"), "");
    }
    let is_long = owner.len().saturating_add(portal.len()) >= 64;
    if is_persistent && source.has("initiatorName") && is_long {
        errors.invalid(at.child("targetportal"), portal, TOO_LONG);
    }
    let has_start = |name: &str| ["iqn", "eui", "naa"].iter().any(|start| name.starts_with(start));
    let bad_start =
        if is_persistent { "must be valid format" } else { "must be valid format starting with iqn, eui, or naa" };
    let validate_name = |name: &str, here: Path<'_>, errors: &mut Errors| {
        if !has_start(name) {
            errors.invalid(here, name, bad_start);
        } else if !is_initiator(name) {
            errors.invalid(here, name, "must be valid format");
        }
    };
    let name = source.text("iqn");
    if name.is_empty() {
        errors.required(at.child("iqn"), "");
    } else {
        validate_name(name, at.child("iqn"), errors);
    }
    let lun = source.int("lun");
    if !(0..=255).contains(&lun) {
        errors.invalid(at.child("lun"), lun, "must be between 0 and 255, inclusive");
    }
    if (source.flag("chapAuthDiscovery") || source.flag("chapAuthSession")) && !source.has("secretRef") {
        errors.required(at.child("secretRef"), "");
    }
    if is_persistent && source.optional("secretRef").is_some_and(|it| it.text("name").is_empty()) {
        errors.required(at.child("secretRef").child("name"), "");
    }
    if let Some(initiator) = source.optional_text("initiatorName") {
        validate_name(initiator, at.child("initiatorname"), errors);
    }
}

fn validate_flocker(source: &Value, at: &Path<'_>, errors: &mut Errors) {
    let (name, uuid) = (source.text("datasetName"), source.text("datasetUUID"));
    if name.is_empty() && uuid.is_empty() {
        errors.required(*at, "one of datasetName and datasetUUID is required");
    }
    if !name.is_empty() && !uuid.is_empty() {
        errors.invalid(*at, "resource", "datasetName and datasetUUID can not be specified simultaneously");
    }
    if name.contains('/') {
        errors.invalid(at.child("datasetName"), name, "must not contain '/'");
    }
}

fn validate_quobyte(source: &Value, at: &Path<'_>, errors: &mut Errors) {
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    let registry = source.text("registry");
    if registry.is_empty() {
        errors.required(at.child("registry"), PAIRS);
    } else if source.text("tenant").len() >= 65 {
        errors.required(at.child("tenant"), "must be a UUID and may not exceed a length of 64 characters");
    } else {
        let is_pair = |pair: &str| match pair.strip_prefix('[') {
            Some(rest) => rest.split_once("]:").is_some_and(|(host, port)| !host.contains(']') && !port.contains(':')),
            None => pair.matches(':').count() == 1 && !pair.contains(['[', ']']),
        };
        for _ in registry.split(',').filter(|pair| !is_pair(pair)) {
            errors.invalid(at.child("registry"), registry, PAIRS);
        }
    }
    if source.text("volume").is_empty() {
        errors.required(at.child("volume"), "");
    }
}

fn validate_fibre_channel(source: &Value, at: &Path<'_>, errors: &mut Errors) {
    let (targets, ids) = (source.list("targetWWNs"), source.list("wwids"));
    if targets.is_empty() && ids.is_empty() {
        errors.required(at.child("targetWWNs"), "must specify either targetWWNs or wwids, but not both");
    }
    if !targets.is_empty() && !ids.is_empty() {
        let detail = "targetWWNs and wwids can not be specified simultaneously";
        errors.invalid(at.child("targetWWNs"), source.field("targetWWNs").clone(), detail);
    }
    if !targets.is_empty() {
        match source.optional_int("lun") {
            None => errors.required(at.child("lun"), "lun is required if targetWWNs is specified"),
            Some(lun) if !(0..=255).contains(&lun) => {
                errors.invalid(at.child("lun"), lun, "must be between 0 and 255, inclusive");
            }
            Some(_) => {}
        }
    }
}

fn validate_flex_options(source: &Value, at: &Path<'_>, errors: &mut Errors) {
    let at = at.child("options");
    for key in source.map("options").keys() {
        let namespace = key.split_once('/').map_or(key, |(namespace, _)| namespace);
        let normalized = format!(".{}", namespace.to_lowercase());
        if normalized.ends_with(".kubernetes.io") || normalized.ends_with(".k8s.io") {
            errors.invalid(at.key(key), key, "kubernetes.io and k8s.io namespaces are reserved");
        }
    }
}

fn validate_azure_disk(source: &Value, at: &Path<'_>, errors: &mut Errors) {
    let uri = source.text("diskURI");
    for name in ["diskName", "diskURI"] {
        if source.text(name).is_empty() {
            errors.required(at.child(name), "");
        }
    }
    if let Some(mode) = source.optional_text("cachingMode")
        && !matches!(mode, "None" | "ReadOnly" | "ReadWrite")
    {
        errors.not_supported(at.child("cachingMode"), mode, &["None", "ReadOnly", "ReadWrite"]);
    }
    let Some(kind) = source.optional_text("kind") else { return };
    if !matches!(kind, "Dedicated" | "Managed" | "Shared") {
        errors.not_supported(at.child("kind"), kind, &["Dedicated", "Managed", "Shared"]);
    }
    if kind == "Managed" && !uri.starts_with("/subscriptions/") {
        let form = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
        errors.not_supported(at.child("diskURI"), uri, &[form]);
    }
    if kind != "Managed" && !uri.starts_with("https://") {
        let form = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
        errors.not_supported(at.child("diskURI"), uri, &[form]);
    }
}

/// The name of a CSI driver.
pub(crate) fn validate_driver_name(name: &str, at: Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        errors.required(at, "");
        return;
    }
    if name.len() > 63 {
        errors.too_long(at, 63);
    }
    for complaint in names::dns1123_subdomain(&name.to_lowercase()) {
        errors.invalid(at, name, complaint);
    }
}

fn validate_csi(source: &Value, is_persistent: bool, at: &Path<'_>, errors: &mut Errors) {
    validate_driver_name(source.text("driver"), at.child("driver"), errors);
    if !is_persistent {
        if let Some(secret) = source.optional("nodePublishSecretRef") {
            let name = secret.text("name");
            if name.is_empty() {
                errors.required(at.child("nodePublishSecretRef").child("name"), "");
            } else {
                invalid(names::dns1123_subdomain(name), name, at.child("name"), errors);
            }
        }
        return;
    }
    if source.text("volumeHandle").is_empty() {
        errors.required(at.child("volumeHandle"), "");
    }
    for kind in
        ["controllerPublishSecretRef", "controllerExpandSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef"]
    {
        let Some(secret) = source.optional(kind) else { continue };
        let at = at.child(kind);
        let (name, namespace) = (secret.text("name"), secret.text("namespace"));
        if name.is_empty() {
            errors.required(at.child("name"), "");
        } else {
            invalid(names::dns1123_subdomain(name), name, at.child("name"), errors);
        }
        if namespace.is_empty() {
            errors.required(at.child("namespace"), "");
        } else {
            invalid(names::dns1123_label(namespace), namespace, at.child("namespace"), errors);
        }
    }
}
