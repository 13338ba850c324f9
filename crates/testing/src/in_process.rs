//! A control plane on threads of this process.
//!
//! It has its own runtime: the test's runtime may be single-threaded, paused, or dropped before the cluster.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use api::features::Features;
use clock::{Clock, Hand};
use controlplane::settings::{Faults, StoreSettings};
use controlplane::{Components, ControlPlane, ServerSettings};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::{End, Error, RunningPlane};

/// Deeply nested documents need a large stack in unoptimized builds.
const STACK_BYTES: usize = 8 << 20;

/// Largest step by which time is moved: the interval at which nodes renew their leases.
const STEP: Duration = Duration::from_secs(10);
/// Number of nodes that renew their leases in one step; more nodes shorten the step.
const NODES_AT_ONCE: usize = 250;
/// Number of rounds without a write after which components have stopped writing.
const QUIET_ROUNDS: u32 = 3;
/// Length of such a round.
const QUIET_ROUND: Duration = Duration::from_millis(1);
/// Maximum time to wait for components after a step.
const PATIENCE: Duration = Duration::from_secs(5);

/// Threads of a control plane.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) faults: Arc<Faults>,
    stop: oneshot::Sender<()>,
    moves: mpsc::UnboundedSender<ClockAdvance>,
    thread: JoinHandle<()>,
}

/// A request to move the time; the sender is dropped when it has been moved.
#[derive(Debug)]
struct ClockAdvance {
    by: Duration,
    done: oneshot::Sender<()>,
}

impl Server {
    /// Moves the time of all components forward.
    pub(crate) async fn advance(&self, by: Duration) -> Result<(), Error> {
        let (done, moved) = oneshot::channel();
        self.moves.send(ClockAdvance { by, done }).map_err(|_| Error::Ended)?;
        moved.await.map_err(|_| Error::Ended)
    }

    /// Ends the control plane and waits for its threads.
    pub(crate) fn end(self) {
        let _ = self.stop.send(());
        let _ = self.thread.join();
    }
}

/// The orders of a test to its control plane.
struct Orders {
    stopped: oneshot::Receiver<()>,
    moving: mpsc::UnboundedReceiver<ClockAdvance>,
    hand: Hand,
    step: Duration,
}

/// Starts a control plane; returns when it is ready.
pub(crate) fn start(data: &Path, nodes: usize, features: Features) -> Result<RunningPlane, Error> {
    let mut settings = ServerSettings::new(data);
    settings.store = StoreSettings::Memory { free_bytes_min: 0 };
    settings.options.features = features;
    let faults = Arc::new(Faults::default());
    settings.options.faults = Some(faults.clone());
    let mut components = Components::without_nodes(features);
    components.nodes.numbered = nodes;
    let (clock, hand) = Clock::movable();
    let bursts = u32::try_from(nodes.div_ceil(NODES_AT_ONCE)).unwrap_or(u32::MAX).max(1);
    let step = STEP.checked_div(bursts).unwrap_or(STEP);
    settings.options.clock = clock;
    let (stop, stopped) = oneshot::channel();
    let (moves, moving) = mpsc::unbounded_channel();
    let (started, starting) = std::sync::mpsc::channel();
    let thread = std::thread::Builder::new().name("celplane".to_owned()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_stack_size(STACK_BYTES)
            .enable_all()
            .build();
        let result = match runtime {
            Ok(runtime) => {
                runtime.block_on(run(settings, components, &started, Orders { stopped, moving, hand, step }))
            }
            Err(error) => Err(error.into()),
        };
        if let Err(error) = result {
            // Fails only if the test has stopped waiting.
            let _ = started.send(Err(format!("{error:#}")));
        }
    })?;
    match starting.recv() {
        Ok(Ok(url)) => Ok(RunningPlane { url, end: End::InProcess(Server { faults, stop, moves, thread }) }),
        Ok(Err(message)) => Err(Error::Start(message)),
        Err(_) => Err(Error::Start("its thread ended".to_owned())),
    }
}

async fn run(
    settings: ServerSettings,
    components: Components,
    started: &std::sync::mpsc::Sender<Result<String, String>>,
    mut orders: Orders,
) -> anyhow::Result<()> {
    let mut running = ControlPlane::start(settings).await?;
    running.start_components(Some(components)).await?;
    running.ready(&mut |_| ()).await?;
    let _ = started.send(Ok(running.url().to_owned()));
    loop {
        tokio::select! {
            // A dropped sender ends it too.
            _ = &mut orders.stopped => break,
            Some(ClockAdvance { by, done }) = orders.moving.recv() => {
                tokio::select! {
                    () = advance(&orders.hand, &running, by, orders.step) => {
                        // An error means that the test has given up waiting.
                        let _ = done.send(());
                    }
                    _ = &mut orders.stopped => break,
                }
            }
        }
    }
    running.end().await
}

/// Moves the time step by step: no node may miss several heartbeats, and what a timer starts comes before what a later
/// one starts.
async fn advance(hand: &Hand, running: &ControlPlane, by: Duration, step: Duration) {
    let (mut left, mut patience) = (by, PATIENCE);
    while !left.is_zero() {
        let step = left.min(step);
        left = left.saturating_sub(step);
        // A task that is stuck in its round, such as one of a stopped node, holds up one step and not all of them.
        if !hand.advance(step, patience).await {
            patience = QUIET_ROUND;
        }
        quiet(running).await;
    }
}

/// Waits until the components have stopped writing.
async fn quiet(running: &ControlPlane) {
    let (begun, mut revision, mut rounds) = (Instant::now(), running.revision(), 0);
    while rounds < QUIET_ROUNDS && begun.elapsed() < PATIENCE {
        tokio::time::sleep(QUIET_ROUND).await;
        let newest = running.revision();
        rounds = if newest == revision { rounds.saturating_add(1) } else { 0 };
        revision = newest;
    }
}
