//! PersistentVolumes.

use api::features::Gate;
use api::field::{BadValue, Errors, Path};
use api::json::Value;
use api::names;
use api::well_known::{
    ANNOTATION_STORAGE_CLASS_BETA, LABEL_ARCH, LABEL_INSTANCE_TYPE, LABEL_OS, LABEL_TOPOLOGY_REGION,
    LABEL_TOPOLOGY_ZONE,
};

use super::expression_totals::{self, Group};
use super::node_selector::{self, Cel};
use super::pod::warnings::node_selector_term;
use super::resource_names::amounts;
use super::volume_claim::{VOLUME_MODES, validate_access_modes};
use super::volume_sources;
use crate::document::same;
use crate::meta::{self, IMMUTABLE, invalid};
use crate::render;
use crate::strategy::{Context, PLAIN, Part, Strategy};

/// Kinds of sources in the order in which they are validated: field, path of errors inside, path if there are
/// several.
const SOURCES: &[(&str, &str, &str)] = &[
    ("hostPath", "hostPath", "hostPath"),
    ("gcePersistentDisk", "persistentDisk", "gcePersistentDisk"),
    ("awsElasticBlockStore", "awsElasticBlockStore", "awsElasticBlockStore"),
    ("glusterfs", "glusterfs", "glusterfs"),
    ("flocker", "flocker", "flocker"),
    ("nfs", "nfs", "nfs"),
    ("rbd", "rbd", "rbd"),
    ("quobyte", "quobyte", "quobyte"),
    ("cephfs", "cephfs", "cephFS"),
    ("iscsi", "iscsi", "iscsi"),
    ("cinder", "cinder", "cinder"),
    ("fc", "fc", "fc"),
    ("flexVolume", "flexVolume", ""),
    ("azureFile", "azureFile", "azureFile"),
    ("vsphereVolume", "vsphereVolume", "vsphereVolume"),
    ("photonPersistentDisk", "photonPersistentDisk", "photonPersistentDisk"),
    ("portworxVolume", "portworxVolume", "portworxVolume"),
    ("azureDisk", "azureDisk", "azureDisk"),
    ("scaleIO", "scaleIO", "scaleIO"),
    ("local", "local", "local"),
    ("storageos", "storageos", "storageos"),
    ("csi", "csi", "csi"),
];

/// Sources that know the annotation with mount options.
const MOUNT_OPTIONS: &[&str] = &[
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "nfs",
    "rbd",
    "quobyte",
    "iscsi",
    "cinder",
    "cephfs",
    "azureFile",
    "vsphereVolume",
    "azureDisk",
    "photonPersistentDisk",
];

const RECYCLED_ROOT: &str = "may not be 'recycle' for a hostPath mount of '/'";

pub(crate) const STRATEGY: Strategy = Strategy {
    prepare_create: |volume, context| {
        volume.set("status", api::json!({"phase": "Pending", "lastPhaseTransitionTime": (context.now)}));
    },
    validate_create: |volume, context, errors| validate(volume, None, context, errors),
    prepare_update: |volume, old, _| volume.set("status", old.field("status").clone()),
    validate_update,
    warn: |volume, _, _| warnings(volume),
    subresources: &[("status", Part { prepare: prepare_status, validate: validate_status })],
    ..PLAIN
};

fn prepare_status(volume: &mut Value, old: &Value, context: &Context<'_>) {
    volume.set("spec", old.field("spec").clone());
    let old_status = old.field("status");
    let status = volume.make("status");
    let (time, old_time) = (status.field("lastPhaseTransitionTime"), old_status.field("lastPhaseTransitionTime"));
    let is_same_phase = status.text("phase") == old_status.text("phase");
    if is_same_phase && time.is_null() {
        status.set("lastPhaseTransitionTime", old_time.clone());
    } else if !is_same_phase && (time.is_null() || time == old_time) {
        status.set("lastPhaseTransitionTime", context.now);
    }
}

