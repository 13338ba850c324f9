//! Security contexts of pods and containers, and what an operating system excludes.

use api::field::{Errors, Path};
use api::json::{Object, Value};
use api::names;
use api::well_known::{ANNOTATION_APP_ARMOR_PREFIX, ANNOTATION_SECCOMP_CONTAINER_PREFIX, ANNOTATION_SECCOMP_POD};

use super::options::Options;
use super::volumes::validate_descending_path;
use crate::meta::invalid;
use crate::render;
use crate::seen::SeenKeys;

const SECCOMP_TYPES: &[&str] = &["Localhost", "RuntimeDefault", "Unconfined"];

/// The security context of a container.
pub(super) fn validate_container(
    context: &Value,
    uses_host_users: bool,
    options: &Options<'_>,
    at: &Path<'_>,
    errors: &mut Errors,
) {
    if context.is_null() {
        return;
    }
    validate_ids(context, &["runAsUser", "runAsGroup"], at, errors);
    if let Some(mount) = context.optional_text("procMount") {
        if !matches!(mount, "Default" | "Unmasked") {
            errors.not_supported(at.child("procMount"), mount, &["Default", "Unmasked"]);
        }
        if uses_host_users && mount == "Unmasked" {
            errors.invalid(at.child("procMount"), mount, "`hostUsers` must be false to use `Unmasked`");
        }
    }
    validate_seccomp(context.field("seccompProfile"), &at.child("seccompProfile"), errors);
    if context.optional_flag("allowPrivilegeEscalation") == Some(false) {
        if context.flag("privileged") {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            errors.invalid(*at, render::core("SecurityContext", context), detail);
        }
        if !options.allow_sys_admin {
            for _ in context.field("capabilities").texts("add").filter(|it| *it == "CAP_SYS_ADMIN") {
                let detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
                errors.invalid(*at, render::core("SecurityContext", context), detail);
            }
        }
    }
    validate_windows_options(context.field("windowsOptions"), &at.child("windowsOptions"), errors);
    validate_app_armor(context.field("appArmorProfile"), &at.child("appArmorProfile"), errors);
}

/// Whether a context is one that needs the old leniency.
pub(super) fn adds_sys_admin(context: &Value) -> bool {
    context.optional_flag("allowPrivilegeEscalation") == Some(false)
        && context.field("capabilities").texts("add").any(|it| it == "CAP_SYS_ADMIN")
}

/// The security context of a pod.
pub(super) fn validate_pod(context: &Value, spec: &Value, options: &Options<'_>, at: &Path<'_>, errors: &mut Errors) {
    if context.is_null() {
        return;
    }
    validate_ids(context, &["fsGroup", "runAsUser", "runAsGroup"], at, errors);
    let list = at.child("supplementalGroups");
    for (index, group) in context.list("supplementalGroups").iter().enumerate() {
        validate_id(group.as_i64().unwrap_or_default(), list.index(index), errors);
    }
    validate_sysctls(context.list("sysctls"), spec, options, &at.child("sysctls"), errors);
    if let Some(policy) = context.optional_text("fsGroupChangePolicy")
        && !matches!(policy, "Always" | "OnRootMismatch")
    {
        errors.not_supported(at.child("fsGroupChangePolicy"), policy, &["Always", "OnRootMismatch"]);
    }
    validate_seccomp(context.field("seccompProfile"), &at.child("seccompProfile"), errors);
    validate_windows_options(context.field("windowsOptions"), &at.child("windowsOptions"), errors);
    validate_app_armor(context.field("appArmorProfile"), &at.child("appArmorProfile"), errors);
    if let Some(policy) = context.optional_text("supplementalGroupsPolicy")
        && !matches!(policy, "Merge" | "Strict")
    {
        errors.not_supported(at.child("supplementalGroupsPolicy"), policy, &["Merge", "Strict"]);
    }
    if let Some(policy) = context.optional_text("seLinuxChangePolicy")
        && !matches!(policy, "MountOption" | "Recursive")
    {
        errors.not_supported(at.child("seLinuxChangePolicy"), policy, &["MountOption", "Recursive"]);
    }
}

