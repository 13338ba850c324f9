//! The seam between the node agent and containers: [`simulation`](crate::simulation) plays them,
//! [`containers`](crate::containers) runs them through CRI.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use api::core::v1::{self, Pod, ResourceList};
use api::json::{Text, Value};
use api::resource::v1::ResourceClaim;
use api::time::Timestamp;
use client::events::Recorder;
use client::informer::Key;

use crate::admission::Rejection;
use crate::logs::{self, Line};

/// Makes the agent look after a pod soon.
pub type Wake = Arc<dyn Fn(Key) + Send + Sync>;

/// Runs the containers of pods.
///
/// `sync` and `stop` are repeated until nothing changes any more. A runtime that runs real containers may take as long as
/// one step takes (creating a sandbox, pulling an image), but does not wait for containers to end.
pub trait Runtime: Send + Sync + 'static {
    /// Whether containers are simulated. A simulated node has neither streams nor its own agent.
    const IS_SIMULATED: bool;

    /// The recorder of the runtime's events, if it has its own. The agent uses it, too: only one recorder writes the events about a
    /// pod in their order.
    fn recorder(&self) -> Option<Recorder> {
        None
    }

    /// Advances the pod's containers and returns their state. A running pod, possibly from before this process
    /// started, is adopted. `manifest` is the whole pod if the server does not have it: a static pod.
    fn sync(&self, pod: &Pod, manifest: Option<&Value>, now: Timestamp) -> impl Future<Output = Observation> + Send;

    /// Allocates changed resources of a pod's containers if `admit` finds room for them; the next sync applies them. Returns
    /// whether the change waits for room.
    fn resize(
        &self,
        _pod: &Pod,
        _now: Timestamp,
        _admit: impl FnOnce() -> Result<(), Rejection> + Send,
    ) -> impl Future<Output = bool> + Send {
        async { false }
    }

    /// Ends the pod's containers, within the pod's grace period.
    fn stop(&self, pod: &Pod, now: Timestamp) -> impl Future<Output = StopProgress> + Send;

    /// Has drivers prepare the claims of a pod, each with its name in the pod.
    ///
    /// # Errors
    /// A message for users.
    fn prepare(
        &self,
        _pod: &Pod,
        _claims: &[(Text, ResourceClaim)],
    ) -> impl Future<Output = Result<(), String>> + Send {
        async { Ok(()) }
    }

    /// Whether the claims of a pod are prepared.
    fn is_prepared(&self, _uid: &str) -> bool {
        true
    }

    /// Releases the resources of a deleted pod.
    fn forget(&self, uid: &str);

    /// Releases everything of pods that the server deleted while no agent was running.
    fn retain(&self, _uids: &HashSet<Text>) {}

    /// Returns the output of a container, or of its run before this one.
    ///
    /// # Errors
    /// Why there is no output, as `kubectl logs` shows it.
    fn logs(
        &self,
        pod: &Pod,
        container: &str,
        options: &logs::Options,
        now: Timestamp,
    ) -> impl Future<Output = Result<Vec<Line>, String>> + Send;

    /// Works in the background for as long as the agent does, and wakes pods whose containers changed.
    fn run(&self, _wake: Wake) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// The end of a pod that the node decided, if it did.
    fn ending(&self, _uid: &str) -> Option<Termination> {
        None
    }

    /// Has the node end a pod by itself.
    fn end_pod(&self, _uid: &str, _ending: Termination) {}

    /// Begins the shutdown of the machine: from now on, no pod is taken and the node is not ready.
    fn shut_down(&self) {}

    /// Whether the machine is shutting down.
    fn is_shutting_down(&self) -> bool {
        false
    }

    /// The resources that the node lacks.
    fn pressure(&self) -> Pressure {
        Pressure::default()
    }

    /// Checks that containers can be started now.
    ///
    /// # Errors
    /// The message of the node's condition `Ready`.
    fn health(&self) -> Result<(), String> {
        Ok(())
    }
}

/// The end of a pod that its node decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Termination {
    /// The reason in the pod's status.
    pub reason: &'static str,
    /// The message in the pod's status.
    pub message: String,
    /// Longest grace period in seconds; none for the pod's own.
    pub grace: Option<i64>,
}

/// Resources that a node lacks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Memory.
    pub memory: bool,
    /// Disk.
    pub disk: bool,
}

