//! References of a pod, or a volume, to other objects.
//!
//! Follows Kubernetes' `VisitPodSecretNames`, `VisitPodConfigmapNames`, `VisitPVSecretNames`, and what its node
//! authorizer adds to them.

use api::json::Value;

/// The objects in its own namespace that a pod names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct References<'a> {
    pub(crate) secrets: Vec<&'a str>,
    pub(crate) config_maps: Vec<&'a str>,
    pub(crate) volume_claims: Vec<String>,
    pub(crate) device_claims: Vec<&'a str>,
    pub(crate) service_account: &'a str,
}

const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Paths of secrets in volumes.
const VOLUME_SECRETS: [&[&str]; 10] = [
    &["azureFile", "secretName"],
    &["cephfs", "secretRef", "name"],
    &["cinder", "secretRef", "name"],
    &["flexVolume", "secretRef", "name"],
    &["rbd", "secretRef", "name"],
    &["secret", "secretName"],
    &["scaleIO", "secretRef", "name"],
    &["iscsi", "secretRef", "name"],
    &["storageos", "secretRef", "name"],
    &["csi", "nodePublishSecretRef", "name"],
];

impl<'a> References<'a> {
    /// References of a pod.
    pub(crate) fn of_pod(pod: &'a Value) -> Self {
        let mut all = Self { service_account: pod.text_at(&["spec", "serviceAccountName"]), ..Self::default() };
        let spec = pod.get("spec");
        let list = |field: &str| spec.map(|spec| spec.list(field)).unwrap_or_default();
        all.secrets.extend(list("imagePullSecrets").iter().map(|it| it.text("name")));
        for container in CONTAINERS.iter().flat_map(|field| list(field)) {
            for variable in container.list("env") {
                all.secrets.push(variable.text_at(&["valueFrom", "secretKeyRef", "name"]));
                all.config_maps.push(variable.text_at(&["valueFrom", "configMapKeyRef", "name"]));
            }
            for source in container.list("envFrom") {
                all.secrets.push(source.text_at(&["secretRef", "name"]));
                all.config_maps.push(source.text_at(&["configMapRef", "name"]));
            }
        }
        let pod_name = pod.text_at(&["metadata", "name"]);
        for volume in list("volumes") {
            all.secrets.extend(VOLUME_SECRETS.iter().map(|path| volume.text_at(path)));
            all.config_maps.push(volume.text_at(&["configMap", "name"]));
            for source in volume.get("projected").map(|it| it.list("sources")).unwrap_or_default() {
                all.secrets.push(source.text_at(&["secret", "name"]));
                all.config_maps.push(source.text_at(&["configMap", "name"]));
            }
            let claim = volume.text_at(&["persistentVolumeClaim", "claimName"]);
            if !claim.is_empty() {
                all.volume_claims.push(claim.to_owned());
            } else if volume.get("ephemeral").is_some() {
                all.volume_claims.push(format!("{pod_name}-{}", volume.text("name")));
            }
        }
        let statuses = pod.get("status").map(|status| status.list("resourceClaimStatuses")).unwrap_or_default();
        for claim in list("resourceClaims") {
            let named = claim.text("resourceClaimName");
            let made = statuses.iter().find(|it| it.text("name") == claim.text("name"));
            let made = made.map(|it| it.text("resourceClaimName")).unwrap_or_default();
            all.device_claims.push(if named.is_empty() { made } else { named });
        }
        all.device_claims.push(pod.text_at(&["status", "extendedResourceClaimStatus", "resourceClaimName"]));
        for names in [&mut all.secrets, &mut all.config_maps, &mut all.device_claims] {
            names.retain(|name| !name.is_empty());
        }
        all
    }
}

/// Namespace and name of the secrets of a volume that a node needs.
pub(super) fn volume_secrets(volume: &Value) -> Vec<(&str, &str)> {
    let Some(spec) = volume.get("spec") else { return Vec::new() };
    let claim_namespace = spec.text_at(&["claimRef", "namespace"]);
    let mut secrets =
        vec![(spec.text_at(&["azureFile", "secretNamespace"]), spec.text_at(&["azureFile", "secretName"]))];
    for source in ["cephfs", "flexVolume", "rbd", "scaleIO", "iscsi"] {
        let at = |field: &str| spec.text_at(&[source, "secretRef", field]);
        secrets.push((at("namespace"), at("name")));
    }
    // For these, the namespace may be that of the claim.
    for (namespace, _) in secrets.iter_mut().filter(|(namespace, _)| namespace.is_empty()) {
        *namespace = claim_namespace;
    }
    for path in [
        ["cinder", "secretRef"],
        ["storageos", "secretRef"],
        ["csi", "nodePublishSecretRef"],
        ["csi", "nodeStageSecretRef"],
        ["csi", "nodeExpandSecretRef"],
    ] {
        let [source, reference] = path;
        let at = |field: &str| spec.text_at(&[source, reference, field]);
        secrets.push((at("namespace"), at("name")));
    }
    secrets.retain(|(_, name)| !name.is_empty());
    secrets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_name_objects_in_many_places() {
        let pod = api::json!({
            "metadata": {"name": "p"},
            "spec": {
                "serviceAccountName": "sa",
                "imagePullSecrets": [{"name": "pull"}],
                "containers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": "env"}}}],
                                "envFrom": [{"configMapRef": {"name": "from"}}]}],
                "ephemeralContainers": [{"envFrom": [{"secretRef": {"name": "debug"}}]}],
                "volumes": [
                    {"name": "a", "secret": {"secretName": "volume"}},
                    {"name": "b", "projected": {"sources": [{"configMap": {"name": "projected"}}]}},
                    {"name": "c", "persistentVolumeClaim": {"claimName": "claim"}},
                    {"name": "d", "ephemeral": {"volumeClaimTemplate": {}}}
                ],
                "resourceClaims": [{"name": "x", "resourceClaimName": "named"}, {"name": "y", "resourceClaimTemplateName": "t"}]
            },
            "status": {"resourceClaimStatuses": [{"name": "y", "resourceClaimName": "made"}]}
        });
        let expected = References {
            secrets: vec!["pull", "env", "debug", "volume"],
            config_maps: vec!["from", "projected"],
            volume_claims: vec!["claim".to_owned(), "p-d".to_owned()],
            device_claims: vec!["named", "made"],
            service_account: "sa",
        };
        assert_eq!(References::of_pod(&pod), expected);
    }

    #[test]
    fn secrets_of_volumes_that_nodes_do_not_need_are_left_out() {
        let volume = api::json!({"spec": {
            "claimRef": {"namespace": "ns", "name": "c"},
            "csi": {"nodePublishSecretRef": {"namespace": "a", "name": "publish"},
                    "controllerPublishSecretRef": {"namespace": "a", "name": "controller"}},
            "rbd": {"secretRef": {"name": "own"}}
        }});
        assert_eq!(volume_secrets(&volume), [("ns", "own"), ("a", "publish")]);
    }
}
