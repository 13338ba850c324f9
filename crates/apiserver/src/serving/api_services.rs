//! `APIService` objects: which group and version this server serves itself, and in which order clients see them.
//!
//! The priorities are Kubernetes' (`controlplane/apiserver/aggregator.go`). Those of custom resources come and go with what
//! is defined, as its `crdregistration` controller has it: every server on a store does the same.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::json::Value;
use store::{Store, Write};
use tracing::warn;

use super::bootstrap;
use crate::clock;
use crate::custom::{self, Customs};
use crate::resources::{self, Resource, RuntimeConfig};
use crate::server::{Server, Stopping};

/// The label that says who keeps an object, and how long.
const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
/// What could not be written is tried again after this long.
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

/// The objects of everything that is served here; the group of these objects is served by whom it describes.
pub(super) fn all(config: &RuntimeConfig) -> Vec<Value> {
    let groups = config.groups().filter(|(group, _)| *group != "apiregistration.k8s.io");
    let one = |group, version| {
        let priority = GROUPS.iter().find(|(it, _)| *it == group).map_or(1000, |(_, priority)| *priority);
        one(group, version, (priority, version_priority(group, version)), "onstart")
    };
    groups.flat_map(|(group, versions)| versions.into_iter().map(move |version| one(group, version))).collect()
}

fn one(group: &str, version: &str, (group_priority, version_priority): (i64, i64), managed: &str) -> Value {
    let name = format!("{version}.{group}");
    let mut spec = api::json!({
        "version": version, "groupPriorityMinimum": group_priority, "versionPriority": version_priority
    });
    if let Some(spec) = spec.as_object_mut().filter(|_| !group.is_empty()) {
        spec.insert("group", group);
    }
    let condition = api::json!({
        "type": "Available", "status": "True", "lastTransitionTime": (clock::now().to_string()),
        "reason": "Local", "message": "Local APIServices are always available"
    });
    api::json!({
        "metadata": {"name": name, "labels": {(MANAGED): managed}},
        "spec": spec, "status": {"conditions": [condition]}
    })
}

/// Keeps the objects of the groups of custom resources until the server stops.
pub(crate) fn keep(server: &Arc<Server>) {
    let Some(row) = resources::find("apiregistration.k8s.io", "v1", "apiservices") else { return };
    let (group, plural) = custom::DEFINITIONS;
    let Some(definitions) = resources::find(group, "v1", plural) else { return };
    let keeper = Keeper { row, store: server.store.clone(), customs: server.customs.clone() };
    let mut services = server.cache.resource(&row.prefix()).subscribe();
    let mut defined = server.cache.resource(&definitions.prefix()).subscribe();
    let newest = server.cache.resource(&definitions.prefix());
    let mut stopping: Stopping = server.stopping();
    tokio::spawn(async move {
        loop {
            // What changes from here on wakes this again.
            services.borrow_and_update();
            defined.borrow_and_update();
            keeper.customs.settled(newest.newest()).await;
            let kept = keeper.keep().await;
            if let Err(error) = &kept {
                warn!(err = %error, "Could not keep the APIServices of custom resources");
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
    customs: Arc<Customs>,
}

impl Keeper {
    /// Makes what is missing, and removes what is left of groups that are gone.
    async fn keep(&self) -> Result<(), store::Error> {
        let customs = self.customs.snapshot();
        let versions = customs.groups().flat_map(|(group, versions)| versions.map(move |version| (group, version)));
        let wanted: BTreeMap<String, (&str, &str)> = versions
            .map(|(group, version)| (self.row.key("", &format!("{version}.{group}")), (group, version)))
            .collect();
        let page = self.store.list(&self.row.prefix(), store::ListOptions::default()).await?;
        for entry in &page.entries {
            let is_ours = crate::storage::stored::document(&entry.value)
                .is_some_and(|object| object.str_at(&["metadata", "labels", MANAGED]) == Some("true"));
            if is_ours && !wanted.contains_key(&*entry.key) {
                // Who was faster did the same, or will be seen.
                let _ = self.store.write(Write::delete(&*entry.key, entry.revision)).await?;
            }
        }
        for (key, (group, version)) in wanted {
            if page.entries.iter().any(|entry| *entry.key == *key) {
                continue;
            }
            // Custom resources come behind all others; among themselves the names of versions decide.
            let object = one(group, version, (1000, 100), "true");
            if let Some(write) = bootstrap::make(self.row, object) {
                // A conflict means that someone else made it.
                let _ = self.store.write(write).await?;
            }
        }
        Ok(())
    }
}
