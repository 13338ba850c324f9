//! `ResourceQuota`: what is created is counted, and refused where it would be too much; so is what a change adds to a
//! Service, a claim of storage, or a pod that is resized.
//!
//! Counts are kept in the quota's status, as in Kubernetes: what is added is counted here, what is taken away is found out
//! by a controller. Quotas may be for a part of the objects only ([`scopes`]).

mod scopes;

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Quantity;
use api::core::v1::Pod;
use api::json::{Object, Text, Value};
use api::meta::v1::Object as _;
use api::resource::v1::ResourceClaim;
use matching::resources::device_usage;
use store::{Outcome, Write};

use super::{Attributes, Cluster, Operation, Plugin, Verdict};
use crate::resources::{self, Resource};
use crate::wire::status::{Failure, Result};
use api::metadata;
use cache::stored::{self, ServedObject};
use patching::apply::BuiltIn;

type Usage = BTreeMap<String, Quantity>;

/// Maximum number of retries after concurrent changes.
const ATTEMPTS_MAX: usize = 20;

/// The counted change: a new object, or one that replaces another.
#[derive(Clone, Copy)]
struct CountedChange<'a> {
    resource: &'a Resource<'a>,
    object: &'a Value,
    old: Option<&'a Value>,
    /// Usage that depends on other objects.
    devices: &'a [(Text, Quantity)],
}

impl CountedChange<'_> {
    /// Its usage of a quota.
    fn usage(&self, quota: &Value) -> Usage {
        let mut usage = usage_of(self.resource, self.object);
        usage.extend(self.devices.iter().map(|(name, amount)| (name.to_string(), amount.clone())));
        // What the quota did not count before is new to it.
        if let Some(old) = self.old.filter(|old| scopes::match_all(self.resource, old, quota)) {
            for (name, amount) in usage_of(self.resource, old) {
                if let Some(now) = usage.get_mut(&name) {
                    now.sub(&amount);
                }
            }
            usage.retain(|_, amount| amount.sign() > 0);
        }
        usage
    }
}

/// Whether a change of an object may add to what it counts as.
fn counts_change(resource: &Resource<'_>, subresource: &str, object: &Value, old: &Value) -> bool {
    match (resource.group, resource.plural, subresource) {
        ("", "services" | "persistentvolumeclaims", "") | ("", "pods", "resize") => true,
        // Its scope may change.
        ("", "pods", "") => scopes::is_terminating(object) != scopes::is_terminating(old),
        _ => false,
    }
}

/// The plugin.
pub(super) struct ResourceQuota(pub(super) Arc<dyn Cluster>);

impl Plugin for ResourceQuota {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        match attributes.operation {
            Operation::Create => {
                let is_kept = !matches!(attributes.resource.group, "authentication.k8s.io" | "authorization.k8s.io");
                attributes.subresource.is_empty() && attributes.resource.namespaced && is_kept
            }
            Operation::Update => matches!(
                (attributes.resource_name(), attributes.subresource),
                (("", "services" | "persistentvolumeclaims" | "pods"), "") | (("", "pods"), "resize")
            ),
            Operation::Delete | Operation::Connect => false,
        }
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>) -> Verdict<'a> {
        Box::pin(async move {
            let (resource, old) = (attributes.resource, attributes.old);
            let Some(object) = attributes.object else { return Ok(()) };
            if old.is_some_and(|old| !counts_change(resource, attributes.subresource, object, old)) {
                return Ok(());
            }
            charge(&*self.0, resource, object, old, attributes.dry_run).await
        })
    }
}

