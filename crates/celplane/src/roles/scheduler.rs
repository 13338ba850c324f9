//! The scheduler as a role.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use api::features::Features;
use client::Client;
use client::election::Options as Lease;
use scheduler::profile::Profiler;
use scheduling::config::{Configuration, LeaderElection};

use super::{Role, lead, lease};

/// What its metrics and its lease are called.
pub(crate) const NAME: &str = "kube-scheduler";

/// Limits that are the scheduler's own.
#[derive(clap::Args, Clone, Copy)]
pub(crate) struct Limits {
    /// What CEL constraints on devices may cost in one scheduling attempt, over all nodes; past it the pod waits
    #[arg(long, value_name = "COST", default_value_t = dra::Budget::COST_LIMIT)]
    device_constraint_budget: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { device_constraint_budget: dra::Budget::COST_LIMIT }
    }
}

/// Starts it; with a lease where others of its kind may run.
pub(crate) fn start(
    client: Client,
    features: Features,
    limits: Limits,
    configuration: Configuration,
    profiler: Profiler,
    lease: Option<Lease>,
) -> Role {
    Role::start(NAME, features, move |setting| async move {
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
            };
            Ok(scheduler::run(options).await?)
        })
        .await
    })
}

/// Reads a file with a `KubeSchedulerConfiguration`, and checks that its plugins can be made.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn read_configuration(path: &Path) -> Result<Configuration> {
    let read = || {
        let text = std::fs::read_to_string(path)?;
        let (documents, error) = api::yaml::parse_documents(&text);
        if let Some(error) = error {
            return Err(anyhow!("{}", error.message));
        }
        let [document] = documents.as_slice() else { return Err(anyhow!("it holds {} documents", documents.len())) };
        let configuration = Configuration::read(&document.value)?;
        scheduler::check(&configuration)?;
        Ok(configuration)
    };
    read().with_context(|| format!("cannot use `{}`", path.display()))
}

/// The lease that a configuration names.
///
/// # Errors
/// Times that cannot be read.
pub(crate) fn configured_lease(election: &LeaderElection) -> Result<Lease> {
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
