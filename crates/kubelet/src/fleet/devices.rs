//! Devices of nodes: slices are published according to a template, and devices of pods are prepared before they
//! start.
//!
//! The template is the fleet's, or the one in the annotation `sim.celplane.dev/devices` on a Node. Slices of
//! other creators are left alone.

use std::time::Duration;

use api::core::v1::{Node, Pod};
use api::json::{Text, Value};
use api::meta::v1::Object as _;
use api::resource::v1::{ResourceClaim, ResourceSlice};
use client::Error;
use client::events::{Severity, reference};
use client::objects::Deletion;
use client::resources::ServedView as _;
use telemetry::logs::chain;
use tracing::{debug, info};

use super::Inner;
use super::member::Member;
use crate::annotations;
use crate::faults::DeviceDriver;
use crate::prepare::{self, PrepareError};
use crate::runtime::Runtime;
use crate::slice_template::SliceTemplate;

/// On a Node: its devices. On a slice: marks it as created by a node, with the template.
const DEVICES: &str = "sim.celplane.dev/devices";
/// The index of slices by the node that they are for.
pub(super) const BY_NODE: &str = "node";
/// Devices that could not be prepared are tried again after this long.
const AGAIN: Duration = Duration::from_secs(2);
/// Maximum size of a fleet that reports prepared devices in claims; in larger ones the reports are of no use.
const TELLING_FLEET_MAX: usize = 100;

/// Whether a node of a fleet made a slice.
pub(super) fn is_ours(slice: &ResourceSlice) -> bool {
    annotations::get(&slice.metadata.annotations, "devices").is_some()
}

impl<R: Runtime> Inner<R> {
    /// Publishes the devices of a node, if they are not published as they should be.
    pub(super) async fn publish(&self, member: &Member, node: &Node) -> Result<(), Error> {
        if !R::IS_SIMULATED {
            return Ok(());
        }
        let asked = annotations::get(&node.metadata.annotations, "devices");
        let asked = asked.and_then(|text| text.parse::<SliceTemplate>().ok());
        let template = match member.faults().device_driver {
            DeviceDriver::Gone => None,
            DeviceDriver::Works | DeviceDriver::Fails => asked.or(self.devices),
        };
        let mut published = self.slices.store().by_index(BY_NODE, &member.name);
        published.retain(|slice| is_ours(slice));
        let wanted = template.map(|template| template.slices(&member.name)).unwrap_or_default();
        if wanted.is_empty() && published.is_empty() {
            return Ok(());
        }
        let views: Vec<ResourceSlice> = wanted.iter().filter_map(|slice| ResourceSlice::read(slice).ok()).collect();
        // A pool whose slices change gets a new generation: until all of them exist it is not considered
        // complete.
        let is_stale = |known: &ResourceSlice| {
            !views.iter().any(|view| view.metadata.name == known.metadata.name && is_same(view, known))
        };
        let newest = published.iter().map(|slice| slice.spec.pool.generation).max();
        let changes = published.iter().any(|slice| is_stale(slice));
        let generation = match newest {
            None => 1,
            Some(newest) if changes => newest.saturating_add(1),
            Some(newest) => newest,
        };
        let slices = member.client.documents(ResourceSlice::RESOURCE);
        for mut slice in wanted {
            let Some(name) = slice.str_at(&["metadata", "name"]).map(ToOwned::to_owned) else { continue };
            let known = published.iter().find(|it| it.metadata.name == name.as_str());
            if known.is_some() && !changes {
                continue;
            }
            complete(&mut slice, node, generation, template, known.map(|it| &it.metadata.resource_version));
            let written = match known {
                Some(_) => slices.update("", &name, &slice).await.map(|_| ()),
                None => slices.create("", &slice).await.map(|_| ()),
            };
            match written {
                // The informer is outdated: the change has not arrived yet.
                Err(error) if !error.is_already_exists() && !error.is_conflict() => return Err(error),
                _ => info!(node = %member.name, resourceSlice = %name, "Published ResourceSlice"),
            }
        }
        for slice in published.iter().filter(|slice| !views.iter().any(|it| it.metadata.name == slice.metadata.name)) {
            let how = Deletion { uid: Some(slice.metadata.uid.to_string()), ..Deletion::default() };
            match slices.delete("", &slice.metadata.name, &how).await {
                Err(error) if !error.is_not_found() && !error.is_conflict() => return Err(error),
                _ => info!(node = %member.name, resourceSlice = %slice.metadata.name, "Withdrew ResourceSlice"),
            }
        }
        Ok(())
    }

