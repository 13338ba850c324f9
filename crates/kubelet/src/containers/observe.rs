//! The state of a pod's containers as its status shows it.

use std::collections::HashMap;

use api::core::v1::{Pod, ResourceList};
use api::json::{Text, Value};
use api::time::Timestamp;
use cri::messages as m;
use matching::resources;

use super::log_files;
use super::manifest::{self, Kind, is_sidecar, restarts};
use super::probes::Results;
use super::snapshot::{Run, Snapshot, time};
use super::sync::{Turn, Work};
use crate::runtime::{Container, ContainerTermination, Observation, State};

/// Maximum size of a termination message from its file.
const MESSAGE_BYTES: usize = 4096;
/// Limits on the container's output: bytes and lines.
const OUTPUT_BYTES: usize = 2048;
const OUTPUT_LINES: usize = 80;

impl Turn<'_> {
    /// Makes an observation of a snapshot.
    pub(super) fn observe(&self, snapshot: &Snapshot, results: &HashMap<String, Results>, work: &Work) -> Observation {
        let has_sandbox = snapshot.ready_sandbox().is_some();
        let mut seen = Observation {
            has_sandbox,
            is_real: true,
            had_sandbox: !snapshot.sandboxes.is_empty(),
            may_run: has_sandbox || snapshot.running().next().is_some(),
            addresses: Some(work.addresses.clone()),
            resize: work.allocation.conditions(),
            resources: Some(whole_resources(self.pod)),
            ..Observation::default()
        };
        for (kind, container) in manifest::containers(self.manifest) {
            let shown = self.show(kind, container, snapshot, results, work);
            match kind {
                Kind::Init => seen.init_containers.push(shown),
                Kind::Main => seen.containers.push(shown),
                Kind::Ephemeral => seen.ephemeral_containers.push(shown),
            }
        }
        seen
    }

    fn show(
        &self,
        kind: Kind,
        container: &Value,
        snapshot: &Snapshot,
        results: &HashMap<String, Results>,
        work: &Work,
    ) -> Container {
        let name: Text = container.text("name").into();
        let image: Text = container.text("image").into();
        let has_init = manifest::containers(self.manifest).any(|(kind, _)| kind == Kind::Init);
        let reason = if has_init && kind != Kind::Ephemeral { "PodInitializing" } else { "ContainerCreating" };
        let mut shown = Container::waiting(&name, &image, reason);
        shown.fields = mount_fields(container);
        let waiting = work.waiting.get(name.as_str());
        let runs = snapshot.runs.get(name.as_str()).map(Vec::as_slice).unwrap_or_default();
        if let Some(waiting) = waiting {
            shown.state = State::Waiting { reason: waiting.reason, message: waiting.message.clone() };
        }
        let Some(newest) = runs.first() else {
            self.show_lost(&mut shown, kind, container);
            return shown;
        };
        let is_current = snapshot.current(&name).is_some();
        shown.restarts = i32::try_from(newest.attempt()).unwrap_or(i32::MAX);
        shown.container_id = self.id(newest);
        shown.image_id = newest.status.image_ref.as_str().into();
        let resolved = newest.status.image.as_ref().map(|it| it.image.as_str()).unwrap_or_default();
        if !resolved.is_empty() && !resolved.starts_with("sha256:") {
            shown.image = resolved.into();
        }
        shown.fields.extend(run_fields(container, newest, work));
        shown.last_end = runs.get(1).map(|run| self.end(run, container)).or_else(|| self.known_end(kind, &shown));
        match newest.status.state() {
            m::ContainerState::Running if is_current => {
                let result = results.get(name.as_str());
                let is_regular_init = kind == Kind::Init && !is_sidecar(kind, container);
                shown.state = State::Running { since: time(newest.status.started_at) };
                shown.is_started = is_regular_init || result.is_some_and(|it| it.is_started);
                shown.is_ready = !is_regular_init && result.is_some_and(|it| it.is_started && it.is_ready);
            }
            m::ContainerState::Created | m::ContainerState::Running => {}
            m::ContainerState::Exited | m::ContainerState::Unknown => {
                let end = self.end(newest, container);
                let again =
                    restarts(self.manifest, kind, container, end.exit_code) && snapshot.ready_sandbox().is_some();
                let is_done = kind == Kind::Init && !is_sidecar(kind, container) && end.exit_code == 0;
                shown.is_restarting = again && !is_done;
                // Between two runs the last end is history, and the present state the reason to wait.
                if waiting.is_some() && again && !is_done {
                    shown.last_end = Some(end);
                } else {
                    shown.is_ready = is_done;
                    shown.state = State::Ended(end);
                }
            }
        }
        shown
    }

    /// The end of the run before this one by the pod's status: the runtime keeps one run that ended, not two.
    fn known_end(&self, kind: Kind, shown: &Container) -> Option<ContainerTermination> {
        if shown.restarts == 0 {
            return None;
        }
        let statuses = match kind {
            Kind::Init => &self.pod.status.init_container_statuses,
            Kind::Main => &self.pod.status.container_statuses,
            Kind::Ephemeral => return None,
        };
        let known = statuses.iter().find(|it| it.name == shown.name)?;
        let ended = |state: &'_ Option<Value>| state.as_ref().and_then(|it| it.get("terminated").cloned());
        let last = ended(&known.last_state);
        let last = if known.container_id == shown.container_id { last } else { ended(&known.state).or(last) };
        let end = &last?;
        let time = |field: &str| end.str_at(&[field]).and_then(|it| Timestamp::parse(it).ok()).unwrap_or(self.now);
        let text_of = |field: &str| Text::from(end.text_at(&[field]));
        Some(ContainerTermination {
            exit_code: end.i64_at(&["exitCode"]).and_then(|it| i32::try_from(it).ok()).unwrap_or(0),
            started: time("startedAt"),
            finished: time("finishedAt"),
            word: text_of("reason"),
            message: text_of("message"),
            container_id: text_of("containerID"),
        })
    }

    /// A container that ran by the pod's status, and of which the runtime has no trace.
    fn show_lost(&self, shown: &mut Container, kind: Kind, container: &Value) {
        let statuses = match kind {
            Kind::Init => &self.pod.status.init_container_statuses,
            _ => &self.pod.status.container_statuses,
        };
        let lost = statuses.iter().find(|it| it.name == shown.name && !it.container_id.is_empty());
        let Some(lost) = lost else { return };
        shown.restarts = lost.restart_count;
        if kind == Kind::Main && !restarts(self.manifest, kind, container, 137) {
            shown.container_id = lost.container_id.clone();
            shown.state = State::Ended(ContainerTermination {
                word: "ContainerStatusUnknown".into(),
                message:
                    "The container could not be located when the pod was deleted.  The container used to be Running"
                        .into(),
                ..ContainerTermination::new(137, self.now, self.now)
            });
        }
    }

    fn id(&self, run: &Run) -> Text {
        format!("{}://{}", self.shared.runtime_name, run.status.id).into()
    }

    fn end(&self, run: &Run, container: &Value) -> ContainerTermination {
        let status = &run.status;
        let (exit_code, word) = match status.state() {
            m::ContainerState::Unknown => (255, "Unknown"),
            _ => (status.exit_code, status.reason.as_str()),
        };
        ContainerTermination {
            exit_code,
            started: time(status.started_at),
            finished: time(status.finished_at),
            word: word.into(),
            message: self.message(run, container).into(),
            container_id: self.id(run),
        }
    }

    /// The message that a container left, the runtime's, or the end of its output.
    fn message(&self, run: &Run, container: &Value) -> String {
        let path = self.message_file(container.text("name"), run.attempt());
        let mut bytes = read_bounded(&path, MESSAGE_BYTES);
        bytes.truncate(MESSAGE_BYTES);
        let left = String::from_utf8_lossy(&bytes).into_owned();
        if !left.is_empty() {
            return left;
        }
        let falls_back = container.text("terminationMessagePolicy") == "FallbackToLogsOnError";
        if falls_back && run.status.exit_code != 0 && !run.status.log_path.is_empty() {
            return log_files::tail(std::path::Path::new(&run.status.log_path), OUTPUT_BYTES, OUTPUT_LINES);
        }
        run.status.message.clone()
    }
}

