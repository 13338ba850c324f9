//! Requests and limits as cgroup values, and the cgroups of pods.
//!
//! Follows `kuberuntime_container_linux.go` and `qos/policy.go` of Kubernetes' kubelet. Works with cgroup v1 and v2: the
//! runtime translates shares and quotas, and only the removal of a pod's cgroup differs.

use std::path::{Path, PathBuf};

use api::json::Value;
use cri::messages::{CgroupDriver, LinuxContainerResources};
use matching::resources::QosClass;

use super::manifest::amount;

/// The period of processor quotas, in microseconds.
pub(super) const PERIOD: i64 = 100_000;
pub(super) const QUOTA_MIN: i64 = 1000;
pub(super) const SHARES_MIN: i64 = 2;
/// The mount point of cgroups.
pub(super) const CGROUPS: &str = "/sys/fs/cgroup";

/// Processor shares for a thousandth of a processor.
pub(super) fn shares(milli: i64) -> i64 {
    milli.saturating_mul(1024).checked_div(1000).unwrap_or(0).clamp(SHARES_MIN, 262_144)
}

/// The limits of a container for the runtime. Limits of the pod as a whole hold for containers without their own.
/// `memory` is the node's.
pub(super) fn of_container(
    container: &Value,
    pod: &Value,
    qos: QosClass,
    is_critical: bool,
    memory: i64,
) -> LinuxContainerResources {
    let limit_of = |resource| amount(container, "limits", resource).or_else(|| amount(pod, "limits", resource));
    let limit = limit_of("cpu").map(|it| it.milli_value());
    let request = amount(container, "requests", "cpu").map(|it| it.milli_value()).or(limit);
    let quota = limit
        .filter(|limit| *limit > 0)
        .map(|limit| limit.saturating_mul(PERIOD).checked_div(1000).unwrap_or(0).max(QUOTA_MIN));
    let memory_limit = limit_of("memory").map_or(0, |it| it.value());
    let memory_request = amount(container, "requests", "memory").map_or(memory_limit, |it| it.value());
    LinuxContainerResources {
        cpu_period: PERIOD,
        cpu_quota: quota.unwrap_or(0),
        cpu_shares: shares(request.unwrap_or(0)),
        memory_limit_in_bytes: memory_limit,
        oom_score_adj: oom_score_adjustment(qos, is_critical, memory_request, memory),
        ..LinuxContainerResources::default()
    }
}

fn oom_score_adjustment(qos: QosClass, is_critical: bool, request: i64, memory: i64) -> i64 {
    match qos {
        _ if is_critical => -997,
        QosClass::Guaranteed => -997,
        QosClass::BestEffort => 1000,
        QosClass::Burstable => {
            let share = request.saturating_mul(1000).checked_div(memory).unwrap_or(0);
            // Above guaranteed pods, and below those without requests.
            1000_i64.saturating_sub(share).clamp(3, 999)
        }
    }
}

/// The cgroup of a pod, as the runtime's driver names it.
pub(super) fn cgroup_parent(root: &str, driver: CgroupDriver, qos: QosClass, uid: &str) -> String {
    let class = match qos {
        QosClass::Guaranteed => "",
        QosClass::Burstable => "burstable",
        QosClass::BestEffort => "besteffort",
    };
    match driver {
        CgroupDriver::Systemd => {
            let class = if class.is_empty() { String::new() } else { format!("-{class}") };
            format!("kubepods{class}-pod{}.slice", uid.replace('-', "_"))
        }
        CgroupDriver::Cgroupfs => {
            let parts = [root.trim_matches('/'), "kubepods", class, &format!("pod{uid}")];
            let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            format!("/{}", parts.join("/"))
        }
    }
}

