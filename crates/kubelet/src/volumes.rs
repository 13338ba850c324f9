//! Availability of a pod's volumes on its node: checked before its containers are started.
//!
//! Kubernetes' kubelet checks it at the mount, with the same matcher as the scheduler: a pod that was bound
//! without the scheduler, or whose volume has changed since, waits with a message.

use std::sync::Arc;

use api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod, Volume};
use client::costly::{CostlyWork, RetryAfter, thread_time};
use client::{Client, Error};
use matching::volumes::{VolumeMatcher, is_bound_to};
use matching::{CompileCache, Features, Meter};

/// A reason why containers cannot be started yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotMounted(pub String);

/// The claim that a volume of a pod needs; nothing if it needs none.
fn claim_name(pod: &Pod, volume: &Volume) -> Option<String> {
    if let Some(source) = &volume.persistent_volume_claim {
        return Some(source.claim_name.to_string());
    }
    volume.ephemeral.as_ref().map(|_| format!("{}-{}", pod.metadata.name, volume.name))
}

/// Whether a pod has volumes to check.
#[must_use]
pub fn has_claims(pod: &Pod) -> bool {
    pod.spec.volumes.iter().any(|volume| claim_name(pod, volume).is_some())
}

/// Checks each volume of the pod. Reads claims and volumes through `client`; expressions are evaluated by `costly`.
///
/// # Errors
/// Those of the server, except missing objects.
pub async fn check(
    client: &Client,
    pod: &Pod,
    node: &Node,
    cache: &CompileCache,
    features: &Features,
    costly: &CostlyWork,
) -> Result<Result<(), NotMounted>, Error> {
    let namespace = &pod.metadata.namespace;
    for volume in &pod.spec.volumes {
        let Some(name) = claim_name(pod, volume) else { continue };
        let unprocessed = |why: &str| {
            let name = &volume.name;
            let message = format!(
                "Unable to attach or mount volumes: unmounted volumes=[{name}], unattached volumes=[], failed to process \
                 volumes=[{name}]: error processing PVC {namespace}/{}: {why}",
                claim_name(pod, volume).unwrap_or_default()
            );
            Ok(Err(NotMounted(message)))
        };
        let claim = match client.objects::<PersistentVolumeClaim>().get(namespace, &name).await {
            Ok(claim) => claim,
            Err(error) if error.is_not_found() => {
                return unprocessed(&format!("failed to fetch PVC from API server: {error}"));
            }
            Err(error) => return Err(error),
        };
        if claim.spec.volume_name.is_empty() {
            return unprocessed("PVC is not bound");
        }
        let found = match client.objects::<PersistentVolume>().get("", &claim.spec.volume_name).await {
            Ok(found) => found,
            Err(error) if error.is_not_found() => {
                return unprocessed(&format!("failed to fetch PV from API server: {error}"));
            }
            Err(error) => return Err(error),
        };
        if let Err(why) = reach_aside(found, claim, node, cache, features, costly).await {
            return Ok(Err(why));
        }
    }
    Ok(Ok(()))
}

/// Like [`reach`], with expressions on the thread for costly work: the caller's thread also renews leases.
async fn reach_aside(
    volume: PersistentVolume,
    claim: PersistentVolumeClaim,
    node: &Node,
    cache: &CompileCache,
    features: &Features,
    costly: &CostlyWork,
) -> Result<(), NotMounted> {
    if !has_expressions(&volume) {
        return reach(&volume, &claim, node, cache, features);
    }
    let namespace = claim.metadata.namespace.clone();
    let about = format!("{namespace}/{}", claim.metadata.name);
    let (node, cache, features) = (node.clone(), cache.clone(), *features);
    let checked = costly.run(&namespace, move || reach(&volume, &claim, &node, &cache, &features)).await;
    checked.unwrap_or_else(|RetryAfter(_)| {
        let why = "expressions of the namespace have used their share of the time; the check is repeated";
        Err(NotMounted(format!("error processing PVC {about}: {why}")))
    })
}

fn has_expressions(volume: &PersistentVolume) -> bool {
    let required = volume.spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
    let mut terms = required.into_iter().flat_map(|selector| &selector.node_selector_terms);
    terms.any(|term| !term.match_cel_expressions.is_empty())
}

