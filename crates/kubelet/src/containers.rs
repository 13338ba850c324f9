//! Containers that really run: a runtime behind the Container Runtime Interface.
//!
//! In reading order: `manifest` reads pods, `configs`, `resources`, `environment` and `volumes` turn them into what a
//! runtime needs, `pod_cgroups` limits whole pods, `snapshot` is what the runtime has, `plan` decides the next step and `sync` takes it, `start` starts
//! a container, `resize` changes its resources, `probes` watch it, `devices` are
//! prepared by drivers, `stopping` ends a pod, `observe` makes a status of it all, and `relist` notices
//! changes. The runtime holds the state: an agent that is started again finds the containers that run by their labels.

mod actions;
mod back_off;
mod configs;
mod devices;
mod dns;
mod environment;
mod events;
mod images;
mod log_files;
mod log_reader;
mod manifest;
mod metrics;
mod observe;
mod plan;
mod pod_cgroups;
pub(crate) mod pressure;
mod probes;
mod relist;
mod resize;
mod resources;
mod snapshot;
mod sources;
mod start;
mod stopping;
mod sync;
mod volumes;

use locks::{Mutex, MutexGuard};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use api::core::v1::Pod;
use api::json::{Text, Value};
use api::resource::v1::ResourceClaim;
use api::time::Timestamp;
use client::Client;
use client::events::Recorder;
use client::informer::{Informer, Key};
use client::objects::Selection;
use cri::messages::{self as m, CgroupDriver};

use self::devices::Devices;
pub use self::dns::Dns;
use self::environment::Facts;
use self::events::Events;
use self::images::Images;
pub use self::log_reader::LogReader;
use self::metrics::Metrics;
use self::pressure::PressureState;
pub use self::pressure::{ThresholdFlags, Thresholds};
use self::sources::Sources;
use self::sync::PodState;
use crate::admission::Rejection;
use crate::fleet::shutdown;
use crate::logs::{self, Line};
use crate::runtime::{Observation, Pressure, Runtime, StopProgress, Termination, Wake};
use clock::Clock;
use telemetry::metrics::Registry;

/// Settings for running containers.
pub struct Options {
    /// The node's name.
    pub node: String,
    /// The runtime.
    pub runtime: cri::Client,
    /// The server, under the node's name.
    pub client: Client,
    /// Volumes and other files of pods.
    pub root: PathBuf,
    /// Log files of containers.
    pub logs: PathBuf,
    /// The cgroup below which pods get theirs.
    pub cgroup_root: String,
    /// Name resolution of pods.
    pub dns: Dns,
    /// Address and port of the API server for pods, where its Service cannot be reached.
    pub api_server: Option<(String, u16)>,
    /// Whether file systems can be mounted; only tests do without.
    pub can_mount: bool,
    /// The node's address.
    pub address: String,
    /// The node's memory in bytes.
    pub memory: i64,
    /// The node's processors in thousandths.
    pub cpu_milli: i64,
    /// Amounts below which pods are evicted.
    pub thresholds: Thresholds,
    /// The time.
    pub clock: Clock,
    /// The registry of metrics about the runtime and pods.
    pub registry: Registry,
}

/// A runtime behind CRI. Clones are the same runtime.
#[derive(Clone)]
pub struct Containers {
    shared: Arc<SharedState>,
}

struct SharedState {
    node: String,
    runtime: cri::Client,
    /// The runtime's name, which begins the ids of its containers.
    runtime_name: String,
    runtime_version: String,
    cgroup_driver: CgroupDriver,
    features: m::RuntimeFeatures,
    sources: Sources,
    events: Events,
    images: Images,
    devices: Devices,
    pressure: PressureState,
    thresholds: Thresholds,
    root: PathBuf,
    logs: PathBuf,
    cgroup_root: String,
    dns: Dns,
    api_server: Option<(String, u16)>,
    can_mount: bool,
    facts: Facts,
    clock: Clock,
    pods: Mutex<HashMap<Text, Arc<PodState>>>,
    /// Processor shares of burstable pods by uid.
    burstable_shares: Mutex<HashMap<Text, i64>>,
    wake: OnceLock<Wake>,
    is_shutting_down: AtomicBool,
    health: Mutex<Result<(), String>>,
    metrics: Arc<Metrics>,
}

