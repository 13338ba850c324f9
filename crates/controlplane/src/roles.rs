//! The components beside the API server: how they are started, watched and ended.
//!
//! Each has its own identities, gates, metrics and health, whether they share the server's process or run
//! separately. A component that ends unexpectedly is logged and stays unhealthy, so that its absence is
//! visible.

pub mod access;
pub mod connections;
pub mod controller_manager;
pub mod dns;
pub mod kubelet;
pub mod proxy;
pub mod scheduler;
pub mod signing;
pub mod status;
pub mod webhook;

use locks::Mutex;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use api::features::Features;
use api::well_known::NAMESPACE_SYSTEM;
use client::election::{Election, Leadership, Options as Lease, Outcome};
use client::{Client, Health, Shutdown, Stop};
use telemetry::logs::chain;
use telemetry::metrics::{Gauge, Registry};
use tokio::task::JoinHandle;
use tracing::{error, info, warn};

/// Time limit for stopping a component.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// The surroundings of a component.
#[derive(Clone)]
pub struct Setting {
    /// Enabled features.
    pub features: Features,
    /// The registry of its metrics.
    pub registry: Arc<Registry>,
    /// Health checks.
    pub health: Health,
    /// The signal to end.
    pub shutdown: Shutdown,
    /// Lease of the component.
    pub leadership: Leadership,
}

/// A component at work.
pub struct Role {
    /// The name of the component.
    pub name: &'static str,
    /// The registry of its metrics.
    pub registry: Arc<Registry>,
    /// Health checks.
    pub health: Health,
    stop: Stop,
    task: JoinHandle<()>,
}

impl Role {
    /// Starts a component. `work` ends on shutdown, or fails.
    pub fn start<W>(name: &'static str, features: Features, work: impl FnOnce(Setting) -> W) -> Self
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
        health.add("running", move || match &*known.lock() {
            None => Ok(()),
            Some(why) => Err(why.clone()),
        });
        let task = tokio::spawn(async move {
            let why = match work.await {
                Ok(Ok(())) if shutdown.is_requested() => return,
                Ok(Ok(())) => "it ended by itself".to_owned(),
                Ok(Err(error)) => format!("{error:#}"),
                Err(error) => chain(&error).to_string(),
            };
            error!(component = name, err = %why, "Component failed");
            *failure.lock() = Some(why);
        });
        Self { name, registry, health, stop, task }
    }

    /// Returns its failed health checks.
    pub fn failures(&self) -> impl Fn() -> Vec<String> + Send + Sync + 'static {
        let health = self.health.clone();
        move || health.failures().into_iter().map(|(check, why)| format!("{check}: {why}")).collect()
    }

    /// Stops the component, and waits for its end.
    pub async fn end(self) {
        self.stop.stop();
        if tokio::time::timeout(END_TIMEOUT, self.task).await.is_err() {
            warn!(component = self.name, "Component did not end in time");
        }
    }
}

/// The lease of a component, with the times that Kubernetes' components use.
pub fn lease(name: &str) -> Lease {
    Lease::new(NAMESPACE_SYSTEM, name, identity())
}

/// Does `work` while holding a lease, or at once if none is wanted.
pub async fn lead<W>(
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
    let name = lease.name.clone();
    let election = Election::new(&client, lease).watched(move || exit_expired(&name));
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
        // As in Kubernetes' components: a new process starts from the state of the server.
        Outcome::Lost => anyhow::bail!("leaderelection lost"),
    }
}

/// Ends the process. Threads of the runtime are blocked, so that nothing else can: a standby leads already.
fn exit_expired(lease: &str) {
    /// The log may be what blocks the other threads: the process ends without its last line then.
    const LOG_TIMEOUT: Duration = Duration::from_secs(1);
    let (lease, (logged, received)) = (lease.to_owned(), std::sync::mpsc::channel());
    let log = std::thread::Builder::new().spawn(move || {
        error!(lease = %lease, "Lease expired while the process did not respond, exiting");
        logged.send(()).unwrap_or_default();
    });
    if log.is_ok() {
        received.recv_timeout(LOG_TIMEOUT).unwrap_or_default();
    }
    std::process::exit(1);
}

/// Identity for leader election: the host, and a number that is unique to the process.
fn identity() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    format!("{host}_{}-{}", std::process::id(), started.as_nanos())
}

/// Runs one role alone until a signal comes, with its health and metrics at a place.
pub async fn run_alone(role: Role, place: Option<status::Place>) -> Result<()> {
    run_ending(role, place, |_| std::future::ready(())).await
}

/// A signal that ends a component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndSignal {
    /// SIGINT.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGPWR: the machine is about to lose power.
    Power,
}

/// Like [`run_alone`], with its own page.
pub async fn run_showing(role: Role, place: Option<status::Place>, page: status::Page) -> Result<()> {
    run_until_signal(role, place, page, |_| std::future::ready(())).await
}

/// Like [`run_alone`]; `before_end` runs between the signal and the end of the component.
pub async fn run_ending<E: Future<Output = ()>>(
    role: Role,
    place: Option<status::Place>,
    before_end: impl FnOnce(EndSignal) -> E,
) -> Result<()> {
    let page = status::Page {
        registry: role.registry.clone(),
        health: role.health.clone(),
        profiler: None,
        configuration: None,
    };
    run_until_signal(role, place, page, before_end).await
}

async fn run_until_signal<E: Future<Output = ()>>(
    role: Role,
    place: Option<status::Place>,
    page: status::Page,
    before_end: impl FnOnce(EndSignal) -> E,
) -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut power = signal(SignalKind::from_raw(rustix::process::Signal::POWER.as_raw()))?;
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
    let received = tokio::select! {
        _ = interrupt.recv() => EndSignal::Interrupt,
        _ = terminate.recv() => EndSignal::Terminate,
        _ = power.recv() => EndSignal::Power,
        () = failed => anyhow::bail!("{}", (role.failures())().join("; ")),
    };
    before_end(received).await;
    info!(component = role.name, "Stopping component");
    role.end().await;
    Ok(())
}
