//! Cases of Kubernetes' own end-to-end tests of devices (`test/e2e/dra`) that need no hardware: classes that come late,
//! claims that are shared, used again and given back, alternatives, taints, and names.

use super::*;

const CLAIM: &str =
    "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: NAME}\nspec:\n  devices: DEVICES\n---\n";

pub(super) fn claim(name: &str, devices: &str) -> String {
    CLAIM.replace("NAME", name).replace("DEVICES", devices)
}

/// A request for a number of devices of the usual class.
fn exactly(count: usize) -> String {
    format!("{{requests: [{{name: r, exactly: {{deviceClassName: mla.example.com, count: {count}}}}}]}}")
}

pub(super) fn by_claim(pod_name: &str, claim: &str) -> String {
    pod(pod_name, &format!("resourceClaimName: {claim}"))
}

pub(super) fn status(cluster: &Cluster, claim: &str, path: &str, holds: impl Fn(&str) -> bool) -> String {
    until(cluster, &["get", "resourceclaim", claim, "-o", &format!("jsonpath={{{path}}}")], holds)
}

/// "retries pod scheduling after creating device class", "… after updating device class".
#[test]
fn classes_that_come_or_change_late_wake_pods() {
    let Some(cluster) = up(&["--nodes", "1", "--devices", "ring:4"]) else { return };
    let late = "{requests: [{name: r, exactly: {deviceClassName: late}}]}";
    cluster.apply(&(claim("late", late) + &by_claim("late", "late")));
    says(&cluster, "late", "device class late does not exist");
    let class = |selector: &str| {
        format!(
            "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {{name: late}}\nspec: {{selectors: [{{cel: {{expression: \"{selector}\"}}}}]}}\n"
        )
    };
    cluster.apply(&class("device.driver == 'other.example.com'"));
    // Events of one reason are a series, which keeps its first words: the condition has the newest.
    let condition = "jsonpath={.status.conditions[?(@.type==\"PodScheduled\")].message}";
    until(&cluster, &["get", "pod", "late", "-o", condition], |text| text.contains("cannot allocate all claims"));
    cluster.apply(&class("device.driver == 'mla.example.com'"));
    runs(&cluster, "late");
}

/// "supports sharing a claim concurrently", "supports reusing resources", "must deallocate after use", "removes reservation from
/// claim when pod is done", "deletes generated claims when pod is done", "requests an already allocated and a new claim".
#[test]
fn claims_are_shared_given_back_and_used_again() {
    let Some(cluster) = up(&["--nodes", "1", "--devices", "ring:4"]) else { return };
    cluster.apply(&(claim("shared", &exactly(3)) + &by_claim("one", "shared") + "---\n" + &by_claim("two", "shared")));
    runs(&cluster, "one");
    runs(&cluster, "two");
    status(&cluster, "shared", ".status.reservedFor[*].name", |text| text.split(' ').count() == 2);
    // Another claim next to one that is already allocated.
    let both = "apiVersion: v1\nkind: Pod\nmetadata: {name: both}\nspec:\n  \
                initContainers: [{name: i, image: app, resources: {claims: [{name: a}]}}]\n  \
                containers: [{name: c, image: app, resources: {claims: [{name: a}, {name: b}]}}, {name: d, image: app, resources: {claims: [{name: a}]}}]\n  \
                resourceClaims: [{name: a, resourceClaimName: shared}, {name: b, resourceClaimName: new}]\n";
    cluster.apply(&(claim("new", &exactly(1)) + both));
    runs(&cluster, "both");
    let taken = status(&cluster, "shared", ".status.allocation.devices.results[*].device", |text| !text.is_empty());
    let last = status(&cluster, "new", ".status.allocation.devices.results[*].device", |text| !text.is_empty());
    assert!(!taken.split(' ').any(|device| device == last), "{taken} and {last}");
    // Nothing is left for another pod, until all others have ended.
    cluster.apply(&(claim("next", &exactly(3)) + &by_claim("next", "next")));
    says(&cluster, "next", "cannot allocate all claims");
    cluster.kubectl(&["delete", "pod", "one", "two", "both"], "");
    runs(&cluster, "next");
    status(&cluster, "shared", ".status.allocation", str::is_empty);
    status(&cluster, "shared", ".metadata.finalizers", str::is_empty);
    // The claim is free again for a pod of another name.
    cluster.kubectl(&["delete", "pod", "next"], "");
    cluster.apply(&by_claim("again", "shared"));
    runs(&cluster, "again");
}