impl Containers {
    /// Connects to a runtime. Needs a Tokio runtime.
    ///
    /// # Errors
    /// The runtime does not answer.
    pub async fn connect(options: Options) -> Result<Self, cri::Status> {
        let version = options.runtime.version(m::VersionRequest::default()).await?;
        let config = options.runtime.runtime_config(m::RuntimeConfigRequest {}).await;
        // Runtimes that do not implement the call predate cgroup drivers other than the configured default.
        let driver =
            config.ok().and_then(|config| config.linux).map_or(CgroupDriver::Cgroupfs, |it| it.cgroup_driver());
        let status = options.runtime.status(m::StatusRequest { verbose: true }).await.unwrap_or_default();
        let features = status.features.unwrap_or_default();
        let metrics = Metrics::new(&options.registry);
        let counted = metrics.clone();
        let services = Informer::start(&options.client, Selection::default());
        let facts = Facts {
            node: options.node.clone(),
            host_ip: options.address,
            cpu_milli: options.cpu_milli,
            memory: options.memory,
            ..Facts::default()
        };
        let shared = SharedState {
            events: Events { recorder: Recorder::of_node(&options.client, &options.node) },
            node: options.node,
            runtime: options.runtime.observed(move |call| counted.count(call)),
            runtime_name: version.runtime_name,
            runtime_version: version.runtime_version,
            cgroup_driver: driver,
            features,
            sources: Sources { client: options.client, services },
            images: Images::default(),
            devices: Devices::default(),
            pressure: PressureState::new(&status.info),
            thresholds: options.thresholds,
            root: options.root,
            logs: options.logs,
            cgroup_root: options.cgroup_root,
            dns: options.dns,
            api_server: options.api_server,
            can_mount: options.can_mount,
            facts,
            clock: options.clock,
            pods: Mutex::default(),
            burstable_shares: Mutex::default(),
            wake: OnceLock::new(),
            is_shutting_down: AtomicBool::new(false),
            health: Mutex::new(Ok(())),
            metrics,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The runtime's name and version, as a node reports them.
    #[must_use]
    pub fn version(&self) -> String {
        format!("{}://{}", self.shared.runtime_name, self.shared.runtime_version)
    }

    /// Whether the runtime implements `supplementalGroupsPolicy`.
    #[must_use]
    pub fn has_supplemental_groups_policy(&self) -> bool {
        self.shared.features.supplemental_groups_policy
    }

    /// The runtime, for streams.
    #[must_use]
    pub fn runtime(&self) -> &cri::Client {
        &self.shared.runtime
    }

    /// The id of a pod's running container.
    ///
    /// # Errors
    /// A message for users.
    pub async fn running_container(&self, pod: &Pod, name: &str) -> Result<String, String> {
        let snapshot = self.shared.look(&pod.metadata.uid).await.map_err(|status| status.message().to_owned())?;
        let found = snapshot.newest(name).filter(|it| it.status.state() == m::ContainerState::Running);
        found.map(|it| it.status.id.clone()).ok_or_else(|| format!("container not found (\"{name}\")"))
    }

    /// The id of a pod's ready sandbox.
    ///
    /// # Errors
    /// A message for users.
    pub async fn ready_sandbox(&self, pod: &Pod) -> Result<String, String> {
        let snapshot = self.shared.look(&pod.metadata.uid).await.map_err(|status| status.message().to_owned())?;
        snapshot.ready_sandbox().map(|it| it.id.clone()).ok_or_else(|| "failed to find a running sandbox".to_owned())
    }
}

impl SharedState {
    fn pods(&self) -> MutexGuard<'_, HashMap<Text, Arc<PodState>>> {
        self.pods.lock()
    }

    fn state(&self, pod: &Pod) -> Arc<PodState> {
        self.pods().entry(pod.metadata.uid.clone()).or_default().clone()
    }

    fn wake(&self, pod: &Pod) {
        if let Some(wake) = self.wake.get() {
            wake(Key::new(pod.metadata.namespace.clone(), pod.metadata.name.clone()));
        }
    }

    /// The directory of a pod. A uid of the server has no separators; others are not used as names.
    fn directory(&self, uid: &str) -> PathBuf {
        let name: String =
            uid.chars().map(|it| if it.is_ascii_alphanumeric() || it == '-' { it } else { '_' }).collect();
        self.root.join("pods").join(name)
    }

    fn log_directory(&self, namespace: &str, name: &str, uid: &str) -> PathBuf {
        self.logs.join(format!("{namespace}_{name}_{uid}"))
    }
}

impl Runtime for Containers {
    const IS_SIMULATED: bool = false;

    fn recorder(&self) -> Option<Recorder> {
        Some(self.shared.events.recorder.clone())
    }

    async fn sync(&self, pod: &Pod, manifest: Option<&Value>, now: Timestamp) -> Observation {
        self.shared.sync(pod, manifest, now).await
    }

    async fn resize(&self, pod: &Pod, now: Timestamp, admit: impl FnOnce() -> Result<(), Rejection> + Send) -> bool {
        self.shared.resize(pod, now, admit).await
    }

    async fn stop(&self, pod: &Pod, _now: Timestamp) -> StopProgress {
        self.shared.stop(pod)
    }

    fn forget(&self, uid: &str) {
        let (shared, uid) = (self.shared.clone(), uid.to_owned());
        tokio::spawn(async move { shared.release(&uid).await });
    }

    fn retain(&self, uids: &HashSet<Text>) {
        let (shared, uids) = (self.shared.clone(), uids.clone());
        tokio::spawn(async move { shared.release_others(&uids).await });
    }

    async fn prepare(&self, pod: &Pod, claims: &[(Text, ResourceClaim)]) -> Result<(), String> {
        self.shared.devices.prepare(pod, claims).await
    }

    fn is_prepared(&self, uid: &str) -> bool {
        self.shared.devices.is_prepared(uid)
    }

    async fn logs(
        &self,
        pod: &Pod,
        container: &str,
        options: &logs::Options,
        _now: Timestamp,
    ) -> Result<Vec<Line>, String> {
        self.shared.log_lines(pod, container, options.previous).await
    }

    async fn run(&self, wake: Wake) {
        self.shared.wake.get_or_init(|| wake);
        let shared = &self.shared;
        tokio::join!(shared.clone().relist(), shared.watch_health(), shared.devices.run(&shared.root));
    }

    fn ending(&self, uid: &str) -> Option<Termination> {
        self.shared.ending(uid)
    }

    fn end_pod(&self, uid: &str, ending: Termination) {
        self.shared.pressure.endings.lock().insert(uid.into(), ending);
    }

    fn shut_down(&self) {
        self.shared.is_shutting_down.store(true, Ordering::Release);
    }

    fn is_shutting_down(&self) -> bool {
        self.shared.is_shutting_down.load(Ordering::Acquire)
    }

    fn pressure(&self) -> Pressure {
        self.shared.reported_pressure()
    }

    fn health(&self) -> Result<(), String> {
        if self.is_shutting_down() {
            return Err(shutdown::NOT_READY.to_owned());
        }
        self.shared.health.lock().clone()
    }
}
