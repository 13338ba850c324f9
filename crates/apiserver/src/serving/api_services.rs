//! `APIService` objects: which group and version this server serves itself, and in which order clients see them.
//!
//! The priorities are Kubernetes' (`controlplane/apiserver/aggregator.go`). Those of custom resources come and go with what
//! is defined, as its `crdregistration` controller has it: every server on a store does the same.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ::clock::Clock;
use api::json::Value;
use api::time::Timestamp;
use store::{Store, Write};
use telemetry::logs::chain;
use tracing::warn;

use super::bootstrap;
use crate::aggregator::resource_metrics;
use crate::custom::CustomResources;
use crate::resources::{self, Resource, RuntimeConfig};
use crate::shutdown::ShutdownSignal;
use crate::state::Server;

/// Label with the manager of an object, and its lifetime.
const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
/// Delay before a failed write is retried.
const RETRY: Duration = Duration::from_secs(5);

/// Groups by priority; of two with the same one, the versions decide.
const GROUPS: &[(&str, i64)] = &[
    ("", 18_000),
    ("apps", 17_800),
    ("events.k8s.io", 17_750),
    ("authentication.k8s.io", 17_700),
    ("authorization.k8s.io", 17_600),
    ("autoscaling", 17_500),
    ("batch", 17_400),
    ("certificates.k8s.io", 17_300),
    ("networking.k8s.io", 17_200),
    ("policy", 17_100),
    ("rbac.authorization.k8s.io", 17_000),
    ("storage.k8s.io", 16_800),
    ("apiextensions.k8s.io", 16_700),
    ("admissionregistration.k8s.io", 16_700),
    ("scheduling.k8s.io", 16_600),
    ("coordination.k8s.io", 16_500),
    ("node.k8s.io", 16_300),
    ("discovery.k8s.io", 16_200),
    ("resource.k8s.io", 16_200),
    ("flowcontrol.apiserver.k8s.io", 16_100),
    ("storagemigration.k8s.io", 15_800),
];

/// Custom resources come behind all others; among themselves the names of versions decide.
const CUSTOM_PRIORITIES: (i64, i64) = (1000, 100);

/// The priority of a version among those of its group.
fn version_priority(group: &str, version: &str) -> i64 {
    match (group, version) {
        ("", _) => 1,
        ("autoscaling", "v2") => 30,
        ("resource.k8s.io" | "flowcontrol.apiserver.k8s.io", "v1") => 21,
        (_, "v1" | "v1beta2") => 15,
        (_, it) if it.contains("beta") => 9,
        _ => 1,
    }
}

/// The priorities of a group and version that are served here.
pub(super) fn priorities(group: &str, version: &str) -> (i64, i64) {
    match GROUPS.iter().find(|(it, _)| *it == group) {
        Some((_, priority)) => (*priority, version_priority(group, version)),
        None => CUSTOM_PRIORITIES,
    }
}

/// The objects of all groups that are served here; the group of these objects itself is left out.
pub(super) fn all(config: &RuntimeConfig, now: Timestamp) -> Vec<Value> {
    let groups = config.groups().filter(|(group, _)| *group != "apiregistration.k8s.io");
    let one = |group, version| {
        let priority = GROUPS.iter().find(|(it, _)| *it == group).map_or(1000, |(_, priority)| *priority);
        one(group, version, (priority, version_priority(group, version)), "onstart", now)
    };
    groups.flat_map(|(group, versions)| versions.into_iter().map(move |version| one(group, version))).collect()
}

/// The object of `metrics.k8s.io`, for servers that serve it themselves.
pub(super) fn resource_metrics(now: Timestamp) -> Value {
    one(resource_metrics::GROUP, resource_metrics::VERSION, resource_metrics::PRIORITIES, "onstart", now)
}

fn one(
    group: &str,
    version: &str,
    (group_priority, version_priority): (i64, i64),
    managed: &str,
    now: Timestamp,
) -> Value {
    let name = format!("{version}.{group}");
    let mut spec = api::json!({
        "version": version, "groupPriorityMinimum": group_priority, "versionPriority": version_priority
    });
    if let Some(spec) = spec.as_object_mut().filter(|_| !group.is_empty()) {
        spec.insert("group", group);
    }
    let condition = api::json!({
        "type": "Available", "status": "True", "lastTransitionTime": (now.to_string()),
        "reason": "Local", "message": "Local APIServices are always available"
    });
    api::json!({
        "metadata": {"name": name, "labels": {(MANAGED): managed}},
        "spec": spec, "status": {"conditions": [condition]}
    })
}

/// Keeps the objects of the groups of custom resources until the server stops.
pub(crate) fn keep(server: &Arc<Server>) {
    let (row, definitions) = (resources::API_SERVICES, resources::DEFINITIONS);
    let keeper =
        Keeper { row, store: server.store.clone(), customs: server.customs.clone(), clock: server.clock().clone() };
    let mut services = server.cache.resource(&row.prefix()).subscribe();
    let mut defined = server.cache.resource(&definitions.prefix()).subscribe();
    let newest = server.cache.resource(&definitions.prefix());
    let mut stopping: ShutdownSignal = server.stopping();
    server.tasks.spawn("API services", async move {
        loop {
            // What changes from here on wakes this again.
            services.borrow_and_update();
            defined.borrow_and_update();
            tokio::select! {
                () = keeper.customs.settled(newest.newest()) => {}
                () = stopping.stopped() => return,
            }
            let kept = keeper.keep().await;
            if let Err(error) = &kept {
                warn!(err = %chain(&error), "Could not update the APIServices of custom resources");
            }
            let retry = if kept.is_ok() { Duration::from_secs(3600) } else { RETRY };
            tokio::select! {
                changed = services.changed() => if changed.is_err() { return },
                changed = defined.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(retry) => {}
                () = stopping.stopped() => return,
            }
        }
    });
}

struct Keeper {
    row: &'static Resource<'static>,
    store: Arc<dyn Store>,
    customs: Arc<CustomResources>,
    clock: Clock,
}

impl Keeper {
    /// Creates missing objects, and removes those of removed groups.
    async fn keep(&self) -> Result<(), store::Error> {
        let customs = self.customs.snapshot();
        let versions = customs.groups().flat_map(|(group, versions)| versions.map(move |version| (group, version)));
        let wanted: BTreeMap<String, (&str, &str)> = versions
            .map(|(group, version)| (self.row.key("", &format!("{version}.{group}")), (group, version)))
            .collect();
        let page = self.store.list(&self.row.prefix(), store::ListOptions::default()).await?;
        for entry in &page.entries {
            let is_ours = cache::stored::document(&entry.value)
                .is_some_and(|object| object.str_at(&["metadata", "labels", MANAGED]) == Some("true"));
            if is_ours && !wanted.contains_key(&*entry.key) {
                // A concurrent writer did the same, or will be observed.
                let _ = self.store.write(Write::delete(&*entry.key, entry.revision)).await?;
            }
        }
        for (key, (group, version)) in wanted {
            if page.entries.iter().any(|entry| *entry.key == *key) {
                continue;
            }
            let now = self.clock.now_seconds();
            let object = one(group, version, CUSTOM_PRIORITIES, "true", now);
            if let Some(write) = bootstrap::make(self.row, object, now) {
                // A conflict means that someone else made it.
                let _ = self.store.write(write).await?;
            }
        }
        Ok(())
    }
}
