//! The scheduler as a role.

use std::time::Duration;

use anyhow::{Result, anyhow};
use api::features::Features;
use client::Client;
use client::election::Options as Lease;
use scheduler::profile::Profiler;
use scheduling::config::{Configuration, LeaderElection};

use super::{Role, lead, lease};

/// Name in metrics and in the lease.
pub const NAME: &str = "kube-scheduler";

/// Limits of the scheduler.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Cost limit of the CEL constraints on devices in one scheduling attempt, over all nodes.
    pub device_constraint_budget: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { device_constraint_budget: dra::Budget::COST_LIMIT }
    }
}

/// Starts it; with a lease where others of its kind may run. Annotations are merged by the informers of `client`.
pub fn start(
    client: Client,
    features: Features,
    limits: Limits,
    configuration: Configuration,
    profiler: Profiler,
    lease: Option<Lease>,
    has_placement_annotations: bool,
) -> Role {
    Role::start(NAME, features, move |setting| async move {
        client.publish_connections(&setting.registry);
        lead(client.clone(), lease, setting, |setting| async move {
            let options = scheduler::Options {
                client: client.while_leading(&setting.leadership),
                features: setting.features,
                registry: setting.registry,
                health: setting.health,
                shutdown: setting.shutdown,
                leadership: setting.leadership,
                seed: u64::from(std::process::id()),
                device_cost_limit: limits.device_constraint_budget,
                configuration,
                profiler,
                has_placement_annotations,
            };
            Ok(scheduler::run(options).await?)
        })
        .await
    })
}

/// The lease that a configuration names.
///
/// # Errors
/// Times that cannot be read.
pub fn configured_lease(election: &LeaderElection) -> Result<Lease> {
    let time = |field: &str, text: &str| {
        let nanos = api::duration::Duration::parse(text).ok().and_then(|it| u64::try_from(it.nanos).ok());
        let time = nanos.map(Duration::from_nanos).filter(|time| !time.is_zero());
        time.ok_or_else(|| anyhow!("leaderElection.{field}: Invalid value: \"{text}\""))
    };
    let lease = Lease {
        namespace: election.resource_namespace.to_string(),
        name: election.resource_name.to_string(),
        lease_duration: time("leaseDuration", &election.lease_duration)?,
        renew_deadline: time("renewDeadline", &election.renew_deadline)?,
        retry_period: time("retryPeriod", &election.retry_period)?,
        ..lease(NAME)
    };
    if lease.lease_duration <= lease.renew_deadline {
        return Err(anyhow!(
            "leaderElection.leaseDuration: Invalid value: LeaseDuration must be greater than RenewDeadline"
        ));
    }
    if lease.renew_deadline <= lease.retry_period {
        return Err(anyhow!(
            "leaderElection.renewDeadline: Invalid value: RenewDeadline must be greater than RetryPeriod"
        ));
    }
    Ok(lease)
}
