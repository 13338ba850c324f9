//! Starting one container: image, configuration, creation, start, and the hook that follows.

use std::path::PathBuf;
use std::time::Duration;

use api::json::Value;
use client::events::Severity::{Normal, Warning};
use cri::messages as m;
use telemetry::logs::chain;
use tracing::debug;

use super::actions::{self, Place};
use super::configs::{self, ContainerParts};
use super::devices::cdi;
use super::images::{WaitingReason, WantedImage, shown};
use super::manifest::{self, Kind, texts};
use super::snapshot::{Snapshot, time};
use super::sync::{Turn, Work, hold, release};
use super::volumes::create;
use super::{environment, resources};

/// The time limit of a hook after the start.
const HOOK_TIMEOUT: Duration = Duration::from_secs(120);
/// Grace period of a container whose hook failed, where the pod gives none.
const GRACE: i64 = 30;
/// Pods of at least this priority are critical to the system.
pub(super) const CRITICAL: i64 = 2_000_000_000;

impl Turn<'_> {
    /// Starts a container, or notes why it cannot be started now.
    pub(super) async fn start(
        &self,
        kind: Kind,
        name: &str,
        attempt: u32,
        ended: Option<i64>,
        snapshot: &Snapshot,
        work: &mut Work,
    ) {
        let Some((_, container)) = manifest::find(self.manifest, name) else { return };
        // Kubernetes: a runtime that has lost its containers, such as after a reboot, does not know how often they ran. Their
        // log files do.
        let attempt = if snapshot.newest(name).is_none() { attempt.max(self.next_log(name)) } else { attempt };
        if let Some(ended) = ended
            && self.backs_off(kind, container, ended, work)
        {
            return;
        }
        match self.try_start(kind, container, attempt, snapshot, work).await {
            Ok(id) => {
                work.started.insert(id);
                release(work, name);
            }
            Err(waiting) => {
                if waiting.reason != "PostStartHookError" {
                    // The long text has its own event where it comes from the image manager.
                    let is_pull = matches!(
                        waiting.reason,
                        "ErrImagePull"
                            | "ImagePullBackOff"
                            | "InvalidImageName"
                            | "ErrImageNeverPull"
                            | "ImageInspectError"
                    );
                    let what = if is_pull { waiting.reason } else { waiting.message.as_str() };
                    let message = format!("Error: {what}");
                    self.shared.events.container(self.pod, kind, container, Warning, "Failed", &message);
                }
                if waiting.reason == "ErrImagePull" {
                    self.report_missing_secrets(container.text("image"));
                }
                hold(work, name, waiting, self.now);
            }
        }
    }

    /// Reports pull secrets that were missing when an image could not be pulled.
    fn report_missing_secrets(&self, image: &str) {
        let missing = self.shared.images.missing_secrets(self.pod, image);
        if !missing.is_empty() {
            let message = format!(
                "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
                missing.join(", ")
            );
            self.shared.events.pod(self.pod, Warning, "FailedToRetrieveImagePullSecret", &message);
        }
    }

    /// Whether a container that ended has to wait before it is started again. If not, the next pause is longer.
    fn backs_off(&self, kind: Kind, container: &Value, ended: i64, work: &mut Work) -> bool {
        let name = container.text("name");
        let metadata = &self.pod.metadata;
        let back_off = work.back_offs.entry(name.to_owned()).or_default();
        if back_off.left_since(time(ended), self.now).is_none() {
            back_off.fail(self.now);
            return false;
        }
        let pod = format!("{}_{}({})", metadata.name, metadata.namespace, metadata.uid);
        let message = format!("Back-off restarting failed container {name} in pod {pod}");
        self.shared.events.container(self.pod, kind, container, Warning, "BackOff", &message);
        let pause = shown_pause(back_off.pause());
        let message = format!("back-off {pause} restarting failed container={name} pod={pod}");
        hold(work, name, WaitingReason::new("CrashLoopBackOff", message), self.now);
        true
    }

    async fn try_start(
        &self,
        kind: Kind,
        container: &Value,
        attempt: u32,
        snapshot: &Snapshot,
        work: &mut Work,
    ) -> Result<String, WaitingReason> {
        let shared = self.shared;
        let Some(sandbox) = snapshot.ready_sandbox() else {
            return Err(WaitingReason::new("ContainerCreating", ""));
        };
        let sandbox_attempt = sandbox.metadata.as_ref().map_or(0, |it| it.attempt);
        let sandbox_config = self.sandbox_config(sandbox_attempt);
        let of_container = WantedImage {
            pod: self.pod,
            manifest: self.manifest,
            container: Some((kind, container)),
            name: container.text("image"),
            policy: container.text("imagePullPolicy"),
            sandbox: &sandbox_config,
            now: self.now,
        };
        for volume in self.manifest.list_at(&["spec", "volumes"]).iter().filter(|it| it.get("image").is_some()) {
            let (name, policy) = (volume.text_at(&["image", "reference"]), volume.text_at(&["image", "pullPolicy"]));
            let image = self.image(&WantedImage { container: None, name, policy, ..of_container }).await?;
            let spec = m::ImageSpec { image: image.id, user_specified_image: name.to_owned(), ..Default::default() };
            work.mounted.images.insert(volume.text("name").to_owned(), spec);
        }
        let image = self.image(&of_container).await?;
        let config_error = |why: String| WaitingReason::new("CreateContainerConfigError", why);
        configs::verify_non_root(self.pod, self.manifest, container, &image).map_err(config_error)?;
        let config = self.config(kind, container, attempt, &image, snapshot, work).await.map_err(config_error)?;
        let create_error = |why: String| WaitingReason::new("CreateContainerError", why);
        let name = container.text("name");
        create(&PathBuf::from(&sandbox_config.log_directory).join(name), 0o755)
            .map_err(|error| create_error(error.to_string()))?;
        let request = m::CreateContainerRequest {
            pod_sandbox_id: sandbox.id.clone(),
            config: Some(config),
            sandbox_config: Some(sandbox_config),
        };
        let made = shared.runtime.create_container(request).await.map_err(|status| create_error(shown(&status)))?;
        let id = made.container_id;
        shared.events.container(self.pod, kind, container, Normal, "Created", "Container created");
        let request = m::StartContainerRequest { container_id: id.clone() };
        work.has_acted = true;
        // The runtime keeps the container as one that ended: the next look decides by the policy.
        let started = shared.runtime.start_container(request).await;
        started.map_err(|status| WaitingReason::new("RunContainerError", shown(&status)))?;
        shared.events.container(self.pod, kind, container, Normal, "Started", "Container started");
        self.post_start(kind, container, &id, work).await?;
        Ok(id)
    }

    async fn image(&self, wanted: &WantedImage<'_>) -> Result<m::Image, WaitingReason> {
        let shared = self.shared;
        tokio::select! {
            image = shared.images.ensure(&shared.runtime, &shared.sources, &shared.events, wanted) => image,
            // A pod that is to end does not wait for its images.
            () = self.state.stop_requested.notified() => Err(WaitingReason::new("ContainerCreating", "")),
        }
    }

    /// Runs the hook that follows the start; a failure ends the container.
    async fn post_start(&self, kind: Kind, container: &Value, id: &str, work: &Work) -> Result<(), WaitingReason> {
        let Some(hook) = container.at(&["lifecycle", "postStart"]) else { return Ok(()) };
        let place = Place { container_id: id.to_owned(), address: work.addresses.first().cloned().unwrap_or_default() };
        let Err(why) = actions::hook(&self.shared.runtime, &place, container, hook, HOOK_TIMEOUT).await else {
            return Ok(());
        };
        let events = &self.shared.events;
        events.container(self.pod, kind, container, Warning, "FailedPostStartHook", "PostStartHook failed");
        events.container(self.pod, kind, container, Normal, "Killing", "FailedPostStartHook");
        let grace = self.manifest.i64_at(&["spec", "terminationGracePeriodSeconds"]).unwrap_or(GRACE);
        self.shared.stop_container(self.pod, container, &place, grace).await;
        let (name, metadata) = (container.text("name"), &self.pod.metadata);
        let pod = format!("{}_{}({})", metadata.name, metadata.namespace, metadata.uid);
        let message = match hook.get("exec") {
            Some(action) => {
                let command = texts(action, &["command"]).join(" ");
                format!("Exec lifecycle hook ([{command}]) for Container \"{name}\" in Pod \"{pod}\" failed - {why}")
            }
            None => {
                let path = hook.text_at(&["httpGet", "path"]);
                format!("HTTP lifecycle hook ({path}) for Container \"{name}\" in Pod \"{pod}\" failed - {why}")
            }
        };
        Err(WaitingReason::new("PostStartHookError", message))
    }

    async fn config(
        &self,
        kind: Kind,
        container: &Value,
        attempt: u32,
        image: &m::Image,
        snapshot: &Snapshot,
        work: &mut Work,
    ) -> Result<m::ContainerConfig, String> {
        let (shared, pod) = (self.shared, self.pod);
        let facts = self.facts(work);
        let api_server = shared.api_server.as_ref();
        let variables =
            environment::variables(&shared.sources, api_server, pod, self.manifest, container, &facts, &work.mounted)
                .await?;
        let directory = shared.directory(&pod.metadata.uid);
        let mut mounts = work.mounted.of_container(container, &variables, &directory, shared.can_mount)?;
        let has = |mounts: &[m::Mount], path: &str| mounts.iter().any(|it| it.container_path == path);
        let failed = |error: std::io::Error| error.to_string();
        if !has(&mounts, "/etc/hosts") {
            let of_node = if pod.spec.host_network { std::fs::read_to_string("/etc/hosts").ok() } else { None };
            let domain = &shared.dns.cluster_domain;
            let text_of = configs::hosts_file(pod, self.manifest, &facts.pod_ips, domain, of_node.as_deref());
            let path = directory.join("etc-hosts");
            create(&directory, 0o750).map_err(failed)?;
            std::fs::write(&path, text_of).map_err(failed)?;
            mounts.push(file_mount("/etc/hosts", &path));
        }
        let message_path = container.text("terminationMessagePath");
        if !message_path.is_empty() && !has(&mounts, message_path) {
            let path = self.message_file(container.text("name"), attempt);
            if let Some(parent) = path.parent() {
                create(parent, 0o755).map_err(failed)?;
            }
            std::fs::write(&path, "").map_err(failed)?;
            // Every user of the container may write its message.
            let open = std::os::unix::fs::PermissionsExt::from_mode(0o666);
            std::fs::set_permissions(&path, open).map_err(failed)?;
            mounts.push(file_mount(message_path, &path));
        }
        let target = container.text("targetContainerName");
        let target = snapshot.newest(target).filter(|_| kind == Kind::Ephemeral).map(|run| run.status.id.as_str());
        let expand_all =
            |field: &str| -> Vec<String> { texts(container, &[field]).iter().map(|it| variables.expand(it)).collect() };
        let qos = matching::resources::qos_class(&pod.spec);
        let of_pod = self.manifest.get("spec").unwrap_or(&Value::Null);
        let is_critical = self.manifest.i64_at(&["spec", "priority"]).is_some_and(|it| it >= CRITICAL);
        let devices = shared.devices.of_container(&pod.metadata.uid, container);
        let (command, args) = (expand_all("command"), expand_all("args"));
        let mut envs = variables.into_entries();
        let (mut cdi_devices, mut nodes) = (Vec::new(), Vec::new());
        if cdi::is_left_to_caller(&shared.runtime_name, &shared.runtime_version) && !devices.is_empty() {
            let directories = cdi::DIRECTORIES.map(PathBuf::from);
            let edits = cdi::edits(&directories, &devices)?;
            envs.extend(edits.envs);
            mounts.extend(edits.mounts);
            nodes = edits.devices;
        } else {
            cdi_devices = devices.into_iter().map(|name| m::CdiDevice { name }).collect();
        }
        let parts = ContainerParts {
            attempt,
            image: if image.id.is_empty() { container.text("image").to_owned() } else { image.id.clone() },
            command,
            args,
            mounts,
            resources: resources::of_container(container, of_pod, qos, is_critical, shared.facts.memory),
            security: configs::security(pod, self.manifest, container, target),
            envs,
            devices: nodes,
            cdi_devices,
        };
        if !container.list("volumeDevices").is_empty() {
            return Err("block devices are not supported by this node agent".to_owned());
        }
        Ok(configs::container(pod, kind, container, parts))
    }

    /// The number after that of a container's last log file.
    fn next_log(&self, name: &str) -> u32 {
        let metadata = &self.pod.metadata;
        let logs = self.shared.log_directory(&metadata.namespace, &metadata.name, &metadata.uid).join(name);
        let files = std::fs::read_dir(logs).into_iter().flatten().flatten().map(|entry| entry.file_name());
        let number = |file: std::ffi::OsString| file.to_str()?.strip_suffix(".log")?.parse::<u32>().ok();
        files.filter_map(number).max().map_or(0, |last| last.saturating_add(1))
    }

    /// The file in which a run of a container leaves its message.
    pub(super) fn message_file(&self, name: &str, attempt: u32) -> PathBuf {
        let directory = self.shared.directory(&self.pod.metadata.uid);
        directory.join("containers").join(name).join(attempt.to_string())
    }
}

fn file_mount(path: &str, file: &std::path::Path) -> m::Mount {
    m::Mount { container_path: path.to_owned(), host_path: file.display().to_string(), ..m::Mount::default() }
}

/// A pause as Go prints it: `10s`, `1m20s`, `5m0s`.
fn shown_pause(pause: Duration) -> String {
    let seconds = pause.as_secs();
    let (minutes, rest) = (seconds.checked_div(60).unwrap_or(0), seconds.checked_rem(60).unwrap_or(0));
    if minutes == 0 { format!("{rest}s") } else { format!("{minutes}m{rest}s") }
}

/// Logs failures of a cleanup at debug level.
pub(super) fn note(outcome: Result<impl Sized, cri::Status>, what: &'static str) {
    if let Err(status) = outcome
        && status.code() != cri::Code::NotFound
    {
        debug!(err = %chain(&status), what, "Could not clean up");
    }
}
