//! Clusters for tests: API server, controllers, scheduler and simulated nodes, in process or as a child.
#![doc = ""]
#![doc = include_str!("../README.md")]

mod child;
mod faults;
mod in_process;

use std::path::{Path, PathBuf};
use std::time::Duration;

use api::features::Features;
pub use faults::{ApiServer, Node, Requests};
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};

/// Maximum duration of one call of [`Cluster::advance`]: each step of a few seconds costs milliseconds.
const ADVANCE_MAX: Duration = Duration::from_secs(24 * 3600);

/// A reason why a cluster cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The feature gates are not understood.
    #[error("invalid feature gates")]
    Gates(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The control plane did not start.
    #[error("the control plane did not start: {0}")]
    Start(String),
    /// A file or process could not be created.
    #[error("cannot create the control plane's files or process")]
    Io(#[from] std::io::Error),
    /// The time would be moved too far.
    #[error("time is moved by at most 24 hours at once")]
    TooFar,
    /// The control plane has ended.
    #[error("the control plane has ended")]
    Ended,
    /// The control plane is a child process; this is possible in process only.
    #[error("not possible with a control plane in a child process")]
    ChildProcess,
    /// A client could not be created, or its request failed.
    #[error("cannot use a client")]
    Client(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Settings of a cluster to start.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Builder {
    nodes: usize,
    gates: String,
    program: Option<PathBuf>,
}

impl Builder {
    /// Number of simulated nodes, called `node-0` and so on; none by default.
    pub fn nodes(mut self, count: usize) -> Self {
        self.nodes = count;
        self
    }

    /// Feature gates of all components, as `Name=true,Name=false`. The gates of the five proposals are on by default.
    pub fn gates(mut self, gates: &str) -> Self {
        gates.clone_into(&mut self.gates);
        self
    }

    /// Starts this `celplane` binary as a child process instead of a control plane inside the test's process.
    pub fn program(mut self, path: impl Into<PathBuf>) -> Self {
        self.program = Some(path.into());
        self
    }

    /// Starts the cluster and returns when its nodes are ready.
    ///
    /// # Errors
    /// [`Error::Gates`], [`Error::Start`], [`Error::Io`].
    pub async fn start(self) -> Result<Cluster, Error> {
        let features = Features::all_proposals().with_flag(&self.gates).map_err(|error| Error::Gates(error.into()))?;
        let directory = tempfile::Builder::new().prefix("celplane-").tempdir()?;
        let data = directory.path().join("data");
        // Starting blocks on separate threads and processes, independent of the test's runtime.
        let started = tokio::task::spawn_blocking(move || match self.program {
            Some(program) => child::start(&program, &data, self.nodes, &self.gates),
            None => in_process::start(&data, self.nodes, features),
        });
        let running = started.await.map_err(|error| Error::Start(error.to_string()))??;
        Ok(Cluster { running: Some(running), directory })
    }
}

/// A control plane that ends when this is dropped.
#[derive(Debug)]
pub struct Cluster {
    /// Present until the cluster is dropped.
    running: Option<RunningPlane>,
    directory: tempfile::TempDir,
}

/// A started control plane.
#[derive(Debug)]
struct RunningPlane {
    url: String,
    end: End,
}

#[derive(Debug)]
enum End {
    Child(child::Child),
    InProcess(in_process::Server),
}

impl Cluster {
    /// Settings of a cluster without nodes.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The URL of the API server.
    #[must_use]
    pub fn url(&self) -> &str {
        self.running.as_ref().map_or("", |running| running.url.as_str())
    }

    /// The kubeconfig of the administrator, for `kubectl` and other programs.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join("data/admin.kubeconfig")
    }

    /// The directory of certificates and kubeconfig, removed with the cluster.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A client with all rights.
    ///
    /// # Errors
    /// [`Error::Client`].
    pub async fn client(&self) -> Result<Client, Error> {
        let kubeconfig = Kubeconfig::read_from(self.kubeconfig()).map_err(|error| Error::Client(error.into()))?;
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        Client::try_from(config.map_err(|error| Error::Client(error.into()))?)
            .map_err(|error| Error::Client(error.into()))
    }
}

impl Cluster {
    /// Moves the time of all components forward, at most a day at once.
    ///
    /// Timers that become due fire in order: a CronJob that is due starts its Job, a pod that tolerates a taint for five
    /// minutes is evicted after them, and nodes stay ready, because they renew their leases on the way. This takes
    /// milliseconds for each minute. The test's own time does not change, nor do timeouts of requests. Returns when the
    /// components have stopped writing; poll for results, as after any other change.
    ///
    /// # Errors
    /// [`Error::ChildProcess`], [`Error::TooFar`], [`Error::Ended`].
    pub async fn advance(&self, by: Duration) -> Result<(), Error> {
        if by > ADVANCE_MAX {
            return Err(Error::TooFar);
        }
        match self.running.as_ref().map(|running| &running.end) {
            Some(End::InProcess(server)) => server.advance(by).await,
            Some(End::Child(_)) => Err(Error::ChildProcess),
            None => Err(Error::Ended),
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        match self.running.take().map(|running| running.end) {
            Some(End::Child(child)) => child.end(),
            Some(End::InProcess(server)) => server.end(),
            None => {}
        }
    }
}
