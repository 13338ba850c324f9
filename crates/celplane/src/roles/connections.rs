//! How components reach the server under the identities they need.

use std::sync::Arc;

use apiserver::Server;
use apiserver::identity::User;
use apiserver::server::listen::Connection;
use client::{Client, Decoded};

/// Gives a client to each identity: the name of a user, and the component that speaks.
pub(crate) type Connections = Arc<dyn Fn(&str, &str) -> Client + Send + Sync>;

/// Straight into a server in this process. It is told who asks, and checks their rights as over the network; what their
/// informers decode, they share.
pub(crate) fn in_process(server: Arc<Server>) -> Connections {
    let decoded: Arc<Decoded> = Arc::default();
    Arc::new(move |user, component| {
        let groups = groups_of(user);
        let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
        let user = User::authenticated(user, &groups);
        Client::in_process(Connection::new(server.clone(), Some(user)), component).sharing(&decoded)
    })
}

/// The groups that come with a name, as the authenticators of Kubernetes give them.
pub(crate) fn groups_of(user: &str) -> Vec<String> {
    if let Some((namespace, _)) = user.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':')) {
        return vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
    }
    if user.starts_with("system:node:") { vec!["system:nodes".to_owned()] } else { Vec::new() }
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
