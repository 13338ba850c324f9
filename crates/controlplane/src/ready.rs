//! Waiting until a control plane can be used: all components work, nodes are ready, pods can be created.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use api::core::v1::Node;
use api::well_known::TAINT_NOT_READY;
use client::{Client, Resource};
use http::Method;

const SERVICE_ACCOUNTS: Resource = Resource::new("", "v1", "serviceaccounts", "ServiceAccount");
/// Time limit without the registration of nodes.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Additional time for each node.
const TIMEOUT_PER_NODE: Duration = Duration::from_millis(20);

/// State to wait for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadyTarget {
    /// Number of ready nodes.
    pub(crate) nodes: usize,
    /// All controllers run, so that nodes lose their first taints and namespaces get their service accounts.
    pub(crate) all_controllers: bool,
}

/// Waits, and returns the number of ready nodes. `progress` receives what is still missing.
pub(crate) async fn wait(
    client: &Client,
    wanted: ReadyTarget,
    progress: &mut (dyn FnMut(&str) + Send),
) -> Result<usize> {
    let started = Instant::now();
    let nodes = u32::try_from(wanted.nodes).unwrap_or(u32::MAX);
    let timeout = TIMEOUT.saturating_add(TIMEOUT_PER_NODE.saturating_mul(nodes));
    // A large list is not requested continuously.
    let pause = Duration::from_millis(10).saturating_add(Duration::from_micros(100).saturating_mul(nodes));
    loop {
        let missing = match look(client, wanted).await {
            Ok(ready) => return Ok(ready),
            Err(missing) => missing,
        };
        progress(&missing);
        if started.elapsed() > timeout {
            bail!("not ready after {} s: {missing}", timeout.as_secs());
        }
        tokio::time::sleep(pause).await;
    }
}

/// Returns the number of ready nodes, or a description of the missing parts.
async fn look(client: &Client, wanted: ReadyTarget) -> Result<usize, String> {
    let nodes = client.objects::<Node>().list(&Default::default()).await.map_err(|error| error.to_string())?;
    let ready = nodes.items.iter().filter(|node| is_ready(node, wanted.all_controllers)).count();
    if ready < wanted.nodes {
        return Err(format!("{ready} of {} nodes are ready", wanted.nodes));
    }
    let checks = client.send(Method::GET, "/readyz?verbose", "application/json", String::new()).await;
    checks.map_err(|error| error.to_string())?;
    if wanted.all_controllers {
        let account = client.documents(SERVICE_ACCOUNTS).get("default", "default").await;
        account.map_err(|_| "waiting for the default service account".to_owned())?;
    }
    Ok(ready)
}

fn is_ready(node: &Node, loses_taints: bool) -> bool {
    let says = node.status.conditions.iter().any(|it| it.condition_type == "Ready" && it.status == "True");
    let is_new = node.spec.taints.iter().any(|taint| taint.key == TAINT_NOT_READY);
    says && !(loses_taints && is_new)
}
