//! Usage of a quota.
//!
//! Pure. Follows Kubernetes `pkg/quota/v1/evaluator/core`.

use api::core::v1::{
    PersistentVolumeClaim, Pod, PodAffinityTerm, ResourceList, ResourceQuota, ScopedResourceSelectorRequirement,
    Service,
};
use api::json::Text;
use api::quantity::{Format, Quantity};
use api::resource::v1::ResourceClaim;
use matching::resources::{Options, QosClass, device_usage, limits, qos_class, requests};

/// Objects of one namespace that count toward a quota.
pub(crate) struct Content<'a> {
    pub(crate) pods: &'a [&'a Pod],
    pub(crate) services: &'a [&'a Service],
    pub(crate) claims: &'a [&'a PersistentVolumeClaim],
    pub(crate) device_claims: &'a [&'a ResourceClaim],
    /// Name of the extended resource of a device class.
    pub(crate) extended_resource: &'a (dyn Fn(&str) -> Option<Text> + Sync),
    /// Number of quotas, including the one being computed.
    pub(crate) quotas: usize,
    /// Number of objects of other resources, by `PLURAL` or `PLURAL.GROUP`.
    pub(crate) counts: &'a (dyn Fn(&str) -> i64 + Sync),
}

/// The resource whose objects a name counts, if it counts objects: `count/jobs.batch`, or one of the older names.
pub(crate) fn counted(name: &str) -> Option<&str> {
    match name {
        "configmaps"
        | "secrets"
        | "replicationcontrollers"
        | "resourcequotas"
        | "services"
        | "persistentvolumeclaims" => Some(name),
        _ => name.strip_prefix("count/"),
    }
}

/// Whether objects of a resource are counted by their names alone: of the others more is known.
pub(crate) fn is_other(resource: &str) -> bool {
    !matches!(resource, "pods" | "services" | "persistentvolumeclaims" | "resourcequotas")
}

/// Returns the usage of each limit.
pub(crate) fn used(quota: &ResourceQuota, content: &Content<'_>) -> ResourceList {
    let scopes = scopes(quota);
    let mut used: ResourceList = quota.spec.hard.keys().map(|name| (name.clone(), zero())).collect();
    let mut add = |name: &str, amount: &Quantity| {
        if let Some(sum) = used.get_mut(name) {
            sum.add(amount);
        }
    };
    for pod in content.pods.iter().filter(|pod| scopes.iter().all(|scope| matches_pod(scope, pod))) {
        for (name, amount) in pod_usage(pod) {
            add(&name, &amount);
        }
    }
    if scopes.is_empty() {
        for service in content.services {
            for (name, count) in service_usage(service) {
                add(name, &Quantity::new(count, Format::DecimalSi));
            }
        }
        for claim in content.claims {
            for (name, amount) in claim_usage(claim) {
                add(&name, &amount);
            }
        }
        for claim in content.device_claims {
            let pod = content.pods.iter().find(|pod| claim.extended_resources_of() == Some(&pod.metadata.uid));
            for (name, amount) in device_usage(claim, content.extended_resource, pod.copied()) {
                add(&name, &amount);
            }
        }
        for name in quota.spec.hard.keys() {
            let count = match counted(name) {
                Some("resourcequotas") => i64::try_from(content.quotas).unwrap_or(i64::MAX),
                Some(resource) if is_other(resource) => (content.counts)(resource),
                _ => continue,
            };
            add(name, &Quantity::new(count, Format::DecimalSi));
        }
    }
    used
}

fn zero() -> Quantity {
    Quantity::new(0, Format::DecimalSi)
}

fn one() -> Quantity {
    Quantity::new(1, Format::DecimalSi)
}

/// Both forms of a quota's scopes.
fn scopes(quota: &ResourceQuota) -> Vec<ScopedResourceSelectorRequirement> {
    let short = quota.spec.scopes.iter().map(|name| ScopedResourceSelectorRequirement {
        scope_name: name.clone(),
        operator: "Exists".into(),
        values: Vec::new(),
    });
    let long = quota.spec.scope_selector.iter().flat_map(|selector| selector.match_expressions.clone());
    short.chain(long).collect()
}

fn matches_pod(scope: &ScopedResourceSelectorRequirement, pod: &Pod) -> bool {
    let ends = pod.spec.active_deadline_seconds.is_some_and(|seconds| seconds >= 0);
    let best_effort = || qos_class(&pod.spec) == QosClass::BestEffort;
    match scope.scope_name.as_str() {
        "Terminating" => ends,
        "NotTerminating" => !ends,
        "BestEffort" => best_effort(),
        "NotBestEffort" => !best_effort(),
        "CrossNamespacePodAffinity" => crosses_namespaces(pod),
        "PriorityClass" => {
            let class = &pod.spec.priority_class_name;
            match scope.operator.as_str() {
                "Exists" => !class.is_empty(),
                "DoesNotExist" => class.is_empty(),
                "In" => !class.is_empty() && scope.values.contains(class),
                "NotIn" => !scope.values.contains(class),
                _ => false,
            }
        }
        _ => false,
    }
}

fn crosses_namespaces(pod: &Pod) -> bool {
    let Some(affinity) = &pod.spec.affinity else { return false };
    let crosses = |term: &PodAffinityTerm| !term.namespaces.is_empty() || term.namespace_selector.is_some();
    [&affinity.pod_affinity, &affinity.pod_anti_affinity].into_iter().flatten().any(|it| {
        it.required_during_scheduling_ignored_during_execution.iter().any(crosses)
            || it.preferred_during_scheduling_ignored_during_execution.iter().any(|it| crosses(&it.pod_affinity_term))
    })
}

