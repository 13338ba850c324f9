//! What runs containers, behind a trait: the simulation implements it, and a real runtime can.

use std::time::Duration;

use api::core::v1::Pod;
use api::json::Text;
use api::time::Timestamp;

/// Runs the containers of pods.
///
/// Both calls are repeated until nothing changes any more; neither waits for containers.
pub trait Runtime: Send + Sync + 'static {
    /// Brings the pod's containers further and says how they are. A pod that is running already, perhaps since before
    /// this process began, goes on where its status says it was.
    fn sync(&self, pod: &Pod, now: Timestamp) -> impl Future<Output = Observation> + Send;

    /// Ends the pod's containers, within the pod's grace period.
    fn stop(&self, pod: &Pod, now: Timestamp) -> impl Future<Output = Stopping> + Send;

    /// Drops what is known of a pod that is gone.
    fn forget(&self, uid: &str);

    /// What a container has written.
    ///
    /// # Errors
    /// Why there is nothing to be read, as `kubectl logs` shows it.
    fn logs(&self, pod: &Pod, container: &str, now: Timestamp) -> impl Future<Output = Result<String, String>> + Send;
}

/// How a pod's containers are doing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observation {
    /// The pod's sandbox is there, and with it the pod's address.
    pub has_sandbox: bool,
    /// The init containers, in the pod's order.
    pub init_containers: Vec<Container>,
    /// The containers, in the pod's order.
    pub containers: Vec<Container>,
    /// When to look again, at the latest.
    pub next: Option<Duration>,
}

impl Observation {
    /// Nothing of the pod is there yet.
    #[must_use]
    pub fn creating(pod: &Pod) -> Self {
        let reason = if pod.spec.init_containers.is_empty() { "ContainerCreating" } else { "PodInitializing" };
        let waiting = |container: &api::core::v1::Container| Container {
            name: container.name.clone(),
            image: container.image.clone(),
            image_id: Text::default(),
            container_id: Text::default(),
            state: State::Waiting { reason, message: String::new() },
            last_end: None,
            is_ready: false,
            is_started: false,
            restarts: 0,
        };
        Observation {
            init_containers: pod.spec.init_containers.iter().map(waiting).collect(),
            containers: pod.spec.containers.iter().map(waiting).collect(),
            ..Observation::default()
        }
    }
}

/// Whether a pod's containers have ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Stopping {
    /// Not yet: look again after this long.
    Wait(Duration),
    /// They never will.
    Never,
    /// They have.
    Ended(Observation),
}

/// How a container is doing.
#[derive(Debug, Clone, PartialEq)]
pub struct Container {
    /// Its name in the pod.
    pub name: Text,
    /// What it runs.
    pub image: Text,
    /// What exactly, once that is known.
    pub image_id: Text,
    /// The runtime's name for it, once there is one.
    pub container_id: Text,
    /// What it does now.
    pub state: State,
    /// How it ended the last time.
    pub last_end: Option<Ended>,
    /// It can be sent requests.
    pub is_ready: bool,
    /// It has started up.
    pub is_started: bool,
    /// How often it was started again.
    pub restarts: i32,
}

/// What a container does.
#[derive(Debug, Clone, PartialEq)]
pub enum State {
    /// It waits to be started.
    Waiting {
        /// A word for it.
        reason: &'static str,
        /// More about it, perhaps.
        message: String,
    },
    /// It runs.
    Running {
        /// Since then.
        since: Timestamp,
    },
    /// It has ended.
    Ended(Ended),
}

/// How a container ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Ended {
    /// Its exit code.
    pub exit_code: i32,
    /// When it was started.
    pub started: Timestamp,
    /// When it ended.
    pub finished: Timestamp,
}

impl Ended {
    /// `Completed` or `Error`.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        if self.exit_code == 0 { "Completed" } else { "Error" }
    }
}
