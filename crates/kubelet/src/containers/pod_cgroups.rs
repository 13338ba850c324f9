//! The cgroups above containers: limits of whole pods, and the processor weights of pods and QoS classes.
//!
//! Follows `cm/helpers_linux.go` and `cm/qos_container_manager_linux.go` of Kubernetes' kubelet. The runtime creates the
//! cgroups with a pod's sandbox; those of the systemd driver belong to systemd and are left alone.

use std::path::{Path, PathBuf};

use api::core::v1::Pod;
use cri::messages::CgroupDriver;
use matching::resources::{self as amounts, Options, QosClass};
use telemetry::logs::chain;
use tracing::debug;

use super::SharedState;
use super::resources::{self, CGROUPS, PERIOD, QUOTA_MIN, SHARES_MIN, shares};

/// Limits of a pod as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PodLimits {
    shares: i64,
    /// Microseconds of processor time in each period.
    quota: Option<i64>,
    memory: Option<i64>,
}

impl PodLimits {
    /// The limits of a pod with its present resources. A limit holds if all containers, or the pod as a whole, have one.
    pub(super) fn of(pod: &Pod) -> Self {
        let spec = &pod.spec;
        let qos = amounts::qos_class(spec);
        if qos == QosClass::BestEffort {
            return Self { shares: SHARES_MIN, quota: None, memory: None };
        }
        let (requests, limits) =
            (amounts::requests(spec, Options::default()), amounts::limits(spec, Options::default()));
        let is_limited = |resource: &str| {
            let all = spec.init_containers.iter().chain(&spec.containers).map(|it| &it.resources);
            let has = |list: &api::core::v1::ResourceList| list.get(resource).is_some_and(|it| !it.is_zero());
            all.map(|it| &it.limits).all(has) || spec.resources.as_ref().is_some_and(|it| has(&it.limits))
        };
        let limit = |resource: &str| limits.get(resource).filter(|_| is_limited(resource));
        Self {
            shares: shares(requests.get("cpu").map_or(0, |it| it.milli_value())),
            quota: limit("cpu")
                .map(|it| it.milli_value().saturating_mul(PERIOD).checked_div(1000).unwrap_or(0).max(QUOTA_MIN)),
            memory: limit("memory").map(|it| it.value()),
        }
    }

    /// The files of a cgroup and their new contents, each below one of the given hierarchies.
    fn files(&self, is_unified: bool) -> [(&'static str, &'static str, String); 3] {
        if is_unified {
            let or_max = |it: Option<i64>| it.map_or("max".to_owned(), |it| it.to_string());
            let quota = format!("{} {PERIOD}", or_max(self.quota));
            [
                ("", "cpu.weight", weight(self.shares).to_string()),
                ("", "cpu.max", quota),
                ("", "memory.max", or_max(self.memory)),
            ]
        } else {
            let or_none = |it: Option<i64>| it.unwrap_or(-1).to_string();
            [
                ("cpu", "cpu.shares", self.shares.to_string()),
                ("cpu", "cpu.cfs_quota_us", or_none(self.quota)),
                ("memory", "memory.limit_in_bytes", or_none(self.memory)),
            ]
        }
    }
}

/// Shares of cgroup v1 as a weight of cgroup v2.
fn weight(shares: i64) -> i64 {
    let above = shares.saturating_sub(SHARES_MIN).saturating_mul(9999);
    above.checked_div(262_142).unwrap_or(0).saturating_add(1).clamp(1, 10_000)
}

/// A cgroup's file, if the cgroup exists in this hierarchy.
fn file(mount: &Path, hierarchy: &str, cgroup: &str, name: &str) -> Option<PathBuf> {
    let relative = cgroup.trim_start_matches('/');
    let is_below = !relative.is_empty() && relative.split('/').all(|part| part != "..");
    let path = mount.join(hierarchy).join(relative).join(name);
    Some(path).filter(|path| is_below && path.exists())
}

/// Whether a content allows more than another one. No limit is the most.
fn is_more(new: &str, present: &str) -> bool {
    let amount =
        |text: &str| text.split_whitespace().next().and_then(|it| it.parse::<i64>().ok()).filter(|it| *it >= 0);
    match (amount(new), amount(present)) {
        (None, present) => present.is_some(),
        (Some(_), None) => false,
        (Some(new), Some(present)) => new > present,
    }
}

/// Writes limits to a cgroup; only those that become larger if `raises`.
fn apply(mount: &Path, cgroup: &str, limits: &PodLimits, raises: bool) {
    let is_unified = mount.join("cgroup.controllers").exists();
    for (hierarchy, name, content) in limits.files(is_unified) {
        let Some(path) = file(mount, hierarchy, cgroup, name) else { continue };
        let present = std::fs::read_to_string(&path).unwrap_or_default();
        if present.trim() == content || raises && !is_more(&content, &present) {
            continue;
        }
        if let Err(error) = std::fs::write(&path, &content) {
            debug!(path = %path.display(), content, err = %chain(&error), "Could not limit a pod");
        }
    }
}