/// The state of a pod's containers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observation {
    /// Whether the pod's sandbox is ready, and with it the pod's address.
    pub has_sandbox: bool,
    /// Addresses of the sandbox, where the runtime assigns them.
    pub addresses: Option<Vec<String>>,
    /// The init containers, in the pod's order.
    pub init_containers: Vec<Container>,
    /// The containers, in the pod's order.
    pub containers: Vec<Container>,
    /// The ephemeral containers, in the pod's order.
    pub ephemeral_containers: Vec<Container>,
    /// Whether the runtime is unreachable: the state is unknown, and nothing is written.
    pub is_stale: bool,
    /// Whether containers are real: their status then has every field that Kubernetes' kubelet writes.
    pub is_real: bool,
    /// Whether the pod has or had a sandbox. Known of real containers only.
    pub had_sandbox: bool,
    /// Whether containers or the sandbox may still run: until they have ended, the pod keeps its phase.
    pub may_run: bool,
    /// Conditions of a resize that waits or is in progress.
    pub resize: Vec<ResizeCondition>,
    /// Allocated resources of the whole pod: requests and limits. Known of real containers only.
    pub resources: Option<(ResourceList, ResourceList)>,
    /// Delay until the next look, at the latest.
    pub next: Option<Duration>,
}

/// A condition of a pod whose resources are being changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResizeCondition {
    /// The type: `PodResizePending` or `PodResizeInProgress`.
    pub kind: &'static str,
    /// Reason, may be empty.
    pub reason: String,
    /// Message, may be empty.
    pub message: String,
    /// The generation of the pod that asked for the change.
    pub generation: i64,
}

impl ResizeCondition {
    /// A condition that holds.
    #[must_use]
    pub fn new(kind: &'static str, reason: &str, message: &str, generation: i64) -> Self {
        Self { kind, reason: reason.to_owned(), message: message.to_owned(), generation }
    }
}

impl Observation {
    /// Containers of which none has been created.
    #[must_use]
    pub fn not_started(pod: &Pod) -> Self {
        let reason = if pod.spec.init_containers.is_empty() { "ContainerCreating" } else { "PodInitializing" };
        let waiting = |container: &v1::Container| Container::waiting(&container.name, &container.image, reason);
        Self {
            init_containers: pod.spec.init_containers.iter().map(waiting).collect(),
            containers: pod.spec.containers.iter().map(waiting).collect(),
            ..Self::default()
        }
    }
}

/// Progress of ending a pod.
#[derive(Debug, Clone, PartialEq)]
pub enum StopProgress {
    /// Containers are still running: look again after this long.
    Wait(Duration),
    /// The containers never end.
    Never,
    /// All have ended.
    Ended(Observation),
}

/// The state of one container.
#[derive(Debug, Clone, PartialEq)]
pub struct Container {
    /// Name of the container in the pod.
    pub name: Text,
    /// The image as the pod names it, or as the runtime resolved it.
    pub image: Text,
    /// The exact image, once that is known.
    pub image_id: Text,
    /// The runtime's name for it, once there is one.
    pub container_id: Text,
    /// Present state.
    pub state: State,
    /// The end of its last run.
    pub last_end: Option<ContainerTermination>,
    /// Whether it is ready for requests.
    pub is_ready: bool,
    /// Whether it has started up.
    pub is_started: bool,
    /// Number of restarts.
    pub restarts: i32,
    /// Whether it is started again after its end.
    pub is_restarting: bool,
    /// Further fields of the status: those of real containers.
    pub fields: Vec<(&'static str, Value)>,
}

impl Container {
    /// A container that has not been created.
    #[must_use]
    pub fn waiting(name: &Text, image: &Text, reason: &'static str) -> Self {
        Self {
            name: name.clone(),
            image: image.clone(),
            image_id: Text::default(),
            container_id: Text::default(),
            state: State::Waiting { reason, message: String::new() },
            last_end: None,
            is_ready: false,
            is_started: false,
            restarts: 0,
            is_restarting: false,
            fields: Vec::new(),
        }
    }
}

/// The state of a container.
#[derive(Debug, Clone, PartialEq)]
pub enum State {
    /// The container waits to be started.
    Waiting {
        /// In one word.
        reason: &'static str,
        /// Message, may be empty.
        message: String,
    },
    /// The container is running.
    Running {
        /// Start of the run.
        since: Timestamp,
    },
    /// The container has ended.
    Ended(ContainerTermination),
}

/// The end of a container's run.
#[derive(Debug, Clone, PartialEq)]
pub struct ContainerTermination {
    /// Exit code.
    pub exit_code: i32,
    /// Start of the run.
    pub started: Timestamp,
    /// End of the run.
    pub finished: Timestamp,
    /// The runtime's reason; if empty, [`ContainerTermination::reason`] derives it from the exit code.
    pub word: Text,
    /// The termination message.
    pub message: Text,
    /// The runtime's ID of the ended container; if empty, the present one.
    pub container_id: Text,
}

impl ContainerTermination {
    /// The end of a run of which nothing but the exit code is known.
    #[must_use]
    pub fn new(exit_code: i32, started: Timestamp, finished: Timestamp) -> Self {
        let empty = Text::default;
        Self { exit_code, started, finished, word: empty(), message: empty(), container_id: empty() }
    }

    /// The runtime's word, or `Completed` or `Error`.
    #[must_use]
    pub fn reason(&self) -> &str {
        match (self.word.as_str(), self.exit_code) {
            ("", 0) => "Completed",
            ("", _) => "Error",
            (word, _) => word,
        }
    }
}
