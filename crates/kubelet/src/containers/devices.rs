//! Devices of real nodes: drivers register on sockets in `plugins_registry`, prepare the devices of claims, and name what
//! the runtime adds to containers.
//!
//! Follows `pkg/kubelet/cm/dra` of Kubernetes. Prepared claims are not stored: drivers answer the same when they are
//! asked again, so that a restarted agent has the claims of running pods prepared again.

pub(super) mod cdi;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::core::v1::Pod;
use api::json::{Text, Value};
use api::resource::v1::ResourceClaim;
use cri::plugins::{Claim, DRA_PLUGIN, DRA_VERSION, Device, PluginInfo};
use locks::Mutex;
use telemetry::logs::chain;
use tracing::{debug, info, warn};

/// The directory of sockets below the agent's.
const REGISTRY: &str = "plugins_registry";
/// Interval at which sockets are looked for.
const PERIOD: Duration = Duration::from_secs(1);
/// Most plugins that are registered.
const PLUGINS_MAX: usize = 100;
/// Longest name of a driver, as the API has it.
const NAME_LENGTH_MAX: usize = 63;

/// A registered driver.
#[derive(Debug, Clone)]
struct Driver {
    client: cri::Client,
    socket: PathBuf,
}

/// A prepared claim of a pod.
#[derive(Debug, Clone)]
struct PreparedDevices {
    /// Name of the claim in the pod.
    name: Text,
    claim: Claim,
    driver: String,
    devices: Vec<Device>,
    /// Containers and their requests, for the claim of extended resources, which no container names.
    requests: Vec<(Text, Text)>,
}

/// The drivers of this node, and what they prepared.
#[derive(Default)]
pub(super) struct Devices {
    drivers: Mutex<BTreeMap<String, Driver>>,
    /// By the uid of the pod.
    prepared: Mutex<HashMap<Text, Vec<PreparedDevices>>>,
}