fn validate_status(volume: &Value, old: &Value, _: &Context<'_>, errors: &mut Errors) {
    meta::validate_update(volume, old, errors);
    if volume.field("metadata").text("resourceVersion").is_empty() {
        errors.required(Path::new("resourceVersion"), "");
    }
}

fn validate(volume: &Value, old: Option<&Value>, context: &Context<'_>, errors: &mut Errors) {
    meta::validate(volume, false, names::dns1123_subdomain, errors);
    let null = Value::Null;
    let old_required = old.map_or(&null, |old| old.field("spec").field("nodeAffinity").field("required"));
    let uses = |test: fn(&Value) -> bool| old_required.list("nodeSelectorTerms").iter().any(test);
    let features = context.features;
    let allow_cel = features.enabled(Gate::TaintTolerationNodeAffinityCEL) || uses(node_selector::term_uses_cel);
    let required = volume.field("spec").field("nodeAffinity").field("required");
    let expressions = [Group::of_terms(required.list("nodeSelectorTerms").iter())];
    let old_expressions = [Group::of_terms(old_required.list("nodeSelectorTerms").iter())];
    let rules = node_selector::Rules {
        allow_bad_values: node_selector::has_bad_values(old_required),
        allow_semver: features.enabled(Gate::TaintTolerationNodeAffinitySemverComparisonOperators)
            || uses(node_selector::term_uses_semver),
        cel: match allow_cel {
            false => Cel::GateOff,
            true if expression_totals::are_too_many(&expressions, &old_expressions) => Cel::Rejected,
            true => Cel::Compile(context.expressions),
        },
    };
    validate_spec(volume.field("spec"), volume.field("metadata").text("name"), rules, errors);
    if allow_cel {
        let at = Path::new("spec.nodeAffinity");
        expression_totals::validate(&expressions, &old_expressions, &[at], context.expressions, errors);
    }
    let spec = volume.field("spec");
    let key = "volume.beta.kubernetes.io/mount-options";
    let has_options = volume.field("metadata").map("annotations").contains_key(key);
    if has_options && !MOUNT_OPTIONS.iter().any(|kind| spec.has(kind)) {
        let at = Path::new("metadata");
        let annotations = at.child("annotations");
        errors.forbidden(annotations.key(key), "may not specify mount options for this volume type");
    }
}

fn validate_spec(spec: &Value, name: &str, rules: node_selector::Rules<'_>, errors: &mut Errors) {
    let at = Path::new("spec");
    if spec.list("accessModes").is_empty() {
        errors.required(at.child("accessModes"), "");
    }
    validate_access_modes(spec, &at.child("accessModes"), errors);
    let capacity = spec.map("capacity");
    let here = at.child("capacity");
    if capacity.is_empty() {
        errors.required(here, "");
    }
    if !capacity.contains_key("storage") || capacity.len() > 1 {
        let shown = match spec.field("capacity") {
            Value::Null => BadValue::Rendered("null".to_owned()),
            value => value.clone().into(),
        };
        errors.not_supported(here, shown, &["storage"]);
    }
    for (name, amount) in amounts(capacity) {
        if amount.value() < 0 {
            errors.invalid(here.key(name), amount.value(), "must be a valid resource quantity");
        }
        if amount.sign() <= 0 {
            errors.invalid(here.key(name), amount.to_string(), "must be greater than zero");
        }
    }
    let policy = spec.text("persistentVolumeReclaimPolicy");
    if !policy.is_empty() && !matches!(policy, "Delete" | "Recycle" | "Retain") {
        let here = at.child("persistentVolumeReclaimPolicy");
        errors.not_supported(here, policy, &["Delete", "Recycle", "Retain"]);
    }
    if let Some(affinity) = spec.optional("nodeAffinity") {
        let here = at.child("nodeAffinity");
        match affinity.optional("required") {
            Some(required) => node_selector::validate(required, rules, &here.child("required"), errors),
            None => errors.required(here.child("required"), "must specify required node constraints"),
        }
    }
    validate_sources(spec, name, spec.has("nodeAffinity"), &at, errors);
    if spec.field("hostPath").text("path") == "/" && policy == "Recycle" {
        errors.forbidden(at.child("persistentVolumeReclaimPolicy"), RECYCLED_ROOT);
    }
    let class = spec.text("storageClassName");
    if !class.is_empty() {
        invalid(names::dns1123_subdomain(class), class, at.child("storageClassName"), errors);
    }
    if let Some(mode) = spec.optional_text("volumeMode")
        && !VOLUME_MODES.contains(&mode)
    {
        errors.not_supported(at.child("volumeMode"), mode, VOLUME_MODES);
    }
    if let Some(class) = spec.optional_text("volumeAttributesClassName") {
        let here = at.child("volumeAttributesClassName");
        if class.is_empty() {
            errors.required(here, "an empty string is disallowed");
        } else {
            invalid(names::dns1123_subdomain(class), class, here, errors);
        }
        if !spec.has("csi") {
            errors.required(at.child("csi"), "has to be specified when using volumeAttributesClassName");
        }
    }
}

