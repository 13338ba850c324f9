//! `LimitRanger`: default resources of containers, and limits of containers, pods and claims.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Quantity;
use api::json::{Object, Value};

use super::{Attributes, Cluster, Operation, Plugin, Verdict, done};
use crate::resources;
use crate::wire::status::{Failure, Result};
use api::metadata;

const ANNOTATION: &str = "kubernetes.io/limit-ranger";

type Amounts = BTreeMap<String, Quantity>;

/// The plugin.
pub(super) struct LimitRanger(pub(super) Arc<dyn Cluster>);

impl Plugin for LimitRanger {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        match (attributes.resource_name(), attributes.operation, attributes.subresource) {
            // Kubernetes: the resources of a pod change only by a resize.
            (("", "pods"), Operation::Create, "") | (("", "pods"), Operation::Update, "resize") => true,
            (("", "persistentvolumeclaims"), Operation::Create | Operation::Update, "") => true,
            _ => false,
        }
    }

    fn mutate<'a>(&'a self, attributes: &'a Attributes<'a>, object: &'a mut Value) -> Verdict<'a> {
        if attributes.resource.plural == "pods" && attributes.operation == Operation::Create {
            return done(mutate(&*self.0, object));
        }
        done(Ok(()))
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>) -> Verdict<'a> {
        done(attributes.object.map_or(Ok(()), |object| validate(&*self.0, attributes.resource.plural, object)))
    }
}

/// The limits of a namespace, range by range.
fn ranges(cluster: &dyn Cluster, namespace: &str) -> Vec<Value> {
    let resource = resources::LIMIT_RANGES;
    let cache = cluster.cache().resource(&resource.prefix());
    if cache.is_empty() {
        return Vec::new();
    }
    let range = format!("{}{namespace}/", resource.prefix());
    let all = cache.list(&range, None, 0, |_, _| true).objects;
    all.into_iter().map(|(_, it)| it.decode()).collect()
}

fn limits<'r>(range: &'r Value, kind: &'r str) -> impl Iterator<Item = &'r Value> {
    let all = range.list_at(&["spec", "limits"]);
    all.iter().filter(move |limit| limit.str_at(&["type"]) == Some(kind))
}

/// Fills in the requests and limits that containers of a new pod do not name.
fn mutate(cluster: &dyn Cluster, pod: &mut Value) -> Result<()> {
    for range in ranges(cluster, metadata::namespace(pod)) {
        let (mut requests, mut limits_of) = (Object::new(), Object::new());
        for limit in limits(&range, "Container") {
            for (from, to) in [("defaultRequest", &mut requests), ("default", &mut limits_of)] {
                for (name, amount) in limit.get(from).and_then(Value::as_object).into_iter().flat_map(Object::iter) {
                    to.insert(name, amount.clone());
                }
            }
        }
        let mut notes: Vec<String> = Vec::new();
        for (list, what) in [("containers", "container"), ("initContainers", "init container")] {
            let containers = pod.get_mut("spec").and_then(|spec| spec.get_mut(list)).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten() {
                fill(container, "requests", &requests, what, &mut notes);
                fill(container, "limits", &limits_of, what, &mut notes);
            }
        }
        if !notes.is_empty() {
            let note = format!("LimitRanger plugin set: {}", notes.join("; "));
            let annotations = metadata::make(pod).get_or_insert("annotations", Value::object);
            if let Some(annotations) = annotations.as_object_mut() {
                annotations.insert(ANNOTATION, note);
            }
        }
    }
    Ok(())
}

fn fill(container: &mut Value, part: &str, defaults: &Object, what: &str, notes: &mut Vec<String>) {
    let name = container.text("name").to_owned();
    let has = |container: &Value, it: &str| container.at(&["resources", part, it]).is_some();
    let mut missing: Vec<&str> = defaults.keys().filter(|it| !has(container, it)).collect();
    if missing.is_empty() {
        return;
    }
    missing.sort_unstable();
    let all = container.as_object_mut().map(|it| it.get_or_insert("resources", Value::object));
    let all = all.and_then(Value::as_object_mut).map(|it| it.get_or_insert(part, Value::object));
    if let Some(all) = all.and_then(Value::as_object_mut) {
        for it in &missing {
            all.insert(*it, defaults.get(it).cloned().unwrap_or_default());
        }
    }
    notes.push(format!("{} {} for {what} {name}", missing.join(", "), part.trim_end_matches('s')));
}

