//! Components that read the proposals' fields from annotations, on clusters whose API server does not have the fields.
//!
//! Informers merge annotations into fields as objects arrive, so that components see fields only. An object whose annotations
//! are invalid is marked: its pod is not scheduled, its claim not allocated, its volume reachable from no node.

use std::sync::Arc;

use anyhow::Result;
use api::annotations::{MERGED, REJECTED};
use api::features::Features;
use api::json::Value;
use client::Rewrite;
use registry::annotations;
use registry::expressions::Environments;
use registry::strategy::Context;
use tracing::warn;

/// The devices that a scheduler gives out, where another scheduler gives out the others. What is empty does not restrict.
#[derive(Debug, Clone, Default)]
pub struct Devices {
    /// Drivers.
    pub drivers: Vec<String>,
    /// Pools.
    pub pools: Vec<String>,
    /// Nodes of pools that belong to one node.
    pub nodes: Vec<String>,
}

impl Devices {
    /// Whether the devices of a slice are among them.
    fn contain(&self, slice: &Value) -> bool {
        let is_in = |list: &[String], path: &[&str]| {
            list.is_empty() || slice.str_at(path).is_some_and(|name| list.iter().any(|it| it == name))
        };
        is_in(&self.drivers, &["spec", "driver"])
            && is_in(&self.pools, &["spec", "pool", "name"])
            && is_in(&self.nodes, &["spec", "nodeName"])
    }
}

/// Merges annotations into fields.
#[derive(Debug)]
pub struct Merger {
    features: Features,
    environments: Environments,
}

impl Merger {
    /// One for which these features are on.
    ///
    /// # Errors
    /// The libraries of expressions do not fit each other.
    pub fn new(features: Features) -> Result<Self> {
        Ok(Self { features, environments: Environments::new()? })
    }

    /// Merges the annotations of an object, or marks it: [`MERGED`] or [`REJECTED`] stands among the annotations of the
    /// object, or of its template.
    pub fn merge(&self, kind: &str, object: &mut Value) {
        if !annotations::has_any(kind, object) {
            return;
        }
        let (mark, text) = match annotations::merge(kind, object, &self.context("")) {
            Ok(_) => (MERGED, "true".to_owned()),
            Err(errors) => (REJECTED, errors.message()),
        };
        if mark == REJECTED && kind == "PersistentVolume" {
            warn!(persistentVolume = object.str_at(&["metadata", "name"]), reason = %text, "Volume has invalid annotations");
            let nowhere = api::json!({"required": {"nodeSelectorTerms": [{}]}});
            if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
                spec.insert("nodeAffinity", nowhere);
            }
        }
        let path = if kind == "ResourceClaimTemplate" {
            &["spec"]
        } else {
            annotations::template_path(kind).unwrap_or_default()
        };
        let inner = path.iter().try_fold(object, |object, name| object.get_mut(name));
        let metadata = inner.and_then(Value::as_object_mut).map(|it| it.get_or_insert("metadata", Value::object));
        let all = metadata.and_then(Value::as_object_mut).map(|it| it.get_or_insert("annotations", Value::object));
        if let Some(all) = all.and_then(Value::as_object_mut) {
            all.insert(mark, text);
        }
    }

    /// Returns the inputs of validation for a request in a namespace.
    pub(crate) fn context<'c>(&'c self, namespace: &'c str) -> Context<'c> {
        Context { namespace, ..Context::without_request(self.features, &self.environments) }
    }
}

/// The rewriting of informers that merges annotations, and hides devices that belong to another scheduler.
///
/// # Errors
/// The libraries of expressions do not fit each other.
pub fn rewrite(features: Features, devices: Devices) -> Result<Rewrite> {
    let merger = Merger::new(features)?;
    Ok(Arc::new(move |resource, object| match resource.kind.as_ref() {
        // Templates stay as they are: a controller that made pods of merged ones would write fields that are not known.
        kind @ ("Pod" | "PersistentVolume" | "ResourceClaim") => merger.merge(kind, object),
        "ResourceSlice" if !devices.contain(object) => {
            if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
                spec.remove("devices");
            }
        }
        _ => {}
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use api::annotations::{DEVICE_CONSTRAINTS, NODE_AFFINITY, TOLERATIONS};
    use client::Resource;

    use super::*;

    #[track_caller]
    fn check(kind: &'static str, mut object: Value, expected: &str) {
        let devices = Devices { drivers: vec!["a.example".to_owned()], ..Devices::default() };
        let rewrite = rewrite(Features::all_proposals(), devices).unwrap();
        rewrite(&Resource::new("", "v1", "x", kind), &mut object);
        assert_eq!(object.to_string(), expected);
    }

    #[test]
    fn annotations_become_fields_or_a_mark() {
        let with = |name: &str, text: &str| api::json!({"metadata": {"annotations": {name: text}}, "spec": {}});
        check(
            "Pod",
            with(TOLERATIONS, "[{expression: 'true'}]"),
            r#"{"metadata":{"annotations":{"placement.celplane.dev/merged":"true"}},"spec":{"tolerations":[{"expression":"true"}]}}"#,
        );
        check(
            "Pod",
            with(TOLERATIONS, "x"),
            r#"{"metadata":{"annotations":{"placement.celplane.dev/tolerations":"x","placement.celplane.dev/rejected":"metadata.annotations[placement.celplane.dev/tolerations]: Invalid value: \"x\": must be a list"}},"spec":{}}"#,
        );
        check(
            "PersistentVolume",
            with(NODE_AFFINITY, "{}"),
            r#"{"metadata":{"annotations":{"placement.celplane.dev/node-affinity":"{}","placement.celplane.dev/rejected":"metadata.annotations[placement.celplane.dev/node-affinity].required: Required value: must specify required node constraints"}},"spec":{"nodeAffinity":{"required":{"nodeSelectorTerms":[{}]}}}}"#,
        );
        check(
            "ResourceClaim",
            with(DEVICE_CONSTRAINTS, "[{cel: {expression: 'devices.size() == 1'}}]"),
            r#"{"metadata":{"annotations":{"placement.celplane.dev/merged":"true"}},"spec":{"devices":{"constraints":[{"cel":{"expression":"devices.size() == 1"}}]}}}"#,
        );
        // A mark that was stored is no mark.
        check(
            "Pod",
            with(MERGED, "true"),
            r#"{"metadata":{"annotations":{"placement.celplane.dev/merged":"true","placement.celplane.dev/rejected":"metadata.annotations[placement.celplane.dev/merged]: Unsupported value: \"placement.celplane.dev/merged\": supported values: \"placement.celplane.dev/tolerations\", \"placement.celplane.dev/node-affinity\""}},"spec":{}}"#,
        );
        check("Service", with(TOLERATIONS, "x"), &with(TOLERATIONS, "x").to_string());
    }

    #[test]
    fn devices_of_another_scheduler_are_hidden() {
        let slice = |driver: &str| api::json!({"spec": {"driver": driver, "devices": [{"name": "g"}]}});
        check("ResourceSlice", slice("a.example"), r#"{"spec":{"driver":"a.example","devices":[{"name":"g"}]}}"#);
        check("ResourceSlice", slice("b.example"), r#"{"spec":{"driver":"b.example"}}"#);
    }
}
