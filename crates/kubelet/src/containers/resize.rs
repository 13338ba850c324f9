//! In-place resize: changed resources of containers are allocated if the node has room for them, and then applied to the
//! containers that run.
//!
//! Follows `allocation/allocation_manager.go` and `doPodResizeAction` of Kubernetes' kubelet. Allocated and applied amounts
//! are in a file of the pod, because the server has the wanted ones and not every runtime reports those that it applied.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api::Quantity;
use api::core::v1::Pod;
use api::json::{Object, Value};
use api::time::Timestamp;
use client::events::Severity::{Normal, Warning};
use cri::messages as m;
use telemetry::logs::chain;
use tracing::{info, warn};

use super::SharedState;
use super::configs::{CONTAINER_NAME, POD_UID, RESOURCES};
use super::manifest::{self, Kind, amount};
use super::resources;
use super::snapshot::{Run, Snapshot};
use super::start::CRITICAL;
use super::sync::{Turn, Work};
use super::volumes::create;
use crate::admission::Rejection;
use crate::runtime::ResizeCondition;

/// The file below a pod's directory.
const FILE: &str = "resources.json";
/// Delay until a resize that failed is tried again.
const RETRY: Duration = Duration::from_secs(10);
const PENDING: &str = "PodResizePending";
const IN_PROGRESS: &str = "PodResizeInProgress";

/// The resources of a pod's containers by name.
type Amounts = BTreeMap<String, Value>;

/// Wanted, allocated and applied resources of one pod.
#[derive(Default)]
pub(super) struct Allocation {
    is_loaded: bool,
    wanted: Amounts,
    allocated: Amounts,
    /// Resources that were applied to a container after its creation, with the runtime's ID of the container.
    applied: BTreeMap<String, (String, Value)>,
    pending: Option<ResizeCondition>,
    in_progress: Option<ResizeCondition>,
    /// The failure of the last attempt, and the time of the next one. Kubernetes' kubelet shows the failure with the next
    /// attempt, not before.
    failure: Option<(String, Timestamp)>,
}

/// The step that a running container needs to get its allocated resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    InPlace,
    Restart,
}

/// Init containers and containers: those that can have resources.
fn resizable(manifest: &Value) -> impl Iterator<Item = (Kind, &Value)> {
    manifest::containers(manifest).filter(|(kind, _)| *kind != Kind::Ephemeral)
}

fn resources_of(container: &Value) -> Value {
    container.get("resources").cloned().unwrap_or_else(Value::object)
}

fn amounts(manifest: &Value) -> Amounts {
    resizable(manifest).map(|(_, it)| (it.text("name").to_owned(), resources_of(it))).collect()
}

/// Whether two lists of amounts are equal, in whatever units.
fn same_list(a: Option<&Value>, b: Option<&Value>) -> bool {
    let list = |of: Option<&Value>| -> BTreeMap<String, Option<Quantity>> {
        let entries = of.and_then(Value::as_object).into_iter().flat_map(Object::iter);
        entries.map(|(name, amount)| (name.to_owned(), amount.as_quantity())).collect()
    };
    a == b || list(a) == list(b)
}

fn same(a: &Value, b: &Value) -> bool {
    ["requests", "limits"].into_iter().all(|kind| same_list(a.get(kind), b.get(kind)))
}

impl Allocation {
    /// Whether the wanted resources differ from the allocated ones.
    pub(super) fn is_changed(&self) -> bool {
        self.wanted.iter().any(|(name, wanted)| self.allocated.get(name).is_some_and(|known| !same(known, wanted)))
    }

    /// Takes over the wanted resources of a new manifest, and gives it the allocated ones.
    pub(super) fn overlay(&mut self, manifest: &mut Value) {
        self.wanted = amounts(manifest);
        for (name, wanted) in &self.wanted {
            self.allocated.entry(name.clone()).or_insert_with(|| wanted.clone());
        }
        self.give(manifest);
    }

