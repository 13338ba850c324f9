//! Controls of the baseline level, except for security profiles.

use std::collections::BTreeSet;

use api::json::Value;

use super::{Pod, Texts, Violation, container_violation, plural, quote_all, setters};

const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// Safe sysctls, with the minor version that allows them.
const SYSCTLS: [(&str, u64); 14] = [
    ("kernel.shm_rmid_forced", 0),
    ("net.ipv4.ip_local_port_range", 0),
    ("net.ipv4.tcp_syncookies", 0),
    ("net.ipv4.ping_group_range", 0),
    ("net.ipv4.ip_unprivileged_port_start", 0),
    ("net.ipv4.ip_local_reserved_ports", 27),
    ("net.ipv4.tcp_keepalive_time", 29),
    ("net.ipv4.tcp_fin_timeout", 29),
    ("net.ipv4.tcp_keepalive_intvl", 29),
    ("net.ipv4.tcp_keepalive_probes", 29),
    ("net.ipv4.tcp_rmem", 32),
    ("net.ipv4.tcp_wmem", 32),
    ("net.ipv4.tcp_slow_start_after_idle", 37),
    ("net.ipv4.tcp_notsent_lowat", 37),
];

/// Only default capabilities are added.
pub(super) fn capabilities(pod: Pod<'_>) -> Option<Violation> {
    let mut bad = Texts::new();
    let mut names = Vec::new();
    for container in pod.containers() {
        let added = container.field("securityContext").field("capabilities").texts("add");
        let before = names.len();
        for capability in added.filter(|it| !CAPABILITIES.contains(it)) {
            bad.insert(capability);
            if names.len() == before {
                names.push(container.text("name"));
            }
        }
    }
    let rest = format!("must not include {} in securityContext.capabilities.add", quote_all(bad));
    container_violation("non-default capabilities", &names, &rest)
}

/// The namespaces of the node are not shared.
pub(super) fn host_namespaces(pod: Pod<'_>) -> Option<Violation> {
    let fields = ["hostNetwork", "hostPID", "hostIPC"].into_iter().filter(|it| pod.spec.flag(it));
    let shared: Vec<String> = fields.map(|it| format!("{it}=true")).collect();
    (!shared.is_empty()).then(|| Violation { reason: "host namespaces", detail: shared.join(", ") })
}

/// No volume is a path of the node.
pub(super) fn host_path_volumes(pod: Pod<'_>) -> Option<Violation> {
    let volumes = pod.spec.list("volumes").iter().filter(|it| it.has("hostPath"));
    let names: Vec<&str> = volumes.map(|it| it.text("name")).collect();
    (!names.is_empty()).then(|| Violation {
        reason: "hostPath volumes",
        detail: format!("{} {}", plural("volume", "volumes", names.len()), quote_all(&names)),
    })
}

/// No port of the node is used.
pub(super) fn host_ports(pod: Pod<'_>) -> Option<Violation> {
    // Kubernetes sorts the ports as texts.
    let mut ports: BTreeSet<String> = BTreeSet::new();
    let mut names = Vec::new();
    for container in pod.containers() {
        let used = container.list("ports").iter().map(|it| it.int("hostPort")).filter(|it| *it != 0);
        let before = names.len();
        for port in used {
            ports.insert(port.to_string());
            if names.len() == before {
                names.push(container.text("name"));
            }
        }
    }
    let verb = plural("uses", "use", names.len());
    let noun = plural("hostPort", "hostPorts", ports.len());
    let shown = ports.into_iter().collect::<Vec<_>>().join(", ");
    container_violation("hostPort", &names, &format!("{verb} {noun} {shown}"))
}

/// Probes and lifecycle handlers do not name a host.
pub(super) fn probe_hosts(pod: Pod<'_>) -> Option<Violation> {
    let (mut names, mut hosts) = (Texts::new(), Texts::new());
    for container in pod.containers() {
        let probes = ["livenessProbe", "readinessProbe", "startupProbe"].map(|it| container.field(it));
        let handlers = ["postStart", "preStop"].map(|it| container.field("lifecycle").field(it));
        for handler in probes.into_iter().chain(handlers) {
            for host in ["httpGet", "tcpSocket"].map(|it| handler.field(it).text("host")) {
                if !host.is_empty() {
                    names.insert(container.text("name"));
                    hosts.insert(host);
                }
            }
        }
    }
    let names: Vec<&str> = names.into_iter().collect();
    let verb = plural("uses", "use", names.len());
    let noun = plural("probe or lifecycle host", "probe or lifecycle hosts", hosts.len());
    container_violation("probe or lifecycle host", &names, &format!("{verb} {noun} {}", quote_all(hosts)))
}

/// No container is privileged.
pub(super) fn privileged(pod: Pod<'_>) -> Option<Violation> {
    let names = pod.containers_where(|it| it.flag("privileged"));
    container_violation("privileged", &names, "must not set securityContext.privileged=true")
}

/// `/proc` is masked.
pub(super) fn proc_mount(pod: Pod<'_>) -> Option<Violation> {
    let of = |context: &Value| context.optional_text("procMount").is_some_and(|it| it != "Default");
    let names = pod.containers_where(of);
    let types: Texts<'_> = pod
        .containers()
        .map(|it| it.field("securityContext"))
        .filter(|it| of(it))
        .map(|it| it.text("procMount"))
        .collect();
    let rest = format!("must not set securityContext.procMount to {}", quote_all(types));
    container_violation("procMount", &names, &rest)
}

/// Like [`proc_mount`], for pods in the host's user namespace.
pub(super) fn proc_mount_of_host_users(pod: Pod<'_>) -> Option<Violation> {
    if pod.has_user_namespace() { None } else { proc_mount(pod) }
}

/// Only safe sysctls are set.
pub(super) fn sysctls(pod: Pod<'_>) -> Option<Violation> {
    sysctls_of(pod, 0)
}

/// As [`sysctls`], with those of 1.27.
pub(super) fn sysctls_since_27(pod: Pod<'_>) -> Option<Violation> {
    sysctls_of(pod, 27)
}

/// As [`sysctls`], with those of 1.29.
pub(super) fn sysctls_since_29(pod: Pod<'_>) -> Option<Violation> {
    sysctls_of(pod, 29)
}

/// As [`sysctls`], with those of 1.32.
pub(super) fn sysctls_since_32(pod: Pod<'_>) -> Option<Violation> {
    sysctls_of(pod, 32)
}

/// As [`sysctls`], with those of 1.37.
pub(super) fn sysctls_since_37(pod: Pod<'_>) -> Option<Violation> {
    sysctls_of(pod, 37)
}

fn sysctls_of(pod: Pod<'_>, version: u64) -> Option<Violation> {
    let is_safe = |name: &str| SYSCTLS.iter().any(|(safe, since)| *safe == name && *since <= version);
    let set = pod.security_context().list("sysctls").iter().map(|it| it.text("name"));
    let bad: Vec<&str> = set.filter(|it| !is_safe(it)).collect();
    (!bad.is_empty()).then(|| Violation { reason: "forbidden sysctls", detail: bad.join(", ") })
}

/// No Windows container runs as a process of the node.
pub(super) fn windows_host_process(pod: Pod<'_>) -> Option<Violation> {
    let of = |context: &Value| context.field("windowsOptions").flag("hostProcess");
    let names = pod.containers_where(of);
    let setters = setters(of(pod.security_context()), &names)?;
    let detail = format!("{setters} must not set securityContext.windowsOptions.hostProcess=true");
    Some(Violation { reason: "hostProcess", detail })
}
