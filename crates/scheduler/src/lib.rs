//! The scheduler's shell: informers, binding, events and metrics around the pure core.
//!
//! One task owns the core (`scheduling::Scheduler`) and does nothing but tell it what changed and ask it for decisions.
//! What a decision needs from the network is done by other tasks, many at a time, and told to the core when it is done.
//! In reading order:
//!
//! - [`sources`]: what the core is told about, joined by object while it is busy.
//! - [`shell`]: the loop around the core.
//! - [`binding`]: the writes before a binding, and the binding itself, each asked for leadership first.
//! - [`report`]: events and the condition `PodScheduled`; [`preemption`]: making room.
//! - [`devices`]: what looking for devices took.
//! - [`metrics`]: what is counted, under Kubernetes' names; [`profile`]: where plugins spend their time, on demand.

pub mod binding;
pub mod devices;
pub mod metrics;
pub mod preemption;
pub mod profile;
pub mod report;
pub mod shell;
pub mod sources;

use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::features::Features;
use api::time::Timestamp;
use client::election::Leadership;
use client::{Client, Health, Shutdown};
use matching::Matcher;
use scheduling::Scheduler;
use scheduling::config::{ConfigError, Configuration};
use scheduling::timing::Clock;
use telemetry::metrics::Registry;
use tokio::time::Instant;

use crate::profile::Profiler;

/// The identity under which the scheduler reads, binds and reports.
pub const IDENTITY: &str = "system:kube-scheduler";

/// How many expressions of each kind are kept compiled.
const EXPRESSIONS_MAX: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();

/// How much work looking for devices is in one attempt before it goes on aside: some ten milliseconds.
const DEVICES_PATIENCE: u64 = 500_000;

/// What the scheduler needs.
pub struct Options {
    /// Speaks under its identity.
    pub client: Client,
    /// Which gates are open.
    pub features: Features,
    /// Where its metrics are shown.
    pub registry: Arc<Registry>,
    /// Where it says how it fares.
    pub health: Health,
    /// When it ends.
    pub shutdown: Shutdown,
    /// Whether it may still write.
    pub leadership: Leadership,
    /// Decides ties.
    pub seed: u64,
    /// What CEL constraints on devices may cost in one attempt.
    pub device_cost_limit: u64,
    /// Profiles, back-off and plugins.
    pub configuration: Configuration,
    /// Takes profiles of the plugins.
    pub profiler: Profiler,
}

/// Why the scheduler cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The environments of expressions contradict each other.
    #[error("expressions cannot be compiled: {0}")]
    Expressions(String),
    /// The profile cannot be used.
    #[error(transparent)]
    Configuration(#[from] ConfigError),
}

/// Whether a configuration can be used.
///
/// # Errors
/// What is wrong with it.
pub fn check(configuration: &Configuration) -> Result<(), StartError> {
    let clock = Arc::new(|| Duration::ZERO);
    let matcher = Matcher::new(EXPRESSIONS_MAX, clock, matching::Features::ALL)
        .map_err(|error| StartError::Expressions(error.to_string()))?;
    configuration.make_profiles(&matcher)?;
    Ok(())
}

/// Schedules until the end is asked for.
///
/// # Errors
/// If it cannot start.
///
/// The future is boxed: all of the scheduler would be compiled once more in the crate that awaits it.
pub fn run(options: Options) -> Pin<Box<dyn Future<Output = Result<(), StartError>> + Send>> {
    Box::pin(start(options))
}

async fn start(options: Options) -> Result<(), StartError> {
    let started = Instant::now();
    let clock: Arc<dyn Fn() -> Duration + Send + Sync> = Arc::new(move || started.elapsed());
    let matcher = Matcher::new(EXPRESSIONS_MAX, clock.clone(), options.features.into())
        .map_err(|error| StartError::Expressions(error.to_string()))?;
    let programs = dra::Expressions::new(EXPRESSIONS_MAX, clock.clone())
        .map_err(|error| StartError::Expressions(error.to_string()))?;
    let matcher = Arc::new(matcher);
    let profiles = options.configuration.make_profiles(&matcher)?;
    let inventory = dra::Inventory::new(matcher.clone(), options.features.into());
    let mut devices = scheduling::cluster::Devices::new(inventory, Arc::new(programs));
    devices.clock = Some(clock);
    devices.cost_limit = options.device_cost_limit;
    devices.patience = Some(DEVICES_PATIENCE);
    devices.narrates = telemetry::logs::verbosity() >= devices::STEPS_VERBOSITY;
    let core = Scheduler::new(profiles, options.configuration.backoff(), matcher, options.seed)
        .with_devices(devices)
        .with_clock(Clock::new(move || started.elapsed()));
    shell::Shell::start(core, options).run().await;
    Ok(())
}

/// The time on the wall.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nanos: since.subsec_nanos() }
}
