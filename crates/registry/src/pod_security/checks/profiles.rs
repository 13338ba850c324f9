//! Controls of AppArmor, `SELinux` and seccomp.

use std::collections::BTreeSet;

use api::go_text;
use api::json::Value;
use api::well_known::{ANNOTATION_APP_ARMOR_PREFIX, ANNOTATION_SECCOMP_CONTAINER_PREFIX, ANNOTATION_SECCOMP_POD};

use super::{Pod, Texts, Violation, named_containers, plural, quote_all, setters};

/// The type of a profile, if one is set and its type is not allowed.
fn bad_type<'a>(context: &'a Value, profile: &str) -> Option<&'a str> {
    let set = context.optional(profile)?.text("type");
    (!matches!(set, "RuntimeDefault" | "Localhost")).then_some(set)
}

/// Types that are not allowed, in the pod and its containers, and the containers that set them.
fn bad_types<'a>(pod: Pod<'a>, profile: &str) -> (Texts<'a>, Vec<&'a str>) {
    let contexts = pod.containers().map(|it| it.field("securityContext"));
    let types = std::iter::once(pod.security_context()).chain(contexts).filter_map(|it| bad_type(it, profile));
    (types.collect(), pod.containers_where(|it| bad_type(it, profile).is_some()))
}

/// AppArmor profiles are the runtime's default or a local one.
pub(super) fn app_armor(pod: Pod<'_>) -> Option<Violation> {
    let profile = "appArmorProfile";
    let (types, names) = bad_types(pod, profile);
    let is_allowed = |value: &str| value.is_empty() || value == "runtime/default" || value.starts_with("localhost/");
    let annotations = pod.metadata.map("annotations").iter();
    let annotations = annotations.filter_map(|(key, value)| Some((key, value.as_str()?)));
    let bad = annotations.filter(|(key, value)| key.starts_with(ANNOTATION_APP_ARMOR_PREFIX) && !is_allowed(value));
    let annotations: BTreeSet<String> = bad.map(|(key, value)| format!("{key}={}", go_text::quote(value))).collect();
    let mut parts = Vec::new();
    parts.extend(setters(bad_type(pod.security_context(), profile).is_some(), &names));
    if !annotations.is_empty() {
        parts.push(plural("annotation", "annotations", annotations.len()).to_owned());
    }
    if parts.is_empty() {
        return None;
    }
    let count = types.len().saturating_add(annotations.len());
    let values = types.into_iter().map(str::to_owned).chain(annotations);
    Some(Violation {
        reason: plural("forbidden AppArmor profile", "forbidden AppArmor profiles", count),
        detail: format!("{} must not set AppArmor profile type to {}", parts.join(" and "), quote_all(values)),
    })
}

/// Rejects `SELinux` types other than those of containers, and any user or role.
pub(super) fn selinux(pod: Pod<'_>) -> Option<Violation> {
    selinux_of(pod, &["", "container_t", "container_init_t", "container_kvm_t"])
}

/// As [`selinux`], with one more type.
pub(super) fn selinux_since_31(pod: Pod<'_>) -> Option<Violation> {
    selinux_of(pod, &["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"])
}

fn selinux_of(pod: Pod<'_>, allowed: &[&str]) -> Option<Violation> {
    let options = |context: &'_ Value| -> [bool; 3] {
        let options = context.field("seLinuxOptions");
        [!allowed.contains(&options.text("type")), !options.text("user").is_empty(), !options.text("role").is_empty()]
    };
    let is_bad = |context: &Value| options(context).contains(&true);
    let setters = setters(is_bad(pod.security_context()), &pod.containers_where(is_bad))?;
    let (mut types, mut sets_user, mut sets_role) = (Texts::new(), false, false);
    let contexts = pod.containers().map(|it| it.field("securityContext"));
    for context in std::iter::once(pod.security_context()).chain(contexts) {
        let [bad_type, user, role] = options(context);
        if bad_type {
            types.insert(context.field("seLinuxOptions").text("type"));
        }
        sets_user |= user;
        sets_role |= role;
    }
    let mut parts = Vec::new();
    if !types.is_empty() {
        parts.push(format!("{} {}", plural("type", "types", types.len()), quote_all(types)));
    }
    if sets_user {
        parts.push("user may not be set".to_owned());
    }
    if sets_role {
        parts.push("role may not be set".to_owned());
    }
    let detail = format!("{setters} set forbidden securityContext.seLinuxOptions: {}", parts.join("; "));
    Some(Violation { reason: "seLinuxOptions", detail })
}

/// Seccomp profiles in annotations, before there were fields, are the runtime's default or a local one.
pub(super) fn seccomp_annotations(pod: Pod<'_>) -> Option<Violation> {
    let is_allowed =
        |value: &str| matches!(value, "runtime/default" | "docker/default") || value.starts_with("localhost/");
    let annotations = pod.metadata.field("annotations");
    let of_containers = pod.containers().map(|it| format!("{ANNOTATION_SECCOMP_CONTAINER_PREFIX}{}", it.text("name")));
    let keys = std::iter::once(ANNOTATION_SECCOMP_POD.to_owned()).chain(of_containers);
    let bad = keys.filter_map(|key| {
        let value = annotations.optional_text(&key).filter(|it| !is_allowed(it))?;
        Some(format!("{key}={}", go_text::quote(value)))
    });
    let bad: BTreeSet<String> = bad.collect();
    (!bad.is_empty()).then(|| Violation {
        reason: "seccompProfile",
        detail: format!(
            "forbidden {} {}",
            plural("annotation", "annotations", bad.len()),
            bad.into_iter().collect::<Vec<_>>().join(", ")
        ),
    })
}

/// Seccomp profiles that are set are the runtime's default or a local one.
pub(super) fn seccomp(pod: Pod<'_>) -> Option<Violation> {
    let profile = "seccompProfile";
    let (types, names) = bad_types(pod, profile);
    let setters = setters(bad_type(pod.security_context(), profile).is_some(), &names)?;
    let detail = format!("{setters} must not set securityContext.seccompProfile.type to {}", quote_all(types));
    Some(Violation { reason: "seccompProfile", detail })
}

/// As [`seccomp`], and a profile is set for every container.
pub(super) fn seccomp_required(pod: Pod<'_>) -> Option<Violation> {
    if let Some(violation) = seccomp(pod) {
        return Some(violation);
    }
    let is_set_for_pod = pod.security_context().has("seccompProfile");
    let names = pod.containers_where(|it| !it.has("seccompProfile") && !is_set_for_pod);
    (!names.is_empty()).then(|| Violation {
        reason: "seccompProfile",
        detail: format!(
            "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
            named_containers(&names)
        ),
    })
}

/// As [`seccomp_required`], except for Windows, where the field does not exist.
pub(super) fn seccomp_required_since_25(pod: Pod<'_>) -> Option<Violation> {
    if pod.is_windows() { None } else { seccomp_required(pod) }
}