fn validate_ids(context: &Value, names: &[&str], at: &Path<'_>, errors: &mut Errors) {
    for name in names {
        if let Some(id) = context.optional_int(name) {
            validate_id(id, at.child(name), errors);
        }
    }
}

/// The number of a user or group.
pub(super) fn validate_id(id: i64, at: Path<'_>, errors: &mut Errors) {
    if !(0..=i64::from(i32::MAX)).contains(&id) {
        errors.invalid(at, id, "must be between 0 and 2147483647, inclusive");
    }
}

fn validate_sysctls(sysctls: &[Value], spec: &Value, options: &Options<'_>, at: &Path<'_>, errors: &mut Errors) {
    let mut seen = SeenKeys::default();
    for (index, sysctl) in sysctls.iter().enumerate() {
        let name = sysctl.text("name");
        let here = at.index(index);
        if name.is_empty() {
            errors.required(here.child("name"), "");
        } else if !is_sysctl_name(name) {
            let detail = "must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
            errors.invalid(here.child("name"), name, detail);
        } else if seen.contains(&name) {
            errors.duplicate(here.child("name"), name);
        }
        if !options.allow_namespaced_sysctls
            && let Some(detail) = forbids_sysctl(name, spec)
        {
            errors.invalid(here.child("name"), name, detail);
        }
        seen.insert(name);
    }
}

fn is_sysctl_name(name: &str) -> bool {
    let is_end = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_segment = |segment: &str| {
        let bytes = segment.as_bytes();
        bytes.first().is_some_and(is_end)
            && bytes.last().is_some_and(is_end)
            && bytes.iter().all(|byte| is_end(byte) || matches!(byte, b'-' | b'_'))
    };
    name.len() <= 253 && name.split(['.', '/']).all(is_segment)
}

/// Returns the reason why a shared host namespace forbids a sysctl.
fn forbids_sysctl(name: &str, spec: &Value) -> Option<&'static str> {
    let name = name.replace('/', ".");
    let is_net = name.starts_with("net.");
    let is_ipc =
        ["kernel.shm", "kernel.msg", "fs.mqueue."].iter().any(|it| name.starts_with(it)) || name == "kernel.sem";
    if is_net && spec.flag("hostNetwork") {
        Some("may not be specified when 'hostNetwork' is true")
    } else if is_ipc && spec.flag("hostIPC") {
        Some("may not be specified when 'hostIPC' is true")
    } else {
        None
    }
}

pub(super) fn has_forbidden_sysctl(spec: &Value) -> bool {
    let mut sysctls = spec.field("securityContext").list("sysctls").iter();
    sysctls.any(|sysctl| forbids_sysctl(sysctl.text("name"), spec).is_some())
}

fn validate_seccomp(profile: &Value, at: &Path<'_>, errors: &mut Errors) {
    if profile.is_null() {
        return;
    }
    let kind = profile.text("type");
    if kind.is_empty() {
        errors.required(at.child("type"), "type is required when seccompProfile is set");
    } else if !SECCOMP_TYPES.contains(&kind) {
        errors.not_supported(at.child("type"), kind, SECCOMP_TYPES);
    }
    match profile.optional_text("localhostProfile") {
        Some(path) if kind == "Localhost" => validate_descending_path(path, at.child("localhostProfile"), errors),
        Some(_) => errors.invalid(
            at.child("localhostProfile"),
            render::core("SeccompProfile", profile),
            "can only be set when seccomp type is Localhost",
        ),
        None if kind == "Localhost" => {
            errors.required(at.child("localhostProfile"), "must be set when seccomp type is Localhost");
        }
        None => {}
    }
}

pub(super) fn validate_app_armor(profile: &Value, at: &Path<'_>, errors: &mut Errors) {
    if profile.is_null() {
        return;
    }
    let path = profile.optional_text("localhostProfile");
    let here = at.child("localhostProfile");
    let required = "must be set when AppArmor type is Localhost";
    match profile.text("type") {
        "Localhost" => match path {
            None => errors.required(here, required),
            Some(path) => {
                if path.trim() != path {
                    errors.invalid(here, path, "must not be padded with whitespace");
                } else if path.is_empty() {
                    errors.required(here, required);
                }
                if path.len() > 4095 {
                    errors.too_long(here, 4095);
                }
            }
        },
        "RuntimeDefault" | "Unconfined" => {
            if let Some(path) = path {
                errors.invalid(here, path, "can only be set when AppArmor type is Localhost");
            }
        }
        "" => errors.required(at.child("type"), "type is required when appArmorProfile is set"),
        other => errors.not_supported(at.child("type"), other, SECCOMP_TYPES),
    }
}

