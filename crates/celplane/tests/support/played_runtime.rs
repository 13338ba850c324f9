//! A container runtime that plays containers over CRI: needs neither root nor containerd.
//!
//! It understands the few shell commands that tests use: `echo`, `cat`, `sleep`, `exit`, `trap` and endless loops. A
//! process without a trap ignores SIGTERM, as the first process of a real container does.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use cri::Status;
use cri::messages as m;
use cri::server::{Service, decode};
use futures::future::BoxFuture;
use prost::Message;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Notify;

#[path = "played_runtime/script.rs"]
mod script;

use script::{Command, Script};

/// Time that a process takes before its first command.
const PROCESS_LIFE: Duration = Duration::from_millis(500);
/// Images that are present.
const PRESENT: [&str; 3] = ["registry.local/busybox:1", "localhost:5000/bb:1", "app:1"];

/// Sandboxes, containers, and the calls that changed them.
#[derive(Default)]
struct State {
    sandboxes: BTreeMap<String, Sandbox>,
    containers: BTreeMap<String, Arc<Instance>>,
    calls: Vec<String>,
    number: u64,
    fault: Option<Fault>,
}

/// A fault of the runtime.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fault {
    /// Calls are not answered.
    Hangs,
    /// Sandboxes, containers and images cannot be created.
    DiskFull,
    /// Calls of this method take effect, but are not answered.
    AnswersNot(&'static str),
}

struct Sandbox {
    shown: m::PodSandbox,
    address: String,
    logs: PathBuf,
}

/// One container.
struct Instance {
    shown: Mutex<(m::Container, m::ContainerStatus)>,
    config: m::ContainerConfig,
    script: Script,
    address: String,
    log: PathBuf,
    ended: Notify,
    is_broken: AtomicBool,
}

/// The runtime. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct PlayedRuntime(Arc<Mutex<State>>);

fn reply(message: impl Message) -> Result<Vec<u8>, Status> {
    Ok(message.encode_to_vec())
}

fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_nanos()).unwrap()
}