/// Validates a volume that is inline in its attachment.
pub(crate) fn validate_inline(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    let detail = "may not be specified in the context of inline volumes";
    if spec.has("claimRef") {
        errors.forbidden(at.child("claimRef"), detail);
    }
    if !spec.map("capacity").is_empty() {
        errors.forbidden(at.child("capacity"), detail);
    }
    if !spec.has("csi") {
        errors.required(at.child("csi"), "has to be specified in the context of inline volumes");
    }
    if spec.list("accessModes").is_empty() {
        errors.required(at.child("accessModes"), "");
    }
    validate_access_modes(spec, &at.child("accessModes"), errors);
    let policy = spec.text("persistentVolumeReclaimPolicy");
    if !matches!(policy, "" | "Retain") {
        let detail = "may only be Retain in the context of inline volumes";
        errors.forbidden(at.child("persistentVolumeReclaimPolicy"), detail);
    }
    if spec.has("nodeAffinity") {
        errors.forbidden(at.child("nodeAffinity"), detail);
    }
    validate_sources(spec, "", false, at, errors);
    if spec.field("hostPath").text("path") == "/" && policy == "Recycle" {
        errors.forbidden(at.child("persistentVolumeReclaimPolicy"), RECYCLED_ROOT);
    }
    if !spec.text("storageClassName").is_empty() {
        errors.forbidden(at.child("storageClassName"), detail);
    }
    if !matches!(spec.optional_text("volumeMode"), None | Some("Filesystem")) {
        let detail = "may not specify volumeMode other than Filesystem in the context of inline volumes";
        errors.forbidden(at.child("volumeMode"), detail);
    }
}

fn validate_sources(spec: &Value, name: &str, has_affinity: bool, at: &Path<'_>, errors: &mut Errors) {
    let mut count = 0_usize;
    for (kind, inside, several) in SOURCES {
        let Some(source) = spec.optional(kind) else { continue };
        // Kubernetes lets a flex volume stand beside others.
        if count > 0 && !several.is_empty() {
            errors.forbidden(at.child(several), "may not specify more than 1 volume type");
            continue;
        }
        count = count.saturating_add(1);
        volume_sources::validate(kind, source, name, true, &at.child(inside), errors);
        if *kind == "local" && !has_affinity {
            errors.required(at.child("nodeAffinity"), "Local volume requires node affinity");
        }
    }
    if count == 0 {
        errors.required(*at, "must specify a volume type");
    }
}