fn validate_windows_options(options: &Value, at: &Path<'_>, errors: &mut Errors) {
    if let Some(name) = options.optional_text("gmsaCredentialSpecName") {
        invalid(names::dns1123_subdomain(name), name, at.child("gmsaCredentialSpecName"), errors);
    }
    if let Some(spec) = options.optional_text("gmsaCredentialSpec") {
        if spec.is_empty() {
            errors.invalid(at.child("gmsaCredentialSpec"), spec, "gmsaCredentialSpec cannot be an empty string");
        } else if spec.len() > 64 * 1024 {
            errors.invalid(at.child("gmsaCredentialSpec"), spec, "gmsaCredentialSpec size must be under 64 KiB");
        }
    }
    if let Some(name) = options.optional_text("runAsUserName") {
        for detail in user_name_complaints(name) {
            errors.invalid(at.child("runAsUserName"), name, detail);
        }
    }
}

fn user_name_complaints(name: &str) -> Vec<&'static str> {
    if name.is_empty() {
        return vec!["runAsUserName cannot be an empty string"];
    }
    if name.bytes().any(|byte| byte.is_ascii_control()) {
        return vec!["runAsUserName cannot contain control characters"];
    }
    let (domain, user) = match name.split_once('\\') {
        Some((_, rest)) if rest.contains('\\') => return vec!["runAsUserName cannot contain more than one backslash"],
        Some((domain, user)) => (Some(domain), user),
        None => (None, name),
    };
    let mut complaints = Vec::new();
    if let Some(domain) = domain {
        if domain.len() >= 256 {
            complaints.push("runAsUserName's Domain length must be under 256 characters");
        }
        let is_net_bios = (1..=15).contains(&domain.chars().count())
            && !domain.starts_with('.')
            && !domain.contains(['\\', '/', ':', '*', '?', '"', '<', '>', '|']);
        let is_label = |label: &str| label.len() <= 63 && names::is_dns_label(&label.to_ascii_lowercase());
        if !is_net_bios && !domain.split('.').all(is_label) {
            complaints.push("runAsUserName's Domain doesn't match the NetBios nor the DNS format");
        }
    }
    if user.is_empty() {
        complaints.push("runAsUserName's User cannot be empty");
    } else if user.len() > 104 {
        complaints.push("runAsUserName's User length must not be longer than 104 characters");
    }
    if !user.is_empty() && user.bytes().all(|byte| matches!(byte, b'.' | b' ')) {
        complaints.push("runAsUserName's User cannot contain only periods or spaces");
    }
    if user.contains(['"', '/', '\\', ':', ';', '|', '=', ',', '+', '*', '?', '<', '>', '@', '[', ']']) {
        complaints.push("runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]");
    }
    complaints
}

/// Containers that run on the host: all or none, and with its network.
pub(super) fn validate_host_process(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    let of_pod = spec.field("securityContext").field("windowsOptions").optional_flag("hostProcess");
    let (mut all, mut on_host) = (0_usize, 0_usize);
    for (list, index, container) in super::containers(spec) {
        all = all.saturating_add(1);
        let own = container.field("securityContext").field("windowsOptions").optional_flag("hostProcess");
        if let (Some(of_pod), Some(own)) = (of_pod, own)
            && of_pod != own
        {
            let detail = format!("pod hostProcess value must be identical if both are specified, was {of_pod}");
            let list = at.child(list);
            let here = list.index(index);
            errors.invalid(here.child("securityContext.windowsOptions.hostProcess"), own, detail);
        }
        if own.or(of_pod) == Some(true) {
            on_host = on_host.saturating_add(1);
        }
    }
    if on_host > 0 {
        if on_host != all {
            let detail =
                "If pod contains any hostProcess containers then all containers must be HostProcess containers";
            errors.invalid(*at, "", detail);
        }
        if !spec.flag("hostNetwork") {
            let detail = "hostNetwork must be true if pod contains any hostProcess containers";
            errors.invalid(at.child("hostNetwork"), false, detail);
        }
    }
}

