//! `ResourceQuota`: what is created is counted, and refused where it would be too much; so is what a change adds to a
//! Service, a claim of storage, or a pod that is resized.
//!
//! Counts are kept in the quota's status, as in Kubernetes: what is added is counted here, what is taken away is found out
//! by a controller. Quotas may be for a part of the objects only ([`scopes`]).

mod scopes;

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Quantity;
use api::json::{Object, Value};
use store::{Outcome, Write};

use crate::http::status::{Failure, Result};
use crate::objects::metadata;
use crate::resources::{self, Resource};
use crate::server::Server;
use crate::storage::stored::{self, Served};

type Usage = BTreeMap<String, Quantity>;

/// So often it is tried again if someone else counts at the same time.
const ATTEMPTS_MAX: usize = 20;

/// What is counted: an object that is new, or one in the place of another.
#[derive(Clone, Copy)]
struct Counted<'a> {
    resource: &'a Resource<'a>,
    object: &'a Value,
    old: Option<&'a Value>,
}

impl Counted<'_> {
    /// What it adds to a quota.
    fn usage(&self, quota: &Value) -> Usage {
        let mut usage = usage_of(self.resource, self.object);
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
        // It may come under another scope.
        ("", "pods", "") => scopes::is_terminating(object) != scopes::is_terminating(old),
        _ => false,
    }
}

/// Counts what a change adds.
///
/// # Errors
/// 403 if a quota would be exceeded.
pub(super) async fn charge_change(
    server: &Arc<Server>,
    resource: &Resource<'_>,
    subresource: &str,
    (object, old): (&Value, &Value),
    dry_run: bool,
) -> Result<()> {
    if !counts_change(resource, subresource, object, old) {
        return Ok(());
    }
    charge(server, resource, object, Some(old), dry_run).await
}

/// Counts an object in all quotas of its namespace; only what it adds, if it was there before.
///
/// # Errors
/// 403 if one would be exceeded.
pub(super) async fn charge(
    server: &Arc<Server>,
    resource: &Resource<'_>,
    object: &Value,
    old: Option<&Value>,
    dry_run: bool,
) -> Result<()> {
    let counted = Counted { resource, object, old };
    let namespace = metadata::text(object, "namespace");
    let Some(quotas) = resources::find("", "v1", "resourcequotas") else { return Ok(()) };
    if !resource.namespaced || namespace.is_empty() {
        return Ok(());
    }
    let range = format!("{}{namespace}/", quotas.prefix());
    let all = server.cache.resource(&quotas.prefix()).list(&range, None, 0, |_, _| true).objects;
    if all.is_empty() {
        return Ok(());
    }
    for (key, _) in all {
        // The cache may be a moment behind, and the count must not.
        let entry = server.store.get(&key, 0).await?.entry;
        let quota = entry.and_then(|entry| Served::new(&entry.value, entry.revision));
        if let Some(quota) = quota {
            charge_one(server, counted, &key, quota, dry_run).await?;
        }
    }
    Ok(())
}

async fn charge_one(server: &Arc<Server>, counted: Counted<'_>, key: &str, quota: Served, dry_run: bool) -> Result<()> {
    let mut current = quota;
    for _ in 0..ATTEMPTS_MAX {
        let mut quota = current.decode();
        let Some(used) = added(counted, &quota)? else { return Ok(()) };
        if dry_run {
            return Ok(());
        }
        let status = quota.get_mut("status").and_then(Value::as_object_mut);
        if let Some(status) = status {
            status.insert("used", used);
        }
        let bytes = stored::encode(&mut quota).ok_or_else(|| Failure::internal("the quota has no metadata"))?;
        match server.store.write(Write::update(key, current.revision, bytes)).await? {
            Outcome::Done { .. } => return Ok(()),
            Outcome::Conflict { current: Some(entry) } => match Served::new(&entry.value, entry.revision) {
                Some(served) => current = served,
                None => return Ok(()),
            },
            // The quota is gone.
            Outcome::Conflict { current: None } => return Ok(()),
        }
    }
    Err(Failure::internal("the quota is counted by too many at once"))
}

/// What would be used with the object; `None` if the quota does not count it.
fn added(counted: Counted<'_>, quota: &Value) -> Result<Option<Object>> {
    let Counted { resource, object, .. } = counted;
    let Some(hard) = quota.at(&["status", "hard"]).and_then(Value::as_object) else { return Ok(None) };
    let amount = |part: &str, name: &str| {
        let text = quota.str_at(&["status", part, name]);
        text.and_then(|text| Quantity::parse(text).ok()).unwrap_or_default()
    };
    let name = super::shown_name(object);
    let refuse = |why: String| Failure::forbidden(resource.group, resource.plural, name, &why);
    if !scopes::match_all(resource, object, quota) {
        return Ok(None);
    }
    if (resource.group, resource.plural) == ("", "pods") {
        let missing = unspecified(object, hard);
        if !missing.is_empty() {
            let quota = metadata::text(quota, "name");
            return Err(refuse(format!("failed quota: {quota}: must specify {}", missing.join("; "))));
        }
    }
    let mut used = quota.at(&["status", "used"]).and_then(Value::as_object).cloned().unwrap_or_default();
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
        let quota = metadata::text(quota, "name");
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

/// What an object counts as.
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
            let kind = object.str_at(&["spec", "type"]).unwrap_or_default();
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

/// How many ports on all nodes a service will have: one for each port, unless it wants none for its load balancer.
fn node_ports(service: &Value, kind: &str) -> i64 {
    let ports = service.at(&["spec", "ports"]).and_then(Value::as_array).unwrap_or_default();
    let allocates = service.at(&["spec", "allocateLoadBalancerNodePorts"]).and_then(Value::as_bool).unwrap_or(true);
    let is_counted = |port: &&Value| {
        kind == "NodePort" || allocates || port.get("nodePort").and_then(Value::as_i64).is_some_and(|it| it != 0)
    };
    i64::try_from(ports.iter().filter(is_counted).count()).unwrap_or(i64::MAX)
}

/// Adds up what the containers of a pod ask for; init containers run one by one before.
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

/// What a pod takes beside its containers.
fn overhead(pod: &Value) -> Vec<(String, Quantity)> {
    let fields = pod.at(&["spec", "overhead"]).and_then(Value::as_object);
    let amount = |(name, value): (&str, &Value)| Some((name.to_owned(), Quantity::parse(value.as_str()?).ok()?));
    fields.into_iter().flat_map(|fields| fields.iter()).filter_map(amount).collect()
}

fn containers<'a>(pod: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> {
    pod.at(&["spec", list]).and_then(Value::as_array).unwrap_or_default().iter()
}

fn amounts(container: &Value, kind: &str) -> Vec<(String, Quantity)> {
    let fields = container.at(&["resources", kind]).and_then(Value::as_object);
    let amount = |(name, value): (&str, &Value)| Some((name.to_owned(), Quantity::parse(value.as_str()?).ok()?));
    fields.into_iter().flat_map(|fields| fields.iter()).filter_map(amount).collect()
}

/// Which amounts a quota asks for that containers do not give, with the containers' names.
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
