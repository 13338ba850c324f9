//! Heartbeat of a node: its Lease, renewed every ten seconds.
//!
//! The leases of a fleet are renewed in bursts, so that one commit of the store covers many, and the bursts are spread
//! over the interval, so that other writes get their turn.

use std::time::Duration;

use api::coordination::v1::{Lease, LeaseSpec};
use api::core::v1::Node;
use api::json::Text;
use api::meta::v1::OwnerReference;
use api::time::{MicroTime, Timestamp};
use api::well_known::NAMESPACE_NODE_LEASE;
use client::{Client, Error};

/// Interval at which a lease is renewed: a quarter of its duration, as in Kubernetes.
pub const INTERVAL: Duration = Duration::from_secs(10);
const DURATION_SECONDS: i32 = 40;
/// Number of leases that are renewed at once.
const BURST: usize = 250;

/// Into how many bursts a fleet of this size is divided.
#[must_use]
pub fn bursts(nodes: usize) -> usize {
    nodes.div_ceil(BURST).max(1)
}

/// Whether the node with this number belongs to a burst.
#[must_use]
pub fn is_in_burst(number: usize, burst: usize, bursts: usize) -> bool {
    number.checked_rem(bursts).unwrap_or(0) == burst
}

/// The lease of a node, as it is to be written now.
#[must_use]
pub fn renewed(known: Option<&Lease>, node: &str, owner: Option<&Node>, now: Timestamp) -> Lease {
    let mut lease = known.cloned().unwrap_or_default();
    lease.metadata.name = node.into();
    lease.metadata.namespace = NAMESPACE_NODE_LEASE.into();
    if lease.metadata.owner_references.is_empty()
        && let Some(owner) = owner
    {
        lease.metadata.owner_references = vec![OwnerReference {
            api_version: "v1".into(),
            kind: "Node".into(),
            name: node.into(),
            uid: owner.metadata.uid.clone(),
            ..OwnerReference::default()
        }];
    }
    lease.spec = LeaseSpec {
        holder_identity: Some(Text::from(node)),
        lease_duration_seconds: Some(DURATION_SECONDS),
        renew_time: Some(MicroTime(now)),
        ..lease.spec
    };
    lease
}

/// Renews the lease of a node, whose last known state is `known`; returns the new state.
///
/// # Errors
/// Those of the server, except a concurrent change or deletion of the lease, which is handled.
pub async fn renew(
    client: &Client,
    known: Option<Lease>,
    node: &str,
    owner: Option<&Node>,
    now: Timestamp,
) -> Result<Lease, Error> {
    let leases = client.objects::<Lease>();
    if let Some(known) = known {
        match leases.update(NAMESPACE_NODE_LEASE, node, &renewed(Some(&known), node, owner, now)).await {
            Err(error) if error.is_conflict() || error.is_not_found() => {}
            answer => return answer,
        }
    }
    match leases.get(NAMESPACE_NODE_LEASE, node).await {
        Ok(found) => leases.update(NAMESPACE_NODE_LEASE, node, &renewed(Some(&found), node, owner, now)).await,
        Err(error) if error.is_not_found() => {
            leases.create(NAMESPACE_NODE_LEASE, &renewed(None, node, owner, now)).await
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_thousand_nodes_are_twenty_bursts() {
        assert_eq!(bursts(5000), 20);
        assert_eq!(bursts(3), 1);
        let in_first = (0..5000).filter(|number| is_in_burst(*number, 0, 20)).count();
        assert_eq!(in_first, 250);
    }

    #[test]
    fn renewal_keeps_unknown_fields() {
        let mut known = Lease::default();
        known.metadata.resource_version = "7".into();
        known.spec.lease_transitions = Some(3);
        let lease = renewed(Some(&known), "n1", Some(&Node::default()), Timestamp { seconds: 5, nanos: 0 });
        assert_eq!((&*lease.metadata.resource_version, lease.spec.lease_transitions), ("7", Some(3)));
        assert_eq!(lease.spec.holder_identity.as_deref(), Some("n1"));
        assert_eq!(lease.metadata.owner_references.len(), 1);
    }
}
