//! `--fit-nodes`: the number of nodes of one kind that gives every pod a place.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use api::core::v1::Node;
use api::features::Features;

use super::cluster::Cluster;
use super::play::{Rules, SimulationResult, play};
use crate::manifests;

/// More nodes than this are not tried.
const NODES_MAX: usize = 20_000;

/// The result of a search.
#[derive(Debug)]
pub(super) struct Fit {
    /// The name of the template.
    pub(super) template: String,
    /// The number of nodes that were added.
    pub(super) nodes: usize,
    /// Pods that stay pending with one node less.
    pub(super) pending_with_less: usize,
}

/// Reads the one Node of a file.
///
/// # Errors
/// The file holds something else.
pub(super) fn template(path: &Path, features: Features) -> Result<Node> {
    let name = path.display().to_string();
    let text = crate::input_file::read_text(path).with_context(|| format!("cannot read `{name}`"))?;
    let mut read = Cluster::new(features)?;
    read.add(manifests::readable(manifests::Manifests::parse(name.clone(), text))?, false)?;
    match read.nodes.as_slice() {
        [(node, _)] => Ok(node.clone()),
        nodes => bail!("`{name}` must hold one Node, it holds {}", nodes.len()),
    }
}

/// Finds the smallest number of nodes like `template` with which nothing stays pending, and the simulation with them.
///
/// Doubles the number until it suffices, then halves the interval: about twice as many simulations as the number has
/// binary digits. If no number suffices, the simulation with the most nodes is returned, in which pods are pending.
///
/// # Errors
/// The cluster cannot be simulated.
pub(super) fn fit(cluster: &mut Cluster, mut template: Node, rules: &Rules) -> Result<(Fit, SimulationResult)> {
    let name = template.metadata.name.to_string();
    // A name that no other node begins with.
    while cluster.nodes.iter().any(|(node, _)| node.metadata.name.starts_with(template.metadata.name.as_str())) {
        template.metadata.name = format!("new-{}", template.metadata.name).into();
    }
    cluster.nodes.push((template, Some(0)));
    let mut with = |count: usize| {
        if let Some((_, copies)) = cluster.nodes.last_mut() {
            *copies = Some(count);
        }
        play(cluster, rules)
    };
    let first = with(0)?;
    let pending = first.pending.len();
    let fit = |nodes, pending_with_less| Fit { template: name.clone(), nodes, pending_with_less };
    if pending == 0 {
        return Ok((fit(0, 0), first));
    }
    // A node for each pod is the most that can help.
    let most = pending.min(NODES_MAX);
    let (mut few, mut pending_with_few) = (0, pending);
    let mut many = 1;
    let mut best = loop {
        let played = with(many)?;
        if played.pending.is_empty() || many >= most {
            break played;
        }
        (few, pending_with_few) = (many, played.pending.len());
        many = many.saturating_mul(2).min(most);
    };
    if !best.pending.is_empty() {
        return Ok((fit(many, pending_with_few), best));
    }
    while many.saturating_sub(few) > 1 {
        let middle = few.midpoint(many);
        let played = with(middle)?;
        if played.pending.is_empty() {
            (many, best) = (middle, played);
        } else {
            (few, pending_with_few) = (middle, played.pending.len());
        }
    }
    Ok((fit(many, pending_with_few), best))
}
