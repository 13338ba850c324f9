//! Objects of the server that pods refer to: ConfigMaps, Secrets, tokens, Services.

use api::core::v1::Service;
use api::json::Value;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use client::informer::Informer;
use client::resources::Resource;
use client::{Client, Error};
use telemetry::logs::chain;

const CONFIG_MAPS: Resource = Resource::new("", "v1", "configmaps", "ConfigMap");
const SECRETS: Resource = Resource::new("", "v1", "secrets", "Secret");
const SERVICE_ACCOUNTS: Resource = Resource::new("", "v1", "serviceaccounts", "ServiceAccount");
const CLAIMS: Resource = Resource::new("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim");
const VOLUMES: Resource = Resource::new("", "v1", "persistentvolumes", "PersistentVolume");
const RUNTIME_CLASSES: Resource = Resource::new("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass");
const PODS: Resource = Resource::new("", "v1", "pods", "Pod");

/// Reads objects under the node's name.
pub(super) struct Sources {
    pub(super) client: Client,
    pub(super) services: Informer<Service>,
}

/// The kind of an object that holds data by keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holder {
    ConfigMap,
    Secret,
}

impl Holder {
    /// The name that messages use for missing objects.
    pub(super) fn lower(self) -> &'static str {
        match self {
            Holder::ConfigMap => "configmap",
            Holder::Secret => "secret",
        }
    }

    /// The name of the kind.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Holder::ConfigMap => "ConfigMap",
            Holder::Secret => "Secret",
        }
    }
}

/// Data by key, sorted.
pub(super) type Data = std::collections::BTreeMap<String, Vec<u8>>;

impl Sources {
    /// The data of a ConfigMap or Secret; nothing if there is no such object.
    pub(super) async fn data(&self, holder: Holder, namespace: &str, name: &str) -> Result<Option<Data>, Error> {
        let resource = if holder == Holder::ConfigMap { CONFIG_MAPS } else { SECRETS };
        match self.client.documents(resource).get(namespace, name).await {
            Ok(object) => Ok(Some(data_of(holder, &object))),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A whole pod.
    pub(super) async fn pod(&self, namespace: &str, name: &str) -> Result<Value, Error> {
        self.client.documents(PODS).get(namespace, name).await
    }

    /// The PersistentVolume that a claim is bound to.
    pub(super) async fn volume_of_claim(&self, namespace: &str, claim: &str) -> Result<Value, Error> {
        let claim = self.client.documents(CLAIMS).get(namespace, claim).await?;
        self.client.documents(VOLUMES).get("", claim.text_at(&["spec", "volumeName"])).await
    }

    /// The runtime's handler of a RuntimeClass; pods without a class have the default one.
    ///
    /// # Errors
    /// A message for users.
    pub(super) async fn runtime_handler(&self, class: &str) -> Result<String, String> {
        if class.is_empty() {
            return Ok(String::new());
        }
        match self.client.documents(RUNTIME_CLASSES).get("", class).await {
            Ok(found) => Ok(found.text("handler").to_owned()),
            Err(error) if error.is_not_found() => {
                Err(format!("failed to get sandbox runtime: RuntimeClass.node.k8s.io \"{class}\" not found"))
            }
            Err(error) => Err(format!("failed to get sandbox runtime: {}", chain(&error))),
        }
    }

    /// A new token of a service account, bound to a pod.
    pub(super) async fn token(
        &self,
        namespace: &str,
        account: &str,
        pod: (&str, &str),
        audience: &str,
        seconds: i64,
    ) -> Result<String, Error> {
        let audiences: Vec<Value> = Some(audience).filter(|it| !it.is_empty()).map(Value::from).into_iter().collect();
        let body = api::json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {
                "audiences": (Value::Array(audiences)), "expirationSeconds": seconds,
                "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": (pod.0), "uid": (pod.1)},
            },
        });
        let answer = self.client.documents(SERVICE_ACCOUNTS).post(namespace, account, "token", &body).await?;
        Ok(answer.text_at(&["status", "token"]).to_owned())
    }
}

fn data_of(holder: Holder, object: &Value) -> Data {
    let entries = |field: &str| object.get(field).and_then(Value::as_object).into_iter().flat_map(|it| it.iter());
    let decoded = |value: &Value| STANDARD.decode(value.as_str().unwrap_or_default()).unwrap_or_default();
    let mut data = Data::new();
    for (key, value) in entries("data") {
        let bytes = match holder {
            Holder::ConfigMap => value.as_str().unwrap_or_default().as_bytes().to_vec(),
            Holder::Secret => decoded(value),
        };
        data.insert(key.to_owned(), bytes);
    }
    for (key, value) in entries("binaryData") {
        data.insert(key.to_owned(), decoded(value));
    }
    data
}