/// Removes the empty cgroups of a pod below `mount`, in every hierarchy.
pub(super) fn remove_cgroup(mount: &Path, parent: &str) {
    let relative = parent.trim_start_matches('/');
    if relative.is_empty() || relative.split('/').any(|part| part == "..") {
        return;
    }
    let mut hierarchies = vec![mount.to_owned()];
    if !mount.join("cgroup.controllers").exists() {
        let found = std::fs::read_dir(mount).into_iter().flatten().flatten();
        hierarchies = found.map(|entry| entry.path()).filter(|path| path.is_dir() && !path.is_symlink()).collect();
    }
    for hierarchy in hierarchies {
        remove_tree(&hierarchy.join(relative));
    }
}

/// Removes a cgroup and those below it. One that has processes stays.
fn remove_tree(path: &PathBuf) {
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path());
        }
    }
    // A cgroup that is missing or in use is left alone.
    let _ = std::fs::remove_dir(path);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(resources: Value, qos: QosClass, expected: (i64, i64, i64, i64)) {
        let made = of_container(&api::json!({"resources": resources}), &Value::Null, qos, false, 8 << 30);
        assert_eq!((made.cpu_shares, made.cpu_quota, made.memory_limit_in_bytes, made.oom_score_adj), expected);
    }

    #[test]
    fn shares_quotas_and_scores_follow_the_class() {
        check(api::json!({}), QosClass::BestEffort, (2, 0, 0, 1000));
        check(api::json!({"limits": {"cpu": "1m"}}), QosClass::Burstable, (2, 1000, 0, 999));
        let half = api::json!({"requests": {"cpu": "500m", "memory": "4Gi"}, "limits": {"memory": "6Gi"}});
        check(half, QosClass::Burstable, (512, 0, 6 << 30, 500));
        check(
            api::json!({"limits": {"cpu": 2, "memory": "1Gi"}}),
            QosClass::Guaranteed,
            (2048, 200_000, 1 << 30, -997),
        );
    }

    #[test]
    fn limits_of_the_pod_hold_for_containers_without_limits() {
        let pod = api::json!({"resources": {"limits": {"cpu": "300m", "memory": "48Mi"}, "requests": {"cpu": "100m"}}});
        let container = api::json!({"resources": {"limits": {"memory": "16Mi"}}});
        let made = of_container(&container, &pod, QosClass::Burstable, false, 8 << 30);
        assert_eq!((made.cpu_shares, made.cpu_quota, made.memory_limit_in_bytes), (307, 30_000, 16 << 20));
    }

    #[test]
    fn cgroups_are_named_for_the_driver() {
        let name = |root, driver, qos| cgroup_parent(root, driver, qos, "a-b");
        assert_eq!(name("/", CgroupDriver::Cgroupfs, QosClass::Guaranteed), "/kubepods/poda-b");
        assert_eq!(name("/t", CgroupDriver::Cgroupfs, QosClass::BestEffort), "/t/kubepods/besteffort/poda-b");
        assert_eq!(name("/", CgroupDriver::Systemd, QosClass::Burstable), "kubepods-burstable-poda_b.slice");
    }

    #[test]
    fn cgroups_are_removed_in_all_hierarchies() {
        let mount = tempfile::tempdir().unwrap();
        for part in ["cpu/kubepods/podx/c1", "memory/kubepods/podx", "memory/kubepods/pody"] {
            std::fs::create_dir_all(mount.path().join(part)).unwrap();
        }
        remove_cgroup(mount.path(), "/kubepods/podx");
        assert!(
            !mount.path().join("cpu/kubepods/podx").exists() && !mount.path().join("memory/kubepods/podx").exists()
        );
        assert!(mount.path().join("memory/kubepods/pody").exists());
        remove_cgroup(mount.path(), "/../memory");
        assert!(mount.path().join("memory").exists());
        // One hierarchy for all controllers: cgroup v2.
        std::fs::write(mount.path().join("cgroup.controllers"), "cpu memory").unwrap();
        std::fs::create_dir_all(mount.path().join("kubepods/podz")).unwrap();
        remove_cgroup(mount.path(), "/kubepods/podz");
        assert!(!mount.path().join("kubepods/podz").exists());
    }
}
