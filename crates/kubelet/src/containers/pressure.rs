//! Resources of the node that run out: disk and memory; and pods above their limits of local storage. Unused images are removed first, then
//! pods are evicted, one at a time.
//!
//! `thresholds` decides when. Follows `pkg/kubelet/eviction` and `images/image_gc_manager.go` of Kubernetes, with their default thresholds and texts.

mod local_storage;
mod thresholds;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::Quantity;
use api::core::v1::Pod;
use api::json::{Text, Value};
use api::quantity::Format;
use api::time::Timestamp;
use cri::messages as m;
use locks::Mutex;
use matching::resources::QosClass;
use telemetry::logs::chain;
use tracing::{debug, info};

use self::local_storage::Layers;
use self::thresholds::{Observations, ObservedResource, Signal, Threshold, Tracker};
pub use self::thresholds::{ThresholdFlags, Thresholds};
use super::SharedState;
use super::configs::{CONTAINER_NAME, POD_UID};
use super::manifest::{self, Kind, amount};
use crate::fleet::EVICTED;
use crate::runtime::{Pressure, Termination};

/// Images are removed when the disk is fuller than the first, until it is emptier than the second, in percent.
const IMAGES_PERCENT: (u64, u64) = (85, 80);
/// Images are kept for this long after their last use.
const IMAGE_AGE_MIN: Duration = Duration::from_secs(120);
/// Grace period of pods that are evicted for a hard threshold, in seconds.
const HARD_GRACE: i64 = 1;
/// Pods of at least this priority are not evicted.
const CRITICAL: i64 = 2_000_000_000;
/// Most files of a volume that are counted in one look.
const FILES_MAX: usize = 200_000;

/// State between two looks.
#[derive(Default)]
pub(super) struct PressureState {
    /// Pods that the node ends by itself.
    pub(super) endings: Mutex<HashMap<Text, Termination>>,
    tracker: Mutex<Tracker>,
    /// Time of the last use of each image.
    images: Mutex<BTreeMap<String, Timestamp>>,
    /// The image of sandboxes, which no container names.
    sandbox_image: String,
}

impl PressureState {
    /// The state of an agent whose runtime reports `info` about itself.
    pub(super) fn new(info: &BTreeMap<String, String>) -> Self {
        let config = info.get("config").and_then(|text| api::json::parse(text.as_bytes()).ok()).unwrap_or_default();
        Self { sandbox_image: config.text("sandboxImage").to_owned(), ..Self::default() }
    }

    /// Records the images that are there, and which of them are in use.
    fn note_images(&self, images: &[m::Image], used: &HashSet<&str>, now: Timestamp) {
        let mut known = self.images.lock();
        known.retain(|id, _| images.iter().any(|it| it.id == *id));
        for image in images {
            match known.get_mut(&image.id) {
                Some(last) if self.is_needed(image, used) => *last = now,
                Some(_) => {}
                None => drop(known.insert(image.id.clone(), now)),
            }
        }
    }

    /// The images that have not been in use for a while, the longest unused first.
    fn unused_images(&self, now: Timestamp) -> Vec<String> {
        let known = self.images.lock();
        let unused = known.iter().filter(|(_, last)| last.until(now) >= IMAGE_AGE_MIN);
        let mut unused: Vec<(Timestamp, String)> = unused.map(|(id, last)| (*last, id.clone())).collect();
        unused.sort();
        unused.into_iter().map(|(_, id)| id).collect()
    }

    /// Whether an image is needed: by one of the containers, or by all sandboxes. containerd pins the image of sandboxes
    /// from version 1.7 on; without it, no pod starts on a node that reaches no registry.
    fn is_needed(&self, image: &m::Image, used: &HashSet<&str>) -> bool {
        used.contains(image.id.as_str())
            || image.repo_digests.iter().any(|it| used.contains(it.as_str()))
            || image.pinned
            || image.repo_tags.contains(&self.sandbox_image)
    }
}

/// A candidate for eviction.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Candidate {
    uid: Text,
    priority: i64,
    usage: i64,
    request: i64,
}

/// The pod to evict first: one that uses more than it requested, then the least important, then the one that exceeds its
/// request most.
fn first(mut all: Vec<Candidate>) -> Option<Candidate> {
    all.sort_by_key(|it| (it.usage <= it.request, it.priority, it.request.saturating_sub(it.usage)));
    all.into_iter().find(|it| it.priority < CRITICAL)
}