/// Checks that the claim's volume can be reached from the node.
///
/// # Errors
/// Why not.
pub fn reach(
    volume: &PersistentVolume,
    claim: &PersistentVolumeClaim,
    node: &Node,
    cache: &CompileCache,
    features: &Features,
) -> Result<(), NotMounted> {
    if !is_bound_to(volume, claim) {
        let (namespace, name) = (&claim.metadata.namespace, &claim.metadata.name);
        return Err(NotMounted(format!("error processing PVC {namespace}/{name}: PVC is not bound")));
    }
    let labels = matching::node::labels(&node.metadata.labels);
    let meter = Arc::new(Meter::new(Arc::new(thread_time)));
    let checked = VolumeMatcher::new(volume, &cache.metered(meter.clone()), features).check(&labels);
    let checked = match meter.excess() {
        Some(excess) => Err(format!("expressions exceeded the budget of one check ({excess})")),
        None => checked,
    };
    checked.map_err(|why| {
        NotMounted(format!("MountVolume.NodeAffinity check failed for volume \"{}\" : {why}", volume.metadata.name))
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use api::json;
    use api::json::from_value;

    use super::*;

    #[track_caller]
    fn check(term: json::Value, is_on: bool, expected: Result<(), &str>) {
        let cache = CompileCache::new(16.try_into().unwrap(), Arc::new(|| Duration::ZERO)).unwrap();
        let features = Features { affinity_cel: is_on, semver: is_on, ..Features::default() };
        let volume = json!({"metadata": {"name": "disk"}, "spec": {
            "claimRef": {"namespace": "a", "name": "c", "uid": "u"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        }});
        let claim = json!({"metadata": {"namespace": "a", "name": "c", "uid": "u"}, "spec": {"volumeName": "disk"}});
        let node = json!({"metadata": {"name": "n", "labels": {"rack": "r1", "driver": "1.4.0"}}});
        let found = reach(
            &from_value(&volume).unwrap(),
            &from_value(&claim).unwrap(),
            &from_value(&node).unwrap(),
            &cache,
            &features,
        );
        assert_eq!(found, expected.map_err(|why| NotMounted(why.to_owned())));
    }

    #[tokio::test]
    async fn expressions_of_a_volume_are_evaluated_aside() {
        let threads: Arc<locks::Mutex<Vec<String>>> = Arc::default();
        let seen = threads.clone();
        let clock = move || {
            seen.lock().push(std::thread::current().name().unwrap_or_default().to_owned());
            Duration::ZERO
        };
        let cache = CompileCache::new(16.try_into().unwrap(), Arc::new(clock)).unwrap();
        let features = Features { affinity_cel: true, ..Features::default() };
        let costly = CostlyWork::default();
        let term = json!({"matchCELExpressions": ["node.labels['rack'] == 'r1'"]});
        let volume =
            json!({"spec": {"claimRef": {"name": ""}, "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}});
        let node: Node = from_value(&json!({"metadata": {"labels": {"rack": "r1"}}})).unwrap();
        let volume: PersistentVolume = from_value(&volume).unwrap();
        let claim = PersistentVolumeClaim::default();
        assert_eq!(reach_aside(volume, claim, &node, &cache, &features, &costly).await, Ok(()));
        let threads = threads.lock();
        assert!(!threads.is_empty() && threads.iter().all(|name| name == "costly"), "{threads:?}");
    }

    #[test]
    fn a_volume_is_reached_by_labels_expressions_and_versions() {
        let no = Err("MountVolume.NodeAffinity check failed for volume \"disk\" : no matching NodeSelectorTerms");
        let label = |value: &str| json!({"matchExpressions": [{"key": "rack", "operator": "In", "values": [value]}]});
        check(label("r1"), true, Ok(()));
        check(label("r2"), true, no);
        let expression = || json!({"matchCELExpressions": ["node.labels['rack'].startsWith('r')"]});
        check(expression(), true, Ok(()));
        let version = json!({"matchExpressions": [{"key": "driver", "operator": "SemverGt", "values": ["2.0.0"]}]});
        check(version, true, no);
        // With the gate off, expressions do not match.
        let cache = CompileCache::new(16.try_into().unwrap(), Arc::new(|| Duration::ZERO)).unwrap();
        let volume: PersistentVolume = from_value(&json!({"spec": {
            "claimRef": {"name": ""}, "nodeAffinity": {"required": {"nodeSelectorTerms": [(expression())]}},
        }}))
        .unwrap();
        let claim = PersistentVolumeClaim::default();
        assert!(reach(&volume, &claim, &Node::default(), &cache, &Features::default()).is_err());
    }
}
