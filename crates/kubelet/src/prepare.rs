//! Devices for a pod that is about to start: whether it may use its claims, and the reports of their drivers.
//!
//! Every driver is simulated: it succeeds unless the node or the pod requests a failure. Follows
//! `PrepareResources` in Kubernetes `pkg/kubelet/cm/dra/manager.go`; the report of a driver follows KEP-4817.

use api::core::v1::Pod;
use api::json::{Text, Value, to_value};
use api::resource::v1::{DeviceRequestAllocationResult, ResourceClaim};
use api::time::Timestamp;

use crate::annotations;
use crate::faults::DeviceDriver;

/// A reason why the devices of a pod are not ready, in Kubernetes' words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PrepareError {
    /// The name of a claim is not known yet.
    #[error("prepare dynamic resources: determine ResourceClaim name for pod claim {0}: ResourceClaim not created yet")]
    NoName(Text),
    /// The claim was made for another pod.
    #[error("prepare dynamic resources: ResourceClaim {claim} was not created for Pod {pod} (Pod is not owner)")]
    NotOwner {
        /// The claim, with its namespace.
        claim: String,
        /// The pod, with its namespace.
        pod: String,
    },
    /// The claim is not reserved for the pod.
    #[error("prepare dynamic resources: pod {pod} is not allowed to use ResourceClaim {claim}")]
    NotReserved {
        /// The claim, with its namespace.
        claim: String,
        /// The pod, with its namespace.
        pod: String,
    },
    /// The claim has no devices.
    #[error("prepare dynamic resources: ResourceClaim {0} is not allocated")]
    NotAllocated(String),
    /// The device has no driver.
    #[error("prepare dynamic resources: DRA driver {0} is not registered")]
    NoDriver(Text),
    /// A driver of a real node reports a failure.
    #[error("{0}")]
    Driver(String),
    /// The driver does not prepare the devices of the claim.
    #[error(
        "prepare dynamic resources: NodePrepareResources failed for ResourceClaim {claim}: {driver} is configured to fail"
    )]
    Failed {
        /// The claim, with its namespace.
        claim: String,
        /// The driver.
        driver: Text,
    },
}

/// The claims of a pod by name; those that it turned out not to need are left out.
///
/// # Errors
/// One is not made yet.
pub fn claims_of(pod: &Pod) -> Result<Vec<Text>, PrepareError> {
    Ok(named_claims_of(pod)?.into_iter().map(|(_, claim)| claim).collect())
}

/// Like [`claims_of`], each with its name in the pod.
///
/// # Errors
/// One is not made yet.
pub fn named_claims_of(pod: &Pod) -> Result<Vec<(Text, Text)>, PrepareError> {
    let mut names = Vec::with_capacity(pod.spec.resource_claims.len());
    for claim in &pod.spec.resource_claims {
        if let Some(name) = &claim.resource_claim_name {
            names.push((claim.name.clone(), name.clone()));
            continue;
        }
        let reported = pod.status.resource_claim_statuses.iter().find(|it| it.name == claim.name);
        let reported = reported.ok_or_else(|| PrepareError::NoName(claim.name.clone()))?;
        names.extend(reported.resource_claim_name.clone().map(|name| (claim.name.clone(), name)));
    }
    // Containers name their requests in the pod's status, not a claim of the spec.
    let extended = pod.status.extended_resource_claim_status.as_ref();
    names.extend(extended.map(|it| (Text::default(), it.resource_claim_name.clone())));
    Ok(names)
}

/// The devices of a claim, prepared for a pod.
///
/// # Errors
/// The pod may not use the claim, or a driver does not prepare its devices.
pub fn prepare<'c>(
    pod: &Pod,
    claim: &'c ResourceClaim,
    driver: DeviceDriver,
) -> Result<&'c [DeviceRequestAllocationResult], PrepareError> {
    let key = || claim.metadata.key();
    let of_pod = || pod.metadata.key();
    let generated = pod.status.resource_claim_statuses.iter().filter_map(|it| it.resource_claim_name.as_ref());
    let extended = pod.status.extended_resource_claim_status.as_ref().map(|it| &it.resource_claim_name);
    let is_generated = generated.into_iter().chain(extended).any(|name| *name == claim.metadata.name);
    if is_generated && claim.metadata.controller().is_none_or(|owner| owner.uid != pod.metadata.uid) {
        return Err(PrepareError::NotOwner { claim: key().to_string(), pod: of_pod().to_string() });
    }
    if !claim.status.reserved_for.iter().any(|user| user.uid == pod.metadata.uid) {
        return Err(PrepareError::NotReserved { claim: key().to_string(), pod: of_pod().to_string() });
    }
    let Some(allocation) = &claim.status.allocation else {
        return Err(PrepareError::NotAllocated(key().to_string()));
    };
    let results = allocation.devices.results.as_slice();
    let Some(first) = results.first() else { return Ok(results) };
    let told_to_fail = annotations::get(&pod.metadata.annotations, "prepare") == Some("fail");
    match driver {
        DeviceDriver::Gone => Err(PrepareError::NoDriver(first.driver.clone())),
        DeviceDriver::Works if !told_to_fail => Ok(results),
        DeviceDriver::Works | DeviceDriver::Fails => {
            Err(PrepareError::Failed { claim: key().to_string(), driver: first.driver.clone() })
        }
    }
}

