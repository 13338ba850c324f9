//! Registering nodes, and keeping them alive: status when it changes or has stood for five minutes, leases in bursts.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api::core::v1::Node;
use api::json::{Text, Value};
use api::time::Timestamp;
use client::Error;
use client::objects::Patch;
use client::resources::ServedView as _;
use futures::future::join_all;
use futures::stream::{self, StreamExt as _};
use telemetry::logs::chain;
use tracing::{debug, info, warn};

use super::member::Member;
use super::{Inner, PAUSES};
use crate::runtime::Runtime;
use crate::template::Template;
use crate::{heartbeat, node_status};

/// A status that has not changed is written again after this long.
const STATUS_INTERVAL: Duration = Duration::from_secs(300);
/// Interval at which the health of a real runtime is compared with the status.
const HEALTH_INTERVAL: Duration = Duration::from_secs(5);
/// Nodes that were started together do not all write theirs together.
const STATUS_TURNS: usize = 60;
const STATUS_TURN: Duration = Duration::from_secs(1);
/// Number of nodes that register at once.
const REGISTRATIONS: usize = 128;

impl<R: Runtime> Inner<R> {
    /// Ensures that each node exists and has the address of its agent.
    pub(super) async fn register_all(&self) {
        let is_missing = |member: &Arc<Member>| self.nodes.store().get("", &member.name).is_none();
        let (missing, known): (Vec<_>, Vec<_>) = self.members.all().into_iter().partition(is_missing);
        stream::iter(&missing).for_each_concurrent(REGISTRATIONS, |member| self.register(member)).await;
        if let Some(endpoint) = self.endpoint {
            stream::iter(&known)
                .for_each_concurrent(REGISTRATIONS, |member| self.publish_address(member, endpoint))
                .await;
        }
    }

    /// Updates the address of an agent that has moved.
    async fn publish_address(&self, member: &Member, endpoint: SocketAddr) {
        let patch = node_status::moved(&member.name, member.number, endpoint);
        let nodes = member.client.documents(Node::RESOURCE);
        if let Err(error) = nodes.patch("", &member.name, "status", Patch::Merge, &patch).await {
            warn!(node = %member.name, err = %chain(&error), "Could not write the address of the node");
        }
    }

    async fn register(&self, member: &Member) {
        let mut failures = 0;
        loop {
            let node = self.template.node(&member.name, member.number, self.endpoint, self.clock.now());
            match member.client.documents(Node::RESOURCE).create("", &node).await {
                Ok(_) => return info!(node = %member.name, "Registered node"),
                Err(error) if error.is_already_exists() => return,
                Err(error) => warn!(node = %member.name, err = %chain(&error), "Could not register node"),
            }
            tokio::time::sleep(PAUSES.pause(failures)).await;
            failures = failures.saturating_add(1);
        }
    }

    pub(super) async fn work_on_nodes(self: Arc<Self>) {
        while let Some(item) = self.node_queue.get().await {
            match self.report(&item).await {
                Ok(None) => item.done(),
                Ok(Some(next)) => item.again_after(next),
                Err(error) => {
                    debug!(node = %*item, err = %chain(&error), "Could not write the status of the node");
                    item.retry();
                }
            }
        }
    }

    /// Writes a node's status if it is incorrect or old. Returns the time until the next check.
    async fn report(&self, name: &Text) -> Result<Option<Duration>, Error> {
        let Some(member) = self.members.get(name).filter(|member| member.is_alive()) else { return Ok(None) };
        let Some(node) = self.nodes.store().get("", name) else { return Ok(None) };
        self.publish(&member, &node).await?;
        let now = self.clock.now();
        let (is_ready, mut changes) = member.faults().is_ready(now);
        let health = self.runtime.health();
        let fault = match &health {
            Err(why) => Some(why.as_str()),
            Ok(()) if is_ready => None,
            Ok(()) => Some(node_status::SIMULATED),
        };
        let pressure = self.runtime.pressure();
        if !R::IS_SIMULATED {
            changes = Some(changes.map_or(HEALTH_INTERVAL, |it| it.min(HEALTH_INTERVAL)));
        }
        let turn = u32::try_from(member.number % STATUS_TURNS).unwrap_or(0);
        let spread = STATUS_TURN.saturating_mul(turn);
        let interval = STATUS_INTERVAL.saturating_add(spread);
        let age = node_status::last_heartbeat(&node).map_or(interval, |at| at.until(now));
        let earlier = |next: Duration| Some(changes.map_or(next, |changes| changes.min(next)));
        if node_status::says(&node, fault, pressure) && age < interval && !node.status.addresses.is_empty() {
            return Ok(earlier(interval.saturating_sub(age)));
        }
        let mut patch = node_status::patch(&node, fault, pressure, now);
        // Every node has an address: one without was created by another client and never simulated.
        if node.status.addresses.is_empty() {
            let whole = self.completed(&node, member.number, now);
            let labels = whole.at(&["metadata", "labels"]).cloned().unwrap_or_default();
            let labels = api::json!({"metadata": {"labels": labels}});
            member.client.documents(Node::RESOURCE).patch("", name, "", Patch::StrategicMerge, &labels).await?;
            patch = api::json!({"status": (whole.get("status").cloned().unwrap_or_default())});
            // It has joined between two rounds, and must send a heartbeat at once.
            self.renew(&member).await;
        }
        match member.client.documents(Node::RESOURCE).patch("", name, "status", Patch::StrategicMerge, &patch).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(earlier(interval)),
        }
    }

    /// Renews the leases, burst by burst.
    pub(super) async fn keep_alive(self: Arc<Self>) {
        // At the start all leases are renewed at once: the last renewal may be old.
        let bursts = heartbeat::bursts(self.members.all().len());
        for burst in 0..bursts {
            self.renew_burst(burst, bursts).await;
        }
        loop {
            // The fleet may have grown since the last round.
            let bursts = heartbeat::bursts(self.members.all().len());
            let pause = u32::try_from(bursts).ok().and_then(|count| heartbeat::INTERVAL.checked_div(count));
            let mut ticks = self.clock.interval(pause.unwrap_or(heartbeat::INTERVAL));
            ticks.tick().await;
            for burst in 0..bursts {
                ticks.tick().await;
                self.renew_burst(burst, bursts).await;
            }
        }
    }

    /// Renews the leases of one burst, also of members that have come since the last.
    async fn renew_burst(&self, burst: usize, bursts: usize) {
        let members = self.members.all();
        let of_burst = members.iter().filter(|it| heartbeat::is_in_burst(it.number, burst, bursts));
        join_all(of_burst.map(|member| self.renew(member))).await;
    }

    /// Completes a node of another creator with the defaults of the fleet.
    fn completed(&self, node: &Node, number: usize, now: Timestamp) -> Value {
        let known = api::json::to_value(node).ok().map(Template::of_stored);
        known.unwrap_or_default().node(&node.metadata.name, number, self.endpoint, now)
    }

    async fn renew(&self, member: &Member) {
        if !member.is_alive() {
            return;
        }
        let owner = self.nodes.store().get("", &member.name);
        let renewal =
            heartbeat::renew(&member.client, member.known_lease(), &member.name, owner.as_deref(), self.clock.now());
        match tokio::time::timeout(heartbeat::INTERVAL, renewal).await {
            Ok(Ok(lease)) => member.keep_lease(Some(lease)),
            Ok(Err(error)) => {
                debug!(node = %member.name, err = %chain(&error), "Could not renew the lease of the node");
                member.keep_lease(None);
            }
            Err(_) => debug!(node = %member.name, "Could not renew the lease of the node in time"),
        }
    }
}
