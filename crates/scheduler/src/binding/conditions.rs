//! Devices that must become ready before a pod is bound: their drivers report it in the claim.
//!
//! Follows `isClaimReadyForBinding` in Kubernetes `plugins/dynamicresources` (KEP-5007).

use std::time::Duration;

use api::json::Text;
use api::meta::v1::ObjectMeta;
use api::resource::v1::{DeviceRequestAllocationResult, ResourceClaim};
use client::election::Leadership;
use client::{Client, Document};
use tokio::time::Instant;
use tracing::debug;

use super::BindError;
use crate::devices;

/// Interval at which the claim is checked.
const PAUSE: Duration = Duration::from_millis(500);

/// The readiness of a claim's devices.
#[derive(Debug, PartialEq, Eq)]
enum Readiness {
    Ready,
    Waiting,
    /// A device never will be.
    Failed(String),
}

/// Waits until the devices of a claim are ready. Where they never will be, or are not in time, they are given back.
pub(super) async fn wait(
    client: &Client,
    leadership: &Leadership,
    about: &ObjectMeta,
    timeout: Duration,
) -> Result<(), BindError> {
    let (name, claims) = (&about.name, client.objects::<Document<ResourceClaim>>());
    let started = Instant::now();
    loop {
        let claim = claims.get(&about.namespace, name).await?;
        if claim.metadata.uid != about.uid || claim.status.allocation.is_none() {
            return Err(BindError::ClaimChanged(name.to_string()));
        }
        let problem = match readiness(&claim) {
            Readiness::Ready => return Ok(()),
            Readiness::Waiting if started.elapsed() < timeout => None,
            Readiness::Waiting => Some(format!("devices are not ready after {timeout:?}")),
            Readiness::Failed(why) => Some(why),
        };
        if !leadership.holds() {
            return Err(BindError::NotLeading);
        }
        if let Some(why) = problem {
            debug!(resourceClaim = %claim.metadata.key(), err = %why, "Releasing devices that did not become ready");
            devices::give_back(client, &claim).await?;
            return Err(BindError::DevicesNotReady { claim: name.to_string(), why });
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn readiness(claim: &ResourceClaim) -> Readiness {
    let results = claim.status.allocation.iter().flat_map(|allocation| &allocation.devices.results);
    let mut readiness = Readiness::Ready;
    for result in results.filter(|result| !result.binding_conditions.is_empty()) {
        let is_true = |condition: &Text| {
            let said = claim.status.devices.iter().find(|said| {
                said.driver == result.driver
                    && said.pool == result.pool
                    && said.device == result.device
                    && said.share_id == result.share_id
            });
            let mut conditions = said.into_iter().flat_map(|said| &said.conditions);
            conditions.any(|it| it.condition_type == *condition && it.status == "True")
        };
        if let Some(failed) = result.binding_failure_conditions.iter().find(|condition| is_true(condition)) {
            return Readiness::Failed(format!("device {}: {failed}", full_name(result)));
        }
        if !result.binding_conditions.iter().all(is_true) {
            readiness = Readiness::Waiting;
        }
    }
    readiness
}

fn full_name(result: &DeviceRequestAllocationResult) -> String {
    format!("{}/{}/{}", result.driver, result.pool, result.device)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[track_caller]
    fn check(conditions: &str, expected: &Readiness) {
        let text = format!(
            r#"{{"status": {{"allocation": {{"devices": {{"results": [
                {{"driver": "d", "pool": "p", "device": "plain"}},
                {{"driver": "d", "pool": "p", "device": "a", "bindingConditions": ["Attached"], "bindingFailureConditions": ["Broken"]}}]}}}},
                "devices": [{{"driver": "d", "pool": "p", "device": "a", "conditions": [{conditions}]}}]}}}}"#
        );
        let claim: ResourceClaim = api::json::from_value(&api::json::parse(text.as_bytes()).unwrap()).unwrap();
        assert_eq!(readiness(&claim), *expected);
    }

    #[test]
    fn drivers_say_when_devices_are_ready() {
        check("", &Readiness::Waiting);
        check(r#"{"type": "Attached", "status": "False"}"#, &Readiness::Waiting);
        check(r#"{"type": "Attached", "status": "True"}"#, &Readiness::Ready);
        check(
            r#"{"type": "Attached", "status": "True"}, {"type": "Broken", "status": "True"}"#,
            &Readiness::Failed("device d/p/a: Broken".to_owned()),
        );
    }
}
