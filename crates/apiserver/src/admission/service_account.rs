//! `ServiceAccount`: a pod without an account runs as `default`, and gets the account's token as a volume.
//!
//! A pod whose account does not exist is refused. A missing `default` account is waited for first, because a controller
//! creates it a moment after its namespace; a server without controllers refuses all pods unless their accounts are
//! created by hand or this plugin is disabled, as in Kubernetes.

use std::sync::Arc;
use std::time::Duration;

use api::json::{Object, Value};
use api::well_known::ANNOTATION_CONFIG_MIRROR;

use super::{Attributes, Cluster, Operation, Plugin, Verdict};
use crate::authorization::node::References;
use crate::random;
use crate::resources;
use crate::wire::status::{Failure, Result};
use api::metadata;

/// The account of pods that name none.
const DEFAULT: &str = "default";
/// Path of the token in containers.
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Prefix of the volume's name.
const VOLUME_PREFIX: &str = "kube-api-access-";
/// A little more than an hour: kubelets renew tokens before.
const EXPIRATION_SECONDS: i64 = 3607;

/// Number of checks and interval for a `default` account that is about to be created.
const WAIT_TURNS: usize = 10;
const WAIT_INTERVAL: Duration = Duration::from_millis(100);

/// The plugin.
pub(super) struct ServiceAccount(pub(super) Arc<dyn Cluster>);

impl Plugin for ServiceAccount {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Create && attributes.is_for("", "pods")
    }

    fn mutate<'a>(&'a self, _: &'a Attributes<'a>, pod: &'a mut Value) -> Verdict<'a> {
        Box::pin(async move {
            let default = wait(&*self.0, pod).await;
            mutate(&*self.0, pod, default)
        })
    }
}

fn find(cluster: &dyn Cluster, namespace: &str, name: &str) -> Option<Value> {
    cluster.object(resources::SERVICE_ACCOUNTS, namespace, name)
}

/// Waits for the account that a new namespace gets, as long as it may take. Returns it if the pod needs it.
async fn wait(cluster: &dyn Cluster, pod: &Value) -> Option<Value> {
    let named = ["serviceAccountName", "serviceAccount"].iter().filter_map(|field| pod.str_at(&["spec", field]));
    let namespace = metadata::namespace(pod);
    let is_mirror = pod.at(&["metadata", "annotations", ANNOTATION_CONFIG_MIRROR]).is_some();
    if is_mirror || named.into_iter().any(|name| !name.is_empty() && name != DEFAULT) {
        return None;
    }
    for _ in 0..WAIT_TURNS {
        let found = find(cluster, namespace, DEFAULT);
        if found.is_some() {
            return found;
        }
        tokio::time::sleep(WAIT_INTERVAL).await;
    }
    None
}

/// Names the account of a new pod, and mounts its token. `default` is the default account, if it has been looked up.
///
/// # Errors
/// 403 if the account does not exist.
fn mutate(cluster: &dyn Cluster, pod: &mut Value, default: Option<Value>) -> Result<()> {
    if pod.at(&["metadata", "annotations", ANNOTATION_CONFIG_MIRROR]).is_some() {
        return validate_mirror(pod);
    }
    let (pod_name, namespace) = (super::shown_name(pod).to_owned(), metadata::namespace(pod).to_owned());
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return Ok(()) };
    let named = |spec: &Object, field: &str| spec.get(field).and_then(Value::as_str).map(ToOwned::to_owned);
    let name = named(spec, "serviceAccountName").or_else(|| named(spec, "serviceAccount"));
    let name = name.filter(|name| !name.is_empty()).unwrap_or_else(|| DEFAULT.to_owned());
    spec.insert("serviceAccountName", name.as_str());
    spec.insert("serviceAccount", name.as_str());
    let known = default.filter(|_| name == DEFAULT);
    let Some(account) = known.or_else(|| find(cluster, &namespace, &name)) else {
        let complaints = api::names::path_segment(&name);
        let cause = if complaints.is_empty() {
            format!("serviceaccount \"{name}\" not found")
        } else {
            format!("invalid resource name {}: [{}]", api::go_text::quote(&name), complaints.join(" "))
        };
        let why = format!("error looking up service account {namespace}/{name}: {cause}");
        return Err(Failure::forbidden("", "pods", &pod_name, &why));
    };
    let automount = |value: Option<&Value>| value.and_then(Value::as_bool);
    let mounts = automount(spec.get("automountServiceAccountToken"))
        .or_else(|| automount(account.get("automountServiceAccountToken")))
        .unwrap_or(true);
    if mounts {
        mount_token(spec);
    }
    let has_secrets = spec.get("imagePullSecrets").and_then(Value::as_array).is_some_and(|it| !it.is_empty());
    if let (false, Some(secrets)) = (has_secrets, account.get("imagePullSecrets")) {
        spec.insert("imagePullSecrets", secrets.clone());
    }
    Ok(())
}

/// Mirror pods show what a node runs by itself, without the cluster.
fn validate_mirror(pod: &Value) -> Result<()> {
    let named = References::of_pod(pod);
    let volumes = pod.list_at(&["spec", "volumes"]);
    let mut sources = volumes.iter().flat_map(|volume| volume.list_at(&["projected", "sources"]));
    let why = if !named.service_account.is_empty() {
        "a mirror pod may not reference service accounts"
    } else if !named.secrets.is_empty() {
        "a mirror pod may not reference secrets"
    } else if sources.any(|source| source.get("serviceAccountToken").is_some_and(|it| !it.is_null())) {
        "a mirror pod may not use ServiceAccountToken volume projections"
    } else {
        return Ok(());
    };
    Err(Failure::forbidden("", "pods", super::shown_name(pod), why))
}

fn mount_token(spec: &mut Object) {
    let volumes = spec.get("volumes").and_then(Value::as_array).unwrap_or_default();
    let mut known = volumes.iter().filter_map(|volume| volume.str_at(&["name"]));
    let known = known.rfind(|name| name.starts_with(VOLUME_PREFIX)).map(ToOwned::to_owned);
    let volume = known.clone().unwrap_or_else(|| format!("{VOLUME_PREFIX}{}", random::suffix()));
    let mut needed = false;
    for list in ["initContainers", "containers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(container) = container.as_object_mut() else { continue };
            let mounts = container.get_or_insert("volumeMounts", || Value::Array(Vec::new()));
            if mounts.is_null() {
                *mounts = Value::Array(Vec::new());
            }
            let Some(mounts) = mounts.as_array_mut() else { continue };
            if mounts.iter().any(|mount| mount.str_at(&["mountPath"]) == Some(MOUNT_PATH)) {
                continue;
            }
            needed = true;
            let name = volume.as_str();
            mounts.push(api::json!({"name": name, "readOnly": true, "mountPath": MOUNT_PATH}));
        }
    }
    if !needed || known.is_some() {
        return;
    }
    let volumes = spec.get_or_insert("volumes", || Value::Array(Vec::new()));
    if volumes.is_null() {
        *volumes = Value::Array(Vec::new());
    }
    if let Some(volumes) = volumes.as_array_mut() {
        volumes.push(token_volume(&volume));
    }
}

/// The token, the certificate of the API server's authority, and the namespace.
fn token_volume(name: &str) -> Value {
    api::json!({
        "name": name,
        "projected": {
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": EXPIRATION_SECONDS, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [
                    {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
                ]}}
            ],
            "defaultMode": 420
        }
    })
}