fn validate_update(volume: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
    validate(volume, Some(old), context, errors);
    let (spec, old_spec) = (volume.field("spec"), old.field("spec"));
    let is_same_source = SOURCES.iter().all(|(kind, ..)| {
        let (mut new, old) = (spec.field(kind).clone(), old_spec.field(kind));
        // A secret for expansion may be added.
        if *kind == "csi" && !old.is_null() && !old.has("controllerExpandSecretRef") {
            new.unset("controllerExpandSecretRef");
        }
        new.is_null() == old.is_null() && same(&new, old)
    });
    if !is_same_source {
        let at = Path::new("spec.persistentvolumesource");
        errors.forbidden(at, "spec.persistentvolumesource is immutable after creation\n");
    }
    meta::immutable(spec.field("volumeMode"), old_spec.field("volumeMode"), Path::new("volumeMode"), errors);
    if let Some(affinity) = old_spec.optional("nodeAffinity") {
        let mut masked = affinity.clone();
        rename_beta_labels(&mut masked, spec.field("nodeAffinity"));
        if !same(&masked, spec.field("nodeAffinity")) {
            let shown = match spec.field("nodeAffinity") {
                Value::Null => BadValue::Rendered("null".to_owned()),
                value => render::core("VolumeNodeAffinity", value),
            };
            let detail = format!("{IMMUTABLE}, except for updating from beta label to GA");
            errors.invalid(Path::new("nodeAffinity"), shown, detail);
        }
    }
    let name = "volumeAttributesClassName";
    if old_spec.has(name) && !spec.has(name) {
        errors.forbidden(Path::new("spec").child(name), "update from non-nil value to nil is forbidden");
    }
}

/// Labels of the beta may be replaced by those that came after.
fn rename_beta_labels(old: &mut Value, new: &Value) {
    let new_terms = new.field("required").list("nodeSelectorTerms");
    let Some(required) = old.get_mut("required") else { return };
    for (old_term, new_term) in required.list_mut("nodeSelectorTerms").iter_mut().zip(new_terms) {
        for list in ["matchExpressions", "matchFields"] {
            for (old, new) in old_term.list_mut(list).iter_mut().zip(new_term.list(list)) {
                let replacement = match old.text("key") {
                    "failure-domain.beta.kubernetes.io/zone" => LABEL_TOPOLOGY_ZONE,
                    "failure-domain.beta.kubernetes.io/region" => LABEL_TOPOLOGY_REGION,
                    "beta.kubernetes.io/os" => LABEL_OS,
                    "beta.kubernetes.io/arch" => LABEL_ARCH,
                    "beta.kubernetes.io/instance-type" => LABEL_INSTANCE_TYPE,
                    // Kubernetes looks for a key that is not there, and finds the empty text.
                    _ => "",
                };
                if new.text("key") == replacement {
                    old.set("key", replacement);
                }
            }
        }
    }
}

fn warnings(volume: &Value) -> Vec<String> {
    const DEPRECATED: &[(&str, &str, &str)] = &[
        ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
        ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
        ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
        ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
        ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
        ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
    ];
    let mut warnings = Vec::new();
    for (key, message) in [
        (ANNOTATION_STORAGE_CLASS_BETA, "deprecated since v1.8; use \"storageClassName\" attribute instead"),
        ("volume.beta.kubernetes.io/mount-options", "deprecated since v1.31; use \"mountOptions\" attribute instead"),
    ] {
        if volume.field("metadata").map("annotations").contains_key(key) {
            warnings.push(format!("metadata.annotations[{key}]: {message}"));
        }
    }
    let spec = volume.field("spec");
    if spec.text("persistentVolumeReclaimPolicy") == "Recycle" {
        warnings.push("spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.".to_owned());
    }
    let list = Path::new("spec.nodeAffinity.required.nodeSelectorTerms");
    let terms = spec.field("nodeAffinity").field("required").list("nodeSelectorTerms");
    for (index, term) in terms.iter().enumerate() {
        warnings.extend(node_selector_term(term, false, &list.index(index)));
    }
    for (_, shown, message) in DEPRECATED.iter().filter(|(kind, ..)| spec.has(kind)) {
        warnings.push(format!("spec.{shown}: {message}"));
    }
    warnings
}
