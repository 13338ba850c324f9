//! The nodes from the flags: numbered ones from one template, and named ones from a file.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use api::time::Timestamp;
use controlplane::nodes::{Nodes, played};
use controlplane::replicas;
use kubelet::template::Template;

use crate::manifests;

/// Default number of nodes.
const NODES_DEFAULT: usize = 3;

/// Understands `--nodes` and `--node-template`. Without either there are three, unless a cluster is loaded.
pub(super) fn plan(count: Option<usize>, file: Option<&Path>, loads: bool) -> Result<Nodes> {
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
    // A file with named nodes determines their number.
    if !has_template && count.is_none() {
        plan.numbered = 0;
    }
    Ok(plan)
}