/// The bytes and inodes of a file system.
fn file_system(path: &Path) -> Option<(ObservedResource, ObservedResource)> {
    let found = rustix::fs::statvfs(path).ok()?;
    let amount = |blocks: u64| i64::try_from(blocks.saturating_mul(found.f_frsize)).unwrap_or(i64::MAX);
    let count = |inodes: u64| i64::try_from(inodes).unwrap_or(i64::MAX);
    let bytes = ObservedResource { available: amount(found.f_bavail), capacity: amount(found.f_blocks) };
    // File systems that create inodes as needed have no limit.
    let inodes = match found.f_files {
        0 => ObservedResource { available: i64::MAX, capacity: 0 },
        all => ObservedResource { available: count(found.f_favail), capacity: count(all) },
    };
    Some((bytes, inodes))
}

/// The used part of a file system in percent.
fn used_percent(path: &Path) -> Option<u64> {
    let (bytes, _) = file_system(path)?;
    let used = i128::from(bytes.capacity.saturating_sub(bytes.available)).saturating_mul(100);
    used.checked_div(i128::from(bytes.capacity)).and_then(|it| u64::try_from(it).ok())
}

/// Bytes that the files below a directory take on disk. Counting ends once it is more than `enough`.
fn usage(directory: &Path, enough: i64) -> i64 {
    let (mut total, mut files) = (0_i64, 0_usize);
    let mut left: Vec<PathBuf> = vec![directory.to_owned()];
    let mut counted = HashSet::new();
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            // Links are not followed.
            let Ok(metadata) = entry.metadata() else { continue };
            files = files.saturating_add(1);
            if files > FILES_MAX || total > enough {
                return total;
            }
            if metadata.is_dir() {
                left.push(entry.path());
            }
            if metadata.nlink() <= 1 || counted.insert(metadata.ino()) {
                let blocks = i64::try_from(metadata.blocks()).unwrap_or(i64::MAX);
                total = total.saturating_add(blocks.saturating_mul(512));
            }
        }
    }
    total
}

/// The available memory in `/proc/meminfo`, in bytes.
fn available_memory(text: &str) -> Option<i64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<i64>().ok()?.checked_mul(1024)
}

fn quantity(bytes: i64) -> String {
    Quantity::new(bytes, Format::BinarySi).to_string()
}

impl SharedState {
    /// The end of a pod that the node decided; nothing if it did not.
    pub(super) fn ending(&self, uid: &str) -> Option<Termination> {
        self.pressure.endings.lock().get(uid).cloned()
    }

    pub(super) fn forget_ending(&self, uid: &str) {
        self.pressure.endings.lock().remove(uid);
    }

    /// The pressure that the node reports.
    pub(super) fn reported_pressure(&self) -> Pressure {
        self.pressure.tracker.lock().pressure(&self.thresholds, self.clock.now())
    }

    /// Looks after volumes, disk and memory once. At most one pod is evicted for the node's resources.
    pub(super) async fn relieve(&self) {
        let now = self.clock.now();
        self.check_local_storage().await;
        self.note_images(now).await;
        let images = self.image_directory().await;
        if let Some(path) = images.as_deref().filter(|path| used_percent(path).is_some_and(|it| it > IMAGES_PERCENT.0))
        {
            self.remove_images(path, now).await;
        }
        let seen = self.observations();
        let acting = self.pressure.tracker.lock().observe(&self.thresholds, &seen, now);
        let Some(threshold) = acting.first() else { return };
        let signal = threshold.signal;
        debug!(resource = signal.resource(), isHard = threshold.is_hard(), "Eviction threshold was met");
        if signal == Signal::Memory {
            let Some(observed) = seen.get(&signal) else { return };
            return self.evict_for_memory(threshold, *observed).await;
        }
        if let Some(path) = &images {
            self.remove_images(path, now).await;
        }
        // Pods are evicted if the removal of images did not help.
        let after = self.observations();
        let acting = self.pressure.tracker.lock().observe(&self.thresholds, &after, now);
        if acting.contains(threshold) {
            self.evict_for_disk(threshold, images.as_deref()).await;
        }
    }

