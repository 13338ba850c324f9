//! The scheduler as a role.

use api::features::Features;
use client::Client;

use super::{Role, lead};

/// What its metrics and its lease are called.
pub(crate) const NAME: &str = "kube-scheduler";

/// Limits that are the scheduler's own.
#[derive(clap::Args, Clone, Copy)]
pub(crate) struct Limits {
    /// What CEL constraints on devices may cost in one scheduling attempt, over all nodes; past it the pod waits
    #[arg(long, value_name = "COST", default_value_t = dra::Budget::COST_LIMIT)]
    device_constraint_budget: u64,
}

/// Starts it; `contends` where others of its kind may run.
pub(crate) fn start(client: Client, features: Features, limits: Limits, contends: bool) -> Role {
    Role::start(NAME, features, move |setting| async move {
        let lease = contends.then_some(NAME);
        lead(client.clone(), lease, setting, |setting| async move {
            let options = scheduler::Options {
                client,
                features: setting.features,
                registry: setting.registry,
                health: setting.health,
                shutdown: setting.shutdown,
                leadership: setting.leadership,
                seed: u64::from(std::process::id()),
                device_cost_limit: limits.device_constraint_budget,
            };
            Ok(scheduler::run(options).await?)
        })
        .await
    })
}