/// "selects the first subrequest that can be satisfied", "chooses the correct subrequest subject to constraints", "uses all
/// resources", "keeps pod pending because of CEL runtime errors", "truncates the name of a generated resource claim".
#[test]
fn alternatives_all_devices_errors_and_names() {
    let Some(cluster) = up(&["--nodes", "1", "--devices", "numa:2x3"]) else { return };
    let alternatives = "{requests: [{name: r, firstAvailable: [{name: six, deviceClassName: mla.example.com, count: 7}, \
                        {name: four, deviceClassName: mla.example.com, count: 4}, {name: three, deviceClassName: mla.example.com, count: 3}]}], \
                        constraints: [{matchAttribute: mla.example.com/numa}]}";
    cluster.apply(&(claim("first", alternatives) + &by_claim("first", "first")));
    runs(&cluster, "first");
    // Seven are not there, four are not on one side.
    let requests = status(&cluster, "first", ".status.allocation.devices.results[*].request", |text| !text.is_empty());
    assert_eq!(requests, "r/three r/three r/three");
    let all = "{requests: [{name: r, exactly: {deviceClassName: mla.example.com, allocationMode: All}}]}";
    cluster.apply(&(claim("all", all) + &by_claim("all", "all")));
    says(&cluster, "all", "cannot allocate all claims");
    cluster.kubectl(&["delete", "pod", "first"], "");
    runs(&cluster, "all");
    let devices = status(&cluster, "all", ".status.allocation.devices.results[*].device", |text| !text.is_empty());
    assert_eq!(devices.split(' ').count(), 6, "{devices}");
    cluster.kubectl(&["delete", "pod", "all"], "");
    let failing = "{requests: [{name: r, exactly: {deviceClassName: mla.example.com, selectors: [{cel: {expression: \"device.attributes['mla.example.com'].absent == 1\"}}]}}]}";
    cluster.apply(&(claim("failing", failing) + &by_claim("failing", "failing")));
    let told = says(&cluster, "failing", "no such key: absent");
    assert!(told.contains("claim default/failing: selector #0"), "{told}");
    let template = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {name: t}\nspec: {spec: {devices: DEVICES}}\n";
    let long = "p".repeat(63);
    cluster.apply(&format!(
        "{}---\n{}",
        template.replace("DEVICES", &exactly(1)),
        pod(&long, "resourceClaimTemplateName: t")
    ));
    runs(&cluster, &long);
    let name = ["get", "pod", &long, "-o", "jsonpath={.status.resourceClaimStatuses[0].resourceClaimName}"];
    let name = cluster.kubectl(&name, "");
    assert!(name.len() <= 63 && name.starts_with(&"p".repeat(50)), "{name}");
}

/// "NoSchedule keeps pod pending", "NoSchedule can be tolerated", "NoExecute can be tolerated".
#[test]
fn tainted_devices_require_tolerations() {
    let Some(cluster) = up(&["--nodes", "1", "--devices", "ring:2"]) else { return };
    let rule = "apiVersion: resource.k8s.io/v1\nkind: DeviceTaintRule\nmetadata: {name: all}\nspec:\n  \
                deviceSelector: {driver: mla.example.com}\n  taint: {key: dedicated, value: team, effect: EFFECT}\n";
    for effect in ["NoSchedule", "NoExecute"] {
        cluster.apply(&rule.replace("EFFECT", effect));
        let name = effect.to_lowercase();
        cluster.apply(&(claim(&name, &exactly(1)) + &by_claim(&name, &name)));
        says(&cluster, &name, "cannot allocate all claims");
        let tolerating = format!(
            "{{requests: [{{name: r, exactly: {{deviceClassName: mla.example.com, tolerations: [{{key: dedicated, value: team, effect: {effect}}}]}}}}]}}"
        );
        let tolerates = format!("{name}-tolerated");
        cluster.apply(&(claim(&tolerates, &tolerating) + &by_claim(&tolerates, &tolerates)));
        runs(&cluster, &tolerates);
        cluster.kubectl(&["delete", "pod", &name, &tolerates], "");
        cluster.kubectl(&["delete", "devicetaintrule", "all"], "");
    }
}
