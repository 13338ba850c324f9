//! Labels of its Node that a kubelet may not change.

use std::collections::BTreeSet;

use api::json::Value;
use api::well_known::{
    LABEL_ARCH, LABEL_HOSTNAME, LABEL_INSTANCE_TYPE, LABEL_OS, LABEL_TOPOLOGY_REGION, LABEL_TOPOLOGY_ZONE,
};

use api::metadata;

/// Labels of Kubernetes that kubelets set.
const KUBELET_LABELS: [&str; 11] = [
    LABEL_HOSTNAME,
    LABEL_TOPOLOGY_ZONE,
    LABEL_TOPOLOGY_REGION,
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
    LABEL_INSTANCE_TYPE,
    LABEL_OS,
    LABEL_ARCH,
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];

/// The labels that differ and that a node may not change, as refusals list them.
pub(super) fn forbidden(new: &Value, old: Option<&Value>) -> String {
    let (new, old) = (metadata::labels(new), old.and_then(metadata::labels));
    let keys: BTreeSet<&str> = new.into_iter().chain(old).flat_map(|labels| labels.keys()).collect();
    let changed = keys.into_iter().filter(|key| new.and_then(|it| it.get(key)) != old.and_then(|it| it.get(key)));
    changed.filter(|key| is_forbidden(key)).collect::<Vec<_>>().join(", ")
}

fn is_forbidden(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let is_under =
        |parent: &str| domain.strip_suffix(parent).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    let is_kubelets =
        KUBELET_LABELS.contains(&key) || is_under("kubelet.kubernetes.io") || is_under("node.kubernetes.io");
    is_under("node-restriction.kubernetes.io") || (is_under("kubernetes.io") || is_under("k8s.io")) && !is_kubelets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubelets_set_their_own_labels() {
        for key in ["a", "example.com/a", "kubernetes.io/os", "x.kubelet.kubernetes.io/a", "node.kubernetes.io/a"] {
            assert!(!is_forbidden(key), "{key}");
        }
        for key in
            ["kubernetes.io/a", "x.k8s.io/a", "node-restriction.kubernetes.io/a", "x.node-restriction.kubernetes.io/a"]
        {
            assert!(is_forbidden(key), "{key}");
        }
        assert!(!is_forbidden("notkubernetes.io/a"));
    }

    #[test]
    fn a_label_that_goes_is_a_change() {
        let node = api::json!({"metadata": {"labels": {"kubernetes.io/a": "b"}}});
        assert_eq!(forbidden(&Value::object(), Some(&node)), "kubernetes.io/a");
        assert_eq!(forbidden(&node, Some(&node)), "");
    }
}
