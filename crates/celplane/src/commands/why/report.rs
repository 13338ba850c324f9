//! Reports: a table of nodes, details below, or JSON.

use std::io::{self, Write};

use api::core::v1::Taint;
use matching::explain::{Evaluation, Reason, TermReason, toleration_text};
use scheduling::Complaint;
use scheduling::explain::NodeScore;
use scheduling::framework::Status;
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::judge::NodeReport;
use super::scheduler::SchedulerResult;
use crate::style::Style;

const HEADER: [&str; 7] = ["NODE", "FITS", "SCORE", "TAINTS", "NODE AFFINITY", "VOLUMES", "OTHER"];

/// Plugins whose reasons have separate columns.
const OWN_COLUMNS: [&str; 4] = ["NodeUnschedulable", "TaintToleration", "NodeAffinity", "VolumeBinding"];

/// For people.
pub(super) fn text(
    cluster: &Cluster,
    (nodes, (fitting, all)): (&[NodeReport], (usize, usize)),
    said: &SchedulerResult,
    is_shown: impl Fn(&str) -> bool,
    style: Style,
) -> io::Result<()> {
    let mut out = io::BufWriter::new(crate::output::stdout());
    writeln!(out, "{}: {fitting} of {all} nodes fit", style.bold(&cluster.title))?;
    verdict(cluster, said, style, &mut out)?;
    let rows: Vec<[String; 7]> = nodes.iter().map(|node| row(cluster, node)).collect();
    let mut widths = HEADER.map(|title| title.chars().count());
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let header = HEADER.map(str::to_owned);
    writeln!(out, "{}", style.bold(line(&header, &widths)))?;
    for (row, node) in rows.iter().zip(nodes) {
        let text = line(row, &widths);
        writeln!(out, "{}", if node.fits() { style.good(text) } else { style.bad(text) })?;
    }
    advice(said, style, &mut out)?;
    for node in nodes.iter().filter(|node| is_shown(&node.name)) {
        details(cluster, node, style, &mut out)?;
    }
    out.flush()
}

/// The result for all nodes together.
fn verdict(cluster: &Cluster, said: &SchedulerResult, style: Style, out: &mut dyn Write) -> io::Result<()> {
    if let Some(node) = &cluster.runs_on {
        writeln!(out, "{}", style.dim(format!("already runs on node {node}; evaluated as if it were pending")))?;
    }
    for status in said.known.gate.iter().chain(&said.known.refused) {
        writeln!(out, "{}: {}", status.plugin, style.bad(status.message()))?;
    }
    if let Some(message) = &said.known.message {
        writeln!(out, "{}", style.bad(message))?;
    }
    for field in &said.closed_fields {
        writeln!(out, "{}", style.warning(field))?;
    }
    Ok(())
}

/// Prints the effect of preemption, the failures, and the changes that would help.
fn advice(said: &SchedulerResult, style: Style, out: &mut dyn Write) -> io::Result<()> {
    if said.has_boundless_nodes {
        writeln!(out, "{}", style.dim("nodes without status.allocatable are assumed to have capacity"))?;
    }
    if let Some(nomination) = &said.known.nomination {
        let victims: Vec<String> = nomination.victims.iter().map(|victim| victim.key().to_string()).collect();
        writeln!(out, "preemption would delete on node {}: {}", nomination.node, victims.join(", "))?;
    }
    for complaint in &said.known.complaints {
        writeln!(out, "{}", style.warning(complaint.message()))?;
    }
    if said.known.message.is_some() {
        let heading = if said.remedies.is_empty() {
            "no single change would help"
        } else {
            "any one of these changes would help:"
        };
        writeln!(out, "{}", style.bold(heading))?;
    }
    for remedy in &said.remedies {
        writeln!(out, "  {}", style.good(remedy.to_string()))?;
    }
    Ok(())
}

fn line(cells: &[String; 7], widths: &[usize; 7]) -> String {
    let cells = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
    cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
}

fn row(cluster: &Cluster, node: &NodeReport) -> [String; 7] {
    let untolerated = node.untolerated.and_then(|index| node.taints.get(index));
    let soft = node.soft_count();
    let taints = match untolerated {
        Some((taint, _)) => format!("untolerated {}", taint_text(taint)),
        None if node.is_cordoned => "unschedulable".to_owned(),
        None if node.taints.is_empty() => "none".to_owned(),
        None if soft > 0 => format!("tolerated except {soft} with PreferNoSchedule"),
        None => "tolerated".to_owned(),
    };
    let has_affinity = node.required.is_some() || !cluster.spec.node_selector.is_empty();
    let affinity = match (has_affinity, node.affinity_holds) {
        (false, _) => "none".to_owned(),
        (true, true) => match node.required.iter().flatten().find(|term| term.matches) {
            Some(term) => format!("term {} matches", term.index),
            None => "matches".to_owned(),
        },
        (true, false) => "does not match".to_owned(),
    };
    let volumes = match node.volumes.iter().find(|volume| !volume.holds) {
        _ if node.volumes.is_empty() => "none".to_owned(),
        Some(volume) => format!("{}: {}", volume.claim, volume.detail),
        None => "reachable".to_owned(),
    };
    let score = node.plugins.as_ref().and_then(|it| it.total).map_or_else(|| "-".to_owned(), |it| it.to_string());
    let fits = if node.fits() { "yes" } else { "no" };
    let rejections = node.plugins.iter().flat_map(|it| it.rejections());
    let other: Vec<String> =
        rejections.filter(|(plugin, _)| !OWN_COLUMNS.contains(plugin)).map(|(_, status)| status.message()).collect();
    let other = if other.is_empty() { "none".to_owned() } else { other.join(", ") };
    [node.name.clone(), fits.to_owned(), score, taints, affinity, volumes, other]
}