impl SharedState {
    /// Limits a pod as a whole, and weighs its QoS class. During a resize, containers get more only after the pod did, and
    /// less before: `raises` leaves limits alone that become smaller.
    pub(super) fn limit_pod(&self, pod: &Pod, raises: bool) {
        if self.cgroup_driver == CgroupDriver::Systemd {
            return;
        }
        let qos = amounts::qos_class(&pod.spec);
        let limits = PodLimits::of(pod);
        let cgroup = resources::cgroup_parent(&self.cgroup_root, self.cgroup_driver, qos, &pod.metadata.uid);
        apply(Path::new(CGROUPS), &cgroup, &limits, raises);
        if qos == QosClass::Burstable {
            self.burstable_shares.lock().insert(pod.metadata.uid.clone(), limits.shares);
        }
        self.weigh_classes();
    }

    /// Releases the part of a pod in its QoS class.
    pub(super) fn release_limits(&self, uid: &str) {
        if self.burstable_shares.lock().remove(uid).is_some() {
            self.weigh_classes();
        }
    }

    /// Pods without requests get the least weight together, burstable ones the sum of their requests.
    fn weigh_classes(&self) {
        let sum = self.burstable_shares.lock().values().fold(0_i64, |sum, it| sum.saturating_add(*it));
        for (class, shares) in [("burstable", sum.clamp(SHARES_MIN, 262_144)), ("besteffort", SHARES_MIN)] {
            let parts = [self.cgroup_root.trim_matches('/'), "kubepods", class];
            let cgroup = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
            apply(Path::new(CGROUPS), &cgroup, &PodLimits { shares, quota: None, memory: None }, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(spec: &str) -> Pod {
        api::json::from_value(&api::json::parse(format!(r#"{{"spec": {spec}}}"#).as_bytes()).unwrap()).unwrap()
    }

    #[track_caller]
    fn check(spec: &str, shares: i64, quota: Option<i64>, memory: Option<i64>) {
        assert_eq!(PodLimits::of(&pod(spec)), PodLimits { shares, quota, memory }, "{spec}");
    }

    #[test]
    fn limits_hold_if_every_container_has_one() {
        check(r#"{"containers": [{"name": "a"}]}"#, 2, None, None);
        let a = r#"{"name": "a", "resources": {"requests": {"cpu": "250m"}, "limits": {"cpu": "1", "memory": "1Mi"}}}"#;
        let b = r#"{"name": "b", "resources": {"requests": {"cpu": "250m"}, "limits": {"memory": "2Mi"}}}"#;
        check(&format!(r#"{{"containers": [{a}]}}"#), 256, Some(100_000), Some(1 << 20));
        check(&format!(r#"{{"containers": [{a}, {b}]}}"#), 512, None, Some(3 << 20));
        let whole = r#""resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "4Mi"}}"#;
        check(&format!(r#"{{"containers": [{{"name": "c"}}], {whole}}}"#), 1024, Some(200_000), Some(4 << 20));
    }

    #[test]
    fn cgroups_of_both_versions_get_limits() {
        let limits = PodLimits { shares: 512, quota: Some(50_000), memory: None };
        let read = |path: PathBuf| std::fs::read_to_string(path).unwrap();
        let one = tempfile::tempdir().unwrap();
        for (hierarchy, file) in
            [("cpu", "cpu.shares"), ("cpu", "cpu.cfs_quota_us"), ("memory", "memory.limit_in_bytes")]
        {
            std::fs::create_dir_all(one.path().join(hierarchy).join("kubepods/podx")).unwrap();
            std::fs::write(one.path().join(hierarchy).join("kubepods/podx").join(file), "99999\n").unwrap();
        }
        let of = |path: &str| read(one.path().join(path));
        apply(one.path(), "/kubepods/podx", &limits, true);
        assert_eq!(of("cpu/kubepods/podx/cpu.cfs_quota_us"), "99999\n", "a smaller limit waits");
        assert_eq!(of("memory/kubepods/podx/memory.limit_in_bytes"), "-1");
        apply(one.path(), "/kubepods/podx", &limits, false);
        assert_eq!(of("cpu/kubepods/podx/cpu.shares"), "512");
        assert_eq!(of("cpu/kubepods/podx/cpu.cfs_quota_us"), "50000");
        // Nothing is created, and nothing outside of the hierarchy is written.
        apply(one.path(), "/kubepods/pody", &limits, false);
        apply(one.path(), "/../kubepods/podx", &limits, false);
        assert!(!one.path().join("cpu/kubepods/pody").exists());
        let two = tempfile::tempdir().unwrap();
        std::fs::write(two.path().join("cgroup.controllers"), "cpu memory").unwrap();
        std::fs::create_dir_all(two.path().join("kubepods/podx")).unwrap();
        for file in ["cpu.weight", "cpu.max", "memory.max"] {
            std::fs::write(two.path().join("kubepods/podx").join(file), "1\n").unwrap();
        }
        apply(two.path(), "/kubepods/podx", &limits, false);
        let of = |path: &str| read(two.path().join("kubepods/podx").join(path));
        assert_eq!(
            (of("cpu.weight"), of("cpu.max"), of("memory.max")),
            ("20".into(), "50000 100000".into(), "max".into())
        );
        assert_eq!((weight(2), weight(1024), weight(262_144)), (1, 39, 10_000));
    }
}
