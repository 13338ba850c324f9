//! Static pods of nodes: kept in sync with their files, run independently of the server, and mirrored to it.
//!
//! The server holds a mirror pod: created when it is missing, recreated when it is deleted or outdated, and
//! deleted with the file. Follows `tryReconcileMirrorPods` of Kubernetes' kubelet.

use locks::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::core::v1::{Node, Pod, PodStatus};
use api::json::{Text, Value};
use api::meta::v1::Object as _;
use api::well_known::CONDITION_POD_SCHEDULED;
use client::Error;
use client::informer::Key;
use client::objects::Deletion;
use client::resources::ServedView as _;
use telemetry::logs::chain;
use tokio::time::Instant;
use tracing::{error, info, warn};

use super::Inner;
use super::member::Member;
use super::pods::addresses;
use crate::container_events;
use crate::pod_status;
use crate::preemption;
use crate::runtime::{Observation, Runtime, StopProgress};
use crate::static_pods::files::{self, FileMetadata, FoundManifests, Manifest};
use crate::static_pods::{self, Options, StaticPod};

/// Interval at which files are checked for changes.
const LOOKS: Duration = Duration::from_secs(1);
/// Time limit for the server's answer at the start, which restores the state of its mirrors.
const SERVER_ANSWERS: Duration = Duration::from_secs(5);
/// Delay before a pod that waits for the files, or for its node, is checked again.
const SOON: Duration = Duration::from_millis(500);

/// The static pods, by the names of their mirrors.
#[derive(Default)]
pub(super) struct StaticPods {
    pods: Mutex<HashMap<Key, Entry>>,
    /// Set once the files have been read, so that missing pods do not exist.
    is_known: AtomicBool,
}

#[derive(Clone)]
struct Entry {
    node: Text,
    /// With the status that it has here.
    now: Arc<StaticPod>,
    /// Whether its file was removed or changed.
    ends: bool,
    /// Its replacement.
    next: Option<Arc<StaticPod>>,
}

impl StaticPods {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Entry>> {
        self.pods.lock()
    }

    /// The pod of this name, with the status that it has on its node.
    pub(super) fn get(&self, key: &Key) -> Option<Arc<StaticPod>> {
        self.lock().get(key).map(|entry| entry.now.clone())
    }

    /// The names of the pods of a node.
    pub(super) fn of_node(&self, node: &str) -> Vec<Key> {
        self.lock().iter().filter(|(_, entry)| entry.node == node).map(|(key, _)| key.clone()).collect()
    }

    /// The uids of all pods from files.
    pub(super) fn uids(&self) -> Vec<Text> {
        let pods = self.lock();
        pods.values().map(|entry| entry.now.pod.metadata.uid.clone()).collect()
    }

    /// Sets a pod's status. Conditions that are not mentioned stay.
    fn set_status(&self, key: &Key, pod: &StaticPod, mut status: PodStatus) {
        if let Some(entry) = self.lock().get_mut(key)
            && entry.now.pod.metadata.uid == pod.pod.metadata.uid
        {
            let known = &mut Arc::make_mut(&mut entry.now).pod.status;
            let is_new = |name: &Text| !status.conditions.iter().any(|it| it.condition_type == *name);
            let kept: Vec<_> = known.conditions.iter().filter(|it| is_new(&it.condition_type)).cloned().collect();
            status.conditions.extend(kept);
            *known = status;
        }
    }

    /// Updates a pod from its file.
    fn put(&self, key: &Key, node: &str, pod: StaticPod) {
        let mut pods = self.lock();
        let pod = Arc::new(pod);
        match pods.get_mut(key) {
            None => {
                pods.insert(key.clone(), Entry { node: node.into(), now: pod, ends: false, next: None });
            }
            Some(entry) => {
                entry.ends = true;
                entry.next = Some(pod);
            }
        }
    }

    /// Whether a version of a pod is the running or the next one.
    fn has(&self, key: &Key, uid: &str) -> bool {
        self.lock().get(key).is_some_and(|entry| match &entry.next {
            Some(next) => next.pod.metadata.uid == uid,
            None => !entry.ends && entry.now.pod.metadata.uid == uid,
        })
    }