    /// The present state of the node's resources.
    fn observations(&self) -> Observations {
        let mut seen = Observations::new();
        let memory = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| available_memory(&text));
        if let Some(available) = memory {
            seen.insert(Signal::Memory, ObservedResource { available, capacity: self.facts.memory });
        }
        if let Some((bytes, inodes)) = file_system(&self.root) {
            seen.insert(Signal::Disk, bytes);
            seen.insert(Signal::Inodes, inodes);
        }
        seen
    }

    fn evict(&self, pod: &Pod, message: String, grace: i64) {
        let ending = Termination { reason: EVICTED, message, grace: Some(grace) };
        if self.pressure.endings.lock().insert(pod.metadata.uid.clone(), ending).is_none() {
            info!(pod = %pod.metadata.key(), "Evicting pod");
            self.wake(pod);
        }
    }

    /// The grace period of a pod that is evicted for a threshold, in seconds.
    fn eviction_grace(&self, threshold: &Threshold) -> i64 {
        if threshold.is_hard() { HARD_GRACE } else { self.thresholds.max_pod_grace }
    }

    /// Pods that this agent runs and whose manifests are wanted, with the manifests.
    async fn active(&self, is_wanted: impl Fn(&Value) -> bool) -> Vec<(Pod, std::sync::Arc<Value>)> {
        let states: Vec<_> = self.pods().values().cloned().collect();
        let mut active = Vec::new();
        for state in states {
            if state.is_stopping.load(std::sync::atomic::Ordering::Acquire) {
                continue;
            }
            // A pod that is being worked on is looked at the next time.
            let Ok(work) = state.work.try_lock() else { continue };
            let manifest = work.manifest.clone().filter(|it| is_wanted(it));
            if let Some((pod, manifest)) =
                manifest.and_then(|it| Some((api::json::from_value::<Pod>(&it).ok()?, it.clone())))
            {
                active.push((pod, manifest));
            }
        }
        active
    }

    /// The directory in which the runtime keeps images.
    async fn image_directory(&self) -> Option<PathBuf> {
        let info = self.runtime.image_fs_info(m::ImageFsInfoRequest {}).await.unwrap_or_default();
        let mounted = info.image_filesystems.first().and_then(|it| it.fs_id.as_ref()).map(|it| it.mountpoint.clone());
        mounted.map(PathBuf::from).filter(|it| it.exists())
    }

    /// Records which images are in use.
    async fn note_images(&self, now: Timestamp) {
        let Ok(listed) = self.runtime.list_images(m::ListImagesRequest::default()).await else { return };
        let Ok(containers) = self.runtime.list_containers(m::ListContainersRequest::default()).await else { return };
        let used: HashSet<&str> = containers.containers.iter().map(|it| it.image_ref.as_str()).collect();
        self.pressure.note_images(&listed.images, &used, now);
    }

    /// Removes images that are not in use, the longest unused first, until there is room.
    async fn remove_images(&self, path: &Path, now: Timestamp) {
        for id in self.pressure.unused_images(now) {
            if used_percent(path).is_none_or(|used| used <= IMAGES_PERCENT.1) {
                return;
            }
            let image = Some(m::ImageSpec { image: id.clone(), ..m::ImageSpec::default() });
            match self.runtime.remove_image(m::RemoveImageRequest { image }).await {
                Ok(_) => {
                    info!(image = %id, "Removed unused image");
                    self.pressure.images.lock().remove(&id);
                }
                Err(status) => debug!(image = %id, err = %chain(&status), "Could not remove image"),
            }
        }
    }

    async fn evict_for_memory(&self, threshold: &Threshold, observed: ObservedResource) {
        let request = m::ListContainerStatsRequest::default();
        let Ok(stats) = self.runtime.list_container_stats(request).await else { return };
        let mut used: HashMap<String, i64> = HashMap::new();
        let mut by_container: BTreeMap<(String, String), i64> = BTreeMap::new();
        for stats in stats.stats {
            let label =
                |name: &str| stats.attributes.as_ref().and_then(|it| it.labels.get(name)).cloned().unwrap_or_default();
            let (uid, container) = (label(POD_UID), label(CONTAINER_NAME));
            let bytes = stats.memory.and_then(|it| it.working_set_bytes).map_or(0, |it| it.value);
            let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
            let sum = used.entry(uid.clone()).or_default();
            *sum = sum.saturating_add(bytes);
            by_container.insert((uid, container), bytes);
        }
        let active = self.active(|_| true).await;
        let candidate = |(pod, manifest): &(Pod, std::sync::Arc<Value>)| Candidate {
            uid: pod.metadata.uid.clone(),
            priority: manifest.i64_at(&["spec", "priority"]).unwrap_or(0),
            usage: used.get(pod.metadata.uid.as_str()).copied().unwrap_or(0),
            request: requested(manifest, "memory"),
        };
        let Some(chosen) = first(active.iter().map(candidate).collect()) else { return };
        if let Some((pod, manifest)) = active.iter().find(|(pod, _)| pod.metadata.uid == chosen.uid) {
            let (least, available) = (quantity(threshold.amount(observed.capacity)), quantity(observed.available));
            let mut message =
                format!("The node was low on resource: memory. Threshold quantity: {least}, available: {available}. ");
            for (_, container) in manifest::containers(manifest).filter(|(kind, _)| *kind != Kind::Ephemeral) {
                let name = container.text("name");
                let usage = by_container.get(&(pod.metadata.uid.to_string(), name.to_owned())).copied().unwrap_or(0);
                let request = amount(container, "requests", "memory").map_or(0, |it| it.value());
                if usage > request {
                    let (usage, request) = (quantity(usage), quantity(request));
                    message.push_str(&format!(
                        "Container {name} was using {usage}, request is {request}, has larger consumption of memory. "
                    ));
                }
            }
            self.evict(pod, message, self.eviction_grace(threshold));
        }
    }

    /// Evicts the pod that takes most of the disk. `images` is the runtime's own directory.
    async fn evict_for_disk(&self, threshold: &Threshold, images: Option<&Path>) {
        let device = |path: &Path| std::fs::metadata(path).ok().map(|it| it.dev());
        // Files of containers count if they are on the disk that is full.
        let has_layers = images.is_none_or(|path| device(path) == device(&self.root));
        let layers = if has_layers { self.written_layers().await } else { Layers::new() };
        let active = self.active(|_| true).await;
        let mut candidates = Vec::new();
        for (pod, manifest) in &active {
            candidates.push(Candidate {
                uid: pod.metadata.uid.clone(),
                priority: manifest.i64_at(&["spec", "priority"]).unwrap_or(0),
                usage: self.local_usage(pod, manifest, &layers).await,
                request: requested(manifest, "ephemeral-storage"),
            });
        }
        let Some(chosen) = first(candidates) else { return };
        if let Some((pod, _)) = active.iter().find(|(pod, _)| pod.metadata.uid == chosen.uid) {
            let message = format!("The node was low on resource: {}. ", threshold.signal.resource());
            self.evict(pod, message, self.eviction_grace(threshold));
        }
    }
}

