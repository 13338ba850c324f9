//! The controllers as a role.

use std::sync::Arc;

use api::features::Features;
use client::Client;
use client::controller::Runtime;
use controllers::manager;
use controllers::settings::Settings;

use super::{Role, lead, lease};

/// Name in metrics and in the lease.
pub const NAME: &str = "kube-controller-manager";

/// Starts the selected controllers; `clients` returns the client for an identity.
pub fn start(
    own: Client,
    clients: manager::Clients,
    controllers: Vec<String>,
    settings: Settings,
    features: Features,
    contends: bool,
) -> Role {
    Role::start(NAME, features, move |setting| async move {
        manager::check_selection(&controllers)?;
        own.publish_connections(&setting.registry);
        let lease = contends.then(|| lease(NAME));
        let clock = own.clock().clone();
        lead(own, lease, setting, |setting| async move {
            let leadership = setting.leadership;
            let clients: manager::Clients = Arc::new(move |user: &str| clients(user).while_leading(&leadership));
            let runtime = Runtime::new(&setting.registry, setting.health, setting.shutdown).with_clock(&clock);
            manager::run(manager::Options { clients, controllers, features: setting.features, settings, runtime })
                .await;
            Ok(())
        })
        .await
    })
}