/// Counts an object in all quotas of its namespace; only what it adds, if it was there before.
///
/// # Errors
/// 403 if one would be exceeded.
async fn charge(
    cluster: &dyn Cluster,
    resource: &Resource<'_>,
    object: &Value,
    old: Option<&Value>,
    dry_run: bool,
) -> Result<()> {
    let namespace = metadata::namespace(object);
    let quotas = resources::RESOURCE_QUOTAS;
    if namespace.is_empty() {
        return Ok(());
    }
    let range = format!("{}{namespace}/", quotas.prefix());
    let all = cluster.cache().resource(&quotas.prefix()).list(&range, None, 0, |_, _| true).objects;
    if all.is_empty() {
        return Ok(());
    }
    let is_claim = resource.is(resources::RESOURCE_CLAIMS);
    let devices = if is_claim { devices(cluster, object) } else { Vec::new() };
    let counted = CountedChange { resource, object, old, devices: &devices };
    for (key, _) in all {
        // The cache may be a moment behind, and the count must not.
        let entry = cluster.store().get(&key, 0).await?.entry;
        let quota = entry.and_then(|entry| ServedObject::new(&entry.value, entry.revision));
        if let Some(quota) = quota {
            charge_one(cluster, counted, &key, quota, dry_run).await?;
        }
    }
    Ok(())
}

/// Returns the usage of a claim to devices.
fn devices(cluster: &dyn Cluster, claim: &Value) -> Vec<(Text, Quantity)> {
    let Ok(claim) = ResourceClaim::read(claim) else { return Vec::new() };
    let find = |row: &Resource<'static>, namespace: &str, name: &str| {
        let found = cluster.cache().resource(&row.prefix()).get(&row.key(namespace, name))?;
        Some(found.decode())
    };
    let extended_resource = |class: &str| {
        let class = find(resources::DEVICE_CLASSES, "", class)?;
        class.str_at(&["spec", "extendedResourceName"]).map(Text::from)
    };
    let owner = claim.metadata.controller().filter(|_| claim.extended_resources_of().is_some());
    let pod = owner.and_then(|owner| find(resources::PODS, &claim.metadata.namespace, &owner.name));
    let pod = pod.and_then(|pod| Pod::read(&pod).ok());
    device_usage(&claim, extended_resource, pod.as_ref())
}

async fn charge_one(
    cluster: &dyn Cluster,
    counted: CountedChange<'_>,
    key: &str,
    quota: ServedObject,
    dry_run: bool,
) -> Result<()> {
    let mut current = quota;
    for _ in 0..ATTEMPTS_MAX {
        let mut quota = current.decode();
        let Some(used) = added(counted, &quota)? else { return Ok(()) };
        if dry_run {
            return Ok(());
        }
        let old = quota.clone();
        let status = quota.get_mut("status").and_then(Value::as_object_mut);
        if let Some(status) = status {
            status.insert("used", used);
        }
        if let Some(managed_fields) = managed_fields(cluster, &old, &quota) {
            metadata::set(&mut quota, "managedFields", managed_fields);
        }
        let bytes = stored::encode(&mut quota).ok_or_else(|| Failure::internal("the quota has no metadata"))?;
        match cluster.store().write(Write::update(key, current.revision, bytes)).await? {
            Outcome::Done { .. } => return Ok(()),
            Outcome::Conflict { current: Some(entry) } => match ServedObject::new(&entry.value, entry.revision) {
                Some(served) => current = served,
                None => return Ok(()),
            },
            // The quota was deleted.
            Outcome::Conflict { current: None } => return Ok(()),
        }
    }
    Err(Failure::internal("the quota is counted by too many at once"))
}

/// The managed fields of a quota after the server counted in it: Kubernetes writes the status as `kube-apiserver`.
fn managed_fields(cluster: &dyn Cluster, old: &Value, quota: &Value) -> Option<Value> {
    let versions = BuiltIn::new(resources::RESOURCE_QUOTAS, "status");
    let now = cluster.now().to_string();
    let write = patching::apply::Write {
        versions: &versions,
        api_version: "v1",
        kind: "ResourceQuota",
        subresource: "status",
        manager: "kube-apiserver",
        now: &now,
    };
    write.update(old, quota)
}

