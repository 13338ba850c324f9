//! Metrics and log lines of the device search, and the release of a claim's devices.
//!
//! The lines and the metric of costs are those of KEP-5254, the lines at its levels: 4 for each pod, 5 for each point of
//! the plugin, 7 for each step of a search.

use std::sync::Arc;
use std::time::Duration;

use api::resource::v1::ResourceClaim;
use client::{Client, Document};
use dra::narration::Step;
use scheduling::cluster::DeviceEffort;
use scheduling::cycle::Evaluation;
use scheduling::{Attempt, Outcome};
use telemetry::logs::chain;
use telemetry::metrics::{Counter, Family, Histogram, Registry};
use tracing::{debug, error, trace};

/// The plugin that looks for devices.
const PLUGIN: &str = "DynamicResources";
/// Verbosity from which on every step of a search is logged.
pub const STEPS_VERBOSITY: u8 = 7;

/// From 10 to the limit of one attempt.
const COSTS: &[f64] = &[1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8];
/// From 100 µs, doubled and more, up to the limit of one attempt.
const SECONDS: &[f64] = &[0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0];

/// Metrics of the device search.
#[derive(Clone)]
pub struct Metrics {
    cost: Arc<Histogram>,
    evaluations: Arc<Counter>,
    cuts: Arc<Counter>,
    searches: Arc<Counter>,
    deferred: Arc<Counter>,
    durations: Arc<Family<Histogram>>,
}

impl Metrics {
    /// Shown by `registry`, which must not have them yet.
    #[must_use]
    pub fn new(registry: &Registry) -> Self {
        let counter = |name, help| registry.family::<Counter>(name, help, &[], &[]).with(&[]);
        Self {
            cost: registry
                .family::<Histogram>(
                    "cel_expression_constraint_cost",
                    "[ALPHA] CEL cost of device constraints in one scheduling attempt, of whole and of partial sets",
                    &[],
                    COSTS,
                )
                .with(&[]),
            evaluations: counter(
                "scheduler_device_constraint_evaluations_total",
                "[ALPHA] Number of whole sets of devices that constraint expressions were evaluated on",
            ),
            cuts: counter(
                "scheduler_device_constraint_cuts_total",
                "[ALPHA] Number of branches of searches for devices that were cut because no completion could satisfy a \
                 constraint expression",
            ),
            searches: counter(
                "scheduler_device_searches_total",
                "[ALPHA] Number of searches for devices; nodes that look alike to the claims share one",
            ),
            deferred: counter(
                "scheduler_device_searches_deferred_total",
                "[ALPHA] Number of searches for devices that took too long to wait for and went on aside",
            ),
            durations: registry.family(
                "scheduler_device_allocation_duration_seconds",
                "[ALPHA] Latency of scheduling attempts that looked for devices, by the result",
                &["result"],
                SECONDS,
            ),
        }
    }

    /// Counts a search that continues in the background.
    pub(crate) fn deferred(&self) {
        self.deferred.increment();
    }

    fn spent(&self, spent: &DeviceEffort, result: &str, duration: Duration) {
        self.durations.with(&[result]).observe_duration(duration);
        self.searches.add(spent.searches);
        self.evaluations.add(spent.effort.evaluations);
        self.cuts.add(spent.effort.cuts);
        if spent.effort.cost > 0 {
            // Costs are far below where numbers of this kind become inexact.
            #[expect(clippy::cast_precision_loss, reason = "a limit of 10^8 applies")]
            self.cost.observe(spent.effort.cost as f64);
        }
    }
}

/// Logs and counts the effort of an attempt that searched devices.
pub fn report(metrics: &Metrics, attempt: &Attempt, duration: Duration) {
    let Some(spent) = &attempt.devices else { return };
    let duration = duration.saturating_add(spent.time_aside);
    let result = match &attempt.outcome {
        Outcome::Scheduled(_) => "scheduled",
        Outcome::Unschedulable(_) => "unschedulable",
        Outcome::Error(_) => "error",
        // Reported with the final attempt.
        Outcome::Deferred(_) => return,
    };
    metrics.spent(spent, result, duration);
    let pod = &attempt.pod;
    for problem in &spent.problems {
        if problem.does_not_compile() {
            error!(pod = %pod, err = %chain(problem), "CEL expression of claim does not compile");
        } else {
            error!(pod = %pod, err = %chain(problem), "Expression evaluation failed");
        }
    }
    let dra::Effort { evaluations, cuts, cost, .. } = spent.effort;
    debug!(pod = %pod, result, searches = spent.searches, evaluations, cuts, cost, ?duration, "Searched devices for pod");
    for Evaluation { point, status, count, .. } in attempt.evaluations.iter().filter(|it| it.plugin == PLUGIN) {
        trace!(pod = %pod, plugin = PLUGIN, extensionPoint = ?point, status, count, "Ran plugin for pod");
    }
    let Some(narration) = &spent.narration else { return };
    for step in &narration.steps {
        match step {
            Step::Collecting { current, expected } => {
                trace!(pod = %pod, current, expected, "devices added so far");
                trace!(pod = %pod, current, expected, "Collecting devices");
            }
            Step::Cut { devices } => trace!(pod = %pod, devices, "No completion can satisfy expression"),
            Step::Evaluating { expression, devices } => {
                let current = devices.split(", ").count();
                trace!(pod = %pod, current, expected = current, "devices added so far");
                trace!(pod = %pod, expression = %expression, devices, "Evaluating expression");
            }
            Step::NotSatisfied { actual_cost } => {
                trace!(pod = %pod, actualCost = actual_cost, "Devices don't satisfy expression");
                trace!(pod = %pod, "Reset constraint state for re-evaluation");
            }
            _ => {}
        }
    }
    if narration.omitted > 0 {
        trace!(pod = %pod, omitted = narration.omitted, "Omitted further steps");
    }
}

/// Deallocates the devices of a claim, if its resource version is still the one that was read.
pub(crate) async fn give_back(client: &Client, claim: &Document<ResourceClaim>) -> Result<(), client::Error> {
    let mut changed = claim.to_value();
    if let Some(status) = changed.get_mut("status").and_then(api::json::Value::as_object_mut) {
        status.remove("allocation");
        status.remove("reservedFor");
        status.remove("devices");
    }
    let claims = client.objects::<Document<ResourceClaim>>();
    claims.update_status(&claim.metadata.namespace, &claim.metadata.name, &changed).await?;
    Ok(())
}