/// Rejects objects outside the limits of a namespace.
///
/// # Errors
/// 403 with all reasons of a range.
fn validate(cluster: &dyn Cluster, plural: &str, object: &Value) -> Result<()> {
    let is_pod = plural == "pods";
    for range in ranges(cluster, metadata::namespace(object)) {
        let mut refusals: Vec<String> = Vec::new();
        if is_pod {
            check_pod(&range, object, &mut refusals);
        } else {
            let requests = amounts(object.at(&["spec", "resources", "requests"]));
            for limit in limits(&range, "PersistentVolumeClaim") {
                check_claim(limit, &requests, &mut refusals);
            }
        }
        refusals.dedup();
        let why = match refusals.as_slice() {
            [] => continue,
            [one] => one.clone(),
            all => format!("[{}]", all.join(", ")),
        };
        return Err(Failure::forbidden("", plural, metadata::name(object), &why));
    }
    Ok(())
}

fn check_pod(range: &Value, pod: &Value, refusals: &mut Vec<String>) {
    for limit in range.list_at(&["spec", "limits"]) {
        match limit.str_at(&["type"]) {
            Some("Container") => {
                for container in containers(pod, "containers").iter().chain(containers(pod, "initContainers")) {
                    let part = |name: &str| amounts(container.at(&["resources", name]));
                    check(limit, "Container", &part("requests"), &part("limits"), refusals);
                }
            }
            Some("Pod") => check(limit, "Pod", &total(pod, "requests"), &total(pod, "limits"), refusals),
            _ => {}
        }
    }
}

fn containers<'p>(pod: &'p Value, list: &str) -> &'p [Value] {
    pod.list_at(&["spec", list])
}

fn amounts(list: Option<&Value>) -> Amounts {
    let entries = list.and_then(Value::as_object).into_iter().flat_map(Object::iter);
    entries.filter_map(|(name, amount)| Some((name.to_owned(), Quantity::parse(amount.as_str()?).ok()?))).collect()
}

fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        sum.entry(name.clone()).and_modify(|it| it.add(amount)).or_insert_with(|| amount.clone());
    }
}

fn raise(sum: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let it = sum.entry(name.clone()).or_insert_with(|| amount.clone());
        if amount > it {
            *it = amount.clone();
        }
    }
}

/// Returns the maximum concurrent resources of a pod: its containers together with its sidecars, or one init
/// container together with the sidecars before it; pod-level resources take precedence.
fn total(pod: &Value, part: &str) -> Amounts {
    let of = |container: &Value| amounts(container.at(&["resources", part]));
    let mut sum = Amounts::new();
    containers(pod, "containers").iter().for_each(|it| add(&mut sum, &of(it)));
    let (mut staying, mut first) = (Amounts::new(), Amounts::new());
    for container in containers(pod, "initContainers") {
        let mut now = of(container);
        if container.str_at(&["restartPolicy"]) == Some("Always") {
            add(&mut sum, &now);
            add(&mut staying, &now);
            now = staying.clone();
        } else {
            add(&mut now, &staying);
        }
        raise(&mut first, &now);
    }
    raise(&mut sum, &first);
    for (name, amount) in amounts(pod.at(&["spec", "resources", part])) {
        if matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-") {
            sum.insert(name, amount);
        }
    }
    sum
}

