//! The node side of a device driver: it registers with the node agent and prepares the devices of claims.
//!
//! A device is made visible to containers by the Container Device Interface: a JSON file names what the runtime adds to a
//! container. Here that is one environment variable for each device; a real driver adds device nodes and mounts.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use cri::Status;
use cri::plugins as p;
use cri::server::{Service, decode};
use futures::future::BoxFuture;
use prost::Message;

/// Reads the devices of this driver that a claim was given: pairs of request and device, with their pool.
pub(crate) type ReadClaim =
    Arc<dyn Fn(p::Claim) -> BoxFuture<'static, Result<Vec<AllocatedDevice>, String>> + Send + Sync>;

/// A device that a claim was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AllocatedDevice {
    /// The request of the claim.
    pub(crate) request: String,
    /// The device's pool.
    pub(crate) pool: String,
    /// The device's name.
    pub(crate) device: String,
}

/// The driver.
pub(crate) struct Driver {
    /// Its name, as in ResourceSlices.
    pub(crate) name: String,
    /// The directory in which the runtime looks for descriptions of devices, such as `/var/run/cdi`.
    pub(crate) cdi: PathBuf,
    /// Its access to claims.
    pub(crate) read: ReadClaim,
    /// Its calls, in order; tests read them.
    pub(crate) log: Mutex<Vec<String>>,
}

impl Driver {
    fn file(&self, claim: &p::Claim) -> Result<PathBuf, String> {
        // A uid becomes part of a path.
        match claim.uid.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            true => Ok(self.cdi.join(format!("{}-{}.json", self.name, claim.uid))),
            false => Err("the uid of the claim is malformed".to_owned()),
        }
    }

    fn note(&self, line: String) {
        if let Ok(mut log) = self.log.lock() {
            log.push(line);
        }
    }

    /// Prepares one claim. The same claim is prepared again after a restart of the node agent.
    async fn prepare(&self, claim: p::Claim) -> Result<Vec<p::Device>, String> {
        let allocated = (self.read)(claim.clone()).await?;
        let kind = format!("{}/device", self.name);
        let file = self.file(&claim)?;
        let named = |it: &AllocatedDevice| format!("{}-{}", claim.uid, it.device);
        let edits = allocated.iter().map(|it| {
            let variable = it.device.to_uppercase().replace('-', "_");
            serde_json::json!({"name": named(it), "containerEdits": {"env": [format!("EXAMPLE_{variable}={}", it.device)]}})
        });
        let document = serde_json::json!({"cdiVersion": "0.6.0", "kind": kind, "devices": edits.collect::<Vec<_>>()});
        std::fs::create_dir_all(&self.cdi).map_err(|error| error.to_string())?;
        std::fs::write(file, document.to_string()).map_err(|error| error.to_string())?;
        self.note(format!("prepare {}", claim.name));
        let device = |it: &AllocatedDevice| p::Device {
            request_names: vec![it.request.clone()],
            pool_name: it.pool.clone(),
            device_name: it.device.clone(),
            cdi_device_ids: vec![format!("{kind}={}", named(it))],
            share_id: None,
        };
        Ok(allocated.iter().map(device).collect())
    }

    fn unprepare(&self, claim: &p::Claim) -> Result<(), String> {
        self.note(format!("unprepare {}", claim.name));
        match std::fs::remove_file(self.file(claim)?) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.to_string()),
            // A claim that is released twice is released.
            _ => Ok(()),
        }
    }

    async fn answer(self: Arc<Self>, method: String, request: Bytes) -> Result<Vec<u8>, Status> {
        match method.as_str() {
            p::GET_INFO => {
                let info = p::PluginInfo {
                    r#type: p::DRA_PLUGIN.to_owned(),
                    name: self.name.clone(),
                    endpoint: String::new(),
                    supported_versions: vec![p::DRA_VERSION.to_owned()],
                };
                Ok(info.encode_to_vec())
            }
            p::NOTIFY => {
                let status: p::RegistrationStatus = decode(request)?;
                self.note(if status.plugin_registered { "registered".to_owned() } else { status.error });
                Ok(p::RegistrationStatusResponse {}.encode_to_vec())
            }
            p::PREPARE => {
                let mut answer = p::PrepareResponse::default();
                for claim in decode::<p::ClaimsRequest>(request)?.claims {
                    let result = match self.prepare(claim.clone()).await {
                        Ok(devices) => p::PreparedClaim { devices, error: String::new() },
                        Err(error) => p::PreparedClaim { devices: Vec::new(), error },
                    };
                    answer.claims.insert(claim.uid, result);
                }
                Ok(answer.encode_to_vec())
            }
            p::UNPREPARE => {
                let mut answer = p::UnprepareResponse::default();
                for claim in decode::<p::ClaimsRequest>(request)?.claims {
                    let error = self.unprepare(&claim).err().unwrap_or_default();
                    answer.claims.insert(claim.uid, p::UnpreparedClaim { error });
                }
                Ok(answer.encode_to_vec())
            }
            other => Err(Status::unimplemented(other.to_owned())),
        }
    }
}

impl Service for Driver {
    fn call(self: Arc<Self>, method: String, request: Bytes) -> BoxFuture<'static, Result<Vec<u8>, Status>> {
        Box::pin(self.answer(method, request))
    }
}

/// The devices of a driver in a ResourceClaim that was read from the server.
pub(crate) fn allocated(claim: &serde_json::Value, uid: &str, driver: &str) -> Result<Vec<AllocatedDevice>, String> {
    if claim.pointer("/metadata/uid").and_then(serde_json::Value::as_str) != Some(uid) {
        return Err("the claim was replaced by another".to_owned());
    }
    let results = claim.pointer("/status/allocation/devices/results").and_then(serde_json::Value::as_array);
    let text = |result: &serde_json::Value, field: &str| {
        result.get(field).and_then(serde_json::Value::as_str).unwrap_or_default().to_owned()
    };
    let own = results.into_iter().flatten().filter(|it| text(it, "driver") == driver).map(|it| AllocatedDevice {
        request: text(it, "request"),
        pool: text(it, "pool"),
        device: text(it, "device"),
    });
    let own: Vec<AllocatedDevice> = own.collect();
    if own.is_empty() { Err("the claim has no devices of this driver".to_owned()) } else { Ok(own) }
}

/// Access to claims through a client.
pub(crate) fn reader(client: client::Client, driver: String) -> ReadClaim {
    Arc::new(move |claim: p::Claim| {
        let (client, driver) = (client.clone(), driver.clone());
        Box::pin(async move {
            let path = format!("/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims/{}", claim.namespace, claim.name);
            let body = client.get_as(&path, "application/json").await.map_err(|error| error.to_string())?;
            let document = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
            allocated(&document, &claim.uid, &driver)
        })
    })
}

/// The socket of a driver in the directory of a node agent.
pub(crate) fn socket(root: &Path, driver: &str) -> PathBuf {
    root.join("plugins_registry").join(format!("{driver}.sock"))
}
