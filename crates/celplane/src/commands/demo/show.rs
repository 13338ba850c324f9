//! Output of a story: the field it demonstrates, the results of its pods, claims and columns, and the reasons.

use std::io::Write as _;

use anyhow::{Context as _, Result};
use api::core::v1::{Node, Pod, Taint};
use api::json::{self, Value};
use api::resource::v1::ResourceClaim;
use api::well_known::CONDITION_POD_SCHEDULED;
use client::Client;
use client::objects::Selection;

use super::stories::Story;
use crate::style::Style;
use crate::table;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// Writes to standard output; a closed one ends the demo.
pub(super) fn say(text: &str) -> Result<()> {
    Ok(crate::output::stdout().write_all(text.as_bytes())?)
}

/// Names the story and shows the field that it is about.
pub(super) fn title(story: &Story, style: Style) -> String {
    let mut text = style.bold(format!("{} · {} · {}", story.proposal, story.name, story.title));
    text.push('\n');
    for (name, manifest) in story.files {
        let excerpt = excerpt(manifest, story.field);
        if !excerpt.is_empty() {
            text.push_str(&format!("  {}\n", style.dim(format!("examples/{name}"))));
            text.extend(excerpt.iter().map(|line| format!("    {line}\n")));
        }
    }
    text.push('\n');
    text
}

/// The first block with this key, as far out to the left as it goes.
fn excerpt<'t>(text: &'t str, field: &str) -> Vec<&'t str> {
    let depth = |line: &str| line.len().saturating_sub(line.trim_start().len());
    let mut lines = text
        .lines()
        .skip_while(|line| line.trim_start() != field && !line.trim_start().starts_with(&format!("{field} #")));
    let Some(first) = lines.next() else { return Vec::new() };
    let own = depth(first);
    let belongs = |line: &&str| depth(line) > own || (depth(line) == own && line.trim_start().starts_with("- "));
    let block = std::iter::once(first).chain(lines.take_while(belongs));
    block.map(|line| line.get(own..).unwrap_or_default()).collect()
}

/// Returns the reason why the scheduler could not place a pod.
pub(super) fn refusal(pod: &Pod) -> Option<&str> {
    let scheduled = pod.status.conditions.iter().find(|it| it.condition_type == CONDITION_POD_SCHEDULED)?;
    (scheduled.status == "False").then_some(scheduled.message.as_str())
}

/// Result of a story.
#[derive(Debug)]
pub(super) struct StoryResult {
    pods: Vec<Pod>,
    nodes: Vec<Node>,
    claims: Vec<ResourceClaim>,
    table: Vec<Vec<String>>,
}

impl StoryResult {
    /// Reads the result from the server.
    pub(super) async fn collect(client: &Client, story: &Story) -> Result<Self> {
        let all = Selection::default();
        let pods = client.objects::<Pod>().list(&all).await?.items;
        let claims = client.objects::<ResourceClaim>().list(&all).await?.items;
        let is_reported = |name: &str| story.pods.iter().any(|(pod, _)| *pod == name);
        let table = match story.table {
            None => Vec::new(),
            Some((plural, _)) => {
                let path = format!("/apis/stories.example.com/v1/namespaces/default/{plural}");
                let answer = client.get_as(&path, TABLE).await?;
                rows(&json::parse(&answer).context("the table cannot be read")?)
            }
        };
        Ok(StoryResult {
            pods: pods.into_iter().filter(|pod| is_reported(&pod.metadata.name)).collect(),
            nodes: client.objects::<Node>().list(&all).await?.items,
            claims,
            table,
        })
    }

    /// Whether the result matches the story.
    pub(super) fn is_as_expected(&self, story: &Story) -> bool {
        let pods = story.pods.iter().all(|(name, nodes)| {
            let pod = self.pods.iter().find(|pod| pod.metadata.name == *name);
            pod.is_some_and(|pod| match nodes {
                [] => refusal(pod).is_some(),
                nodes => pod.status.phase == "Running" && nodes.contains(&pod.spec.node_name.as_str()),
            })
        });
        let cells = || self.table.iter().flatten();
        let wanted = story.table.iter().flat_map(|(_, wanted)| wanted.iter());
        pods && wanted.into_iter().all(|wanted| cells().any(|cell| cell.contains(wanted)))
    }

    /// Formats the result as text.
    pub(super) fn text(&self, style: Style) -> String {
        let mut text = String::new();
        for pod in &self.pods {
            let name = style.bold(&pod.metadata.name);
            match refusal(pod).filter(|_| pod.spec.node_name.is_empty()) {
                Some(why) => text.push_str(&format!("  pod {name} is {}: {why}\n", style.warning("Pending"))),
                None => {
                    let (phase, node) = (style.good(&pod.status.phase), &pod.spec.node_name);
                    text.push_str(&format!("  pod {name} is {phase} on {node}{}\n", self.taints_of(node)));
                }
            }
            for claim in self.claims.iter().filter(|claim| is_of(claim, pod)) {
                let results = claim.status.allocation.iter().flat_map(|allocation| &allocation.devices.results);
                let devices: Vec<&str> = results.map(|it| it.device.as_str()).collect();
                text.push_str(&format!("    its claim has the devices {}\n", devices.join(", ")));
            }
        }
        if !self.table.is_empty() {
            let mut cells = String::new();
            table::write(&mut cells, &self.table);
            text.extend(cells.lines().map(|line| format!("  {line}\n")));
        }
        text.push('\n');
        text
    }

    fn taints_of(&self, node: &str) -> String {
        let node = self.nodes.iter().find(|it| it.metadata.name == node);
        let taints: Vec<String> = node.iter().flat_map(|node| &node.spec.taints).map(taint_text).collect();
        if taints.is_empty() { String::new() } else { format!(", which has {}", taints.join(", ")) }
    }
}

fn taint_text(taint: &Taint) -> String {
    match taint.value.as_str() {
        "" => format!("{}:{}", taint.key, taint.effect),
        value => format!("{}={value}:{}", taint.key, taint.effect),
    }
}

fn is_of(claim: &ResourceClaim, pod: &Pod) -> bool {
    claim.status.reserved_for.iter().any(|consumer| consumer.uid == pod.metadata.uid)
}

/// A table as the server sends it, without the columns that only wide tables have.
fn rows(table: &Value) -> Vec<Vec<String>> {
    let list = |value: &Value, key: &str| value.get(key).and_then(Value::as_array).unwrap_or_default().to_vec();
    let columns = list(table, "columnDefinitions");
    let is_shown: Vec<bool> =
        columns.iter().map(|it| it.get("priority").and_then(Value::as_i64).unwrap_or(0) == 0).collect();
    let mut rows = vec![columns.iter().map(|it| it.text("name").to_uppercase()).collect::<Vec<_>>()];
    for row in list(table, "rows") {
        let cells = list(&row, "cells");
        rows.push(
            cells
                .iter()
                .map(|cell| match cell {
                    Value::String(text) => text.to_string(),
                    Value::Null => String::new(),
                    other => json::to_string(other),
                })
                .collect(),
        );
    }
    let shown = |row: Vec<String>| {
        row.into_iter().zip(&is_shown).filter(|(_, is_shown)| **is_shown).map(|(cell, _)| cell).collect()
    };
    rows.into_iter().map(shown).collect()
}