impl Instance {
    fn shown(&self) -> MutexGuard<'_, (m::Container, m::ContainerStatus)> {
        self.shown.lock().unwrap()
    }

    fn is_running(&self) -> bool {
        self.shown().0.state() == m::ContainerState::Running
    }

    /// The container's usage: what its process holds, and a little for the process itself.
    fn stats(&self) -> m::ContainerStats {
        let value = self.script.memory + (1 << 20);
        let labels = self.config.labels.clone();
        m::ContainerStats {
            attributes: Some(m::ContainerAttributes { labels, ..Default::default() }),
            memory: Some(m::MemoryUsage {
                usage_bytes: Some(m::Uint64Value { value }),
                working_set_bytes: Some(m::Uint64Value { value }),
                ..Default::default()
            }),
            writable_layer: Some(m::FilesystemUsage {
                used_bytes: Some(m::Uint64Value { value: self.script.written }),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    fn end(&self, code: i32) {
        let mut shown = self.shown();
        let (container, status) = &mut *shown;
        if container.state() == m::ContainerState::Exited {
            return;
        }
        container.state = m::ContainerState::Exited.into();
        (status.state, status.exit_code, status.finished_at) = (container.state, code, now());
        status.reason = if code == 0 { "Completed" } else { "Error" }.to_owned();
        drop(shown);
        self.ended.notify_waiters();
    }

    fn print(&self, text: &str) {
        // The directory is removed with the pod, maybe before its last line.
        let Ok(mut file) = std::fs::OpenOptions::new().append(true).create(true).open(&self.log) else { return };
        for line in text.lines() {
            writeln!(file, "2026-01-01T00:00:00Z stdout F {line}").unwrap();
        }
    }

    /// The file of the machine that a path in the container is.
    fn file(&self, path: &str) -> Option<PathBuf> {
        let fitting = self.config.mounts.iter().filter(|it| path.starts_with(&it.container_path));
        let mount = fitting.max_by_key(|it| it.container_path.len())?;
        let rest = path[mount.container_path.len()..].trim_start_matches('/');
        let host = PathBuf::from(&mount.host_path);
        Some(if rest.is_empty() { host } else { host.join(rest) })
    }

    /// Runs commands until one ends the process; returns its exit code.
    async fn run(self: &Arc<Self>, commands: &[Command]) -> i32 {
        let attempt = self.config.metadata.as_ref().unwrap().attempt;
        for command in commands {
            match command {
                Command::Echo(text) => self.print(text),
                Command::Write { text, path, appends } => {
                    if let Some(file) = self.file(path) {
                        let before =
                            if *appends { std::fs::read_to_string(&file).unwrap_or_default() } else { String::new() };
                        std::fs::write(file, format!("{before}{text}\n")).unwrap();
                    }
                }
                Command::Fill { path, bytes } => {
                    if let Some(file) = self.file(path) {
                        std::fs::write(file, "x".repeat(*bytes)).unwrap();
                    }
                }
                Command::Cat(path) => {
                    let text = self.file(path).and_then(|it| std::fs::read_to_string(it).ok());
                    self.print(&text.unwrap_or_default());
                }
                Command::Sleep(duration) => tokio::time::sleep(*duration).await,
                Command::ExitIfRepeated(code) if attempt > 0 => return *code,
                Command::ExitIfRepeated(_) => {}
                Command::Exit(code) => return *code,
                Command::Listen(port) => self.listen(*port).await,
                Command::Forever => std::future::pending().await,
            }
        }
        0
    }

    /// Serves connections: web requests are answered with 200, after `break_page` with 404.
    async fn listen(self: &Arc<Self>, port: u16) {
        let listener = tokio::net::TcpListener::bind((self.address.as_str(), port)).await.unwrap();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let this = self.clone();
            tokio::spawn(async move {
                let mut request = [0; 1024];
                let _ = stream.read(&mut request).await;
                let code = if this.is_broken.load(Ordering::Relaxed) { "404 Not Found" } else { "200 OK" };
                let _ = stream.write_all(format!("HTTP/1.1 {code}\r\nContent-Length: 0\r\n\r\n").as_bytes()).await;
            });
        }
    }

    async fn stop(self: &Arc<Self>, grace: Duration) {
        if !self.is_running() {
            return;
        }
        let mut ended = std::pin::pin!(self.ended.notified());
        ended.as_mut().enable();
        if let Some(handler) = self.script.trap.clone() {
            let this = self.clone();
            tokio::spawn(async move {
                let code = this.run(&handler).await;
                this.end(code);
            });
        }
        if tokio::time::timeout(grace, ended).await.is_err() {
            self.end(137);
        }
    }
}

impl PlayedRuntime {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Calls that changed something, in order.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.state().calls.clone()
    }

    fn of_pod(&self, namespace: &str, pod: &str) -> Vec<Arc<Instance>> {
        let is_its = |it: &&Arc<Instance>| {
            let labels = &it.config.labels;
            labels["io.kubernetes.pod.namespace"] == namespace && labels["io.kubernetes.pod.name"] == pod
        };
        self.state().containers.values().filter(is_its).cloned().collect()
    }

    /// The configurations of a pod's containers.
    pub(crate) fn configs(&self, namespace: &str, pod: &str) -> Vec<m::ContainerConfig> {
        self.of_pod(namespace, pod).iter().map(|it| it.config.clone()).collect()
    }

    /// Ends the running containers of a pod from inside.
    pub(crate) fn end_processes(&self, namespace: &str, pod: &str, code: i32) {
        self.of_pod(namespace, pod).iter().filter(|it| it.is_running()).for_each(|it| it.end(code));
    }

    /// Makes the web server of a pod answer with 404.
    pub(crate) fn break_page(&self, namespace: &str, pod: &str) {
        self.of_pod(namespace, pod).iter().for_each(|it| it.is_broken.store(true, Ordering::Relaxed));
    }

    /// Ends the process that holds the sandbox of a pod.
    pub(crate) fn end_sandbox(&self, namespace: &str, pod: &str) {
        for sandbox in self.state().sandboxes.values_mut() {
            let of = sandbox.shown.metadata.as_ref().unwrap();
            if of.namespace == namespace && of.name == pod {
                sandbox.shown.state = m::PodSandboxState::NotReady.into();
            }
        }
    }

    /// Plays a fault from now on; none ends it.
    pub(crate) fn set_fault(&self, fault: Option<Fault>) {
        self.state().fault = fault;
    }

    /// Forgets all sandboxes and containers, as a machine that was started again does.
    pub(crate) fn reboot(&self) {
        let mut state = self.state();
        state.containers.values().for_each(|it| it.end(137));
        state.containers.clear();
        state.sandboxes.clear();
    }

    /// The numbers of ready sandboxes and of running containers.
    pub(crate) fn running(&self) -> (usize, usize) {
        let state = self.state();
        let ready = state.sandboxes.values().filter(|it| it.shown.state() == m::PodSandboxState::Ready).count();
        (ready, state.containers.values().filter(|it| it.is_running()).count())
    }

    /// Applies the fault of the moment to a call.
    async fn play_fault(self, method: String, request: Bytes) -> Result<Vec<u8>, Status> {
        let name = method.rsplit('/').next().unwrap().to_owned();
        let fault = self.state().fault.clone();
        match fault {
            Some(Fault::Hangs) => std::future::pending().await,
            Some(Fault::DiskFull) if matches!(&*name, "RunPodSandbox" | "CreateContainer" | "PullImage") => {
                Err(Status::unknown("mkdir /var/lib/containerd/x: no space left on device"))
            }
            Some(Fault::AnswersNot(method)) if method == name => {
                let _ = self.clone().answer(name.clone(), request).await;
                self.state().calls.push(format!("unanswered {name}"));
                std::future::pending().await
            }
            _ => self.answer(method, request).await,
        }
    }

    fn instance(&self, id: &str) -> Result<Arc<Instance>, Status> {
        self.state().containers.get(id).cloned().ok_or_else(|| Status::not_found(format!("container {id}")))
    }

    async fn answer(self, method: String, request: Bytes) -> Result<Vec<u8>, Status> {
        match method.rsplit('/').next().unwrap() {
            "Version" => reply(m::VersionResponse {
                version: "0.1.0".into(),
                runtime_name: "containerd".into(),
                runtime_version: "2.1.9".into(),
                runtime_api_version: "v1".into(),
            }),
            "Status" => {
                let ready =
                    |kind: &str| m::RuntimeCondition { r#type: kind.into(), status: true, ..Default::default() };
                let conditions = vec![ready("RuntimeReady"), ready("NetworkReady")];
                let features = Some(m::RuntimeFeatures { supplemental_groups_policy: true });
                let status = Some(m::RuntimeStatus { conditions });
                reply(m::StatusResponse { status, features, ..Default::default() })
            }
            "RunPodSandbox" => self.run_sandbox(decode(request)?),
            "PodSandboxStatus" => {
                let id = decode::<m::PodSandboxStatusRequest>(request)?.pod_sandbox_id;
                let ip = self.state().sandboxes.get(&id).map(|it| it.address.clone()).unwrap_or_default();
                let network = m::PodSandboxNetworkStatus { ip, additional_ips: Vec::new() };
                let status = m::PodSandboxStatus { network: Some(network), ..Default::default() };
                reply(m::PodSandboxStatusResponse { status: Some(status), ..Default::default() })
            }
            "StopPodSandbox" => {
                let id = decode::<m::StopPodSandboxRequest>(request)?.pod_sandbox_id;
                if let Some(sandbox) = self.state().sandboxes.get_mut(&id) {
                    sandbox.shown.state = m::PodSandboxState::NotReady.into();
                }
                let of = |it: &&Arc<Instance>| it.shown().0.pod_sandbox_id == id;
                let all: Vec<_> = self.state().containers.values().filter(of).cloned().collect();
                all.iter().for_each(|it| it.end(137));
                reply(m::StopPodSandboxResponse {})
            }
            "RemovePodSandbox" => {
                let id = decode::<m::RemovePodSandboxRequest>(request)?.pod_sandbox_id;
                let mut state = self.state();
                state.sandboxes.remove(&id);
                state.containers.retain(|_, it| it.shown().0.pod_sandbox_id != id);
                reply(m::RemovePodSandboxResponse {})
            }
            "ListPodSandbox" => {
                let filter = decode::<m::ListPodSandboxRequest>(request)?.filter.unwrap_or_default();
                let fits = |it: &&m::PodSandbox| {
                    filter.label_selector.iter().all(|(key, value)| it.labels.get(key) == Some(value))
                };
                let items = self.state().sandboxes.values().map(|it| &it.shown).filter(fits).cloned().collect();
                reply(m::ListPodSandboxResponse { items })
            }
            "CreateContainer" => self.create_container(decode(request)?),
            "StartContainer" => self.start_container(&decode::<m::StartContainerRequest>(request)?.container_id),
            "StopContainer" => {
                let request = decode::<m::StopContainerRequest>(request)?;
                self.state().calls.push(format!("stop after {}", request.timeout));
                let seconds = u64::try_from(request.timeout).unwrap_or(0);
                self.instance(&request.container_id)?.stop(Duration::from_secs(seconds)).await;
                reply(m::StopContainerResponse {})
            }
            "RemoveContainer" => {
                let id = decode::<m::RemoveContainerRequest>(request)?.container_id;
                self.state().containers.remove(&id);
                reply(m::RemoveContainerResponse {})
            }
            "ListContainers" => {
                let filter = decode::<m::ListContainersRequest>(request)?.filter.unwrap_or_default();
                let fits = |it: &m::Container| {
                    filter.label_selector.iter().all(|(key, value)| it.labels.get(key) == Some(value))
                };
                let all: Vec<_> = self.state().containers.values().map(|it| it.shown().0.clone()).collect();
                reply(m::ListContainersResponse { containers: all.into_iter().filter(fits).collect() })
            }
            "ContainerStatus" => {
                let id = decode::<m::ContainerStatusRequest>(request)?.container_id;
                let status = self.instance(&id)?.shown().1.clone();
                reply(m::ContainerStatusResponse { status: Some(status) })
            }
            "UpdateContainerResources" => {
                let request = decode::<m::UpdateContainerResourcesRequest>(request)?;
                let linux = request.linux.unwrap_or_default();
                let (quota, memory) = (linux.cpu_quota, linux.memory_limit_in_bytes);
                self.state().calls.push(format!("update to {quota} and {memory}"));
                reply(m::UpdateContainerResourcesResponse {})
            }
            "ListContainerStats" => {
                let filter = decode::<m::ListContainerStatsRequest>(request)?.filter.unwrap_or_default();
                let fits = |it: &&Arc<Instance>| {
                    filter.label_selector.iter().all(|(key, value)| it.config.labels.get(key) == Some(value))
                };
                let stats = self.state().containers.values().filter(fits).map(|it| it.stats()).collect();
                reply(m::ListContainerStatsResponse { stats })
            }
            "ImageStatus" => {
                let name = decode::<m::ImageStatusRequest>(request)?.image.unwrap_or_default().image;
                let is_present = PRESENT.contains(&name.as_str()) || name.starts_with("sha256:");
                let id = format!("sha256:{:064x}", 7);
                let image = m::Image { id, size: 1_032_132, ..Default::default() };
                reply(m::ImageStatusResponse { image: is_present.then_some(image) })
            }
            "PullImage" => pull(&decode::<m::PullImageRequest>(request)?.image.unwrap_or_default().image),
            "ExecSync" => self.exec(decode(request)?).await,
            other => Err(Status::unimplemented(other.to_owned())),
        }
    }

    fn run_sandbox(&self, request: m::RunPodSandboxRequest) -> Result<Vec<u8>, Status> {
        let config = request.config.unwrap_or_default();
        let mut state = self.state();
        state.number += 1;
        let number = state.number;
        let id = format!("{number:064x}");
        state.calls.push(format!("run {}", config.metadata.as_ref().unwrap().name));
        if !request.runtime_handler.is_empty() {
            state.calls.push(format!("handler {}", request.runtime_handler));
        }
        let shown = m::PodSandbox {
            id: id.clone(),
            metadata: config.metadata,
            created_at: now(),
            labels: config.labels,
            annotations: config.annotations,
            ..Default::default()
        };
        // Every sandbox has an address of its own on the loopback interface.
        let address = format!("127.1.{}.{}", number / 250, number % 250 + 1);
        state.sandboxes.insert(id.clone(), Sandbox { shown, address, logs: config.log_directory.into() });
        reply(m::RunPodSandboxResponse { pod_sandbox_id: id })
    }

    fn create_container(&self, request: m::CreateContainerRequest) -> Result<Vec<u8>, Status> {
        let config = request.config.unwrap_or_default();
        let mut state = self.state();
        state.number += 1;
        let id = format!("{:064x}", state.number);
        let sandbox = state.sandboxes.get(&request.pod_sandbox_id);
        let sandbox = sandbox.ok_or_else(|| Status::not_found("sandbox"))?;
        let (address, log) = (sandbox.address.clone(), sandbox.logs.join(&config.log_path));
        std::fs::write(&log, "").unwrap();
        let name = config.image.as_ref().map(|it| it.user_specified_image.clone()).unwrap_or_default();
        let status = m::ContainerStatus {
            id: id.clone(),
            metadata: config.metadata.clone(),
            annotations: config.annotations.clone(),
            created_at: now(),
            image_ref: reference(&name),
            image: Some(m::ImageSpec { image: name, ..Default::default() }),
            log_path: log.display().to_string(),
            user: Some(user(&config)),
            ..Default::default()
        };
        let container = m::Container {
            id: id.clone(),
            pod_sandbox_id: request.pod_sandbox_id,
            metadata: config.metadata.clone(),
            created_at: status.created_at,
            labels: config.labels.clone(),
            ..Default::default()
        };
        let script = Script::parse(&config);
        let shown = Mutex::new((container, status));
        let (ended, is_broken) = (Notify::new(), AtomicBool::new(false));
        let instance = Instance { shown, config, script, address, log, ended, is_broken };
        state.containers.insert(id.clone(), Arc::new(instance));
        reply(m::CreateContainerResponse { container_id: id })
    }

    fn start_container(&self, id: &str) -> Result<Vec<u8>, Status> {
        let instance = self.instance(id)?;
        let name = instance.config.metadata.as_ref().unwrap().name.clone();
        self.state().calls.push(format!("start {name}"));
        if instance.config.command.first().is_some_and(|it| it == "/etc/passwd") {
            let why = "failed to create containerd task: failed to create shim task: OCI runtime create failed: \
                       runc create failed: unable to start container process: exec: \"/etc/passwd\": permission denied";
            instance.end(128);
            let mut shown = instance.shown();
            (shown.1.reason, shown.1.message) = ("StartError".into(), why.into());
            return Err(Status::unknown(why));
        }
        {
            let mut shown = instance.shown();
            shown.0.state = m::ContainerState::Running.into();
            (shown.1.state, shown.1.started_at) = (shown.0.state, now());
        }
        tokio::spawn(async move {
            let commands = instance.script.commands.clone();
            // The shortest life of a process: long enough to be seen. Servers listen at once.
            if !commands.iter().any(|it| matches!(it, Command::Listen(_))) {
                tokio::time::sleep(PROCESS_LIFE).await;
            }
            let code = instance.run(&commands).await;
            instance.end(code);
        });
        reply(m::StartContainerResponse {})
    }

    async fn exec(&self, request: m::ExecSyncRequest) -> Result<Vec<u8>, Status> {
        let instance = self.instance(&request.container_id)?;
        let code = match request.cmd.first().map(String::as_str) {
            Some("/nope") => {
                return Err(Status::unknown(format!(
                    "failed to exec in container: failed to start exec \"{:064x}\": OCI runtime exec failed: exec \
                     failed: unable to start container process: exec: \"/nope\": stat /nope: no such file or directory",
                    9
                )));
            }
            Some("true") => 0,
            Some("false") => 1,
            _ => {
                let script = Script::of_command(&request.cmd);
                let printed: Vec<String> = script.commands.iter().filter_map(Command::printed).collect();
                let limit = Duration::from_secs(u64::try_from(request.timeout).unwrap().max(1));
                let quiet: Vec<Command> = script.commands.into_iter().filter(|it| it.printed().is_none()).collect();
                let Ok(exit_code) = tokio::time::timeout(limit, instance.run(&quiet)).await else {
                    return Err(Status::deadline_exceeded("timeout"));
                };
                let stdout = printed.concat().into_bytes();
                return reply(m::ExecSyncResponse { stdout, stderr: Vec::new(), exit_code });
            }
        };
        reply(m::ExecSyncResponse { exit_code: code, ..Default::default() })
    }
}

/// The exact image of a name: images that were pulled have a repository.
fn reference(name: &str) -> String {
    match name.strip_prefix("localhost:5000/").and_then(|it| it.split(':').next()) {
        Some(repository) => format!("localhost:5000/{repository}@sha256:{:064x}", 7),
        None => format!("sha256:{:064x}", 7),
    }
}

/// The user of a container's first process.
fn user(config: &m::ContainerConfig) -> m::ContainerUser {
    let security = config.linux.as_ref().and_then(|it| it.security_context.clone()).unwrap_or_default();
    let uid = security.run_as_user.map_or(0, |it| it.value);
    // The image has a user 65534 with a group of its own.
    let own = if uid == 65534 { uid } else { 0 };
    let gid = security.run_as_group.map_or(own, |it| it.value);
    let mut supplemental_groups = vec![gid];
    supplemental_groups.extend(security.supplemental_groups);
    supplemental_groups.sort_unstable();
    supplemental_groups.dedup();
    m::ContainerUser { linux: Some(m::LinuxContainerUser { uid, gid, supplemental_groups }) }
}

fn pull(name: &str) -> Result<Vec<u8>, Status> {
    let failed = |why: &str| format!("failed to pull and unpack image \"{name}\": failed to resolve image: {why}");
    match name {
        _ if PRESENT.contains(&name) => reply(m::PullImageResponse { image_ref: format!("sha256:{:064x}", 7) }),
        _ if name.contains("private") => Err(Status::unknown(failed(
            "pull access denied, repository does not exist or may require authorization: authorization failed: no basic auth credentials",
        ))),
        _ if name.contains("broken") => Err(Status::unknown(failed(
            "unexpected status from HEAD request to http://localhost:5000/v2/broken/manifests/1: 500 Internal Server Error",
        ))),
        _ => Err(Status::not_found(failed(&format!("{name}: not found")))),
    }
}

impl Service for PlayedRuntime {
    fn call(self: Arc<Self>, method: String, request: Bytes) -> BoxFuture<'static, Result<Vec<u8>, Status>> {
        let this = (*self).clone();
        Box::pin(this.play_fault(method, request))
    }
}