fn pod_usage(pod: &Pod) -> Vec<(Text, Quantity)> {
    let mut usage = vec![("count/pods".into(), one())];
    // Terminated pods use nothing but their place in the list.
    if pod.is_terminal() {
        return usage;
    }
    usage.push(("pods".into(), one()));
    for (name, amount) in requests(&pod.spec, Options::default()) {
        match name.as_str() {
            "cpu" | "memory" | "ephemeral-storage" => usage.push((name.clone(), amount.clone())),
            hugepages if hugepages.starts_with("hugepages-") => usage.push((name.clone(), amount.clone())),
            _ => {}
        }
        usage.push((format!("requests.{name}").into(), amount));
    }
    for (name, amount) in limits(&pod.spec, Options::default()) {
        usage.push((format!("limits.{name}").into(), amount));
    }
    usage
}

fn service_usage(service: &Service) -> Vec<(&'static str, i64)> {
    let ports = i64::try_from(service.spec.ports.len()).unwrap_or(i64::MAX);
    let mut usage = vec![("count/services", 1), ("services", 1)];
    match service.spec.service_type.as_str() {
        "NodePort" => usage.push(("services.nodeports", ports)),
        "LoadBalancer" => {
            usage.push(("services.loadbalancers", 1));
            if service.spec.allocate_load_balancer_node_ports != Some(false) {
                usage.push(("services.nodeports", ports));
            }
        }
        _ => {}
    }
    usage
}

fn claim_usage(claim: &PersistentVolumeClaim) -> Vec<(Text, Quantity)> {
    let mut usage: Vec<(Text, Quantity)> =
        vec![("count/persistentvolumeclaims".into(), one()), ("persistentvolumeclaims".into(), one())];
    let class = claim.spec.storage_class_name.as_deref().unwrap_or_default();
    let of_class = |name: &str| Text::from(format!("{class}.storageclass.storage.k8s.io/{name}"));
    if !class.is_empty() {
        usage.push((of_class("persistentvolumeclaims"), one()));
    }
    if let Some(storage) = claim.spec.resources.requests.get("storage") {
        usage.push(("requests.storage".into(), storage.clone()));
        if !class.is_empty() {
            usage.push((of_class("requests.storage"), storage.clone()));
        }
    }
    usage
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(spec: &str) -> ResourceQuota {
        let text = format!(r#"{{"spec": {spec}}}"#);
        api::json::from_value(&api::json::parse(text.as_bytes()).expect("JSON")).expect("a quota")
    }

    fn pod(phase: &str, class: &str, cpu: Option<&str>) -> Pod {
        let requests = cpu.map_or_else(api::json::Value::object, |cpu| api::json!({"cpu": cpu}));
        api::json::from_value(&api::json!({
            "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}], "priorityClassName": class},
            "status": {"phase": phase},
        }))
        .expect("a pod")
    }

    #[track_caller]
    fn check(spec: &str, pods: &[Pod], expected: &[(&str, &str)]) {
        let pods: Vec<&Pod> = pods.iter().collect();
        let content = Content {
            pods: &pods,
            services: &[],
            claims: &[],
            device_claims: &[],
            extended_resource: &|_| None,
            quotas: 1,
            counts: &|_| 7,
        };
        let used = used(&quota(spec), &content);
        let used: Vec<(&str, String)> = used.iter().map(|(name, it)| (name.as_str(), it.to_string())).collect();
        let used: Vec<(&str, &str)> = used.iter().map(|(name, it)| (*name, it.as_str())).collect();
        assert_eq!(used, expected);
    }

    #[test]
    fn ended_pods_count_as_objects_only() {
        let pods = [pod("Running", "", Some("10m")), pod("Succeeded", "", Some("1"))];
        let spec = r#"{"hard": {"pods": "5", "requests.cpu": "1", "count/pods": "9", "limits.cpu": "1"}}"#;
        check(spec, &pods, &[("count/pods", "2"), ("limits.cpu", "0"), ("pods", "1"), ("requests.cpu", "10m")]);
        check(
            r#"{"hard": {"configmaps": "5", "count/jobs.batch": "1"}}"#,
            &[],
            &[("configmaps", "7"), ("count/jobs.batch", "7")],
        );
    }

    #[test]
    fn quota_counts_itself_before_others_observe_it() {
        let spec = r#"{"hard": {"count/resourcequotas": "1", "resourcequotas": "1", "secrets": "9"}}"#;
        check(spec, &[], &[("count/resourcequotas", "1"), ("resourcequotas", "1"), ("secrets", "7")]);
    }

    #[test]
    fn scopes_choose_pods() {
        let pods = [pod("Running", "high", Some("10m")), pod("Running", "", None)];
        check(r#"{"hard": {"pods": "5"}, "scopes": ["BestEffort"]}"#, &pods, &[("pods", "1")]);
        check(r#"{"hard": {"pods": "5"}, "scopes": ["BestEffort", "Terminating"]}"#, &pods, &[("pods", "0")]);
        let selector = r#"{"hard": {"pods": "5"}, "scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}}"#;
        check(selector, &pods, &[("pods", "1")]);
    }

    #[test]
    fn claims_count_by_class() {
        let claim: PersistentVolumeClaim = api::json::from_value(
            &api::json!({"spec": {"storageClassName": "gold", "resources": {"requests": {"storage": "1Gi"}}}}),
        )
        .expect("a claim");
        let quota = quota(
            r#"{"hard": {"requests.storage": "5Gi", "gold.storageclass.storage.k8s.io/requests.storage": "2Gi"}}"#,
        );
        let content = Content {
            pods: &[],
            services: &[],
            claims: &[&claim],
            device_claims: &[],
            extended_resource: &|_| None,
            quotas: 1,
            counts: &|_| 0,
        };
        assert!(used(&quota, &content).values().all(|it| it.to_string() == "1Gi"));
    }
}