    fn give(&self, manifest: &mut Value) {
        let Some(spec) = manifest.get_mut("spec") else { return };
        for kind in [Kind::Init, Kind::Main] {
            for container in spec.list_mut(kind.field()) {
                let known = self.allocated.get(container.text("name"));
                if let Some(known) = known.filter(|known| !same(known, container.field("resources"))) {
                    container.set("resources", known.clone());
                }
            }
        }
    }

    /// The resources that a run of a container has.
    pub(super) fn of_run(&self, name: &str, run: &Run) -> Option<Value> {
        let changed = self.applied.get(name).filter(|(id, _)| *id == run.status.id).map(|(_, it)| it.clone());
        changed.or_else(|| {
            let created = run.status.annotations.get(RESOURCES)?;
            api::json::parse(created.as_bytes()).ok()
        })
    }

    /// The conditions that the pod's status shows.
    pub(super) fn conditions(&self) -> Vec<ResizeCondition> {
        self.pending.iter().chain(&self.in_progress).cloned().collect()
    }

    /// Time of the next attempt to apply resources.
    pub(super) fn retry(&self) -> Option<Timestamp> {
        self.failure.as_ref().map(|(_, at)| *at)
    }

    /// The running containers that lack their allocated resources.
    pub(super) fn changes(&self, manifest: &Value, snapshot: &Snapshot) -> HashMap<String, Change> {
        let mut changes = HashMap::new();
        for (_, container) in resizable(manifest) {
            let name = container.text("name");
            let run = snapshot.current(name).filter(|it| it.status.state() == m::ContainerState::Running);
            let Some(has) = run.and_then(|run| self.of_run(name, run)) else { continue };
            let wanted = resources_of(container);
            if same(&has, &wanted) {
                continue;
            }
            let differs = |resource: &str| {
                let of = |from: &Value, kind: &str| from.at(&[kind, resource]).and_then(Value::as_quantity);
                ["requests", "limits"].into_iter().any(|kind| of(&has, kind) != of(&wanted, kind))
            };
            let restarts = container.list("resizePolicy").iter().any(|policy| {
                policy.text("restartPolicy") == "RestartContainer" && differs(policy.text("resourceName"))
            });
            changes.insert(name.to_owned(), if restarts { Change::Restart } else { Change::InPlace });
        }
        changes
    }

    fn to_document(&self) -> Value {
        let mut allocated = Object::new();
        for (name, amounts) in &self.allocated {
            allocated.insert(name.as_str(), amounts.clone());
        }
        let mut applied = Object::new();
        for (name, (id, amounts)) in &self.applied {
            applied.insert(name.as_str(), api::json!({"id": (id.as_str()), "resources": (amounts.clone())}));
        }
        api::json!({"allocated": allocated, "applied": applied})
    }

    fn read_document(&mut self, document: &Value) {
        for (name, amounts) in document.map("allocated").iter() {
            self.allocated.insert(name.to_owned(), amounts.clone());
        }
        for (name, entry) in document.map("applied").iter() {
            self.applied.insert(name.to_owned(), (entry.text("id").to_owned(), entry.field("resources").clone()));
        }
    }
}

/// A message about a resize as Kubernetes' kubelet words it: a title, and the resources as JSON.
fn message(title: &str, manifest: &Value, wanted: &Amounts, generation: i64, error: &str) -> String {
    let mut summary = Object::new();
    for kind in [Kind::Init, Kind::Main] {
        let row = |container: &Value| {
            let name = container.text("name");
            let given = wanted.get(name).cloned().unwrap_or_else(Value::object);
            // Kubernetes prints limits before requests, and the names of resources in their order.
            let mut resources = Object::new();
            for field in ["limits", "requests", "claims"] {
                if let Some(list) = given.get(field) {
                    let mut list = list.clone();
                    list.sort_keys();
                    resources.insert(field, list);
                }
            }
            api::json!({"name": name, "resources": resources})
        };
        let rows: Vec<Value> = manifest.list_at(&["spec", kind.field()]).iter().map(row).collect();
        if !rows.is_empty() {
            summary.insert(kind.field(), rows);
        }
    }
    summary.insert("generation", generation);
    if !error.is_empty() {
        summary.insert("error", error);
    }
    format!("{title}: {}", api::json::to_string(&Value::from(summary)))
}

