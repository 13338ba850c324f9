//! Loading what `kubectl get nodes,pods,… -A -o yaml` of a real cluster gave.
//!
//! Objects are recreated, owners before their dependents, with new UIDs everywhere. Harmful parts are omitted
//! and reported: finalizers that no component here removes, owners that are not in the dump, secrets, webhooks,
//! leases, events, terminated pods.

mod clean;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anyhow::Result;
use api::json::Value;
use client::discovery::Discovery;
use client::objects::Patch;
use client::{Client, Error, Resource};

const SERVICE_ACCOUNTS: Resource = Resource::new("", "v1", "serviceaccounts", "ServiceAccount");
const NAMESPACES: Resource = Resource::new("", "v1", "namespaces", "Namespace");

/// Kinds to load, in this order: dependencies come first.
const KINDS: &[&str] = &[
    "Namespace",
    "PriorityClass",
    "RuntimeClass",
    "StorageClass",
    "CSIDriver",
    "DeviceClass",
    "ServiceAccount",
    "Node",
    "CSINode",
    "CSIStorageCapacity",
    "ResourceSlice",
    "PersistentVolumeClaim",
    "PersistentVolume",
    "Service",
    "PodDisruptionBudget",
    "ReplicationController",
    "Deployment",
    "ReplicaSet",
    "StatefulSet",
    "DaemonSet",
    "CronJob",
    "Job",
    "ResourceClaimTemplate",
    "Pod",
    "ResourceClaim",
];

/// Result of loading.
#[derive(Debug, Default)]
pub struct LoadResult {
    /// Number of created objects by kind.
    pub created: BTreeMap<String, usize>,
    /// Number of omitted objects by reason.
    pub left_out: BTreeMap<String, usize>,
}

impl LoadResult {
    fn leave_out(&mut self, why: impl Into<String>) {
        let count = self.left_out.entry(why.into()).or_default();
        *count = count.saturating_add(1);
    }

    /// In lines for people, of which the first begins with `done`.
    #[must_use]
    pub fn text(&self, done: &str) -> String {
        let created: Vec<String> = self.created.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let mut text = format!("{done} {}.\n", created.join(", "));
        for (why, count) in &self.left_out {
            text.push_str(&format!("  left out: {count} × {why}\n"));
        }
        text
    }
}

/// Creates objects of another cluster.
///
/// # Errors
/// A server that cannot be reached; objects that it rejects are left out.
pub async fn load(client: &Client, mut objects: Vec<Value>) -> Result<LoadResult> {
    let discovery = client.discover().await?;
    let mut loading =
        Loader { client, discovery, uids: HashMap::new(), loaded: LoadResult::default(), known: BTreeSet::new() };
    loading.classes(&objects);
    let place = |object: &Value| KINDS.iter().position(|kind| object.str_at(&["kind"]) == Some(kind));
    for object in objects.iter().filter(|object| place(object).is_none()) {
        loading.loaded.leave_out(object.str_at(&["kind"]).unwrap_or("object without a kind"));
    }
    objects.retain(|object| place(object).is_some());
    objects.sort_by_key(place);
    for object in objects {
        loading.take(object).await?;
    }
    Ok(loading.loaded)
}

struct Loader<'c> {
    client: &'c Client,
    discovery: Discovery,
    /// New uids by old ones.
    uids: HashMap<String, String>,
    loaded: LoadResult,
    /// Priority classes that will be there, and namespaces and service accounts that are.
    known: BTreeSet<String>,
}

impl Loader<'_> {
    fn classes(&mut self, objects: &[Value]) {
        let classes = objects.iter().filter(|object| object.str_at(&["kind"]) == Some("PriorityClass"));
        let names = classes.filter_map(|class| class.str_at(&["metadata", "name"]));
        self.known.extend(names.map(|name| format!("class/{name}")));
        self.known.extend(["class/system-cluster-critical", "class/system-node-critical"].map(ToOwned::to_owned));
    }

    async fn take(&mut self, mut object: Value) -> Result<()> {
        let kind = object.text("kind").to_owned();
        if let Some(why) = clean::harm(&object, &kind) {
            self.loaded.leave_out(format!("{kind} {why}"));
            return Ok(());
        }
        let version = object.text("apiVersion").to_owned();
        let Some(served) = self.discovery.find(&version, &kind).cloned() else {
            self.loaded.leave_out(format!("{kind} of {version}, which is not served"));
            return Ok(());
        };
        let old_uid = object.text_at(&["metadata", "uid"]).to_owned();
        for dropped in clean::clean(&mut object, &kind, &self.uids, &self.known) {
            self.loaded.leave_out(dropped);
        }
        let name = object.text_at(&["metadata", "name"]).to_owned();
        let namespace = object.text_at(&["metadata", "namespace"]).to_owned();
        if served.namespaced {
            self.need(NAMESPACES, "", &namespace).await?;
        }
        if kind == "Pod" {
            let account = object.str_at(&["spec", "serviceAccountName"]).unwrap_or("default").to_owned();
            self.need(SERVICE_ACCOUNTS, &namespace, &account).await?;
        }
        let objects = self.client.documents(served.resource.clone());
        let mut is_new = true;
        let created = match objects.create(&namespace, &object).await {
            Ok(created) => created,
            Err(error) if error.is_already_exists() => {
                is_new = false;
                self.loaded.leave_out(format!("{kind} that is there already"));
                objects.get(&namespace, &name).await?
            }
            Err(Error::Refused(status)) => {
                self.loaded.leave_out(format!("{kind} {namespace}/{name}: {status}"));
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        if let Some(uid) = created.str_at(&["metadata", "uid"]) {
            self.uids.insert(old_uid, uid.to_owned());
        }
        if kind == "ResourceClaim" && object.at(&["status", "allocation"]).is_some() {
            let mut status = object.get("status").cloned().unwrap_or_default();
            clean::renew_uids(&mut status, &self.uids);
            let patch = api::json!({ "status": status });
            objects.patch(&namespace, &name, "status", Patch::Merge, &patch).await?;
        }
        if is_new {
            let count = self.loaded.created.entry(kind).or_default();
            *count = count.saturating_add(1);
        }
        Ok(())
    }

    /// Makes what an object needs and a dump often leaves out.
    async fn need(&mut self, resource: Resource, namespace: &str, name: &str) -> Result<()> {
        if name.is_empty() || !self.known.insert(format!("{}/{namespace}/{name}", resource.plural)) {
            return Ok(());
        }
        let object = api::json!({"metadata": {"name": name}});
        match self.client.documents(resource).create(namespace, &object).await {
            Err(error) if !error.is_already_exists() => Err(error.into()),
            _ => Ok(()),
        }
    }
}
