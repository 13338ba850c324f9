//! Limits on the local storage of pods: volumes on disk, log files, and the files that containers write to their own
//! file system. A pod above one of its limits is evicted.
//!
//! Follows `localStorageEviction` in `eviction/eviction_manager.go` of Kubernetes, with its texts.

use std::collections::HashMap;

use api::Quantity;
use api::core::v1::Pod;
use api::json::Value;
use cri::messages as m;

use super::super::SharedState;
use super::super::configs::{CONTAINER_NAME, POD_UID};
use super::super::manifest::{self, Kind, amount};
use super::{HARD_GRACE, usage};

const RESOURCE: &str = "ephemeral-storage";
const EMPTY_DIRECTORIES: &str = "volumes/kubernetes.io~empty-dir";

/// Bytes that containers wrote to their own file systems, by the pod's uid and the container's name.
pub(super) type Layers = HashMap<(String, String), i64>;

/// Regular containers and init containers: those that have limits.
fn containers(manifest: &Value) -> impl Iterator<Item = &Value> {
    manifest::containers(manifest).filter(|(kind, _)| *kind != Kind::Ephemeral).map(|(_, it)| it)
}

fn has_container_limit(manifest: &Value) -> bool {
    containers(manifest).any(|it| amount(it, "limits", RESOURCE).is_some())
}

fn is_limited(manifest: &Value) -> bool {
    let volumes = manifest.list_at(&["spec", "volumes"]);
    has_container_limit(manifest) || volumes.iter().any(|it| it.str_at(&["emptyDir", "sizeLimit"]).is_some())
}

/// The volumes on disk that a pod's own files are in.
fn empty_directories(manifest: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let volumes = manifest.list_at(&["spec", "volumes"]).iter();
    let on_disk = volumes.filter_map(|it| Some((it.text("name"), it.get("emptyDir")?)));
    on_disk.filter(|(_, source)| source.text("medium") != "Memory")
}

/// The limit of a pod, if its containers have limits: their sum.
fn pod_limit(manifest: &Value) -> Option<Quantity> {
    let mut limits = manifest.list_at(&["spec", "containers"]).iter().filter_map(|it| amount(it, "limits", RESOURCE));
    let mut sum = limits.next()?;
    limits.for_each(|it| sum.add(&it));
    Some(sum)
}

impl SharedState {
    /// Evicts pods whose files exceed their limits.
    pub(super) async fn check_local_storage(&self) {
        let pods = self.active(is_limited).await;
        let needs_layers = pods.iter().any(|(_, manifest)| has_container_limit(manifest));
        let layers = if needs_layers { self.written_layers().await } else { Layers::new() };
        for (pod, manifest) in pods {
            if let Some(message) = self.excess(&pod, &manifest, &layers).await {
                // Kubernetes: files above their limits end a pod with its own grace period cut to a second.
                self.evict(&pod, message, HARD_GRACE);
            }
        }
    }

    /// The bytes on disk that a pod takes: its volumes, its log files, and what its containers wrote.
    pub(super) async fn local_usage(&self, pod: &Pod, manifest: &Value, layers: &Layers) -> i64 {
        let metadata = &pod.metadata;
        let volumes = self.directory(&metadata.uid).join(EMPTY_DIRECTORIES);
        let mut directories: Vec<_> = empty_directories(manifest).map(|(name, _)| volumes.join(name)).collect();
        directories.push(self.log_directory(&metadata.namespace, &metadata.name, &metadata.uid));
        let counted = tokio::task::spawn_blocking(move || {
            directories.iter().fold(0_i64, |sum, it| sum.saturating_add(usage(it, i64::MAX)))
        });
        let written = layers.iter().filter(|((uid, _), _)| *uid == *metadata.uid).map(|(_, bytes)| *bytes);
        written.fold(counted.await.unwrap_or(0), i64::saturating_add)
    }

    /// The message about the first limit that a pod exceeds.
    async fn excess(&self, pod: &Pod, manifest: &Value, layers: &Layers) -> Option<String> {
        let metadata = &pod.metadata;
        let volumes = self.directory(&metadata.uid).join(EMPTY_DIRECTORIES);
        let logs = self.log_directory(&metadata.namespace, &metadata.name, &metadata.uid);
        let mut total = 0_i64;
        for (name, source) in empty_directories(manifest) {
            let path = volumes.join(name);
            let used = tokio::task::spawn_blocking(move || usage(&path, i64::MAX)).await.unwrap_or(0);
            total = total.saturating_add(used);
            let given = source.text("sizeLimit");
            let limit = Quantity::parse(given).ok().map(|it| it.value()).filter(|it| *it > 0);
            if limit.is_some_and(|limit| used > limit) {
                return Some(format!("Usage of EmptyDir volume \"{name}\" exceeds the limit \"{given}\". "));
            }
        }
        if !has_container_limit(manifest) {
            return None;
        }
        let mut above = None;
        for container in containers(manifest) {
            let name = container.text("name");
            let path = logs.join(name);
            let written = layers.get(&(metadata.uid.to_string(), name.to_owned())).copied().unwrap_or(0);
            let logged = tokio::task::spawn_blocking(move || usage(&path, i64::MAX)).await.unwrap_or(0);
            let used = written.saturating_add(logged);
            total = total.saturating_add(used);
            let limit = amount(container, "limits", RESOURCE).filter(|limit| used > limit.value());
            above = above.or_else(|| {
                limit.map(|limit| format!("Container {name} exceeded its local ephemeral storage limit \"{limit}\". "))
            });
        }
        let of_pod = pod_limit(manifest).filter(|limit| total > limit.value());
        let of_pod = of_pod
            .map(|limit| format!("Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "));
        of_pod.or(above)
    }

    /// Bytes that all containers wrote to their own file systems.
    pub(super) async fn written_layers(&self) -> Layers {
        let stats = self.runtime.list_container_stats(m::ListContainerStatsRequest::default()).await;
        let mut layers = Layers::new();
        for row in stats.map(|it| it.stats).unwrap_or_default() {
            let label =
                |name: &str| row.attributes.as_ref().and_then(|it| it.labels.get(name)).cloned().unwrap_or_default();
            let used = row.writable_layer.as_ref().and_then(|it| it.used_bytes.as_ref()).map_or(0, |it| it.value);
            layers.insert((label(POD_UID), label(CONTAINER_NAME)), i64::try_from(used).unwrap_or(i64::MAX));
        }
        layers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_a_pod_are_the_sum_of_its_containers() {
        let limit = |amount: &str| api::json!({"limits": {"ephemeral-storage": amount}});
        let pod = |volumes: Value, first: Value| {
            api::json!({"spec": {"volumes": volumes,
                "containers": [{"name": "a", "resources": first}, {"name": "b", "resources": (limit("1Mi"))}]}})
        };
        let both = pod(api::json!([]), limit("2Mi"));
        assert_eq!(pod_limit(&both).map(|it| it.to_string()).as_deref(), Some("3Mi"));
        assert!(is_limited(&both) && has_container_limit(&both));
        assert_eq!(pod_limit(&pod(api::json!([]), api::json!({}))).map(|it| it.value()), Some(1 << 20));
        let plain = api::json!({"spec": {"containers": [{"name": "a"}], "volumes": [
            {"name": "m", "emptyDir": {"medium": "Memory"}}, {"name": "d", "emptyDir": {}}, {"name": "s", "secret": {}}]}});
        assert!(!is_limited(&plain) && pod_limit(&plain).is_none());
        assert_eq!(empty_directories(&plain).map(|(name, _)| name).collect::<Vec<_>>(), ["d"]);
    }
}
