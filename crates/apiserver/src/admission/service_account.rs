//! `ServiceAccount`: a pod without an account runs as `default`, and gets the account's token as a volume.
//!
//! An account that does not exist is refused, with one exception: as long as nobody makes `default` accounts (the one of
//! `kube-system` is the sign of it), a missing `default` is not held against the pod; it then gets no token.

use std::sync::Arc;
use std::time::Duration;

use api::json::{Object, Value};

use crate::authorization::node::References;
use crate::http::status::{Failure, Result};
use crate::objects::metadata;
use crate::random;
use crate::resources;
use crate::server::Server;

/// The account of pods that name none.
const DEFAULT: &str = "default";
/// Where containers expect the token.
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// What the name of the volume begins with.
const VOLUME_PREFIX: &str = "kube-api-access-";
/// A little more than an hour: kubelets renew tokens before.
const EXPIRATION_SECONDS: i64 = 3607;

/// So often, and in this rhythm, a `default` account is looked for that should be made any moment.
const WAIT_TURNS: usize = 10;
const WAIT_INTERVAL: Duration = Duration::from_millis(100);

fn find(server: &Arc<Server>, namespace: &str, name: &str) -> Option<Value> {
    let accounts = resources::find("", "v1", "serviceaccounts")?;
    let account = server.cache.resource(&accounts.prefix()).get(&accounts.key(namespace, name))?;
    Some(account.decode())
}

/// Whether someone makes accounts for namespaces.
fn are_made(server: &Arc<Server>) -> bool {
    find(server, "kube-system", DEFAULT).is_some()
}

/// Waits for the account that a new namespace gets, as long as it may take.
pub(super) async fn wait(server: &Arc<Server>, pod: &Value) {
    let named = ["serviceAccountName", "serviceAccount"].iter().filter_map(|field| pod.str_at(&["spec", field]));
    let namespace = metadata::text(pod, "namespace");
    let is_mirror = pod.at(&["metadata", "annotations", "kubernetes.io/config.mirror"]).is_some();
    if is_mirror || named.into_iter().any(|name| !name.is_empty() && name != DEFAULT) {
        return;
    }
    for _ in 0..WAIT_TURNS {
        if find(server, namespace, DEFAULT).is_some() || !are_made(server) {
            return;
        }
        tokio::time::sleep(WAIT_INTERVAL).await;
    }
}

/// Names the account of a new pod, and mounts its token.
///
/// # Errors
/// 403 if the account does not exist.
pub(super) fn mutate(server: &Arc<Server>, pod: &mut Value) -> Result<()> {
    if pod.at(&["metadata", "annotations", "kubernetes.io/config.mirror"]).is_some() {
        return validate_mirror(pod);
    }
    let (pod_name, namespace) = (super::shown_name(pod).to_owned(), metadata::text(pod, "namespace").to_owned());
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return Ok(()) };
    let named = |spec: &Object, field: &str| spec.get(field).and_then(Value::as_str).map(ToOwned::to_owned);
    let name = named(spec, "serviceAccountName").or_else(|| named(spec, "serviceAccount"));
    let name = name.filter(|name| !name.is_empty()).unwrap_or_else(|| DEFAULT.to_owned());
    spec.insert("serviceAccountName", name.as_str());
    spec.insert("serviceAccount", name.as_str());
    let Some(account) = find(server, &namespace, &name) else {
        if name == DEFAULT && !are_made(server) {
            return Ok(());
        }
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
    let volumes = pod.at(&["spec", "volumes"]).and_then(Value::as_array).unwrap_or_default();
    let mut sources = volumes
        .iter()
        .flat_map(|volume| volume.at(&["projected", "sources"]).and_then(Value::as_array).unwrap_or_default());
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
