//! The scheduler as a role.

use api::features::Features;
use client::Client;

use super::{Role, lead};

/// What its metrics and its lease are called.
pub(crate) const NAME: &str = "kube-scheduler";

/// Starts it; `contends` where others of its kind may run.
pub(crate) fn start(client: Client, features: Features, contends: bool) -> Role {
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
            };
            Ok(scheduler::run(options).await?)
        })
        .await
    })
}
