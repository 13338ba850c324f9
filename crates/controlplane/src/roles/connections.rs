//! Clients of components with the identities they need.

use api::well_known::{GROUP_NODES, GROUP_SERVICE_ACCOUNTS};
use std::sync::Arc;

use apiserver::Server;
use apiserver::identity::User;
use apiserver::server::listen::Connection;
use client::{Client, DecodedObjects};

/// Returns a client for an identity: the name of a user, and the component.
pub type Connections = Arc<dyn Fn(&str, &str) -> Client + Send + Sync>;

/// Calls a server in this process directly. It receives the identity of the caller, and checks permissions as
/// over the network; the informers share decoded objects.
pub fn in_process(server: Arc<Server>) -> Connections {
    let decoded: Arc<DecodedObjects> = Arc::default();
    Arc::new(move |user, component| {
        let groups = groups_of(user);
        let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
        let user = User::authenticated(user, &groups);
        Client::in_process(Connection::new(server.clone(), Some(user)), component)
            .sharing(&decoded)
            .with_clock(server.clock())
    })
}

/// The groups that come with a name, as the authenticators of Kubernetes give them.
pub fn groups_of(user: &str) -> Vec<String> {
    if let Some((namespace, _)) = user.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':')) {
        return vec![GROUP_SERVICE_ACCOUNTS.to_owned(), format!("system:serviceaccounts:{namespace}")];
    }
    if user.starts_with("system:node:") { vec![GROUP_NODES.to_owned()] } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_bring_their_groups() {
        let account = groups_of("system:serviceaccount:kube-system:job-controller");
        assert_eq!(account, ["system:serviceaccounts", "system:serviceaccounts:kube-system"]);
        assert_eq!(groups_of("system:node:a"), ["system:nodes"]);
        assert!(groups_of("system:kube-scheduler").is_empty());
    }
}
