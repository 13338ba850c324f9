//! Controls of the restricted level, except for security profiles.

use api::json::Value;

use super::{Pod, Texts, Violation, container_violation, named_containers, plural, quote_all, setters};

const ALLOWED_VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

const OTHER_VOLUMES: [&str; 21] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
];

/// Privilege escalation is off in every container.
pub(super) fn privilege_escalation(pod: Pod<'_>) -> Option<Violation> {
    let names = pod.containers_where(|it| it.optional_flag("allowPrivilegeEscalation") != Some(false));
    let rest = "must set securityContext.allowPrivilegeEscalation=false";
    container_violation("allowPrivilegeEscalation != false", &names, rest)
}

/// As [`privilege_escalation`], except for Windows, where the field does not exist.
pub(super) fn privilege_escalation_since_25(pod: Pod<'_>) -> Option<Violation> {
    if pod.is_windows() { None } else { privilege_escalation(pod) }
}

/// All capabilities are dropped, and only `NET_BIND_SERVICE` is added.
pub(super) fn capabilities(pod: Pod<'_>) -> Option<Violation> {
    let undropped = pod.containers_where(|it| !it.field("capabilities").texts("drop").any(|it| it == "ALL"));
    let is_bad = |capability: &&str| *capability != "NET_BIND_SERVICE";
    let adding = pod.containers_where(|it| it.field("capabilities").texts("add").any(|it| is_bad(&it)));
    let contexts = pod.containers().map(|it| it.field("securityContext"));
    let added: Texts<'_> = contexts.flat_map(|it| it.field("capabilities").texts("add")).filter(is_bad).collect();
    let mut details = Vec::new();
    if !undropped.is_empty() {
        let names = named_containers(&undropped);
        details.push(format!("{names} must set securityContext.capabilities.drop=[\"ALL\"]"));
    }
    if !adding.is_empty() {
        let (names, added) = (named_containers(&adding), quote_all(added));
        details.push(format!("{names} must not include {added} in securityContext.capabilities.add"));
    }
    (!details.is_empty()).then(|| Violation { reason: "unrestricted capabilities", detail: details.join("; ") })
}

/// As [`capabilities`], except for Windows, where the field does not exist.
pub(super) fn capabilities_since_25(pod: Pod<'_>) -> Option<Violation> {
    if pod.is_windows() { None } else { capabilities(pod) }
}

/// Volumes have an allowed type.
pub(super) fn volumes(pod: Pod<'_>) -> Option<Violation> {
    let bad = pod.spec.list("volumes").iter().filter(|volume| !ALLOWED_VOLUMES.iter().any(|it| volume.has(it)));
    let bad: Vec<&Value> = bad.collect();
    if bad.is_empty() {
        return None;
    }
    let type_of = |volume: &Value| OTHER_VOLUMES.into_iter().find(|it| volume.has(it)).unwrap_or("unknown");
    let types: Texts<'_> = bad.iter().map(|it| type_of(it)).collect();
    let detail = format!(
        "{} {} {} {} {}",
        plural("volume", "volumes", bad.len()),
        quote_all(bad.iter().map(|it| it.text("name"))),
        plural("uses", "use", bad.len()),
        plural("restricted volume type", "restricted volume types", types.len()),
        quote_all(types),
    );
    Some(Violation { reason: "restricted volume types", detail })
}

/// Containers do not run as root.
pub(super) fn non_root(pod: Pod<'_>) -> Option<Violation> {
    let reason = "runAsNonRoot != true";
    let of = |context: &Value| context.optional_flag("runAsNonRoot");
    let of_pod = of(pod.security_context());
    let explicit = pod.containers_where(|it| of(it) == Some(false));
    if let Some(setters) = setters(of_pod == Some(false), &explicit) {
        return Some(Violation {
            reason,
            detail: format!("{setters} must not set securityContext.runAsNonRoot=false"),
        });
    }
    let implicit = pod.containers_where(|it| of(it).is_none() && of_pod != Some(true));
    (!implicit.is_empty()).then(|| Violation {
        reason,
        detail: format!("pod or {} must set securityContext.runAsNonRoot=true", named_containers(&implicit)),
    })
}

/// Like [`non_root`], for pods in the host's user namespace.
pub(super) fn non_root_since_35(pod: Pod<'_>) -> Option<Violation> {
    if pod.has_user_namespace() { None } else { non_root(pod) }
}

/// The user is not 0.
pub(super) fn user(pod: Pod<'_>) -> Option<Violation> {
    let of = |context: &Value| context.optional_int("runAsUser") == Some(0);
    let names = pod.containers_where(of);
    let setters = setters(of(pod.security_context()), &names)?;
    Some(Violation { reason: "runAsUser=0", detail: format!("{setters} must not set runAsUser=0") })
}

/// Like [`user`], for pods in the host's user namespace.
pub(super) fn user_since_35(pod: Pod<'_>) -> Option<Violation> {
    if pod.has_user_namespace() { None } else { user(pod) }
}
