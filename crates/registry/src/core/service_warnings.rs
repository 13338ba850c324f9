//! Warnings about services: accepted, but ignored or deprecated.
//!
//! Follows `pkg/api/service/warnings.go`.

use api::field::Path;
use api::json::Value;
use api::well_known::ANNOTATION_TOPOLOGY_AWARE_HINTS;

use super::addresses;

/// Returns the warnings about a service.
pub(super) fn warnings(service: &Value) -> Vec<String> {
    let (spec, at) = (service.field("spec"), Path::new("spec"));
    let mut warnings = Vec::new();
    let hints = ANNOTATION_TOPOLOGY_AWARE_HINTS;
    if service.field("metadata").map("annotations").contains_key(hints) {
        warnings
            .push(format!("annotation {hints} is deprecated, please use service.kubernetes.io/topology-mode instead"));
    }
    let (kind, address) = (spec.text("type"), spec.text("clusterIP"));
    let is_headless = kind == "ClusterIP" && address == "None";
    let is_external = kind == "ExternalName";
    let warn_all = |list: &str, warnings: &mut Vec<String>| {
        let here = at.child(list);
        let each = spec.texts(list).enumerate();
        warnings.extend(each.filter_map(|(index, text)| addresses::warn(text, &here.index(index))));
    };
    if !is_external && !address.is_empty() && address != "None" {
        warn_all("clusterIPs", &mut warnings);
    }
    let has_external_addresses = !spec.list("externalIPs").is_empty();
    if is_headless {
        if !spec.text("loadBalancerIP").is_empty() {
            warnings.push("spec.loadBalancerIP is ignored for headless services".to_owned());
        }
        if has_external_addresses {
            warnings.push("spec.externalIPs is ignored for headless services".to_owned());
        }
        if spec.text("sessionAffinity") != "None" {
            warnings.push("spec.SessionAffinity is ignored for headless services".to_owned());
        }
    }
    warn_all("externalIPs", &mut warnings);
    if has_external_addresses && !is_headless && !is_external {
        warnings.push("spec.externalIPs is deprecated and may no longer be implemented in some clusters".to_owned());
    }
    if !spec.text("loadBalancerIP").is_empty() {
        warnings.extend(addresses::warn(spec.text("loadBalancerIP"), &at.child("loadBalancerIP")));
    }
    let ranges = at.child("loadBalancerSourceRanges");
    for (index, range) in spec.texts("loadBalancerSourceRanges").enumerate() {
        warnings.extend(addresses::warn_range(range, &ranges.index(index)));
    }
    if is_external && has_external_addresses {
        warnings.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    }
    if !is_external && !spec.text("externalName").is_empty() {
        warnings.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if spec.text("trafficDistribution") == "PreferClose" {
        warnings.push("spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".to_owned());
    }
    warnings
}
