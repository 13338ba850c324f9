//! Which nodes a control plane plays: numbered ones from one template, and those of a file by their own names.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use api::json::Value;
use api::time::Timestamp;
use kubelet::template::Template;

use crate::manifests;
use crate::replicas;

/// How many nodes there are if nothing else is said.
const NODES_DEFAULT: usize = 3;

/// The nodes to be played.
#[derive(Debug)]
pub(super) struct Nodes {
    /// This many, called `node-0` and so on.
    pub(super) numbered: usize,
    /// What they are like.
    pub(super) template: Template,
    /// Nodes with names of their own, as they are to be created.
    pub(super) named: Vec<Value>,
}

impl Nodes {
    /// Understands `--nodes` and `--node-template`. Without either there are three, unless a cluster is loaded.
    pub(super) fn plan(count: Option<usize>, file: Option<&Path>, loads: bool) -> Result<Self> {
        let default = if loads { 0 } else { NODES_DEFAULT };
        let mut plan = Nodes { numbered: count.unwrap_or(default), template: Template::default(), named: Vec::new() };
        let Some(file) = file else { return Ok(plan) };
        let name = file.display().to_string();
        let mut has_template = false;
        for source in manifests::sources(std::slice::from_ref(&name))? {
            for manifest in manifests::readable(source.read()?)? {
                let context = || format!("`{name}` cannot be used as a node template");
                let template = Template::new(manifest.value.clone()).with_context(context)?;
                let Some(own) = manifest.value.str_at(&["metadata", "name"]) else {
                    if std::mem::replace(&mut has_template, true) {
                        bail!("`{name}` has several nodes without a name");
                    }
                    plan.template = template;
                    continue;
                };
                let copies = replicas::of(&manifest.value).with_context(context)?;
                plan.named.extend(replicas::names(own, copies).into_iter().enumerate().map(|(number, own)| {
                    let mut node = template.node(&own, number, None, Timestamp { seconds: 0, nanos: 0 });
                    played(&mut node);
                    node
                }));
            }
        }
        // A file that names its nodes says how many there are.
        if !has_template && count.is_none() {
            plan.numbered = 0;
        }
        Ok(plan)
    }
}

/// Asks the fleet to play a node. What only its kubelet knows is left to the fleet, which completes nodes without an address.
pub(super) fn played(node: &mut Value) {
    let Some(fields) = node.as_object_mut() else { return };
    if let Some(metadata) = fields.get_or_insert("metadata", Value::object).as_object_mut()
        && let Some(annotations) = metadata.get_or_insert("annotations", Value::object).as_object_mut()
    {
        annotations.remove(replicas::ANNOTATION);
        annotations.insert(kubelet::fleet::PLAYED, "true");
    }
    if let Some(status) = fields.get_mut("status").and_then(Value::as_object_mut) {
        for field in ["addresses", "conditions", "daemonEndpoints", "volumesAttached", "volumesInUse"] {
            status.remove(field);
        }
    }
}