/// Rejects fields that the pod's operating system does not support.
pub(super) fn validate_os(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    let Some(os) = spec.optional("os") else { return };
    match os.text("name") {
        "" => errors.required(at.child("os").child("name"), ""),
        "linux" => {
            let detail = "windows options cannot be set for a linux pod";
            if spec.field("securityContext").has("windowsOptions") {
                errors.forbidden(at.child("securityContext").child("windowsOptions"), detail);
            }
            for (list, index, container) in super::containers(spec) {
                if container.field("securityContext").has("windowsOptions") {
                    let list = at.child(list);
                    let here = list.index(index);
                    errors.forbidden(here.child("securityContext").child("windowsOptions"), detail);
                }
            }
        }
        "windows" => validate_windows_pod(spec, at, errors),
        other => errors.not_supported(at.child("os"), other, &["linux", "windows"]),
    }
}

fn validate_windows_pod(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    const POD: &[&str] = &[
        "appArmorProfile",
        "seLinuxOptions",
        "seccompProfile",
        "fsGroup",
        "fsGroupChangePolicy",
        "sysctls",
        "runAsUser",
        "runAsGroup",
        "supplementalGroups",
        "supplementalGroupsPolicy",
        "seLinuxChangePolicy",
    ];
    const CONTAINER: &[&str] = &[
        "appArmorProfile",
        "seLinuxOptions",
        "seccompProfile",
        "capabilities",
        "readOnlyRootFilesystem",
        "privileged",
        "allowPrivilegeEscalation",
        "procMount",
        "runAsUser",
        "runAsGroup",
    ];
    const DETAIL: &str = "cannot be set for a windows pod";
    let here = at.child("securityContext");
    for name in POD.iter().filter(|name| spec.field("securityContext").has(name)) {
        errors.forbidden(here.child(name), DETAIL);
    }
    for name in ["hostUsers", "hostPID", "hostIPC", "shareProcessNamespace"] {
        let is_set = if matches!(name, "hostPID" | "hostIPC") { spec.flag(name) } else { spec.has(name) };
        if is_set {
            errors.forbidden(at.child(name), DETAIL);
        }
    }
    for (list, index, container) in super::containers(spec) {
        let list = at.child(list);
        let here = list.index(index);
        let here = here.child("securityContext");
        for name in CONTAINER.iter().filter(|name| container.field("securityContext").has(name)) {
            errors.forbidden(here.child(name), DETAIL);
        }
    }
}

/// Profiles in annotations.
pub(super) fn validate_annotations(annotations: &Object, spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    let text = |key: &str| annotations.get(key).and_then(Value::as_str);
    let validate_profile = |profile: &str, key: &str, errors: &mut Errors| {
        if matches!(profile, "runtime/default" | "docker/default" | "unconfined") {
            return;
        }
        match profile.strip_prefix("localhost/") {
            Some(path) => validate_descending_path(path, at.child(key), errors),
            None => errors.invalid(at.child(key), profile, "must be a valid seccomp profile"),
        }
    };
    if let Some(profile) = text(ANNOTATION_SECCOMP_POD) {
        validate_profile(profile, ANNOTATION_SECCOMP_POD, errors);
    }
    for (key, profile) in annotations.iter() {
        if key.starts_with(ANNOTATION_SECCOMP_CONTAINER_PREFIX) {
            validate_profile(profile.as_str().unwrap_or_default(), key, errors);
        }
    }
    let containers: SeenKeys<&str> = super::containers(spec).map(|(_, _, container)| container.text("name")).collect();
    for (key, profile) in annotations.iter() {
        let Some(name) = key.strip_prefix(ANNOTATION_APP_ARMOR_PREFIX) else { continue };
        if !containers.contains(&name) {
            errors.invalid(at.key(key), name, "container not found");
        }
        let profile = profile.as_str().unwrap_or_default();
        let is_known = profile.is_empty() || matches!(profile, "runtime/default" | "unconfined");
        if !is_known && !profile.starts_with("localhost/") {
            let detail = format!("invalid AppArmor profile name: {}", api::go_text::quote(profile));
            errors.invalid(at.key(key), profile, detail);
        }
    }
}
