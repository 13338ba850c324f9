//! The components beside the API server: how they are started, watched and ended.
//!
//! Each has its own identities, gates, metrics and health, whether they share the server's process or have one of their
//! own. A component that ends before it was told to is said aloud and stays unhealthy: it is not silently missing.

pub(crate) mod access;
pub(crate) mod connections;
pub(crate) mod controller_manager;
pub(crate) mod kubelet;
pub(crate) mod node_lifecycle;
pub(crate) mod scheduler;
pub(crate) mod signing;
pub(crate) mod status;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use api::features::Features;
use client::election::{Election, Leadership, Options as Lease, Outcome};
use client::{Client, Health, Shutdown, Stop};
use telemetry::metrics::{Gauge, Registry};
use tokio::task::JoinHandle;
use tracing::{error, info, warn};

/// A component that was told to end has so long to do so.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// What a component is given.
#[derive(Clone)]
pub(crate) struct Setting {
    pub(crate) features: Features,
    pub(crate) registry: Arc<Registry>,
    pub(crate) health: Health,
    pub(crate) shutdown: Shutdown,
    pub(crate) leadership: Leadership,
}

/// A component at work.
pub(crate) struct Role {
    pub(crate) name: &'static str,
    pub(crate) registry: Arc<Registry>,
    pub(crate) health: Health,
    stop: Stop,
    task: JoinHandle<()>,
}

impl Role {
    /// Starts a component. `work` ends when it is told to, or fails.
    pub(crate) fn start<W>(name: &'static str, features: Features, work: impl FnOnce(Setting) -> W) -> Self
    where
        W: Future<Output = Result<()>> + Send + 'static,
    {
        let (stop, shutdown) = Shutdown::channel();
        let (registry, health) = (Arc::new(Registry::new()), Health::new());
        telemetry::features::publish(&registry, features.states());
        let leadership = Leadership::uncontested();
        let work = tokio::spawn(work(Setting {
            features,
            registry: registry.clone(),
            health: health.clone(),
            shutdown: shutdown.clone(),
            leadership,
        }));
        let failure: Arc<Mutex<Option<String>>> = Arc::default();
        let known = failure.clone();
        health.add("running", move || match &*known.lock().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(()),
            Some(why) => Err(why.clone()),
        });
        let task = tokio::spawn(async move {
            let ended = match work.await {
                Ok(Ok(())) if shutdown.is_requested() => return,
                Ok(Ok(())) => "it ended by itself".to_owned(),
                Ok(Err(error)) => format!("{error:#}"),
                Err(error) => error.to_string(),
            };
            error!(component = name, err = %ended, "Component failed");
            *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(ended);
        });
        Self { name, registry, health, stop, task }
    }

    /// What is wrong with it.
    pub(crate) fn failures(&self) -> impl Fn() -> Vec<String> + Send + Sync + 'static {
        let health = self.health.clone();
        move || health.failures().into_iter().map(|(check, why)| format!("{check}: {why}")).collect()
    }

    /// Tells it to end, and waits until it has.
    pub(crate) async fn end(self) {
        self.stop.stop();
        if tokio::time::timeout(END_TIMEOUT, self.task).await.is_err() {
            warn!(component = self.name, "Component did not end in time");
        }
    }
}

/// The lease of a component, with the times that Kubernetes' components use.
pub(crate) fn lease(name: &str) -> Lease {
    Lease::new("kube-system", name, identity())
}

/// Does `work` while holding a lease, or at once if none is wanted.
pub(crate) async fn lead<W>(
    client: Client,
    lease: Option<Lease>,
    setting: Setting,
    work: impl FnOnce(Setting) -> W,
) -> Result<()>
where
    W: Future<Output = Result<()>>,
{
    let Some(lease) = lease else { return work(setting).await };
    let status = setting.registry.family::<Gauge>(
        "leader_election_master_status",
        "[ALPHA] Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. \
         'name' is the string used to identify the lease. Please make sure to group by name.",
        &["name"],
        &[],
    );
    let leads = status.with(&[&lease.name]);
    let election = Election::new(&client, lease);
    let shutdown = setting.shutdown.clone();
    let leading = leads.clone();
    let outcome = election
        .lead(async move { shutdown.requested().await }, |leadership, _| {
            leading.set(1);
            work(Setting { leadership, ..setting })
        })
        .await;
    leads.set(0);
    match outcome {
        Outcome::Finished(result) => result,
        Outcome::Stopped => Ok(()),
        // As Kubernetes' components do: a new process begins from what the server says.
        Outcome::Lost => anyhow::bail!("leaderelection lost"),
    }
}

/// Who contends: the host, and a number that no other process has.
fn identity() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    format!("{host}_{}-{}", std::process::id(), started.as_nanos())
}

/// Runs one role alone until a signal comes, with its health and metrics at a place.
pub(crate) async fn run_alone(role: Role, place: Option<status::Place>) -> Result<()> {
    let page = status::Page {
        registry: role.registry.clone(),
        health: role.health.clone(),
        profiler: None,
        configuration: None,
    };
    run_showing(role, place, page).await
}

/// As [`run_alone`], with a page of its own.
pub(crate) async fn run_showing(role: Role, place: Option<status::Place>, page: status::Page) -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    if let Some(place) = place {
        status::serve(place, page).await?;
    }
    let failed = async {
        // A component alone in its process takes the process with it.
        loop {
            tokio::time::sleep(Duration::from_millis(200)).await;
            if role.task.is_finished() {
                return;
            }
        }
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        () = failed => anyhow::bail!("{}", (role.failures())().join("; ")),
    }
    info!(component = role.name, "Stopping component");
    role.end().await;
    Ok(())
}
