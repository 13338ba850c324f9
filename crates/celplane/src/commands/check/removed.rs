//! APIs that Kubernetes has removed, and what replaces them.

/// The releases that removed versions of groups, for all kinds of the version or one.
///
/// Version, kind (empty for all), the Kubernetes release without it, and the version that replaces it.
const REMOVED: &[(&str, &str, &str, &str)] = &[
    ("extensions/v1beta1", "Ingress", "1.22", "networking.k8s.io/v1"),
    ("extensions/v1beta1", "NetworkPolicy", "1.16", "networking.k8s.io/v1"),
    ("extensions/v1beta1", "PodSecurityPolicy", "1.16", ""),
    ("extensions/v1beta1", "", "1.16", "apps/v1"),
    ("apps/v1beta1", "", "1.16", "apps/v1"),
    ("apps/v1beta2", "", "1.16", "apps/v1"),
    ("networking.k8s.io/v1beta1", "Ingress", "1.22", "networking.k8s.io/v1"),
    ("networking.k8s.io/v1beta1", "IngressClass", "1.22", "networking.k8s.io/v1"),
    ("batch/v2alpha1", "", "1.21", "batch/v1"),
    ("batch/v1beta1", "", "1.25", "batch/v1"),
    ("policy/v1beta1", "PodSecurityPolicy", "1.25", ""),
    ("policy/v1beta1", "", "1.25", "policy/v1"),
    ("autoscaling/v2beta1", "", "1.25", "autoscaling/v2"),
    ("autoscaling/v2beta2", "", "1.26", "autoscaling/v2"),
    ("rbac.authorization.k8s.io/v1alpha1", "", "1.22", "rbac.authorization.k8s.io/v1"),
    ("rbac.authorization.k8s.io/v1beta1", "", "1.22", "rbac.authorization.k8s.io/v1"),
    ("apiextensions.k8s.io/v1beta1", "", "1.22", "apiextensions.k8s.io/v1"),
    ("apiregistration.k8s.io/v1beta1", "", "1.22", "apiregistration.k8s.io/v1"),
    ("admissionregistration.k8s.io/v1beta1", "MutatingWebhookConfiguration", "1.22", "admissionregistration.k8s.io/v1"),
    ("admissionregistration.k8s.io/v1beta1", "ValidatingWebhookConfiguration", "1.22", "admissionregistration.k8s.io/v1"),
    ("authentication.k8s.io/v1beta1", "TokenReview", "1.22", "authentication.k8s.io/v1"),
    ("authorization.k8s.io/v1beta1", "", "1.22", "authorization.k8s.io/v1"),
    ("certificates.k8s.io/v1beta1", "CertificateSigningRequest", "1.22", "certificates.k8s.io/v1"),
    ("coordination.k8s.io/v1beta1", "Lease", "1.22", "coordination.k8s.io/v1"),
    ("discovery.k8s.io/v1beta1", "", "1.25", "discovery.k8s.io/v1"),
    ("events.k8s.io/v1beta1", "", "1.25", "events.k8s.io/v1"),
    ("flowcontrol.apiserver.k8s.io/v1beta1", "", "1.26", "flowcontrol.apiserver.k8s.io/v1"),
    ("flowcontrol.apiserver.k8s.io/v1beta2", "", "1.29", "flowcontrol.apiserver.k8s.io/v1"),
    ("flowcontrol.apiserver.k8s.io/v1beta3", "", "1.32", "flowcontrol.apiserver.k8s.io/v1"),
    ("node.k8s.io/v1beta1", "", "1.25", "node.k8s.io/v1"),
    ("scheduling.k8s.io/v1beta1", "PriorityClass", "1.22", "scheduling.k8s.io/v1"),
    ("storage.k8s.io/v1beta1", "CSIStorageCapacity", "1.27", "storage.k8s.io/v1"),
    ("storage.k8s.io/v1beta1", "", "1.22", "storage.k8s.io/v1"),
];

/// Advice for a kind in a version that is not served, beginning with a separator; empty if there is none.
pub(super) fn advice(api_version: &str, kind: &str) -> String {
    let is_it = |entry: &&(&str, &str, &str, &str)| entry.0 == api_version && (entry.1.is_empty() || entry.1 == kind);
    if let Some((_, _, release, replacement)) = REMOVED.iter().find(is_it) {
        return match *replacement {
            "" => format!(": removed in Kubernetes {release} without a replacement"),
            version => format!(": removed in Kubernetes {release}, use {version}"),
        };
    }
    let mut known = registry::resources::all().iter().filter(|resource| resource.kind == kind && resource.group != "events.k8s.io");
    match (known.next(), known.next()) {
        (Some(only), None) => format!(": use {}", only.api_version(only.storage_version())),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_and_misspelt_versions_name_their_replacement() {
        let old = advice("extensions/v1beta1", "Deployment");
        assert_eq!(old, ": removed in Kubernetes 1.16, use apps/v1");
        assert_eq!(advice("extensions/v1beta1", "Ingress"), ": removed in Kubernetes 1.22, use networking.k8s.io/v1");
        let policy = advice("policy/v1beta1", "PodSecurityPolicy");
        assert_eq!(policy, ": removed in Kubernetes 1.25 without a replacement");
        assert_eq!(advice("app/v1", "Deployment"), ": use apps/v1");
        assert_eq!(advice("example.com/v1", "Widget"), "");
    }
}
