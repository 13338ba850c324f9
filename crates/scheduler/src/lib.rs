//! The scheduler's shell: informers, binding, events and metrics around the pure core.
//!
//! One task owns the core (`scheduling::Scheduler`); it only passes changes to it and requests decisions.
//! Network requests for decisions are made by other tasks, many at a time, whose results are passed to the
//! core. In reading order:
//!
//! - [`sources`]: the changes for the core, merged by object while it is busy.
//! - [`shell`]: the loop around the core.
//! - [`binding`]: the writes before a binding, and the binding itself, each after a check of leadership.
//! - [`report`]: events and the condition `PodScheduled`; [`preemption`]: making room.
//! - [`devices`]: what looking for devices took.
//! - `second_scheduler`: tolerations and claims in clusters whose other components do not have the proposals' fields.
//! - [`metrics`]: what is counted, under Kubernetes' names; [`profile`]: where plugins spend their time, on demand.

pub mod binding;
pub mod devices;
pub mod metrics;
pub mod preemption;
pub mod profile;
pub mod report;
mod searches;
mod second_scheduler;
pub mod shell;
pub mod sources;

use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use api::features::Features;
use client::costly::thread_time;
use client::election::Leadership;
use client::{Client, Health, Shutdown};
use matching::{Matcher, Meter};
use scheduling::Scheduler;
use scheduling::config::{ConfigError, Configuration};
use scheduling::timing::Clock;
use telemetry::metrics::Registry;
use tokio::time::Instant;

use crate::profile::Profiler;

/// The identity under which the scheduler reads, binds and reports.
pub const IDENTITY: &str = "system:kube-scheduler";

/// Maximum number of compiled expressions of each kind.
const EXPRESSIONS_MAX: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();

/// Work of a device search in one attempt before it continues in the background: a few milliseconds, for which
/// other pods wait.
const DEVICES_PATIENCE: u64 = 100_000;

/// Inputs of the scheduler.
pub struct Options {
    /// Client with its identity.
    pub client: Client,
    /// Enabled feature gates.
    pub features: Features,
    /// Registry of its metrics.
    pub registry: Arc<Registry>,
    /// Registry of its health checks.
    pub health: Health,
    /// Signal that stops it.
    pub shutdown: Shutdown,
    /// The leadership, without which nothing is written.
    pub leadership: Leadership,
    /// Decides ties.
    pub seed: u64,
    /// Cost limit for CEL constraints on devices in one attempt.
    pub device_cost_limit: u64,
    /// Profiles, back-off and plugins.
    pub configuration: Configuration,
    /// Takes profiles of the plugins.
    pub profiler: Profiler,
    /// Whether fields stand in annotations, which the client's informers merge, because other components of the cluster do
    /// not have the fields; another scheduler may then run beside this one.
    pub has_placement_annotations: bool,
}

/// A reason why the scheduler cannot start.
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

/// Checks that a configuration can be used.
///
/// # Errors
/// What is wrong with it.
pub fn check(configuration: &Configuration, features: api::features::Features) -> Result<(), StartError> {
    let clock = Arc::new(|| Duration::ZERO);
    let matcher = Matcher::new(EXPRESSIONS_MAX, clock, features.into())
        .map_err(|error| StartError::Expressions(error.to_string()))?;
    configuration.make_profiles(&matcher)?;
    Ok(())
}

/// Schedules until shutdown.
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
        .map_err(|error| StartError::Expressions(error.to_string()))?
        .with_meter(Arc::new(Meter::new(Arc::new(thread_time))));
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