impl SharedState {
    /// Loads the allocation of a pod: from its file, or from the containers that run.
    pub(super) async fn load_allocation(&self, pod: &Pod, work: &mut Work) -> Result<(), cri::Status> {
        if work.allocation.is_loaded {
            return Ok(());
        }
        let path = self.directory(&pod.metadata.uid).join(FILE);
        let known = std::fs::read(path).ok().and_then(|bytes| api::json::parse(&bytes).ok());
        let status = &pod.status;
        let mut statuses = status.container_statuses.iter().chain(&status.init_container_statuses);
        let allocation = &mut work.allocation;
        match known {
            Some(document) => allocation.read_document(&document),
            // A pod without containers is new: the wanted resources are allocated with its admission.
            None if statuses.all(|it| it.container_id.is_empty()) => {}
            None => {
                let snapshot = self.look(&pod.metadata.uid).await?;
                for (name, runs) in &snapshot.runs {
                    if let Some(has) = runs.first().and_then(|run| allocation.of_run(name, run)) {
                        allocation.allocated.insert(name.clone(), has);
                    }
                }
            }
        }
        for condition in &status.conditions {
            let shown = |kind| ResizeCondition {
                kind,
                reason: condition.reason.to_string(),
                message: condition.message.to_string(),
                generation: condition.observed_generation,
            };
            match condition.condition_type.as_str() {
                PENDING => allocation.pending = Some(shown(PENDING)),
                IN_PROGRESS => allocation.in_progress = Some(shown(IN_PROGRESS)),
                _ => {}
            }
        }
        allocation.is_loaded = true;
        Ok(())
    }

    fn save_allocation(&self, uid: &str, allocation: &Allocation) {
        let directory = self.directory(uid);
        let text = api::json::to_string(&allocation.to_document());
        if let Err(error) = write(&directory, &text) {
            warn!(uid, err = %chain(&error), "Could not store the allocated resources of the pod");
        }
    }

    /// Allocates changed resources of a pod if `admit` finds room for them; returns whether the change waits for room.
    pub(super) async fn resize(
        self: &Arc<Self>,
        pod: &Pod,
        now: Timestamp,
        admit: impl FnOnce() -> Result<(), Rejection>,
    ) -> bool {
        let state = self.state(pod);
        let mut work = state.work.lock().await;
        if self.manifest(pod, None, &mut work, now).await.is_none() {
            return false;
        }
        let work = &mut *work;
        let (allocation, manifest) = (&mut work.allocation, &mut work.manifest);
        let Some(manifest) = manifest else { return false };
        if !allocation.is_changed() {
            allocation.pending = None;
            return false;
        }
        let generation = pod.metadata.generation;
        match admit() {
            Ok(()) => {
                allocation.allocated = allocation.wanted.clone();
                allocation.give(Arc::make_mut(manifest));
                allocation.pending = None;
                allocation.failure = None;
                allocation.in_progress = Some(ResizeCondition::new(IN_PROGRESS, "", "", generation));
                self.save_allocation(&pod.metadata.uid, allocation);
                let started = message("Pod resize started", manifest, &allocation.wanted, generation, "");
                self.events.pod(pod, Normal, "ResizeStarted", &started);
                info!(pod = %pod.metadata.name, "Allocated resources for a resize");
                false
            }
            Err(rejection) => {
                let why = &rejection.message;
                let condition = ResizeCondition::new(PENDING, "Deferred", why, generation);
                let known = allocation.pending.replace(condition);
                if known.is_none_or(|known| known.reason != "Deferred" || known.generation != generation) {
                    let title = format!("Pod resize {}", rejection.reason);
                    let deferred = message(&title, manifest, &allocation.wanted, generation, why);
                    self.events.pod(pod, Warning, "ResizeDeferred", &deferred);
                }
                true
            }
        }
    }
}