impl Devices {
    /// Registers the plugins in a directory for as long as the agent works.
    pub(super) async fn run(&self, root: &Path) {
        let directory = root.join(REGISTRY);
        if let Err(error) = super::volumes::create(&directory, 0o750) {
            warn!(path = %directory.display(), err = %chain(&error), "Could not create the directory of plugins");
            return;
        }
        let mut known: BTreeMap<PathBuf, Option<std::time::SystemTime>> = BTreeMap::new();
        loop {
            let found = sockets(&directory);
            known.retain(|path, made| found.get(path) == Some(made));
            self.drivers.lock().retain(|name, driver| {
                let stays = known.contains_key(&driver.socket);
                if !stays {
                    info!(driver = %name, "Removed device driver");
                }
                stays
            });
            for (path, made) in found {
                if !known.contains_key(&path) && known.len() < PLUGINS_MAX && self.register(&path).await {
                    known.insert(path, made);
                }
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Registers the plugin of a socket; whether it answered.
    async fn register(&self, socket: &Path) -> bool {
        let endpoint = |path: &Path| format!("unix://{}", path.display());
        let Ok(client) = cri::Client::new(&endpoint(socket)) else { return true };
        let plugin = match client.plugin_info().await {
            Ok(plugin) => plugin,
            Err(status) => {
                debug!(path = %socket.display(), err = %chain(&status), "Plugin did not answer");
                return false;
            }
        };
        let refused = check(&plugin).err();
        if let Err(status) = client.notify_registration(refused.clone()).await {
            debug!(path = %socket.display(), err = %chain(&status), "Plugin did not take its registration");
            return false;
        }
        if let Some(why) = refused {
            warn!(path = %socket.display(), err = why, "Refused plugin");
            return true;
        }
        let path = if plugin.endpoint.is_empty() { socket } else { Path::new(&plugin.endpoint) };
        if let Ok(client) = cri::Client::new(&endpoint(path)) {
            info!(driver = %plugin.name, "Registered device driver");
            self.drivers.lock().insert(plugin.name, Driver { client, socket: socket.to_owned() });
        }
        true
    }

    /// Prepares the claims of a pod, each with its name in the pod.
    ///
    /// # Errors
    /// A message for users.
    pub(super) async fn prepare(&self, pod: &Pod, claims: &[(Text, ResourceClaim)]) -> Result<(), String> {
        let mut all = Vec::new();
        for (name, claim) in claims {
            let results = claim.status.allocation.iter().flat_map(|it| &it.devices.results);
            let drivers: BTreeSet<&Text> = results.map(|it| &it.driver).collect();
            for driver in drivers {
                let registered = self.drivers.lock().get(driver.as_str()).map(|it| it.client.clone());
                let client = registered
                    .ok_or_else(|| format!("prepare dynamic resources: DRA driver {driver} is not registered"))?;
                let asked = Claim {
                    namespace: claim.metadata.namespace.to_string(),
                    uid: claim.metadata.uid.to_string(),
                    name: claim.metadata.name.to_string(),
                };
                let failed = |why: &str| {
                    let key = claim.metadata.key();
                    format!("prepare dynamic resources: NodePrepareResources failed for ResourceClaim {key}: {why}")
                };
                let answer = client.prepare_claims(vec![asked.clone()]).await;
                let mut answer = answer.map_err(|status| failed(status.message()))?;
                let result = answer.claims.remove(&asked.uid).ok_or_else(|| failed("the driver left the claim out"))?;
                if !result.error.is_empty() {
                    return Err(failed(&result.error));
                }
                let (name, devices, requests) = (name.clone(), result.devices, extended_requests(pod, claim));
                all.push(PreparedDevices { name, claim: asked, driver: driver.to_string(), devices, requests });
            }
        }
        self.prepared.lock().insert(pod.metadata.uid.clone(), all);
        Ok(())
    }

    /// Releases the claims of a pod that no other pod of the node uses.
    pub(super) async fn release(&self, uid: &str) {
        let Some(all) = self.prepared.lock().remove(uid) else { return };
        for prepared in all {
            let is_shared = self.prepared.lock().values().flatten().any(|other| other.claim.uid == prepared.claim.uid);
            let client = self.drivers.lock().get(&prepared.driver).map(|it| it.client.clone());
            let (false, Some(client)) = (is_shared, client) else { continue };
            match client.unprepare_claims(vec![prepared.claim.clone()]).await {
                Ok(answer) => {
                    let error = answer.claims.get(&prepared.claim.uid).map(|it| it.error.as_str()).unwrap_or_default();
                    if !error.is_empty() {
                        warn!(resourceClaim = %prepared.claim.name, err = error, "Could not release devices");
                    }
                }
                Err(status) => {
                    warn!(resourceClaim = %prepared.claim.name, err = %chain(&status), "Could not release devices");
                }
            }
        }
    }

    /// Whether the claims of a pod are prepared.
    pub(super) fn is_prepared(&self, uid: &str) -> bool {
        self.prepared.lock().contains_key(uid)
    }

    /// The CDI names of the devices that a container gets: those of the claims, and of their requests, that it names, and
    /// those behind its extended resources.
    pub(super) fn of_container(&self, uid: &str, container: &Value) -> Vec<String> {
        let prepared = self.prepared.lock();
        let all = prepared.get(uid).map(Vec::as_slice).unwrap_or_default();
        let mut names: Vec<String> = Vec::new();
        for wanted in container.list_at(&["resources", "claims"]) {
            let (claim, request) = (wanted.text("name"), wanted.text("request"));
            for device in all.iter().filter(|it| it.name == claim).flat_map(|it| &it.devices) {
                if fits(device, request) {
                    names.extend(device.cdi_device_ids.iter().cloned());
                }
            }
        }
        let container_name = container.text("name");
        for prepared in all {
            for (_, request) in prepared.requests.iter().filter(|(name, _)| *name == container_name) {
                let devices = prepared.devices.iter().filter(|device| fits(device, request));
                names.extend(devices.flat_map(|device| device.cdi_device_ids.iter().cloned()));
            }
        }
        let mut seen = BTreeSet::new();
        names.retain(|name| seen.insert(name.clone()));
        names
    }
}

/// The requests of a claim by container, if it is the one of the pod's extended resources.
fn extended_requests(pod: &Pod, claim: &ResourceClaim) -> Vec<(Text, Text)> {
    let status = pod.status.extended_resource_claim_status.as_ref();
    let status = status.filter(|it| it.resource_claim_name == claim.metadata.name);
    let mappings = status.iter().flat_map(|it| &it.request_mappings);
    mappings.map(|it| (it.container_name.clone(), it.request_name.clone())).collect()
}

/// Whether a device is for a request; one of several alternatives is named `request/alternative`.
fn fits(device: &Device, request: &str) -> bool {
    let of = |name: &String| name == request || name.split_once('/').is_some_and(|(main, _)| main == request);
    request.is_empty() || device.request_names.is_empty() || device.request_names.iter().any(of)
}

/// Rejects plugins that this agent cannot use.
fn check(plugin: &PluginInfo) -> Result<(), String> {
    if plugin.r#type != DRA_PLUGIN {
        return Err(format!("plugins of type \"{}\" are not supported by this node agent", plugin.r#type));
    }
    if plugin.name.is_empty() || plugin.name.len() > NAME_LENGTH_MAX {
        return Err("the name of a driver has 1 to 63 characters".to_owned());
    }
    if !plugin.supported_versions.iter().any(|it| it == DRA_VERSION) {
        return Err(format!("the driver does not support {DRA_VERSION}, but {:?}", plugin.supported_versions));
    }
    Ok(())
}

/// The sockets in a directory, with the times of their creation.
fn sockets(directory: &Path) -> BTreeMap<PathBuf, Option<std::time::SystemTime>> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let socket = |entry: std::fs::DirEntry| {
        let metadata = entry.metadata().ok().filter(|it| it.file_type().is_socket())?;
        Some((entry.path(), metadata.modified().ok()))
    };
    entries.filter_map(socket).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(requests: &[&str], id: &str) -> Device {
        Device {
            request_names: requests.iter().map(|it| (*it).to_owned()).collect(),
            cdi_device_ids: vec![id.to_owned()],
            ..Device::default()
        }
    }

    #[test]
    fn containers_get_the_devices_of_their_requests() {
        let devices = Devices::default();
        let prepared = PreparedDevices {
            name: "gpus".into(),
            claim: Claim::default(),
            driver: "d".to_owned(),
            devices: vec![device(&["a"], "v/c=0"), device(&["b/small"], "v/c=1"), device(&[], "v/c=2")],
            requests: Vec::new(),
        };
        devices.prepared.lock().insert("u".into(), vec![prepared]);
        let names = |claims: Value| -> Vec<String> {
            let container = api::json!({"resources": {"claims": claims}});
            devices.of_container("u", &container)
        };
        assert_eq!(names(api::json!([{"name": "gpus"}])), ["v/c=0", "v/c=1", "v/c=2"]);
        assert_eq!(names(api::json!([{"name": "gpus", "request": "b"}])), ["v/c=1", "v/c=2"]);
        assert_eq!(names(api::json!([{"name": "gpus", "request": "a"}, {"name": "gpus"}])).len(), 3);
        assert!(names(api::json!([])).is_empty() && names(api::json!([{"name": "other"}])).is_empty());
    }

    #[test]
    fn containers_get_the_devices_of_their_extended_resources() {
        let read = |text: &str| api::json::parse(text.as_bytes()).unwrap();
        let pod: Pod = api::json::from_value(&read(
            r#"{"status": {"extendedResourceClaimStatus": {"resourceClaimName": "made", "requestMappings": [
                {"containerName": "c", "resourceName": "example.com/gpu", "requestName": "container-0-request-0"},
                {"containerName": "d", "resourceName": "example.com/gpu", "requestName": "container-1-request-0"}]}}}"#,
        ))
        .unwrap();
        let claim: ResourceClaim = api::json::from_value(&read(r#"{"metadata": {"name": "made"}}"#)).unwrap();
        let other: ResourceClaim = api::json::from_value(&read(r#"{"metadata": {"name": "other"}}"#)).unwrap();
        assert!(extended_requests(&pod, &other).is_empty());
        let prepared = PreparedDevices {
            name: Text::default(),
            claim: Claim::default(),
            driver: "d".to_owned(),
            devices: vec![device(&["container-0-request-0"], "v/c=0"), device(&["container-1-request-0"], "v/c=1")],
            requests: extended_requests(&pod, &claim),
        };
        let devices = Devices::default();
        devices.prepared.lock().insert("u".into(), vec![prepared]);
        let names = |container: &str| -> Vec<String> {
            let container = api::json!({"name": container});
            devices.of_container("u", &container)
        };
        assert_eq!((names("c"), names("d"), names("e")), (vec!["v/c=0".to_owned()], vec!["v/c=1".to_owned()], vec![]));
    }

    #[test]
    fn plugins_of_other_types_and_versions_are_refused() {
        let plugin = |kind: &str, name: &str, version: &str| PluginInfo {
            r#type: kind.to_owned(),
            name: name.to_owned(),
            supported_versions: vec![version.to_owned()],
            ..PluginInfo::default()
        };
        assert_eq!(check(&plugin(DRA_PLUGIN, "gpu.example.com", DRA_VERSION)), Ok(()));
        assert!(check(&plugin("CSIPlugin", "x", "1.0.0")).unwrap_err().contains("CSIPlugin"));
        assert!(check(&plugin(DRA_PLUGIN, "x", "v1alpha1")).unwrap_err().contains("does not support"));
        assert!(check(&plugin(DRA_PLUGIN, "", DRA_VERSION)).is_err());
    }
}
