//! The controllers as a role.

use std::sync::Arc;

use api::features::Features;
use client::Client;
use client::controller::Runtime;
use controllers::manager;
use controllers::settings::Settings;

use super::{Role, lead, lease};

/// What its metrics and its lease are called.
pub(crate) const NAME: &str = "kube-controller-manager";

/// Starts those that are selected; `clients` gives a client to each identity.
pub(crate) fn start(
    own: Client,
    clients: manager::Clients,
    controllers: Vec<String>,
    settings: Settings,
    features: Features,
    contends: bool,
) -> Role {
    Role::start(NAME, features, move |setting| async move {
        manager::check_selection(&controllers)?;
        let lease = contends.then(|| lease(NAME));
        lead(own, lease, setting, |setting| async move {
            let leadership = setting.leadership;
            let clients: manager::Clients = Arc::new(move |user: &str| clients(user).while_leading(&leadership));
            let runtime = Runtime::new(&setting.registry, setting.health, setting.shutdown);
            manager::run(manager::Options { clients, controllers, features: setting.features, settings, runtime })
                .await;
            Ok(())
        })
        .await
    })
}