    /// Ends all pods that files no longer contain; returns their names.
    fn end_others(&self, held: &HashMap<Key, Text>) -> Vec<Key> {
        let mut ended = Vec::new();
        for (key, entry) in self.lock().iter_mut() {
            if !held.contains_key(key) && (!entry.ends || entry.next.is_some()) {
                (entry.ends, entry.next) = (true, None);
                ended.push(key.clone());
            }
        }
        ended
    }

    /// Replaces an ended pod by the next one, if there is one; returns whether there is.
    fn ended(&self, key: &Key) -> bool {
        let mut pods = self.lock();
        let Some(entry) = pods.remove(key) else { return false };
        let Some(next) = entry.next else { return false };
        pods.insert(key.clone(), Entry { now: next, ends: false, next: None, ..entry });
        true
    }
}

impl<R: Runtime> Inner<R> {
    /// Follows the files, for as long as the fleet is at work.
    pub(super) async fn follow_files(self: Arc<Self>, options: Options) {
        let answers = async {
            self.nodes.synced().await;
            self.pods.synced().await;
        };
        let _ = tokio::time::timeout(SERVER_ANSWERS, answers).await;
        let mut known: Option<(FileMetadata, usize, Instant)> = None;
        loop {
            let path = options.path.clone();
            let look = tokio::task::spawn_blocking(move || FileMetadata::at(&path)).await;
            let Ok(look) = look else { return };
            let members = self.members.len();
            let is_same = known.as_ref().is_some_and(|(before, count, at)| {
                *before == look && *count == members && at.elapsed() < options.period
            });
            if !is_same {
                known = Some((look, members, Instant::now()));
                self.read_files(&options).await;
            }
            tokio::time::sleep(LOOKS.min(options.period)).await;
        }
    }

