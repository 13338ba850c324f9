//! Routes to the pods of other machines, for machines that share a network segment.
//!
//! Each other Node's `podCIDR` is reached through its internal address. The routes have a protocol number of their own, so that only own
//! routes are changed and removed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use api::core::v1::Node;
use client::{Client, Informer, Shutdown};
use telemetry::logs::chain;
use tokio::sync::Notify;
use tracing::{info, warn};

use crate::network::Network;
use crate::program::{self, ProgramError};

/// The protocol number of the routes in the kernel's table.
pub const PROTOCOL: u8 = 107;
const IP: &str = "ip";
/// Most bytes of the list of routes.
const LISTING_BYTES_MAX: u64 = 4 << 20;
/// Time between changes of routes.
const MIN_PERIOD: Duration = Duration::from_secs(1);

/// Gateways by the network behind them.
pub type Routes = BTreeMap<Network, Ipv4Addr>;

/// The routes to the pods of all Nodes except the own.
#[must_use]
pub fn desired<'a>(nodes: impl Iterator<Item = &'a Node>, own: &str) -> Routes {
    let nodes = nodes.filter(|it| it.metadata.name != own);
    nodes
        .filter_map(|node| {
            let network: Network = node.spec.pod_cidr.parse().ok()?;
            let mut addresses = node.status.addresses.iter().filter(|it| it.address_type == "InternalIP");
            let gateway: Ipv4Addr = addresses.find_map(|it| it.address.parse().ok())?;
            // A Node must not redirect this machine's other traffic.
            let is_plausible = network.prefix() >= 8
                && !gateway.is_loopback()
                && !gateway.is_unspecified()
                && !network.contains(gateway);
            is_plausible.then_some((network, gateway))
        })
        .collect()
}

/// Reads the output of `ip -4 route show`.
#[must_use]
pub fn parse(listing: &str) -> Routes {
    let route = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [network, "via", gateway, ..] = words.as_slice() else { return None };
        let network = network.parse().ok().or_else(|| Network::new(network.parse().ok()?, 32))?;
        Some((network, gateway.parse().ok()?))
    };
    listing.lines().filter_map(route).collect()
}

/// The commands for `ip -batch` that turn the present routes into the desired ones.
#[must_use]
pub fn commands(present: &Routes, desired: &Routes) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    for network in present.keys().filter(|it| !desired.contains_key(it)) {
        let _ = writeln!(text, "route del {network} proto {PROTOCOL}");
    }
    for (network, gateway) in desired.iter().filter(|(network, gateway)| present.get(network) != Some(gateway)) {
        let _ = writeln!(text, "route replace {network} via {gateway} proto {PROTOCOL}");
    }
    text
}

/// Follows the Nodes until shutdown, then removes the routes. Every `period` the kernel's routes are compared with the desired ones: it drops those
/// of a link that goes down.
pub async fn run(client: &Client, own: &str, period: Duration, shutdown: &Shutdown) {
    let wake = Arc::new(Notify::new());
    let nodes = Informer::<Node>::start(client, Default::default());
    let notified = wake.clone();
    nodes.on_change(move |_, _| notified.notify_one());
    tokio::select! {
        () = shutdown.requested() => return,
        () = nodes.synced() => {}
    }
    loop {
        let all = nodes.store().list();
        if let Err(error) = apply(&desired(all.iter().map(|it| &**it), own)).await {
            warn!(err = %chain(&error), "Could not set the routes to other nodes");
        }
        tokio::select! {
            () = shutdown.requested() => break,
            () = tokio::time::sleep(MIN_PERIOD) => {}
        }
        tokio::select! {
            () = shutdown.requested() => break,
            () = wake.notified() => {}
            () = tokio::time::sleep(period) => {}
        }
    }
    if let Err(error) = apply(&Routes::new()).await {
        warn!(err = %chain(&error), "Could not remove the routes to other nodes");
    }
}

/// Makes the own routes equal to the desired ones.
///
/// # Errors
/// `ip` cannot be run or rejects a route; the others are set.
pub async fn apply(desired: &Routes) -> Result<(), ProgramError> {
    let protocol = PROTOCOL.to_string();
    let listing =
        program::run(IP, &["-4", "route", "show", "proto", &protocol], String::new(), LISTING_BYTES_MAX).await?;
    let commands = commands(&parse(&listing), desired);
    if commands.is_empty() {
        return Ok(());
    }
    info!(routes = desired.len(), "Changed the routes to other nodes");
    program::run(IP, &["-4", "-force", "-batch", "-"], commands, 0).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, network: &str, address: &str) -> Node {
        let object = api::json!({
            "metadata": {"name": name}, "spec": {"podCIDR": network}, "status": {"addresses": [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": address}]},
        });
        api::json::from_value(&object).unwrap()
    }

    #[test]
    fn other_nodes_are_gateways_of_their_pods() {
        let nodes = [
            node("own", "10.244.0.0/24", "192.168.77.1"),
            node("b", "10.244.1.0/24", "192.168.77.2"),
            node("none", "", "192.168.77.3"),
            node("all", "0.0.0.0/0", "192.168.77.4"),
            node("loop", "10.244.4.0/24", "127.0.0.1"),
            node("inside", "192.168.0.0/16", "192.168.77.9"),
        ];
        let routes = desired(nodes.iter(), "own");
        assert_eq!(routes, Routes::from([("10.244.1.0/24".parse().unwrap(), Ipv4Addr::new(192, 168, 77, 2))]));
        assert_eq!(commands(&Routes::new(), &routes), "route replace 10.244.1.0/24 via 192.168.77.2 proto 107\n");
        let present = parse(
            "10.244.1.0/24 via 192.168.77.2 dev eth0 \n10.244.9.0/24 via 192.168.77.9 dev eth0\n10.0.0.1 via 192.168.77.9 dev eth0\n",
        );
        assert_eq!(commands(&present, &routes), "route del 10.0.0.1/32 proto 107\nroute del 10.244.9.0/24 proto 107\n");
    }
}