/// Returns the report of one driver about ready devices in the claim's status; `None` if it is unchanged.
#[must_use]
pub fn status(claim: &ResourceClaim, driver: &str, node: &str, now: Timestamp) -> Option<Value> {
    let results = claim.status.allocation.iter().flat_map(|it| &it.devices.results).filter(|it| it.driver == driver);
    let is_said = |result: &DeviceRequestAllocationResult| {
        claim.status.devices.iter().any(|it| {
            let is_it = it.driver == result.driver && it.pool == result.pool && it.device == result.device;
            is_it && it.conditions.iter().any(|it| it.condition_type == "Ready" && it.status == "True")
        })
    };
    if results.clone().all(is_said) {
        return None;
    }
    let since = to_value(&now).unwrap_or_default();
    let mut devices: Vec<Value> = Vec::new();
    for result in results {
        let condition = api::json!({
            "type": "Ready", "status": "True", "reason": "Prepared", "message": (format!("prepared on node {node}")),
            "lastTransitionTime": (since.clone()),
        });
        let (driver, pool, device) = (result.driver.as_str(), result.pool.as_str(), result.device.as_str());
        let mut said = api::json!({"driver": driver, "pool": pool, "device": device, "conditions": [(condition)]});
        if let (Some(share), Some(said)) = (&result.share_id, said.as_object_mut()) {
            said.insert("shareID", share.as_str());
        }
        // A device with two admin access requests is listed once.
        if !devices.contains(&said) {
            devices.push(said);
        }
    }
    let (name, namespace) = (claim.metadata.name.as_str(), claim.metadata.namespace.as_str());
    Some(api::json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace},
        "status": {"devices": (Value::Array(devices))},
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: serde::de::DeserializeOwned>(text: &str) -> T {
        api::json::from_value(&api::json::parse(text.as_bytes()).unwrap()).unwrap()
    }

    fn pod(annotations: &str) -> Pod {
        read(&format!(
            r#"{{"metadata": {{"name": "p", "namespace": "default", "uid": "p1", "annotations": {{{annotations}}}}},
                "spec": {{"resourceClaims": [{{"name": "own", "resourceClaimName": "c"}}, {{"name": "made", "resourceClaimTemplateName": "t"}}]}},
                "status": {{"resourceClaimStatuses": [{{"name": "made"}}]}}}}"#
        ))
    }

    fn claim(reserved: &str) -> ResourceClaim {
        read(&format!(
            r#"{{"metadata": {{"name": "c", "namespace": "default"}}, "status": {{"reservedFor": [{{"resource": "pods", "name": "p", "uid": "{reserved}"}}],
                "allocation": {{"devices": {{"results": [{{"request": "r", "driver": "d", "pool": "n", "device": "a"}}]}}}}}}}}"#
        ))
    }

    #[test]
    fn claims_that_are_not_needed_are_left_out() {
        assert_eq!(claims_of(&pod("")).unwrap(), ["c"]);
        let mut unmade = pod("");
        unmade.status.resource_claim_statuses.clear();
        assert_eq!(claims_of(&unmade).unwrap_err(), PrepareError::NoName("made".into()));
    }

    #[test]
    fn devices_are_prepared_for_their_consumer() {
        let works = DeviceDriver::Works;
        assert_eq!(prepare(&pod(""), &claim("p1"), works).unwrap().len(), 1);
        let refusal = prepare(&pod(""), &claim("other"), works).unwrap_err().to_string();
        assert_eq!(refusal, "prepare dynamic resources: pod default/p is not allowed to use ResourceClaim default/c");
        let mut empty = claim("p1");
        empty.status.allocation = None;
        let refusal = prepare(&pod(""), &empty, works).unwrap_err().to_string();
        assert_eq!(refusal, "prepare dynamic resources: ResourceClaim default/c is not allocated");
    }

    #[test]
    fn a_driver_fails_on_demand() {
        let failed = PrepareError::Failed { claim: "default/c".to_owned(), driver: "d".into() };
        assert_eq!(prepare(&pod(""), &claim("p1"), DeviceDriver::Fails).unwrap_err(), failed);
        assert_eq!(
            prepare(&pod(r#""sim.celplane.dev/prepare": "fail""#), &claim("p1"), DeviceDriver::Works).unwrap_err(),
            failed
        );
        let gone = prepare(&pod(""), &claim("p1"), DeviceDriver::Gone).unwrap_err().to_string();
        assert_eq!(gone, "prepare dynamic resources: DRA driver d is not registered");
    }

    #[test]
    fn unchanged_report_is_not_repeated() {
        let mut claim = claim("p1");
        let said = status(&claim, "d", "n1", Timestamp { seconds: 0, nanos: 0 }).unwrap();
        let devices = said.at(&["status", "devices"]).unwrap();
        claim.status.devices = api::json::from_value(devices).unwrap();
        assert_eq!(claim.status.devices[0].conditions[0].message, "prepared on node n1");
        assert_eq!(status(&claim, "d", "n1", Timestamp { seconds: 1, nanos: 0 }), None);
        assert_eq!(status(&claim, "other", "n1", Timestamp { seconds: 1, nanos: 0 }), None);
    }
}