    async fn read_files(&self, options: &Options) {
        let path = options.path.clone();
        let shown = options.path.display().to_string();
        match tokio::task::spawn_blocking(move || files::read(&path)).await {
            Err(failure) => error!(path = shown, err = %chain(&failure), "Could not read the static pods"),
            Ok(Err(failure)) => error!(path = shown, err = %chain(&failure), "Could not read the static pods"),
            Ok(Ok(FoundManifests { manifests, faults })) => {
                for (path, why) in faults {
                    error!(path = %path.display(), err = why, "Could not use a manifest of a static pod");
                }
                self.hold(&manifests, options);
                self.static_pods.is_known.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Syncs the pods of all nodes with the manifests.
    fn hold(&self, manifests: &[Manifest], options: &Options) {
        let members = self.members.all();
        let mut held = HashMap::new();
        for manifest in manifests {
            let mut is_reported = false;
            for member in &members {
                let (namespace, name) = static_pods::key(manifest, &member.name);
                let (key, uid) = (Key::new(namespace, name), static_pods::uid(manifest, &member.name));
                if self.static_pods.has(&key, &uid) {
                    held.insert(key, uid);
                    continue;
                }
                match static_pods::for_node(manifest, &member.name, &options.check, self.clock.now()) {
                    Ok(pod) => {
                        let pod = self.resumed(&key, member, pod);
                        held.insert(key.clone(), uid);
                        self.static_pods.put(&key, &member.name, pod);
                        self.pod_queue.add(key);
                    }
                    // The error is the same on the other nodes.
                    Err(_) if is_reported => {}
                    Err(why) => {
                        is_reported = true;
                        error!(path = %manifest.path.display(), err = why, "Could not use a manifest of a static pod");
                    }
                }
            }
        }
        for key in self.static_pods.end_others(&held) {
            self.pod_queue.add(key);
        }
    }

    /// Resumes a pod that ran when the last process ended, from the status of its mirror.
    fn resumed(&self, key: &Key, member: &Member, mut pod: StaticPod) -> StaticPod {
        let mirror = self.pods.store().get_key(key).filter(|mirror| static_pods::is_mirror_of(mirror, &pod.pod));
        if let Some(mirror) = mirror.filter(|mirror| !mirror.status.container_statuses.is_empty()) {
            pod.pod.status = mirror.status.clone();
            if !pod.pod.is_terminal() {
                let uid = &pod.pod.metadata.uid;
                let mut state = member.state();
                state.addresses.take(uid, &pod.pod.status.pod_ip);
                state.admitted.insert(uid.clone(), Arc::new(pod.pod.clone()));
            }
        }
        pod
    }

    /// Advances a static pod, and its mirror. Returns the time until the next check.
    pub(super) async fn look_after_static(&self, key: &Key) -> Result<Option<Duration>, Error> {
        let Some(entry) = self.static_pods.lock().get(key).cloned() else { return Ok(None) };
        let Some(member) = self.members.get(&entry.node).filter(|it| it.is_alive()) else { return Ok(None) };
        if entry.ends {
            return self.end_static(key, &entry, &member).await;
        }
        let now = self.clock.now();
        let known = self.nodes.store().get("", &member.name);
        let node = match &known {
            Some(node) => node.clone(),
            None => Arc::new(self.expected(&member)),
        };
        // It is mirrored as soon as the node exists.
        let registers = known.is_none().then_some(SOON);
        let pod = &entry.now.pod;
        let shared = Arc::new(pod.clone());
        let objections = if pod.is_terminal() { Vec::new() } else { self.admit(&shared, &member, &node, None) };
        if let Err(rejection) = self.make_room(&shared, &member, objections).await {
            info!(pod = %key, node = %member.name, reason = %rejection.reason, "Rejected pod");
            member.warn(pod, &rejection.reason, &rejection.message);
            let patch = pod_status::rejection(pod, &rejection.reason, &rejection.message, now);
            self.static_pods.set_status(key, &entry.now, status_in(&patch));
            return Ok(Some(Duration::ZERO));
        }
        let is_rejected = pod.is_terminal() && pod.status.container_statuses.is_empty();
        if is_rejected {
            let patch = |mirror: &Pod| {
                let (reason, message) = (&pod.status.reason, &pod.status.message);
                (mirror.status.reason != *reason).then(|| pod_status::failed(mirror, reason, message, now))
            };
            self.show(key, &entry.now, &member, known.as_deref(), patch).await?;
            return Ok(registers);
        }
        let seen = self.runtime.sync(pod, Some(&entry.now.document), now).await;
        if seen.is_stale {
            return Ok(seen.next.into_iter().chain(registers).min());
        }
        let unseen = Observation::default();
        let addresses = addresses(pod, &member, &node, if pod.is_terminal() { &unseen } else { &seen });
        if let Some(patch) = pod_status::patch(pod, &seen, &addresses, now) {
            let status = status_in(&patch);
            if matches!(status.phase.as_str(), "Succeeded" | "Failed") {
                member.state().release(&pod.metadata.uid);
            }
            self.static_pods.set_status(key, &entry.now, status);
            if self.reports() {
                member.report(pod, container_events::news(pod, &seen));
            }
        }
        let status = self.static_pods.get(key).map(|it| it.pod.status.clone()).unwrap_or_default();
        let patch = |mirror: &Pod| {
            let mut mirror = mirror.clone();
            mirror.status.start_time = status.start_time;
            if seen.is_real {
                // Kubernetes: the generation of a mirror is not that of the pod, and is not observed.
                mirror.metadata.generation = 0;
            }
            if mirror.status.container_statuses.is_empty() {
                // The condition PodScheduled belongs to the mirror itself.
                let known = status.conditions.iter().filter(|it| it.condition_type != CONDITION_POD_SCHEDULED);
                mirror.status.conditions = known.cloned().collect();
            }
            pod_status::patch(&mirror, &seen, &addresses, now)
        };
        self.show(key, &entry.now, &member, known.as_deref(), patch).await?;
        Ok(seen.next.into_iter().chain(registers).min())
    }

    /// The node as it will be once it has registered.
    fn expected(&self, member: &Member) -> Node {
        let node = self.template.node(&member.name, member.number, self.endpoint, self.clock.now());
        Node::read(&node).unwrap_or_default()
    }

    /// Ensures that the server's mirror exists, has this version, and has this status.
    async fn show(
        &self,
        key: &Key,
        pod: &StaticPod,
        member: &Member,
        node: Option<&Node>,
        patch: impl Fn(&Pod) -> Option<Value>,
    ) -> Result<(), Error> {
        // A node that has not registered, or was deleted, has no mirrors.
        let Some(node) = node else { return Ok(()) };
        let mirror = self.pods.store().get_key(key);
        match mirror {
            Some(other) if !static_pods::is_mirror(&other) => {
                warn!(pod = %key, "Could not show a static pod: there is another pod of its name");
            }
            Some(mirror) if mirror.metadata.is_deleting() || !static_pods::is_mirror_of(&mirror, &pod.pod) => {
                info!(pod = %key, "Deleting mirror pod");
                self.delete_mirror(&mirror, member).await?;
            }
            Some(mirror) => {
                if !member.state().has_written_since(&mirror)
                    && let Some(patch) = patch(&mirror)
                {
                    self.write_status(&mirror, member, &patch).await?;
                }
            }
            None => {
                let document = static_pods::mirror(pod, node);
                match member.client.documents(Pod::RESOURCE).create(&key.namespace, &document).await {
                    Ok(_) => info!(pod = %key, "Created mirror pod"),
                    // It is updated with the next change.
                    Err(error) if error.is_already_exists() => {}
                    Err(error) => {
                        warn!(pod = %key, err = %chain(&error), "Could not create mirror pod");
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }

    async fn delete_mirror(&self, mirror: &Pod, member: &Member) -> Result<(), Error> {
        let uid = Some(mirror.metadata.uid.to_string());
        let how = Deletion { grace_period_seconds: Some(0), uid, ..Deletion::default() };
        let metadata = &mirror.metadata;
        match member.client.objects::<Pod>().delete(&metadata.namespace, &metadata.name, &how).await {
            Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error),
            _ => Ok(()),
        }
    }

    /// Deletes a mirror of nothing.
    pub(super) async fn end_mirror(&self, mirror: &Pod, member: &Member) -> Result<Option<Duration>, Error> {
        if self.manifests.is_some() && !self.static_pods.is_known.load(Ordering::Relaxed) {
            return Ok(Some(SOON));
        }
        self.delete_mirror(mirror, member).await?;
        Ok(None)
    }

    /// Ends a static pod for a more important one; returns whether it is a static pod.
    pub(super) fn end_static_at_once(&self, key: &Key, pod: &Pod, member: &Member) -> bool {
        let Some(own) = self.static_pods.get(key).filter(|own| own.pod.metadata.uid == pod.metadata.uid) else {
            return false;
        };
        member.warn(&own.pod, preemption::REASON, preemption::MESSAGE);
        let patch = pod_status::failed(&own.pod, preemption::REASON, preemption::MESSAGE, self.clock.now());
        self.static_pods.set_status(key, &own, status_in(&patch));
        self.pod_queue.add(key.clone());
        true
    }

    /// Ends a pod whose file was removed or changed, and then its mirror.
    async fn end_static(&self, key: &Key, entry: &Entry, member: &Member) -> Result<Option<Duration>, Error> {
        let pod = &entry.now.pod;
        if !pod.is_terminal() {
            if self.reports() && member.state().ending.insert(pod.metadata.uid.clone()) {
                member.report(pod, container_events::killing(pod));
            }
            match self.runtime.stop(pod, self.clock.now()).await {
                StopProgress::Wait(wait) => return Ok(Some(wait)),
                StopProgress::Never => return Ok(None),
                StopProgress::Ended(_) => {}
            }
        }
        member.state().forget(&pod.metadata.uid);
        self.runtime.forget(&pod.metadata.uid);
        if self.static_pods.ended(key) {
            return Ok(Some(Duration::ZERO));
        }
        if let Some(mirror) = self.pods.store().get_key(key).filter(|it| static_pods::is_mirror(it)) {
            self.delete_mirror(&mirror, member).await?;
        }
        Ok(None)
    }
}

/// The whole status that a patch sets.
fn status_in(patch: &Value) -> PodStatus {
    Pod::read(patch).map(|pod| pod.status).unwrap_or_default()
}
