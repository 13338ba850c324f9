//! Pods as the runtime is given them: sandbox and container configurations.
//!
//! Follows `kuberuntime_sandbox.go` and `kuberuntime_container.go` of Kubernetes' kubelet. Labels and
//! annotations are upstream's, so that both agents recognize the containers of a pod.

use std::collections::BTreeMap;

use api::core::v1::Pod;
use api::json::Value;
use cri::messages as m;

use super::dns::Dns;
use super::manifest::{Kind, hash, texts};

pub(super) const POD_NAME: &str = "io.kubernetes.pod.name";
pub(super) const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
pub(super) const POD_UID: &str = "io.kubernetes.pod.uid";
pub(super) const CONTAINER_NAME: &str = "io.kubernetes.container.name";
pub(super) const RESOURCES: &str = "celplane.container.resources";
/// Annotation with the hash of the fields whose change restarts a container.
pub(super) const HASH: &str = "io.kubernetes.container.hash";
pub(super) const RESTARTS: &str = "io.kubernetes.container.restartCount";
pub(super) const MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
/// Marks sandboxes of this agent: others in the same runtime are left alone.
pub(super) const OWNER: &str = "celplane.node";
/// The longest host name.
const HOSTNAME_MAX: usize = 63;

const MASKED: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// The host name of a pod, and its fully qualified name if it has one.
pub(super) fn hostname(pod: &Pod, manifest: &Value, domain: &str) -> (String, Option<String>) {
    let mut name =
        if pod.spec.hostname.is_empty() { pod.metadata.name.to_string() } else { pod.spec.hostname.to_string() };
    if name.len() > HOSTNAME_MAX {
        name.truncate(name.floor_char_boundary(HOSTNAME_MAX));
        name.truncate(name.trim_end_matches(['-', '.']).len());
    }
    let subdomain = manifest.text_at(&["spec", "subdomain"]);
    let full = (!subdomain.is_empty()).then(|| format!("{name}.{subdomain}.{}.svc.{domain}", pod.metadata.namespace));
    match (&full, manifest.flag_at(&["spec", "setHostnameAsFQDN"])) {
        (Some(full), true) => (full.clone(), Some(full.clone())),
        _ => (name, full),
    }
}

fn namespaces(pod: &Pod, manifest: &Value) -> m::NamespaceOption {
    let node = m::NamespaceMode::Node;
    let pid = match () {
        () if manifest.flag_at(&["spec", "hostPID"]) => node,
        () if manifest.flag_at(&["spec", "shareProcessNamespace"]) => m::NamespaceMode::Pod,
        () => m::NamespaceMode::Container,
    };
    let pod_or = |is_node| if is_node { node } else { m::NamespaceMode::Pod };
    m::NamespaceOption {
        network: pod_or(pod.spec.host_network).into(),
        pid: pid.into(),
        ipc: pod_or(manifest.flag_at(&["spec", "hostIPC"])).into(),
        target_id: String::new(),
    }
}

fn labels(pod: &Pod) -> BTreeMap<String, String> {
    let pairs =
        [(POD_NAME, &pod.metadata.name), (POD_NAMESPACE, &pod.metadata.namespace), (POD_UID, &pod.metadata.uid)];
    pairs.into_iter().map(|(label, value)| (label.to_owned(), value.to_string())).collect()
}

/// The node's part of a sandbox configuration.
pub(super) struct SandboxFacts<'f> {
    pub(super) node: &'f str,
    pub(super) attempt: u32,
    pub(super) cgroup_parent: String,
    pub(super) log_directory: String,
    pub(super) dns: &'f Dns,
}

