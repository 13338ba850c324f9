//! The controls of the Pod Security Standards, with the versions they apply to.
//!
//! A control is one row of [`CONTROLS`]. The order of the rows is the order of violations in messages: baseline before
//! restricted, each sorted by Kubernetes' identifier of the control.

mod baseline;
mod profiles;
mod restricted;

use std::collections::BTreeSet;

use api::json::Value;

use super::policy::{Level, LevelVersion, Version};
use crate::core::pod::containers;

/// A violated control.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The control: `host namespaces`.
    pub reason: &'static str,
    /// The offending parts of the pod: `hostPID=true`.
    pub detail: String,
}

/// All violations of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Violations(Vec<Violation>);

impl Violations {
    /// Whether the pod is allowed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The violated controls, without details.
    #[must_use]
    pub fn reason(&self) -> String {
        self.0.iter().map(|it| it.reason).collect::<Vec<_>>().join(", ")
    }

    /// The violated controls, with details in parentheses.
    #[must_use]
    pub fn detail(&self) -> String {
        let each = self.0.iter().map(|it| format!("{} ({})", it.reason, it.detail));
        each.collect::<Vec<_>>().join(", ")
    }
}

/// A pod, or a template of pods.
#[derive(Debug, Clone, Copy)]
struct Pod<'a> {
    metadata: &'a Value,
    spec: &'a Value,
}

impl<'a> Pod<'a> {
    /// Init containers, containers, ephemeral containers.
    fn containers(self) -> impl Iterator<Item = &'a Value> {
        containers(self.spec).map(|(_, _, container)| container)
    }

    fn security_context(self) -> &'a Value {
        self.spec.field("securityContext")
    }

    /// Names of the containers whose security context meets the condition.
    fn containers_where(self, condition: impl Fn(&Value) -> bool) -> Vec<&'a str> {
        let bad = self.containers().filter(|it| condition(it.field("securityContext")));
        bad.map(|it| it.text("name")).collect()
    }

    fn is_windows(self) -> bool {
        self.spec.field("os").text("name") == "windows"
    }

    /// Whether the pod has its own user namespace, in which root is not root on the node.
    fn has_user_namespace(self) -> bool {
        self.spec.optional_flag("hostUsers") == Some(false)
    }
}

type Check = fn(Pod<'_>) -> Option<Violation>;

/// A control: the check that applies from each minor version on.
struct Control {
    level: Level,
    since: &'static [(u64, Check)],
    /// The minor version from which a restricted control covers this one.
    covered_since: Option<u64>,
}

const fn baseline(since: &'static [(u64, Check)]) -> Control {
    Control { level: Level::Baseline, since, covered_since: None }
}

const fn covered(since: &'static [(u64, Check)], version: u64) -> Control {
    Control { level: Level::Baseline, since, covered_since: Some(version) }
}

const fn restricted(since: &'static [(u64, Check)]) -> Control {
    Control { level: Level::Restricted, since, covered_since: None }
}

/// The newest minor version that changes a control; later versions are the same.
const NEWEST: u64 = 37;

static CONTROLS: [Control; 19] = [
    baseline(&[(0, profiles::app_armor)]),
    covered(&[(0, baseline::capabilities)], 22),
    baseline(&[(0, baseline::host_namespaces)]),
    covered(&[(0, baseline::host_path_volumes)], 0),
    baseline(&[(0, baseline::host_ports)]),
    baseline(&[(34, baseline::probe_hosts)]),
    baseline(&[(0, baseline::privileged)]),
    covered(&[(0, baseline::proc_mount), (35, baseline::proc_mount_of_host_users)], 35),
    baseline(&[(0, profiles::selinux), (31, profiles::selinux_since_31)]),
    covered(&[(0, profiles::seccomp_annotations), (19, profiles::seccomp)], 19),
    baseline(&[
        (0, baseline::sysctls),
        (27, baseline::sysctls_since_27),
        (29, baseline::sysctls_since_29),
        (32, baseline::sysctls_since_32),
        (37, baseline::sysctls_since_37),
    ]),
    baseline(&[(0, baseline::windows_host_process)]),
    restricted(&[(8, restricted::privilege_escalation), (25, restricted::privilege_escalation_since_25)]),
    restricted(&[(22, restricted::capabilities), (25, restricted::capabilities_since_25)]),
    restricted(&[(35, baseline::proc_mount)]),
    restricted(&[(0, restricted::volumes)]),
    restricted(&[(0, restricted::non_root), (35, restricted::non_root_since_35)]),
    restricted(&[(23, restricted::user), (35, restricted::user_since_35)]),
    restricted(&[(19, profiles::seccomp_required), (25, profiles::seccomp_required_since_25)]),
];

/// Returns the violations of a standard by a pod or template.
#[must_use]
pub fn violations(standard: LevelVersion, metadata: &Value, spec: &Value) -> Violations {
    let pod = Pod { metadata, spec };
    let version = match standard.version {
        Version::Minor(minor) => minor.min(NEWEST),
        Version::Latest => NEWEST,
    };
    let is_restricted = standard.level == Level::Restricted;
    let applying = CONTROLS.iter().filter(|control| {
        let is_covered = is_restricted && control.covered_since.is_some_and(|since| version >= since);
        control.level <= standard.level && !is_covered
    });
    let checks = applying.filter_map(|control| control.since.iter().rfind(|(since, _)| *since <= version));
    Violations(checks.filter_map(|(_, check)| check(pod)).collect())
}

/// `"a", "b"`; Kubernetes does not escape the items.
fn quote_all<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|it| format!("\"{}\"", it.as_ref())).collect::<Vec<_>>().join(", ")
}

fn plural(singular: &'static str, plural: &'static str, count: usize) -> &'static str {
    if count == 1 { singular } else { plural }
}

/// `container "a"` or `containers "a", "b"`.
fn named_containers(names: &[&str]) -> String {
    format!("{} {}", plural("container", "containers", names.len()), quote_all(names))
}

/// `pod and containers "a", "b"`: the parts of a pod that set a value; `None` if there are none.
fn setters(is_pod: bool, containers: &[&str]) -> Option<String> {
    match (is_pod, containers.is_empty()) {
        (false, true) => None,
        (true, true) => Some("pod".to_owned()),
        (false, false) => Some(named_containers(containers)),
        (true, false) => Some(format!("pod and {}", named_containers(containers))),
    }
}

/// Violation in the containers named, if there are any; `rest` follows their names.
fn container_violation(reason: &'static str, names: &[&str], rest: &str) -> Option<Violation> {
    let detail = setters(false, names)?;
    Some(Violation { reason, detail: format!("{detail} {rest}") })
}

/// Distinct texts in lexical order.
type Texts<'a> = BTreeSet<&'a str>;