/// Requests and limits of a pod as a whole.
fn whole_resources(pod: &Pod) -> (ResourceList, ResourceList) {
    let options = resources::Options::default();
    (resources::requests(&pod.spec, options), resources::limits(&pod.spec, options))
}

/// The volume mounts of a container as its status shows them.
fn mount_fields(container: &Value) -> Vec<(&'static str, Value)> {
    let mounts = container.list("volumeMounts").iter().map(|mount| {
        let mut row = api::json!({"name": (mount.text("name")), "mountPath": (mount.text("mountPath"))});
        if let (true, Some(row)) = (mount.flag("readOnly"), row.as_object_mut()) {
            row.insert("readOnly", true);
            row.insert("recursiveReadOnly", "Disabled");
        }
        row
    });
    let mounts: Vec<Value> = mounts.collect();
    if mounts.is_empty() { Vec::new() } else { vec![("volumeMounts", mounts.into())] }
}

/// Resources and user of a container that was created.
fn run_fields(container: &Value, run: &Run, work: &Work) -> Vec<(&'static str, Value)> {
    let allocated = container.get("resources").cloned().unwrap_or_else(Value::object);
    let is_running = run.status.state() == m::ContainerState::Running;
    let applied = work.allocation.of_run(container.text("name"), run).filter(|_| is_running);
    let resources = applied.unwrap_or_else(|| allocated.clone());
    let mut fields = Vec::new();
    if let Some(requests) = allocated.get("requests").filter(|it| it.as_object().is_some_and(|it| !it.is_empty())) {
        fields.push(("allocatedResources", requests.clone()));
    }
    fields.push(("resources", resources));
    if let Some(user) = run.status.user.as_ref().and_then(|user| user.linux.as_ref()) {
        let groups: Vec<Value> = user.supplemental_groups.iter().map(|it| Value::from(*it)).collect();
        let mut linux = api::json!({"uid": (user.uid), "gid": (user.gid)});
        if let (false, Some(linux)) = (groups.is_empty(), linux.as_object_mut()) {
            linux.insert("supplementalGroups", groups);
        }
        fields.push(("user", api::json!({"linux": linux})));
    }
    fields
}

fn read_bounded(path: &std::path::Path, bytes: usize) -> Vec<u8> {
    use std::io::Read as _;
    let mut read = Vec::new();
    if let Ok(file) = std::fs::File::open(path) {
        // A file that cannot be read leaves no message.
        let _ = file.take(u64::try_from(bytes).unwrap_or(u64::MAX)).read_to_end(&mut read);
    }
    read
}