/// Returns the usage including the object; `None` if the quota does not count it.
fn added(counted: CountedChange<'_>, quota: &Value) -> Result<Option<Object>> {
    let CountedChange { resource, object, .. } = counted;
    let Some(hard) = quota.object_at(&["status", "hard"]) else { return Ok(None) };
    let amount = |part: &str, name: &str| {
        let text = quota.str_at(&["status", part, name]);
        text.and_then(|text| Quantity::parse(text).ok()).unwrap_or_default()
    };
    let name = super::shown_name(object);
    let refuse = |why: String| Failure::forbidden(resource.group, resource.plural, name, &why);
    if !scopes::match_all(resource, object, quota) {
        return Ok(None);
    }
    if resource.is(resources::PODS) {
        let missing = unspecified(object, hard);
        if !missing.is_empty() {
            let quota = metadata::name(quota);
            return Err(refuse(format!("failed quota: {quota}: must specify {}", missing.join("; "))));
        }
    }
    let mut used = quota.object_at(&["status", "used"]).cloned().unwrap_or_default();
    let mut is_counted = false;
    let mut exceeded: Vec<(String, String, String, String)> = Vec::new();
    for (name, requested) in counted.usage(quota) {
        if hard.get(&name).is_none() {
            continue;
        }
        is_counted = true;
        let (before, limit) = (amount("used", &name), amount("hard", &name));
        let mut after = before.clone();
        after.add(&requested);
        if after > limit {
            exceeded.push((name.clone(), requested.to_string(), before.to_string(), limit.to_string()));
        }
        used.insert(name.as_str(), after.to_string());
    }
    if !exceeded.is_empty() {
        let list = |part: fn(&(String, String, String, String)) -> &str| {
            exceeded.iter().map(|it| format!("{}={}", it.0, part(it))).collect::<Vec<_>>().join(",")
        };
        let quota = metadata::name(quota);
        let why = format!(
            "exceeded quota: {quota}, requested: {}, used: {}, limited: {}",
            list(|it| &it.1),
            list(|it| &it.2),
            list(|it| &it.3)
        );
        return Err(refuse(why));
    }
    used.sort();
    Ok(is_counted.then_some(used))
}

/// Usage of an object.
fn usage_of(resource: &Resource<'_>, object: &Value) -> Usage {
    let mut usage = Usage::new();
    let one = || Quantity::parse("1").unwrap_or_default();
    let suffix = if resource.group.is_empty() { String::new() } else { format!(".{}", resource.group) };
    usage.insert(format!("count/{}{suffix}", resource.plural), one());
    if !resource.group.is_empty() {
        return usage;
    }
    match resource.plural {
        "services" => {
            usage.insert("services".to_owned(), one());
            let kind = object.text_at(&["spec", "type"]);
            if kind == "LoadBalancer" {
                usage.insert("services.loadbalancers".to_owned(), one());
            }
            if matches!(kind, "LoadBalancer" | "NodePort") {
                usage.insert(
                    "services.nodeports".to_owned(),
                    Quantity::parse(&node_ports(object, kind).to_string()).unwrap_or_default(),
                );
            }
        }
        "configmaps" | "secrets" | "replicationcontrollers" | "resourcequotas" => {
            usage.insert(resource.plural.to_owned(), one());
        }
        "persistentvolumeclaims" => {
            usage.insert("persistentvolumeclaims".to_owned(), one());
            let storage = object.str_at(&["spec", "resources", "requests", "storage"]);
            let storage = storage.and_then(|text| Quantity::parse(text).ok());
            let class = object.str_at(&["spec", "storageClassName"]).filter(|it| !it.is_empty());
            if let Some(class) = class {
                let of_class = |what: &str| format!("{class}.storageclass.storage.k8s.io/{what}");
                usage.insert(of_class("persistentvolumeclaims"), one());
                usage.extend(storage.clone().map(|amount| (of_class("requests.storage"), amount)));
            }
            usage.extend(storage.map(|amount| ("requests.storage".to_owned(), amount)));
        }
        "pods" => {
            usage.insert("pods".to_owned(), one());
            add_compute(&mut usage, object);
        }
        _ => {}
    }
    usage
}