/// The sum of the requests of a pod's containers.
fn requested(manifest: &Value, resource: &str) -> i64 {
    let all = manifest::containers(manifest).filter_map(|(_, it)| amount(it, "requests", resource));
    all.fold(0, |sum, it| sum.saturating_add(it.value()))
}

/// The reason not to start a pod on a node under pressure.
pub(crate) fn refusal(pod: &Pod, pressure: Pressure, priority: i64) -> Option<String> {
    let is_best_effort = matching::resources::qos_class(&pod.spec) == QosClass::BestEffort;
    let condition = match pressure {
        _ if priority >= CRITICAL => return None,
        Pressure { disk: true, .. } => "DiskPressure",
        Pressure { memory: true, .. } if is_best_effort => "MemoryPressure",
        _ => return None,
    };
    Some(format!("The node had condition: [{condition}]. "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(uid: &str, priority: i64, usage: i64, request: i64) -> Candidate {
        Candidate { uid: uid.into(), priority, usage, request }
    }

    #[track_caller]
    fn check(all: &[Candidate], expected: Option<&str>) {
        assert_eq!(first(all.to_vec()).map(|it| it.uid.to_string()).as_deref(), expected);
    }

    #[test]
    fn pods_above_their_requests_go_first() {
        let modest = candidate("modest", 0, 10, 20);
        let greedy = candidate("greedy", 5, 30, 20);
        let greedier = candidate("greedier", 5, 90, 20);
        let important = candidate("important", 9, 900, 0);
        check(&[modest.clone(), greedy.clone(), greedier.clone(), important.clone()], Some("greedier"));
        check(&[modest.clone(), important], Some("important"));
        check(&[modest, candidate("critical", CRITICAL, 99, 0)], Some("modest"));
        check(&[candidate("critical", CRITICAL, 99, 0)], None);
    }

    #[test]
    fn images_of_sandboxes_are_needed() {
        let config = r#"{"sandboxImage": "registry.k8s.io/pause:3.10"}"#;
        let state = PressureState::new(&BTreeMap::from([("config".to_owned(), config.to_owned())]));
        let image = |id: &str, tag: &str| m::Image {
            id: id.to_owned(),
            repo_tags: vec![tag.to_owned()],
            ..m::Image::default()
        };
        let used = HashSet::from(["used"]);
        assert!(state.is_needed(&image("pause", "registry.k8s.io/pause:3.10"), &used));
        assert!(state.is_needed(&image("used", "app:1"), &used));
        assert!(!state.is_needed(&image("other", "app:2"), &used));
        assert!(!PressureState::new(&BTreeMap::new()).is_needed(&image("pause", "registry.k8s.io/pause:3.10"), &used));
    }

    #[test]
    fn images_are_removed_in_the_order_of_their_last_use() {
        let state = PressureState::default();
        let at = |seconds| Timestamp { seconds, nanos: 0 };
        let images = |ids: &[&str]| -> Vec<m::Image> {
            ids.iter().map(|id| m::Image { id: (*id).to_owned(), ..m::Image::default() }).collect()
        };
        let all = images(&["a", "b", "c", "d"]);
        state.note_images(&all, &HashSet::from(["a", "b"]), at(0));
        // Images count as used when they are first seen.
        assert!(state.unused_images(at(119)).is_empty());
        state.note_images(&all, &HashSet::from(["a"]), at(60));
        state.note_images(&all, &HashSet::from(["b", "d"]), at(100));
        state.note_images(&all, &HashSet::from(["d"]), at(130));
        assert_eq!(state.unused_images(at(130)), ["c"]);
        assert_eq!(state.unused_images(at(1000)), ["c", "a", "b", "d"]);
        // An image that was removed by others and pulled again counts as a new one.
        state.note_images(&images(&["a", "b", "d"]), &HashSet::new(), at(1000));
        state.note_images(&all, &HashSet::new(), at(1010));
        assert_eq!(state.unused_images(at(1020)), ["a", "b", "d"]);
    }

    #[test]
    fn usage_counts_blocks_and_links_once() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("d")).unwrap();
        std::fs::write(directory.path().join("d/a"), vec![1; 100_000]).unwrap();
        std::fs::hard_link(directory.path().join("d/a"), directory.path().join("b")).unwrap();
        std::os::unix::fs::symlink("/", directory.path().join("link")).unwrap();
        let used = usage(directory.path(), i64::MAX);
        assert!((100_000..200_000).contains(&used), "{used}");
        assert_eq!(available_memory("MemFree: 1 kB\nMemAvailable:    2048 kB\n"), Some(2 << 20));
    }

    #[test]
    fn nodes_under_pressure_refuse_pods() {
        let pod = |resources: &str| -> Pod {
            let text = format!(r#"{{"spec": {{"containers": [{{"name": "c", "resources": {resources}}}]}}}}"#);
            api::json::from_value(&api::json::parse(text.as_bytes()).unwrap()).unwrap()
        };
        let (plain, requesting) = (pod("{}"), pod(r#"{"requests": {"memory": "1Mi"}}"#));
        let memory = Pressure { memory: true, disk: false };
        let disk = Pressure { memory: false, disk: true };
        assert_eq!(refusal(&plain, Pressure::default(), 0), None);
        assert_eq!(refusal(&plain, memory, 0).as_deref(), Some("The node had condition: [MemoryPressure]. "));
        assert_eq!(refusal(&requesting, memory, 0), None);
        assert_eq!(refusal(&requesting, disk, 0).as_deref(), Some("The node had condition: [DiskPressure]. "));
        assert_eq!(refusal(&requesting, disk, CRITICAL), None);
    }
}