    /// Prepares the devices of a pod that has not started; answers when to try again if that fails.
    pub(super) async fn prepare(&self, pod: &Pod, member: &Member) -> Result<Option<Duration>, Error> {
        let uid = &pod.metadata.uid;
        let has_claims = !pod.spec.resource_claims.is_empty() || pod.status.extended_resource_claim_status.is_some();
        let is_prepared = member.state().prepared.contains(uid) && self.runtime.is_prepared(uid);
        if !has_claims || is_prepared {
            return Ok(None);
        }
        match self.prepare_all(pod, member).await? {
            Ok(()) => {
                member.state().prepared.insert(uid.clone());
                Ok(None)
            }
            Err(error) => {
                debug!(pod = %pod.metadata.key(), node = %member.name, err = %chain(&error), "Could not prepare devices of pod");
                let note = format!("Failed to prepare dynamic resources: {error}");
                member.recorder().event(reference(pod), Severity::Warning, "FailedPrepareDynamicResources", &note);
                Ok(Some(AGAIN))
            }
        }
    }

    async fn prepare_all(&self, pod: &Pod, member: &Member) -> Result<Result<(), PrepareError>, Error> {
        let names = match prepare::named_claims_of(pod) {
            Ok(names) => names,
            Err(error) => return Ok(Err(error)),
        };
        // The drivers of real devices answer for themselves.
        let driver = if R::IS_SIMULATED { member.faults().device_driver } else { DeviceDriver::Works };
        let claims = member.client.objects::<ResourceClaim>();
        let mut real = Vec::new();
        for (of_pod, name) in &names {
            let claim = claims.get(&pod.metadata.namespace, name).await?;
            let devices = match prepare::prepare(pod, &claim, driver) {
                Ok(devices) => devices,
                Err(error) => return Ok(Err(error)),
            };
            if !R::IS_SIMULATED {
                real.push((of_pod.clone(), claim));
                continue;
            }
            if self.members.len() > TELLING_FLEET_MAX {
                continue;
            }
            let mut drivers: Vec<&Text> = devices.iter().map(|it| &it.driver).collect();
            drivers.sort();
            drivers.dedup();
            for driver in drivers {
                self.report_prepared(&claim, driver, member).await;
            }
        }
        if R::IS_SIMULATED {
            return Ok(Ok(()));
        }
        Ok(self.runtime.prepare(pod, &real).await.map_err(PrepareError::Driver))
    }

    /// Writes a driver's report to the claim. Drivers use their own identity, not the node's: if the fleet
    /// lacks the permission, there is no report, and the pod starts nevertheless.
    async fn report_prepared(&self, claim: &ResourceClaim, driver: &str, member: &Member) {
        let Some(fields) = prepare::status(claim, driver, &member.name, self.clock.now()) else { return };
        let claims = self.client.documents(ResourceClaim::RESOURCE);
        let (namespace, name) = (&claim.metadata.namespace, &claim.metadata.name);
        if let Err(error) = claims.apply(namespace, name, "status", &fields, driver, true).await {
            debug!(resourceClaim = %claim.metadata.key(), err = %chain(&error), "Could not report prepared devices");
        }
    }
}

/// Whether the devices are the same, regardless of the generation of the pool.
fn is_same(wanted: &ResourceSlice, known: &ResourceSlice) -> bool {
    let mut spec = wanted.spec.clone();
    spec.pool.generation = known.spec.pool.generation;
    spec == known.spec
}

/// Adds owner, label and version to a slice of a node.
fn complete(
    slice: &mut Value,
    node: &Node,
    generation: i64,
    template: Option<SliceTemplate>,
    resource_version: Option<&Text>,
) {
    if let Some(pool) = slice.get_mut("spec").and_then(|spec| spec.get_mut("pool")).and_then(Value::as_object_mut) {
        pool.insert("generation", generation);
    }
    let Some(metadata) = slice.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let (name, uid) = (node.metadata.name.as_str(), node.metadata.uid.as_str());
    let owner = api::json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid, "controller": true});
    metadata.insert("ownerReferences", Value::Array(vec![owner]));
    let of = template.map(|template| template.to_string()).unwrap_or_default();
    metadata.insert("annotations", api::json!({DEVICES: of}));
    if let Some(version) = resource_version {
        metadata.insert("resourceVersion", version.as_str());
    }
}
