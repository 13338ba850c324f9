//! Devices of a claim as quotas count them.
//!
//! Follows `resource_claims.go` in Kubernetes `pkg/quota/v1/evaluator/core`: a request counts as the devices that it may
//! get, under the name of their class, and under the extended resources that the class serves.

use std::collections::BTreeMap;

use api::core::v1::{Pod, ResourceList};
use api::json::Text;
use api::quantity::{Format, Quantity};
use api::resource::v1::{IMPLICIT_RESOURCE_PREFIX, ResourceClaim};

use super::{Options, requests};

/// A request for all devices counts as this many: the most that a claim can have.
const RESULTS_MAX: i64 = 32;

/// Returns the usage of a claim by name in a quota.
///
/// `extended_resource` names the extended resource of a class. A claim that was created for the extended resources of
/// `pod` adds only what the pod itself does not count as.
pub fn device_usage(
    claim: &ResourceClaim,
    extended_resource: impl Fn(&str) -> Option<Text>,
    pod: Option<&Pod>,
) -> Vec<(Text, Quantity)> {
    let by_pod = pod.filter(|pod| is_for(claim, pod)).map(|pod| requests(&pod.spec, Options::default()));
    let mut usage = Vec::new();
    for (class, count) in by_class(claim) {
        usage.push((format!("{class}.deviceclass.resource.k8s.io/devices").into(), quantity(count)));
        let implicit = format!("{IMPLICIT_RESOURCE_PREFIX}{class}").into();
        for resource in [Some(implicit), extended_resource(&class)].into_iter().flatten() {
            let covered = by_pod
                .as_ref()
                .map_or(0, |by_pod: &ResourceList| by_pod.get(resource.as_str()).map_or(0, Quantity::value));
            let rest = count.saturating_sub(covered);
            if rest > 0 {
                usage.push((format!("requests.{resource}").into(), quantity(rest)));
            }
        }
    }
    usage
}

/// Whether a claim is the one for the extended resources of a pod. Until the pod's status names the claim, the owner
/// counts.
fn is_for(claim: &ResourceClaim, pod: &Pod) -> bool {
    let named = pod.status.extended_resource_claim_status.as_ref().map(|it| &it.resource_claim_name);
    claim.extended_resources_of() == Some(&pod.metadata.uid)
        && !pod.is_terminal()
        && named.is_none_or(|name| *name == claim.metadata.name)
}

fn quantity(count: i64) -> Quantity {
    Quantity::new(count, Format::DecimalSi)
}

/// Number of devices that a claim may get, by class. Of alternatives, the largest of each class counts.
fn by_class(claim: &ResourceClaim) -> BTreeMap<Text, i64> {
    let count = |mode: &str, count: i64| match mode {
        "ExactCount" => count,
        "All" => RESULTS_MAX,
        _ => 0,
    };
    let mut sums: BTreeMap<Text, i64> = BTreeMap::new();
    for request in &claim.spec.devices.requests {
        let mut most: BTreeMap<&Text, i64> = BTreeMap::new();
        for alternative in &request.first_available {
            let most = most.entry(&alternative.device_class_name).or_default();
            *most = (*most).max(count(&alternative.allocation_mode, alternative.count));
        }
        if let Some(exactly) = &request.exactly {
            most.insert(&exactly.device_class_name, count(&exactly.allocation_mode, exactly.count));
        }
        for (class, count) in most {
            let sum = sums.entry(class.clone()).or_default();
            *sum = sum.saturating_add(count);
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: serde::de::DeserializeOwned>(text: &str) -> T {
        api::json::from_value(&api::json::parse(text.as_bytes()).unwrap()).unwrap()
    }

    #[track_caller]
    fn check(metadata: &str, requests: &str, pod: Option<&Pod>, expected: &[(&str, i64)]) {
        let claim: ResourceClaim =
            read(&format!(r#"{{"metadata": {metadata}, "spec": {{"devices": {{"requests": {requests}}}}}}}"#));
        let extended = |class: &str| (class == "gpu").then(|| Text::from("example.com/gpu"));
        let usage = device_usage(&claim, extended, pod);
        let usage: Vec<(&str, i64)> = usage.iter().map(|(name, it)| (name.as_str(), it.value())).collect();
        assert_eq!(usage, expected);
    }

    #[test]
    fn claims_count_the_devices_that_they_may_get() {
        let requests = r#"[{"exactly": {"deviceClassName": "nic", "allocationMode": "All"}},
            {"firstAvailable": [{"deviceClassName": "nic", "allocationMode": "ExactCount", "count": 2},
                {"deviceClassName": "nic", "allocationMode": "ExactCount", "count": 3}]}]"#;
        let implicit = "requests.deviceclass.resource.kubernetes.io/nic";
        check("{}", requests, None, &[("nic.deviceclass.resource.k8s.io/devices", 35), (implicit, 35)]);
    }

    #[test]
    fn claims_of_extended_resources_do_not_count_twice() {
        let requests = r#"[{"exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}}]"#;
        let class = ("gpu.deviceclass.resource.k8s.io/devices", 2);
        let implicit = ("requests.deviceclass.resource.kubernetes.io/gpu", 2);
        check("{}", requests, None, &[class, implicit, ("requests.example.com/gpu", 2)]);
        let metadata = r#"{"name": "c", "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
            "ownerReferences": [{"kind": "Pod", "name": "p", "uid": "u", "controller": true}]}"#;
        let mut pod: Pod = read(
            r#"{"metadata": {"name": "p", "uid": "u"},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"example.com/gpu": "2"}}}]}}"#,
        );
        check(metadata, requests, Some(&pod), &[class, implicit]);
        pod.status = read(r#"{"extendedResourceClaimStatus": {"resourceClaimName": "other"}}"#);
        check(metadata, requests, Some(&pod), &[class, implicit, ("requests.example.com/gpu", 2)]);
    }
}