/// The sandbox of a pod.
pub(super) fn sandbox(pod: &Pod, manifest: &Value, facts: SandboxFacts<'_>) -> m::PodSandboxConfig {
    let metadata = &pod.metadata;
    let mut all_labels = labels(pod);
    let own = metadata.labels.iter().map(|(key, value)| (key.to_string(), value.to_string()));
    all_labels.extend(own);
    all_labels.insert(OWNER.to_owned(), facts.node.to_owned());
    let containers =
        manifest.list_at(&["spec", "containers"]).iter().chain(manifest.list_at(&["spec", "initContainers"]));
    let ports = containers.clone().flat_map(|it| it.list("ports"));
    let mapping = |port: &Value| {
        let host_port = port.i64_at(&["hostPort"]).filter(|it| *it != 0)?;
        Some(m::PortMapping {
            protocol: match port.text("protocol") {
                "UDP" => m::Protocol::Udp.into(),
                "SCTP" => m::Protocol::Sctp.into(),
                _ => m::Protocol::Tcp.into(),
            },
            container_port: i32::try_from(port.i64_at(&["containerPort"])?).ok()?,
            host_port: i32::try_from(host_port).ok()?,
            host_ip: port.text("hostIP").to_owned(),
        })
    };
    let security = manifest.at(&["spec", "securityContext"]).cloned().unwrap_or_default();
    let is_privileged = containers.clone().any(|it| it.flag_at(&["securityContext", "privileged"]));
    let host_network = pod.spec.host_network;
    let sysctls = security.list("sysctls").iter();
    m::PodSandboxConfig {
        metadata: Some(m::PodSandboxMetadata {
            name: metadata.name.to_string(),
            uid: metadata.uid.to_string(),
            namespace: metadata.namespace.to_string(),
            attempt: facts.attempt,
        }),
        hostname: if host_network { String::new() } else { hostname(pod, manifest, &facts.dns.cluster_domain).0 },
        log_directory: facts.log_directory,
        dns_config: Some(facts.dns.of_pod(pod, manifest).0),
        port_mappings: if host_network { Vec::new() } else { ports.filter_map(mapping).collect() },
        labels: all_labels,
        annotations: metadata.annotations.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
        linux: Some(m::LinuxPodSandboxConfig {
            cgroup_parent: facts.cgroup_parent,
            security_context: Some(m::LinuxSandboxSecurityContext {
                namespace_options: Some(namespaces(pod, manifest)),
                run_as_user: id(&security, "runAsUser"),
                run_as_group: id(&security, "runAsGroup").filter(|_| id(&security, "runAsUser").is_some()),
                supplemental_groups: supplemental_groups(&security),
                privileged: is_privileged,
                seccomp: Some(profile(m::ProfileType::RuntimeDefault, "")),
                ..m::LinuxSandboxSecurityContext::default()
            }),
            sysctls: sysctls.map(|it| (it.text("name").to_owned(), it.text("value").to_owned())).collect(),
            ..m::LinuxPodSandboxConfig::default()
        }),
    }
}

fn id(security: &Value, field: &str) -> Option<m::Int64Value> {
    security.i64_at(&[field]).map(|value| m::Int64Value { value })
}

fn supplemental_groups(security: &Value) -> Vec<i64> {
    let mut groups: Vec<i64> = security.i64_at(&["fsGroup"]).into_iter().collect();
    groups.extend(security.list("supplementalGroups").iter().filter_map(Value::as_i64));
    groups
}

fn profile(kind: m::ProfileType, reference: &str) -> m::SecurityProfile {
    m::SecurityProfile { profile_type: kind.into(), localhost_ref: reference.to_owned() }
}

/// The security context of a container: its own fields first, then those of the pod.
pub(super) fn security(
    pod: &Pod,
    manifest: &Value,
    container: &Value,
    target: Option<&str>,
) -> m::LinuxContainerSecurityContext {
    let of_pod = manifest.at(&["spec", "securityContext"]).cloned().unwrap_or_default();
    let own = container.get("securityContext").cloned().unwrap_or_default();
    let both = |field: &str| id(&own, field).or_else(|| id(&of_pod, field));
    let is_privileged = own.flag("privileged");
    let is_unmasked = is_privileged || own.text("procMount") == "Unmasked";
    let paths = |paths: &[&str]| if is_unmasked { Vec::new() } else { paths.iter().map(ToString::to_string).collect() };
    let seccomp = own.get("seccompProfile").or_else(|| of_pod.get("seccompProfile"));
    let seccomp = seccomp.map_or_else(
        || profile(m::ProfileType::Unconfined, ""),
        |given| match given.text("type") {
            "RuntimeDefault" => profile(m::ProfileType::RuntimeDefault, ""),
            "Localhost" => profile(m::ProfileType::Localhost, given.text("localhostProfile")),
            _ => profile(m::ProfileType::Unconfined, ""),
        },
    );
    let mut options = namespaces(pod, manifest);
    if let Some(target) = target {
        (options.pid, options.target_id) = (m::NamespaceMode::Target.into(), target.to_owned());
    }
    let is_strict = of_pod.text("supplementalGroupsPolicy") == "Strict";
    let policy = if is_strict { m::SupplementalGroupsPolicy::Strict } else { m::SupplementalGroupsPolicy::Merge };
    let capabilities = own.get("capabilities").map(|given| m::Capability {
        add_capabilities: texts(given, &["add"]),
        drop_capabilities: texts(given, &["drop"]),
        ..m::Capability::default()
    });
    m::LinuxContainerSecurityContext {
        capabilities,
        privileged: is_privileged,
        namespace_options: Some(options),
        run_as_user: both("runAsUser"),
        run_as_group: both("runAsGroup"),
        readonly_rootfs: own.flag("readOnlyRootFilesystem"),
        supplemental_groups: supplemental_groups(&of_pod),
        supplemental_groups_policy: policy.into(),
        no_new_privs: own.get("allowPrivilegeEscalation").and_then(Value::as_bool) == Some(false),
        masked_paths: paths(&MASKED),
        readonly_paths: paths(&READ_ONLY),
        seccomp: Some(seccomp),
        ..m::LinuxContainerSecurityContext::default()
    }
}

