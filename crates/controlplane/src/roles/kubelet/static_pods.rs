//! Pods from files of the nodes, and the checks on such a pod.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use api::features::Features;
use api::json::Value;
use api::time::Timestamp;
use kubelet::static_pods::{Check, Options};
use registry::admit::{self, AdmitError};
use registry::expressions::Environments;
use registry::resources;
use registry::strategy::Context;

/// Source of pods that nodes run without the server.
#[derive(Debug, Clone, Default)]
pub struct StaticPods {
    /// A directory of Pod manifests, or one manifest.
    pub pod_manifest_path: Option<PathBuf>,
    /// Interval at which the manifests are read though nothing seems to have changed; 20 s if not set.
    pub file_check_frequency: Option<Duration>,
}

impl StaticPods {
    /// The settings of the node agents, with the features of the nodes.
    ///
    /// # Errors
    /// A path that cannot be used.
    pub fn options(self, features: Features) -> anyhow::Result<Option<Options>> {
        let Some(path) = self.pod_manifest_path else { return Ok(None) };
        let period = self.file_check_frequency.unwrap_or(Duration::from_secs(20));
        let path = std::path::absolute(&path).with_context(|| format!("cannot use `{}`", path.display()))?;
        Ok(Some(Options { path, period, check: check(features)? }))
    }
}

/// Returns a check that applies the server's rules to a pod that depends on nothing else in the cluster.
fn check(features: Features) -> anyhow::Result<Check> {
    let environments = Environments::new()?;
    Ok(Arc::new(move |document: &Value, now: Timestamp| {
        let resource = resources::find_by_api_version("v1", "Pod").ok_or("invalid pod: its kind is not known")?;
        let text = |field: &str| document.text_at(&["metadata", field]);
        let now = now.to_string();
        let context = Context {
            features,
            expressions: &environments,
            namespace: text("namespace"),
            now: &now,
            uid: text("uid"),
            name_suffix: "",
            namespace_allows_admin_access: false,
        };
        let accepted = admit::create(resource, document, &context).map_err(|refused| match refused {
            AdmitError::Invalid { errors, .. } => {
                let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
                format!("invalid pod: {}", errors.join(", "))
            }
            other => format!("invalid pod: {other}"),
        })?;
        match apiserver::admission::mentioned(&accepted.object)? {
            Some(what) => Err(format!("static pods may not reference {what}")),
            None => Ok(accepted.object),
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refuse(spec: Value, why: &str) {
        let check = check(Features::none()).unwrap();
        let pod =
            api::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ns"}, "spec": spec});
        let refused = check(&pod, Timestamp { seconds: 0, nanos: 0 }).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }

    #[test]
    fn invalid_or_server_dependent_pods_are_rejected() {
        let container = || api::json!([{"name": "c", "image": "app:1"}]);
        let with = |field: &str, value: Value| {
            let mut spec = api::json!({"containers": (container())});
            spec.as_object_mut().unwrap().insert(field, value);
            spec
        };
        refuse(api::json!({"containers": []}), "invalid pod: spec.containers: Required value");
        refuse(with("serviceAccountName", "a".into()), "static pods may not reference serviceaccounts");
        let volumes = api::json!([{"name": "v", "configMap": {"name": "m"}}]);
        refuse(with("volumes", volumes), "static pods may not reference configmaps");
        let claims = api::json!([{"name": "v", "persistentVolumeClaim": {"claimName": "m"}}]);
        refuse(with("volumes", claims), "static pods may not reference persistentvolumeclaims");
        let tolerations = api::json!([{"expression": "taint.key == 'a'"}]);
        refuse(with("tolerations", tolerations), "TaintTolerationCEL");
    }

    #[test]
    fn defaults_are_filled_in() {
        let check = check(Features::none()).unwrap();
        let pod = api::json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
            "spec": {"containers": [{"name": "c", "image": "app:1"}]}});
        let made = check(&pod, Timestamp { seconds: 0, nanos: 0 }).unwrap();
        assert_eq!(made.str_at(&["spec", "restartPolicy"]), Some("Always"));
        assert_eq!(made.str_at(&["metadata", "uid"]), Some("u"));
    }
}
