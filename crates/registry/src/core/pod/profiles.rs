//! Profiles of seccomp and AppArmor that stand in annotations, where they once had no fields.
//!
//! Annotations of containers become fields; if both exist, they must agree.

use api::field::{Errors, Path};
use api::json::{Object, Value};
use api::well_known::{ANNOTATION_APP_ARMOR_PREFIX, ANNOTATION_SECCOMP_CONTAINER_PREFIX, ANNOTATION_SECCOMP_POD};

use crate::document::same;

fn text<'a>(annotations: &'a Object, key: &str) -> Option<&'a str> {
    annotations.get(key).and_then(Value::as_str)
}

/// The profile that an annotation names.
pub(super) fn profile_of(annotation: &str) -> Option<Value> {
    match annotation {
        "unconfined" => Some(api::json!({"type": "Unconfined"})),
        "runtime/default" => Some(api::json!({"type": "RuntimeDefault"})),
        other => {
            let path = other.strip_prefix("localhost/").filter(|path| !path.is_empty())?;
            // A path that the field would not take is not copied.
            let fits = path.trim() == path && path.len() <= 4095;
            fits.then(|| api::json!({"type": "Localhost", "localhostProfile": path}))
        }
    }
}

/// Copies AppArmor annotations of a new pod into the fields of its containers.
pub(super) fn copy_annotations(pod: &mut Value) {
    let annotations = pod.field("metadata").map("annotations").clone();
    let spec = pod.make("spec");
    if spec.field("os").text("name") == "windows" {
        return;
    }
    let of_pod = spec.field("securityContext").field("appArmorProfile").clone();
    for kind in ["initContainers", "containers", "ephemeralContainers"] {
        for container in spec.list_mut(kind) {
            let key = format!("{ANNOTATION_APP_ARMOR_PREFIX}{}", container.text("name"));
            if container.field("securityContext").has("appArmorProfile") {
                continue;
            }
            if let Some(profile) = text(&annotations, &key).and_then(profile_of)
                && !same(&profile, &of_pod)
            {
                container.make("securityContext").set("appArmorProfile", profile);
            }
        }
    }
}

/// Returns the warnings about deprecated annotations of a new pod.
pub(super) fn warnings(pod: &Value) -> Vec<String> {
    let annotations = pod.field("metadata").map("annotations");
    let spec = pod.field("spec");
    if spec.field("os").text("name") == "windows" {
        return Vec::new();
    }
    let of_pod = spec.field("securityContext").field("appArmorProfile");
    let mut warnings = Vec::new();
    for (_, _, container) in super::containers(spec) {
        let key = format!("{ANNOTATION_APP_ARMOR_PREFIX}{}", container.text("name"));
        let Some(annotation) = text(annotations, &key) else { continue };
        let profile = profile_of(annotation);
        // At this point the field of a container with a copied annotation agrees with it.
        let field = container.field("securityContext").field("appArmorProfile");
        let is_copied = profile.as_ref().is_some_and(|it| same(it, field) && !same(it, of_pod));
        if profile.is_none() || is_copied {
            warnings.push(format!(
                "metadata.annotations[{key}]: deprecated since v1.30; use the \"appArmorProfile\" field instead"
            ));
        }
    }
    warnings
}

/// Validates that annotations and fields of a new pod or a template agree.
pub(super) fn validate(metadata: &Value, spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    let annotations = metadata.map("annotations");
    if annotations.is_empty() {
        return;
    }
    let of_pod = spec.field("securityContext").field("seccompProfile");
    if let Some(annotation) = text(annotations, ANNOTATION_SECCOMP_POD) {
        let here = at.child("securityContext");
        validate_same("seccomp", annotation, of_pod, &here.child("seccompProfile"), errors);
    }
    for (list, index, container) in super::containers(spec) {
        let key = format!("{ANNOTATION_SECCOMP_CONTAINER_PREFIX}{}", container.text("name"));
        if let Some(annotation) = text(annotations, &key) {
            let list = at.child(list);
            let here = list.index(index);
            let here = here.child("securityContext");
            let profile = container.field("securityContext").field("seccompProfile");
            validate_same("seccomp", annotation, profile, &here.child("seccompProfile"), errors);
        }
    }
    if spec.field("os").text("name") == "windows" {
        return;
    }
    let of_pod = spec.field("securityContext").field("appArmorProfile");
    for (list, index, container) in super::containers(spec) {
        let key = format!("{ANNOTATION_APP_ARMOR_PREFIX}{}", container.text("name"));
        if let Some(annotation) = text(annotations, &key) {
            let list = at.child(list);
            let here = list.index(index);
            let here = here.child("securityContext");
            let own = container.field("securityContext").optional("appArmorProfile");
            validate_same("apparmor", annotation, own.unwrap_or(of_pod), &here.child("appArmorProfile"), errors);
        }
    }
}

fn validate_same(word: &str, annotation: &str, profile: &Value, at: &Path<'_>, errors: &mut Errors) {
    let type_detail = format!("{word} type in annotation and field must match");
    let fits = match profile.text("type") {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => annotation == "runtime/default" || (word == "seccomp" && annotation == "docker/default"),
        "Localhost" => match annotation.strip_prefix("localhost/") {
            Some(path) => {
                if profile.optional_text("localhostProfile") != Some(path) {
                    let detail = format!("{word} profile in annotation and field must match");
                    errors.forbidden(at.child("localhostProfile"), detail);
                }
                true
            }
            None => false,
        },
        _ => true,
    };
    if !fits {
        errors.forbidden(at.child("type"), type_detail);
    }
}
