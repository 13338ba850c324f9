//! Extended resources that device classes serve: the scheduler creates the claim.

use super::{devices_of, runs, says, up};
use crate::first_light::until;

const CLASS: &str = "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: gpu}\nspec:\n  \
                     extendedResourceName: example.com/gpu\n  \
                     selectors: [{cel: {expression: \"device.driver == 'mla.example.com'\"}}]\n";

fn pod(name: &str, resource: &str, count: usize) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  \
         containers: [{{name: c, image: app, resources: {{limits: {{{resource}: {count}}}}}}}]\n"
    )
}

#[test]
fn pods_compete_for_extended_resources_of_devices() {
    let Some(cluster) = up(&["--nodes", "1", "--devices", "ring:4"]) else { return };
    until(&cluster, &["get", "resourceslices"], |text| text.contains("node-0"));
    cluster.apply(CLASS);
    let quota = "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q}\nspec:\n  hard: \
                 {requests.example.com/gpu: 9, gpu.deviceclass.resource.k8s.io/devices: 9}\n";
    cluster.apply(quota);
    until(&cluster, &["get", "quota", "q", "-o", "jsonpath={.status.hard}"], |text| text.contains("gpu"));
    cluster.apply(&pod("one", "example.com/gpu", 2));
    runs(&cluster, "one");
    assert_eq!(devices_of(&cluster, "one-extended-resources-"), ["mla-0", "mla-1"]);
    let path = "jsonpath={.items[0].metadata.name} {.items[0].metadata.ownerReferences[0].name} \
                {.items[0].status.reservedFor[0].name} {.items[0].spec.devices.requests[0].exactly.count}";
    let claim = cluster.kubectl(&["get", "resourceclaims", "-o", path], "");
    let (name, rest) = claim.split_once(' ').unwrap();
    assert_eq!(rest, "one one 2");
    let status = cluster.kubectl(&["get", "pod", "one", "-o", "jsonpath={.status.extendedResourceClaimStatus}"], "");
    let mapping = r#"{"containerName":"c","requestName":"container-0-request-0","resourceName":"example.com/gpu"}"#;
    assert_eq!(status, format!(r#"{{"requestMappings":[{mapping}],"resourceClaimName":"{name}"}}"#));
    // The pod counts for its claim.
    let used = cluster.kubectl(&["get", "quota", "q", "-o", "jsonpath={.status.used}"], "");
    assert_eq!(used, r#"{"gpu.deviceclass.resource.k8s.io/devices":"2","requests.example.com/gpu":"2"}"#);

    // By the name that every class has.
    cluster.apply(&pod("two", "deviceclass.resource.kubernetes.io/gpu", 3));
    says(&cluster, "two", "0/1 nodes are available: 1 cannot allocate all claims.");
    cluster.kubectl(&["delete", "pod", "one"], "");
    runs(&cluster, "two");
    let claims = until(&cluster, &["get", "resourceclaims", "-o", "name"], |text| text.lines().count() == 1);
    assert!(claims.contains("two-extended-resources-"), "{claims}");
    assert_eq!(devices_of(&cluster, "two-extended-resources-").len(), 3);
    cluster.kubectl(&["delete", "pod", "two"], "");
    until(&cluster, &["get", "resourceclaims", "-o", "name"], str::is_empty);
}

#[test]
fn claim_of_an_ended_pod_is_deleted() {
    let Some(cluster) = up(&["--nodes", "1", "--devices", "ring:4"]) else { return };
    cluster.apply(CLASS);
    let ends = pod("ends", "example.com/gpu", 4).replace("spec:\n", "spec:\n  restartPolicy: Never\n");
    cluster.apply(&ends);
    until(&cluster, &["get", "pod", "ends", "-o", "jsonpath={.status.phase}"], |text| text == "Succeeded");
    until(&cluster, &["get", "resourceclaims", "-o", "name"], str::is_empty);
    cluster.apply(&pod("next", "example.com/gpu", 4));
    runs(&cluster, "next");
}