/// Rejects a container that must not run as root but would.
///
/// # Errors
/// The message of `CreateContainerConfigError`.
pub(super) fn verify_non_root(pod: &Pod, manifest: &Value, container: &Value, image: &m::Image) -> Result<(), String> {
    let of_pod = ["spec", "securityContext", "runAsNonRoot"];
    let wanted = container.at(&["securityContext", "runAsNonRoot"]).or_else(|| manifest.at(&of_pod));
    if wanted.and_then(Value::as_bool) != Some(true) {
        return Ok(());
    }
    let metadata = &pod.metadata;
    let place = format!(
        "(pod: \"{}_{}({})\", container: {})",
        metadata.name,
        metadata.namespace,
        metadata.uid,
        container.text("name")
    );
    let user = container.i64_at(&["securityContext", "runAsUser"]);
    match user.or_else(|| manifest.i64_at(&["spec", "securityContext", "runAsUser"])) {
        Some(0) => Err(format!("container's runAsUser breaks non-root policy {place}")),
        Some(_) => Ok(()),
        None => match (&image.uid, image.username.as_str()) {
            (Some(uid), _) if uid.value == 0 => {
                Err(format!("container has runAsNonRoot and image will run as root {place}"))
            }
            (None, user) if !user.is_empty() => Err(format!(
                "container has runAsNonRoot and image has non-numeric user ({user}), cannot verify user is non-root {place}"
            )),
            (None, _) => Err(format!("container has runAsNonRoot and image will run as root {place}")),
            _ => Ok(()),
        },
    }
}

/// The parts of a container's configuration that are made elsewhere.
pub(super) struct ContainerParts {
    pub(super) attempt: u32,
    pub(super) image: String,
    pub(super) command: Vec<String>,
    pub(super) args: Vec<String>,
    pub(super) envs: Vec<(String, String)>,
    pub(super) mounts: Vec<m::Mount>,
    pub(super) resources: m::LinuxContainerResources,
    pub(super) security: m::LinuxContainerSecurityContext,
    /// Device nodes.
    pub(super) devices: Vec<m::Device>,
    /// Devices that the runtime looks up by their CDI names.
    pub(super) cdi_devices: Vec<m::CdiDevice>,
}

/// The configuration of a container.
pub(super) fn container(pod: &Pod, kind: Kind, container: &Value, parts: ContainerParts) -> m::ContainerConfig {
    let name = container.text("name");
    let mut all_labels = labels(pod);
    all_labels.insert(CONTAINER_NAME.to_owned(), name.to_owned());
    let attempt = parts.attempt;
    let pairs = [
        (HASH, hash(container)),
        (RESTARTS, attempt.to_string()),
        (MESSAGE_PATH, container.text("terminationMessagePath").to_owned()),
        ("io.kubernetes.container.terminationMessagePolicy", container.text("terminationMessagePolicy").to_owned()),
        ("celplane.container.kind", kind.field().to_owned()),
        (RESOURCES, api::json::to_string(container.get("resources").unwrap_or(&Value::object()))),
    ];
    let is_once = container.flag("stdinOnce");
    m::ContainerConfig {
        metadata: Some(m::ContainerMetadata { name: name.to_owned(), attempt }),
        image: Some(m::ImageSpec {
            image: parts.image,
            user_specified_image: container.text("image").to_owned(),
            ..m::ImageSpec::default()
        }),
        command: parts.command,
        args: parts.args,
        working_dir: container.text("workingDir").to_owned(),
        envs: parts.envs.into_iter().map(|(key, value)| m::KeyValue { key, value: value.into_bytes() }).collect(),
        mounts: parts.mounts,
        labels: all_labels,
        annotations: pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
        log_path: format!("{name}/{attempt}.log"),
        stdin: container.flag("stdin"),
        stdin_once: is_once,
        tty: container.flag("tty"),
        linux: Some(m::LinuxContainerConfig {
            resources: Some(parts.resources),
            security_context: Some(parts.security),
        }),
        devices: parts.devices,
        cdi_devices: parts.cdi_devices,
    }
}

/// The `/etc/hosts` of a pod.
pub(super) fn hosts_file(
    pod: &Pod,
    manifest: &Value,
    addresses: &[String],
    domain: &str,
    of_node: Option<&str>,
) -> String {
    let (name, full) = hostname(pod, manifest, domain);
    let mut text_of = match of_node {
        Some(own) => format!("# Kubernetes-managed hosts file (host network).\n{own}"),
        None => {
            let mut made =
                "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n\
                fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n"
                    .to_owned();
            for address in addresses {
                match full.as_ref().filter(|full| **full != name) {
                    Some(full) => made.push_str(&format!("{address}\t{full}\t{name}\n")),
                    None => made.push_str(&format!("{address}\t{name}\n")),
                }
            }
            made
        }
    };
    let aliases = manifest.list_at(&["spec", "hostAliases"]);
    if !aliases.is_empty() {
        text_of.push_str("\n# Entries added by HostAliases.\n");
        for alias in aliases {
            text_of.push_str(&format!("{}\t{}\n", alias.text("ip"), texts(alias, &["hostnames"]).join("\t")));
        }
    }
    text_of
}