/// Writes the file of a pod. It is replaced as a whole.
fn write(directory: &Path, text: &str) -> std::io::Result<()> {
    create(directory, 0o750)?;
    let (path, new) = (directory.join(FILE), directory.join(format!("{FILE}.new")));
    std::fs::write(&new, text)?;
    std::fs::rename(new, path)
}

impl Turn<'_> {
    /// Reports the progress of a resize, and returns the changes that are due now.
    pub(super) fn follow_resize(&self, snapshot: &Snapshot, work: &mut Work) -> HashMap<String, Change> {
        let allocation = &mut work.allocation;
        let mut changes = allocation.changes(self.manifest, snapshot);
        let generation = self.pod.metadata.generation;
        if changes.is_empty() {
            if let Some(done) = allocation.in_progress.take() {
                let completed =
                    message("Pod resize completed", self.manifest, &allocation.allocated, done.generation, "");
                self.shared.events.pod(self.pod, Normal, "ResizeCompleted", &completed);
            }
            allocation.failure = None;
            return changes;
        }
        let progress =
            allocation.in_progress.get_or_insert_with(|| ResizeCondition::new(IN_PROGRESS, "", "", generation));
        if let Some((why, until)) = &allocation.failure {
            if *until <= self.now {
                (progress.reason, progress.message) = ("Error".to_owned(), why.clone());
            } else {
                changes.retain(|_, change| *change != Change::InPlace);
            }
        }
        changes
    }

    /// Applies allocated resources to the containers that run; decreases come first.
    pub(super) async fn apply_resize(&self, snapshot: &Snapshot, work: &mut Work) {
        let outcome = self.try_apply(snapshot, work).await;
        let allocation = &mut work.allocation;
        self.shared.save_allocation(&self.pod.metadata.uid, allocation);
        let Err(why) = outcome else {
            allocation.failure = None;
            return;
        };
        let is_new = allocation.failure.as_ref().is_none_or(|(known, _)| *known != why);
        if is_new {
            let generation = allocation.in_progress.as_ref().map_or(self.pod.metadata.generation, |it| it.generation);
            let failed = message("Pod resize error", self.manifest, &allocation.allocated, generation, &why);
            self.shared.events.pod(self.pod, Warning, "ResizeError", &failed);
        }
        allocation.failure = Some((why, self.now.plus(RETRY)));
    }

    async fn try_apply(&self, snapshot: &Snapshot, work: &mut Work) -> Result<(), String> {
        let changes = work.allocation.changes(self.manifest, snapshot);
        let mut updates = Vec::new();
        for (_, container) in resizable(self.manifest) {
            let name = container.text("name");
            if changes.get(name) != Some(&Change::InPlace) {
                continue;
            }
            let Some(run) = snapshot.current(name) else { continue };
            let has = work.allocation.of_run(name, run).unwrap_or_else(Value::object);
            updates.push((container, run.status.id.clone(), has));
        }
        self.check_memory(&updates).await?;
        let memory = |of: &Value| of.at(&["limits", "memory"]).and_then(Value::as_quantity).map(|it| it.value());
        updates.sort_by_key(|(container, _, has)| memory(container.field("resources")) >= memory(has));
        let qos = matching::resources::qos_class(&self.pod.spec);
        let is_critical = self.manifest.i64_at(&["spec", "priority"]).is_some_and(|it| it >= CRITICAL);
        let of_pod = self.manifest.get("spec").unwrap_or(&Value::Null);
        self.shared.limit_pod(self.pod, true);
        for (container, id, has) in updates {
            let name = container.text("name");
            let mut linux = resources::of_container(container, of_pod, qos, is_critical, self.shared.facts.memory);
            if linux.cpu_quota == 0 && has.at(&["limits", "cpu"]).is_some() {
                // A runtime leaves a quota of zero as it was.
                linux.cpu_quota = -1;
            }
            let request = m::UpdateContainerResourcesRequest {
                container_id: id.clone(),
                linux: Some(linux),
                ..Default::default()
            };
            let updated = self.shared.runtime.update_container_resources(request).await;
            updated
                .map_err(|status| format!("failed to update container {name}: {}", super::images::shown(&status)))?;
            work.allocation.applied.insert(name.to_owned(), (id, resources_of(container)));
        }
        self.shared.limit_pod(self.pod, false);
        Ok(())
    }

    /// Rejects memory limits below the present usage: the kernel would end the container.
    async fn check_memory(&self, updates: &[(&Value, String, Value)]) -> Result<(), String> {
        let decreases: Vec<(&str, i64)> = updates
            .iter()
            .filter_map(|(container, _, has)| {
                let limit = amount(container, "limits", "memory")?.value();
                let before =
                    has.at(&["limits", "memory"]).and_then(Value::as_quantity).map_or(i64::MAX, |it| it.value());
                (limit > 0 && limit < before).then(|| (container.text("name"), limit))
            })
            .collect();
        if decreases.is_empty() {
            return Ok(());
        }
        let label_selector = BTreeMap::from([(POD_UID.to_owned(), self.pod.metadata.uid.to_string())]);
        let filter = m::ContainerStatsFilter { label_selector, ..m::ContainerStatsFilter::default() };
        let stats = self.shared.runtime.list_container_stats(m::ListContainerStatsRequest { filter: Some(filter) });
        let pod = &self.pod.metadata;
        let unread = || format!("unable to read memory usage for pod \"{}_{}({})\"", pod.name, pod.namespace, pod.uid);
        let stats = stats.await.map_err(|_| unread())?.stats;
        let mut usage: BTreeMap<&str, u64> = BTreeMap::new();
        for row in &stats {
            let Some(attributes) = &row.attributes else { continue };
            let name = attributes.labels.get(CONTAINER_NAME).map(String::as_str).unwrap_or_default();
            let used = row.memory.as_ref().and_then(|it| it.usage_bytes.as_ref().or(it.working_set_bytes.as_ref()));
            if let Some(used) = used {
                usage.insert(name, used.value);
            }
        }
        let mut failures = Vec::new();
        for (name, limit) in decreases {
            match usage.get(name) {
                None => failures.push(format!("missing container \"{name}\" memory usage")),
                Some(used) if i64::try_from(*used).unwrap_or(i64::MAX) >= limit => failures.push(format!(
                    "attempting to set container \"{name}\" memory limit ({limit}) below current usage ({used})"
                )),
                Some(_) => {}
            }
        }
        match failures.as_slice() {
            [] => Ok(()),
            [only] => Err(format!("cannot decrease memory limits: {only}")),
            all => Err(format!("cannot decrease memory limits: [{}]", all.join(", "))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(cpu: &str, policy: &str) -> Value {
        api::json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}, "limits": {"memory": "1Gi"}},
            "resizePolicy": [{"resourceName": "cpu", "restartPolicy": policy}]}]}})
    }

    fn running(created: &Value) -> Snapshot {
        let annotations = BTreeMap::from([(RESOURCES.to_owned(), api::json::to_string(created))]);
        let state = m::ContainerState::Running.into();
        let status = m::ContainerStatus { id: "1".into(), state, annotations, ..m::ContainerStatus::default() };
        let sandbox = m::PodSandbox { id: "s".into(), ..m::PodSandbox::default() };
        let runs = BTreeMap::from([("c".to_owned(), vec![Run { sandbox: "s".into(), status }])]);
        Snapshot { sandboxes: vec![sandbox], runs, ..Snapshot::default() }
    }

    #[test]
    fn wanted_resources_are_hidden_until_they_are_allocated() {
        let mut allocation = Allocation::default();
        let mut first = pod("100m", "NotRequired");
        allocation.overlay(&mut first);
        assert!(!allocation.is_changed());
        // The same amount in other units is no change.
        allocation.overlay(&mut pod("0.1", "NotRequired"));
        assert!(!allocation.is_changed());
        let mut second = pod("200m", "NotRequired");
        allocation.overlay(&mut second);
        assert!(allocation.is_changed());
        assert_eq!(
            amount(&second.list_at(&["spec", "containers"])[0], "requests", "cpu"),
            Quantity::parse("100m").ok()
        );
        allocation.allocated = allocation.wanted.clone();
        let mut third = pod("200m", "NotRequired");
        allocation.overlay(&mut third);
        assert_eq!(third, pod("200m", "NotRequired"));
    }

    #[test]
    fn policy_decides_between_update_and_restart() {
        let created = resources_of(&pod("100m", "").list_at(&["spec", "containers"])[0]);
        let snapshot = running(&created);
        let allocation = Allocation::default();
        let changes = |manifest: &Value| allocation.changes(manifest, &snapshot).get("c").copied();
        assert_eq!(changes(&pod("100m", "RestartContainer")), None);
        assert_eq!(changes(&pod("200m", "NotRequired")), Some(Change::InPlace));
        assert_eq!(changes(&pod("200m", "RestartContainer")), Some(Change::Restart));
        // The policy of another resource does not count.
        let mut other = pod("100m", "RestartContainer");
        if let Some(container) = other.get_mut("spec").and_then(|spec| spec.list_mut("containers").first_mut()) {
            container.set_at(&["resources", "limits", "memory"], "2Gi");
        }
        assert_eq!(changes(&other), Some(Change::InPlace));
    }

    #[test]
    fn applied_resources_survive_a_restart_of_the_agent() {
        let directory = tempfile::tempdir().unwrap();
        let mut allocation = Allocation::default();
        allocation.overlay(&mut pod("200m", ""));
        let amounts = allocation.allocated["c"].clone();
        allocation.applied.insert("c".into(), ("1".into(), amounts.clone()));
        write(directory.path(), &api::json::to_string(&allocation.to_document())).unwrap();
        let read = std::fs::read(directory.path().join(FILE)).unwrap();
        let mut again = Allocation::default();
        again.read_document(&api::json::parse(&read).unwrap());
        assert_eq!((&again.allocated, &again.applied), (&allocation.allocated, &allocation.applied));
        let created = resources_of(&pod("100m", "").list_at(&["spec", "containers"])[0]);
        let snapshot = running(&created);
        let run = snapshot.newest("c").unwrap();
        assert_eq!(again.of_run("c", run), Some(amounts));
        // Another run of the container was created with its own resources.
        let mut other = run.clone();
        other.status.id = "2".into();
        assert_eq!(again.of_run("c", &other), Some(created));
    }

    #[test]
    fn messages_list_limits_before_requests() {
        let manifest = api::json!({"spec": {"initContainers": [{"name": "i"}], "containers": [{"name": "c"}]}});
        let wanted = Amounts::from([(
            "c".to_owned(),
            api::json!({"requests": {"memory": "1Mi", "cpu": "1"}, "limits": {"memory": "1Mi"}}),
        )]);
        assert_eq!(
            message("Pod resize error", &manifest, &wanted, 2, "why"),
            r#"Pod resize error: {"initContainers":[{"name":"i","resources":{}}],"containers":[{"name":"c","resources":{"limits":{"memory":"1Mi"},"requests":{"cpu":"1","memory":"1Mi"}}}],"generation":2,"error":"why"}"#
        );
    }
}