/// Number of node ports that a service will have: one for each port, unless its load balancer disables them.
fn node_ports(service: &Value, kind: &str) -> i64 {
    let ports = service.list_at(&["spec", "ports"]);
    let allocates = service.bool_at(&["spec", "allocateLoadBalancerNodePorts"]).unwrap_or(true);
    let is_counted = |port: &&Value| {
        kind == "NodePort" || allocates || port.get("nodePort").and_then(Value::as_i64).is_some_and(|it| it != 0)
    };
    i64::try_from(ports.iter().filter(is_counted).count()).unwrap_or(i64::MAX)
}

/// Adds the resources of a pod's containers; init containers run one by one before.
fn add_compute(usage: &mut Usage, pod: &Value) {
    for (kind, prefix) in [("requests", "requests."), ("limits", "limits.")] {
        let mut total = Usage::new();
        for container in containers(pod, "containers") {
            for (name, amount) in amounts(container, kind) {
                total.entry(name).or_default().add(&amount);
            }
        }
        for container in containers(pod, "initContainers") {
            for (name, amount) in amounts(container, kind) {
                let known = total.entry(name).or_default();
                if amount > *known {
                    *known = amount;
                }
            }
        }
        for (name, amount) in overhead(pod) {
            // What is not limited stays so.
            if kind == "requests" || total.contains_key(&name) {
                total.entry(name).or_default().add(&amount);
            }
        }
        for (name, amount) in total {
            if kind == "requests" && matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") {
                usage.insert(name.clone(), amount.clone());
            }
            usage.insert(format!("{prefix}{name}"), amount);
        }
    }
}

/// Overhead of a pod.
fn overhead(pod: &Value) -> Vec<(String, Quantity)> {
    let fields = pod.object_at(&["spec", "overhead"]);
    let amount = |(name, value): (&str, &Value)| Some((name.to_owned(), Quantity::parse(value.as_str()?).ok()?));
    fields.into_iter().flat_map(|fields| fields.iter()).filter_map(amount).collect()
}

fn containers<'a>(pod: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> {
    pod.list_at(&["spec", list]).iter()
}

fn amounts(container: &Value, kind: &str) -> Vec<(String, Quantity)> {
    let fields = container.object_at(&["resources", kind]);
    let amount = |(name, value): (&str, &Value)| Some((name.to_owned(), Quantity::parse(value.as_str()?).ok()?));
    fields.into_iter().flat_map(|fields| fields.iter()).filter_map(amount).collect()
}

/// Returns the resources that a quota requires and containers do not specify, with the containers' names.
fn unspecified(pod: &Value, hard: &Object) -> Vec<String> {
    let mut missing = Vec::new();
    let mut names: Vec<&str> = hard.keys().collect();
    names.sort_unstable();
    for name in names {
        let (kind, resource) = match name.split_once('.') {
            None if matches!(name, "cpu" | "memory" | "ephemeral-storage") => ("requests", name),
            Some(("requests", resource @ ("cpu" | "memory" | "ephemeral-storage"))) => ("requests", resource),
            Some(("limits", resource @ ("cpu" | "memory" | "ephemeral-storage"))) => ("limits", resource),
            _ => continue,
        };
        let all = containers(pod, "containers").chain(containers(pod, "initContainers"));
        let without = all.filter(|it| it.at(&["resources", kind, resource]).is_none());
        let without: Vec<&str> = without.filter_map(|container| container.str_at(&["name"])).collect();
        if !without.is_empty() {
            missing.push(format!("{name} for: {}", without.join(",")));
        }
    }
    missing
}