fn taint_text(taint: &Taint) -> String {
    format!("{{{}: {}}}:{}", taint.key, taint.value, taint.effect)
}

fn details(cluster: &Cluster, node: &NodeReport, style: Style, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\n{}", style.bold(format!("node {}", node.name)))?;
    for (plugin, verdict) in node.plugins.iter().flat_map(|it| &it.verdicts) {
        if let Err(status) = verdict {
            writeln!(out, "  {plugin}: {}", style.bad(status.message()))?;
        }
    }
    for score in node.plugins.iter().flat_map(|it| &it.scores) {
        let NodeScore { plugin, weight, raw, normalized } = score;
        writeln!(out, "  {plugin} scores {normalized} × {weight}{}", style.dim(format!("  (raw {raw})")))?;
    }
    for (taint, reason) in &node.taints {
        let verdict = match (reason.tolerated_by, reason.rejects) {
            (Some(index), _) => style.good(format!("tolerated by toleration {index}")),
            (None, true) => style.bad("not tolerated"),
            (None, false) => style.warning("not tolerated, lowers the score"),
        };
        writeln!(out, "  taint {}: {verdict}", taint_text(taint))?;
        for (index, it) in reason.tolerations.iter().enumerate() {
            one(&format!("toleration {index}"), it, "    ", style, out)?;
        }
        if reason.tolerations.is_empty() {
            writeln!(out, "    {}", style.dim("the pod has no tolerations"))?;
        }
    }
    if node.is_cordoned {
        writeln!(out, "  {}", style.bad("the node is unschedulable, and no toleration tolerates that"))?;
    }
    for reason in &node.node_selector {
        one("", reason, "  ", style, out)?;
    }
    for it in node.required.iter().flatten() {
        term("required term", it, style, out)?;
    }
    if cluster.spec.affinity.is_some() && node.required.as_ref().is_some_and(Vec::is_empty) {
        writeln!(out, "  {}", style.bad("required node affinity without terms matches no node"))?;
    }
    for it in &node.preferred {
        let adds = if it.matches { it.weight.unwrap_or(0) } else { 0 };
        term(&format!("preferred term (weight {}, adds {adds})", it.weight.unwrap_or(0)), it, style, out)?;
    }
    if let Some(error) = &node.preferred_error {
        writeln!(out, "  {}", style.bad(format!("preferred terms: {error}")))?;
    }
    for volume in &node.volumes {
        let name = volume.volume.as_deref().map(|name| format!(" → volume {name}")).unwrap_or_default();
        let detail = if volume.holds { style.good(&volume.detail) } else { style.bad(&volume.detail) };
        writeln!(out, "  claim {}{name}: {detail}", volume.claim)?;
        for it in volume.terms.iter().flatten() {
            term("volume term", it, style, out)?;
        }
    }
    for line in node.devices.lines(style) {
        writeln!(out, "  {line}")?;
    }
    Ok(())
}

fn term(what: &str, term: &TermReason, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let verdict = if term.matches { style.good("matches") } else { style.bad("does not match") };
    writeln!(out, "  {what} {}: {verdict}", term.index)?;
    for part in &term.parts {
        one("", part, "    ", style, out)?;
    }
    Ok(())
}

fn one(label: &str, reason: &Reason, indent: &str, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let verdict = if reason.holds { style.good("true") } else { style.bad("false") };
    let label = if label.is_empty() { String::new() } else { format!("{label}: ") };
    let cost =
        reason.evaluation.as_ref().map(|it| style.dim(format!("  (cost {} of at most {})", it.cost, it.cost_max)));
    writeln!(out, "{indent}{label}{} → {verdict}{}", reason.what.trim(), cost.unwrap_or_default())?;
    if let Some(detail) = &reason.detail {
        for line in detail.lines() {
            writeln!(out, "{indent}  {}", style.warning(line))?;
        }
    }
    let steps = reason.evaluation.iter().flat_map(|evaluation| &evaluation.steps);
    for step in steps.filter(|step| step.text != reason.what.trim()) {
        let value = match &step.value {
            Ok(value) => value.clone(),
            Err(error) => format!("error: {error}"),
        };
        writeln!(out, "{indent}  {}", style.dim(format!("{} = {value}  (cost so far {})", step.text, step.cost)))?;
    }
    Ok(())
}