fn check(limit: &Value, kind: &str, requests: &Amounts, limits: &Amounts, refusals: &mut Vec<String>) {
    for (name, least) in amounts(limit.get("min")) {
        let start = format!("minimum {name} usage per {kind} is {least}");
        match (requests.get(&name), limits.get(&name)) {
            (None, _) => refusals.push(format!("{start}.  No request is specified")),
            (Some(request), _) if *request < least => refusals.push(format!("{start}, but request is {request}")),
            (_, Some(limit)) if *limit < least => refusals.push(format!("{start}, but limit is {limit}")),
            _ => {}
        }
    }
    for (name, most) in amounts(limit.get("max")) {
        let start = format!("maximum {name} usage per {kind} is {most}");
        match (requests.get(&name), limits.get(&name)) {
            (_, None) => refusals.push(format!("{start}.  No limit is specified")),
            (_, Some(limit)) if *limit > most => refusals.push(format!("{start}, but limit is {limit}")),
            (Some(request), _) if *request > most => refusals.push(format!("{start}, but request is {request}")),
            _ => {}
        }
    }
    for (name, most) in amounts(limit.get("maxLimitRequestRatio")) {
        let start = format!("{name} max limit to request ratio per {kind} is {most}");
        let set = |amounts: &Amounts| amounts.get(&name).filter(|it| !it.is_zero()).cloned();
        match (set(requests), set(limits)) {
            (None, _) => refusals.push(format!("{start}, but no request is specified or request is 0")),
            (_, None) => refusals.push(format!("{start}, but no limit is specified or limit is 0")),
            (Some(request), Some(limit)) => {
                let ratio = limit.as_approximate_f64() / request.as_approximate_f64();
                if ratio > most.as_approximate_f64() {
                    refusals.push(format!("{start}, but provided ratio is {ratio:.6}"));
                }
            }
        }
    }
}

/// Claims have requests only.
fn check_claim(limit: &Value, requests: &Amounts, refusals: &mut Vec<String>) {
    let kind = "PersistentVolumeClaim";
    let least = limit.get("min").cloned().unwrap_or_default();
    check(&api::json!({"min": least}), kind, requests, &Amounts::new(), refusals);
    for (name, most) in amounts(limit.get("max")) {
        let start = format!("maximum {name} usage per {kind} is {most}");
        match requests.get(&name) {
            None => refusals.push(format!("{start}.  No request is specified")),
            Some(request) if *request > most => refusals.push(format!("{start}, but request is {request}")),
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_texts(limit: Value, requests: Value, limits: Value, expected: &[&str]) {
        let mut refusals = Vec::new();
        check(&limit, "Container", &amounts(Some(&requests)), &amounts(Some(&limits)), &mut refusals);
        assert_eq!(refusals, expected);
    }

    #[test]
    fn refusals_have_the_texts_of_kubernetes() {
        use api::json;
        let cpu = |amount: &str| json!({"cpu": amount});
        check_texts(json!({"min": (cpu("100m"))}), cpu("0.1"), json!({}), &[]);
        check_texts(
            json!({"min": (cpu("100m"))}),
            json!({}),
            json!({}),
            &["minimum cpu usage per Container is 100m.  No request is specified"],
        );
        check_texts(
            json!({"min": (cpu("100m"))}),
            cpu("50m"),
            json!({}),
            &["minimum cpu usage per Container is 100m, but request is 50m"],
        );
        check_texts(
            json!({"max": (cpu("1"))}),
            cpu("2"),
            cpu("2"),
            &["maximum cpu usage per Container is 1, but limit is 2"],
        );
        check_texts(
            json!({"max": (cpu("1"))}),
            cpu("1"),
            json!({}),
            &["maximum cpu usage per Container is 1.  No limit is specified"],
        );
        check_texts(
            json!({"maxLimitRequestRatio": (cpu("2"))}),
            cpu("100m"),
            cpu("300m"),
            &["cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000"],
        );
    }

    #[test]
    fn pod_usage_counts_concurrent_containers() {
        let container = |cpu: &str| api::json!({"resources": {"requests": {"cpu": cpu}}});
        let mut staying = container("1");
        staying.as_object_mut().unwrap().insert("restartPolicy", "Always");
        let pod = api::json!({"spec": {
            "containers": [(container("1")), (container("500m"))], "initContainers": [staying, (container("4"))]
        }});
        assert_eq!(total(&pod, "requests")["cpu"], Quantity::parse("5").unwrap());
    }
}