/// One JSON object with every detail.
pub(super) fn json(cluster: &Cluster, nodes: &[NodeReport], said: &SchedulerResult) -> io::Result<()> {
    let tolerations: Vec<String> = cluster.spec.tolerations.iter().map(toleration_text).collect();
    let nodes: Vec<Value> = nodes.iter().map(|it| node_json(cluster, it)).collect();
    let mut out = io::BufWriter::new(crate::output::stdout());
    let status_json = |status: &Status| json!({"plugin": status.plugin, "reasons": status.reasons});
    let nomination = said.known.nomination.as_ref().map(|it| {
        let victims: Vec<String> = it.victims.iter().map(|victim| victim.key().to_string()).collect();
        json!({"node": it.node.as_str(), "victims": victims})
    });
    let document = json!({
        "pod": cluster.title, "tolerations": tolerations, "nodes": nodes, "runsOn": cluster.runs_on,
        "gate": said.known.gate.as_ref().map(status_json), "refused": said.known.refused.as_ref().map(status_json),
        "message": said.known.message, "preemption": nomination,
        "failures": said.known.complaints.iter().map(Complaint::message).collect::<Vec<_>>(),
        "disabledFields": said.closed_fields,
        "remedies": said.remedies.iter().map(ToString::to_string).collect::<Vec<_>>(),
    });
    serde_json::to_writer_pretty(&mut out, &document)?;
    writeln!(out)?;
    out.flush()
}

fn node_json(cluster: &Cluster, node: &NodeReport) -> Value {
    let taints: Vec<Value> = node
        .taints
        .iter()
        .map(|(taint, reason)| {
            json!({
                "key": taint.key.as_str(), "value": taint.value.as_str(), "effect": taint.effect.as_str(),
                "toleratedBy": reason.tolerated_by, "rejects": reason.rejects,
                "tolerations": reason.tolerations.iter().map(reason_json).collect::<Vec<_>>(),
            })
        })
        .collect();
    let volumes: Vec<Value> = node
        .volumes
        .iter()
        .map(|it| {
            json!({
                "claim": it.claim, "volume": it.volume, "holds": it.holds, "detail": it.detail,
                "terms": it.terms.iter().flatten().map(term_json).collect::<Vec<_>>(),
            })
        })
        .collect();
    let has_affinity = node.required.is_some() || !cluster.spec.node_selector.is_empty();
    let verdicts = node.plugins.iter().flat_map(|it| &it.verdicts);
    let plugins: Vec<Value> = verdicts
        .map(|(plugin, verdict)| {
            let status = verdict.as_ref().err();
            json!({
                "plugin": plugin, "passes": verdict.is_ok(), "code": status.map(|it| it.code.name()),
                "reasons": status.map(|it| &it.reasons),
            })
        })
        .collect();
    let scores = node.plugins.iter().flat_map(|it| &it.scores);
    let scores: Vec<Value> = scores
        .map(|it| json!({"plugin": it.plugin, "weight": it.weight, "raw": it.raw, "normalized": it.normalized}))
        .collect();
    json!({
        "name": node.name,
        "fits": node.fits(),
        "plugins": plugins,
        "scores": scores,
        "score": node.plugins.as_ref().and_then(|it| it.total),
        "unschedulable": node.is_cordoned,
        "firstUntoleratedTaint": node.untolerated,
        "taints": taints,
        "nodeSelector": node.node_selector.iter().map(reason_json).collect::<Vec<_>>(),
        "nodeAffinity": {
            "isRequired": has_affinity,
            "matches": node.affinity_holds,
            "terms": node.required.iter().flatten().map(term_json).collect::<Vec<_>>(),
        },
        "preferred": {
            "score": node.score,
            "error": node.preferred_error,
            "terms": node.preferred.iter().map(term_json).collect::<Vec<_>>(),
        },
        "volumes": volumes,
        "devices": (node.devices.json()),
    })
}

fn term_json(term: &TermReason) -> Value {
    let parts: Vec<Value> = term.parts.iter().map(reason_json).collect();
    json!({"index": term.index, "weight": term.weight, "matches": term.matches, "parts": parts})
}

fn reason_json(reason: &Reason) -> Value {
    let evaluation = reason.evaluation.as_ref().map(evaluation_json);
    json!({"what": reason.what, "holds": reason.holds, "detail": reason.detail, "evaluation": evaluation})
}

fn evaluation_json(evaluation: &Evaluation) -> Value {
    let steps: Vec<Value> = evaluation
        .steps
        .iter()
        .map(|step| match &step.value {
            Ok(value) => json!({"text": step.text, "value": value, "cost": step.cost}),
            Err(error) => json!({"text": step.text, "error": error, "cost": step.cost}),
        })
        .collect();
    json!({
        "result": evaluation.result.as_ref().ok(), "error": evaluation.result.as_ref().err(),
        "cost": evaluation.cost, "costMax": evaluation.cost_max, "steps": steps, "omittedSteps": evaluation.omitted,
    })
}
