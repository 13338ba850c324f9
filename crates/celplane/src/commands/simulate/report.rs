//! Report of a simulation: tables for people, JSON for programs.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::io::Write as _;

use api::json::{self, Value};

use super::fit::Fit;
use super::play::{NodeUse, SimulationResult};
use crate::style::Style;
use crate::table;

/// Maximum number of nodes to list one by one; more are summarized by utilization.
const NODES_MAX: usize = 50;
/// Maximum number of pods to list with one reason.
const PODS_MAX: usize = 10;

/// For people.
pub(super) fn text(played: &SimulationResult, wide: bool, fit: Option<&Fit>, style: Style) -> anyhow::Result<()> {
    let mut text = String::new();
    if wide {
        placements(&mut text, played);
    }
    pending(&mut text, played, style);
    preempted(&mut text, played, style);
    nodes(&mut text, &played.nodes);
    summary(&mut text, played, style);
    if let Some(fit) = fit {
        let _ = writeln!(text, "{}", fit_sentence(fit, played, style));
    }
    Ok(crate::output::stdout().write_all(text.as_bytes())?)
}

/// The answer to `--fit-nodes`.
fn fit_sentence(fit: &Fit, played: &SimulationResult, style: Style) -> String {
    let Fit { template, nodes, pending_with_less } = fit;
    if !played.pending.is_empty() {
        let stays = match played.pending.len() {
            1 => "1 pod stays pending".to_owned(),
            pending => format!("{pending} pods stay pending"),
        };
        let more = if *nodes == 1 { "1 more node" } else { &format!("{nodes} more nodes") };
        return style.bad(format!("{more} like {template} would not be enough: {stays}"));
    }
    match nodes {
        0 => style.good(format!("no more nodes like {template} are needed")),
        1 => style.good(format!("1 more node like {template} is enough (without: {pending_with_less} pending)")),
        nodes => {
            let less = nodes.saturating_sub(1);
            let less = format!("with {less}: {pending_with_less} pending");
            style.good(format!("{nodes} more nodes like {template} are enough ({less})"))
        }
    }
}

fn placements(text: &mut String, played: &SimulationResult) {
    let mut rows = vec![["POD", "NODE", "SCORE", "BY PLUGIN", "DEVICES"].map(ToOwned::to_owned).to_vec()];
    for placed in &played.placed {
        let (score, parts) = match &placed.score {
            // With one fitting node there are no scores.
            None => ("-".to_owned(), "only node that fits".to_owned()),
            Some((score, parts)) => {
                let parts: Vec<String> = parts.iter().map(|(plugin, score)| format!("{plugin}={score}")).collect();
                (score.to_string(), parts.join(","))
            }
        };
        let devices: Vec<String> =
            placed.devices.iter().map(|(claim, devices)| format!("{claim}: {}", devices.join(" "))).collect();
        rows.push(vec![placed.pod.clone(), placed.node.to_string(), score, parts, devices.join("; ")]);
    }
    table::write(text, &rows);
    text.push('\n');
}

fn pending(text: &mut String, played: &SimulationResult, style: Style) {
    // Many pods, few reasons.
    let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for pending in &played.pending {
        by_reason.entry(&pending.why).or_default().push(&pending.pod);
    }
    for (why, pods) in by_reason {
        let _ = writeln!(text, "{} {}", style.bad(format!("{} pending:", pods.len())), some(&pods));
        let _ = writeln!(text, "  {why}\n");
    }
}

fn preempted(text: &mut String, played: &SimulationResult, style: Style) {
    for (pod, node, by) in &played.preempted {
        let _ = writeln!(text, "{} {pod} on {node} by {by}", style.warning("preempted:"));
    }
    if !played.preempted.is_empty() {
        text.push('\n');
    }
}

fn some(pods: &[&str]) -> String {
    let shown: Vec<&str> = pods.iter().take(PODS_MAX).copied().collect();
    let more = pods.len().saturating_sub(PODS_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

fn nodes(text: &mut String, nodes: &[NodeUse]) {
    if nodes.len() > NODES_MAX {
        return fullness(text, nodes);
    }
    let mut rows = vec![["NODE", "PODS", "CPU", "CPU%", "MEMORY", "MEMORY%"].map(ToOwned::to_owned).to_vec()];
    for node in nodes {
        let (cpu, memory) = (node.milli_cpu, node.memory);
        rows.push(vec![
            node.name.to_string(),
            format!("{}/{}", node.pods, node.pods_max),
            format!("{}/{}", cores(cpu.0), cores(cpu.1)),
            percent(cpu),
            format!("{}/{}", bytes(memory.0), bytes(memory.1)),
            percent(memory),
        ]);
    }
    table::write(text, &rows);
    text.push('\n');
}

/// Number of nodes by utilization, in tenths.
fn fullness(text: &mut String, nodes: &[NodeUse]) {
    let tenth = |(used, of): (i64, i64)| used.saturating_mul(10).checked_div(of).unwrap_or(0).clamp(0, 10);
    let mut rows = vec![["FULL", "NODES BY CPU", "NODES BY MEMORY", "NODES BY PODS"].map(ToOwned::to_owned).to_vec()];
    let count =
        |at: i64, of: &dyn Fn(&NodeUse) -> (i64, i64)| nodes.iter().filter(|node| tenth(of(node)) == at).count();
    for at in 0..=10 {
        let pods = |node: &NodeUse| (i64::try_from(node.pods).unwrap_or(i64::MAX), node.pods_max);
        let counts = [count(at, &|node| node.milli_cpu), count(at, &|node| node.memory), count(at, &pods)];
        if counts != [0, 0, 0] {
            let label =
                if at == 10 { "100%".to_owned() } else { format!("{0}0–{0}9%", at).replace("00–09", "0–9") };
            let mut row = vec![label];
            row.extend(counts.map(|count| count.to_string()));
            rows.push(row);
        }
    }
    table::write(text, &rows);
    text.push('\n');
}

fn summary(text: &mut String, played: &SimulationResult, style: Style) {
    let pending = format!("{} pending", played.pending.len());
    let pending = if played.pending.is_empty() { pending } else { style.bad(pending) };
    let _ = write!(text, "{}, {pending}", style.good(format!("{} placed", played.placed.len())));
    if !played.preempted.is_empty() {
        let _ = write!(text, ", {}", style.warning(format!("{} preempted", played.preempted.len())));
    }
    let per =
        u32::try_from(played.attempts).ok().and_then(|attempts| played.took.checked_div(attempts)).unwrap_or_default();
    let _ = writeln!(
        text,
        ", {} nodes; {} attempts in {:.1?} of processor time ({per:.1?} each), {} s of virtual time",
        played.nodes.len(),
        played.attempts,
        played.took,
        played.virtual_time.as_secs()
    );
}

/// Prints the differences of another configuration.
pub(super) fn comparison(first: &SimulationResult, other: &SimulationResult, style: Style) -> anyhow::Result<()> {
    let mut text = String::new();
    let moves = moves(first, other);
    let mut rows = vec![["POD", "FIRST", "OTHER"].map(ToOwned::to_owned).to_vec()];
    rows.extend(moves.iter().map(|(pod, from, to)| vec![pod.clone(), from.clone(), to.clone()]));
    if !moves.is_empty() {
        table::write(&mut text, &rows);
        text.push('\n');
    }
    figures(&mut text, first, other);
    let _ = writeln!(text, "{} of {} pods move", moves.len(), first.placed.len().max(other.placed.len()));
    for (name, played) in [("first", first), ("other", other)] {
        let _ = write!(text, "{name}: ");
        summary(&mut text, played, style);
    }
    Ok(crate::output::stdout().write_all(text.as_bytes())?)
}

/// Figures of both, side by side.
fn figures(text: &mut String, first: &SimulationResult, other: &SimulationResult) {
    let mut rows = vec![["", "FIRST", "OTHER"].map(ToOwned::to_owned).to_vec()];
    let mut row =
        |name: &str, of: &dyn Fn(&SimulationResult) -> String| rows.push(vec![name.to_owned(), of(first), of(other)]);
    row("pods placed", &|played| played.placed.len().to_string());
    row("pods pending", &|played| played.pending.len().to_string());
    row("pods preempted", &|played| played.preempted.len().to_string());
    row("nodes without pods", &|played| played.nodes.iter().filter(|node| node.pods == 0).count().to_string());
    row("fullest node by CPU", &|played| fullest(played, |node| node.milli_cpu));
    row("fullest node by memory", &|played| fullest(played, |node| node.memory));
    row("CPU requested", &|played| total(played, |node| node.milli_cpu));
    row("memory requested", &|played| total(played, |node| node.memory));
    table::write(text, &rows);
    text.push('\n');
}

fn fullest(played: &SimulationResult, of: fn(&NodeUse) -> (i64, i64)) -> String {
    let share = |(used, of): (i64, i64)| used.saturating_mul(100).checked_div(of).unwrap_or_default();
    played.nodes.iter().map(of).max_by_key(|it| share(*it)).map_or_else(|| "-".to_owned(), percent)
}

fn total(played: &SimulationResult, of: fn(&NodeUse) -> (i64, i64)) -> String {
    let sum = |(used, all): (i64, i64), (more, of): (i64, i64)| (used.saturating_add(more), all.saturating_add(of));
    percent(played.nodes.iter().map(of).fold((0, 0), sum))
}

/// Names in the order in which people count: web-2 before web-10.
fn natural(name: &str) -> Vec<(String, u64)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let (text, tail) = rest.split_at(rest.find(|it: char| it.is_ascii_digit()).unwrap_or(rest.len()));
        let (number, tail) = tail.split_at(tail.find(|it: char| !it.is_ascii_digit()).unwrap_or(tail.len()));
        parts.push((text.to_owned(), number.parse().unwrap_or_default()));
        rest = tail;
    }
    parts
}

fn moves(first: &SimulationResult, other: &SimulationResult) -> Vec<(String, String, String)> {
    const PENDING: &str = "<pending>";
    let places = |played: &SimulationResult| -> HashMap<String, String> {
        played.placed.iter().map(|placed| (placed.pod.clone(), placed.node.to_string())).collect()
    };
    let (before, after) = (places(first), places(other));
    let mut pods: Vec<&String> = before.keys().chain(after.keys().filter(|pod| !before.contains_key(*pod))).collect();
    pods.sort_by_cached_key(|pod| natural(pod));
    let place =
        |places: &HashMap<String, String>, pod: &str| places.get(pod).map_or(PENDING, String::as_str).to_owned();
    let all = pods.into_iter().map(|pod| (pod.clone(), place(&before, pod), place(&after, pod)));
    all.filter(|(_, from, to)| from != to).collect()
}

/// For programs.
pub(super) fn json(
    played: &SimulationResult,
    other: Option<&SimulationResult>,
    fit: Option<&Fit>,
) -> anyhow::Result<()> {
    let mut document = document(played);
    if let (Some(fit), Some(fields)) = (fit, document.as_object_mut()) {
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let (template, nodes, less) = (fit.template.as_str(), count(fit.nodes), count(fit.pending_with_less));
        let is_enough = played.pending.is_empty();
        fields.insert(
            "fitNodes",
            api::json!({"template": template, "nodes": nodes, "isEnough": is_enough, "pendingWithOneLess": less}),
        );
    }
    if let (Some(other), Some(fields)) = (other, document.as_object_mut()) {
        fields.insert("compared", self::document(other));
        let moves =
            moves(played, other).into_iter().map(|(pod, from, to)| api::json!({"pod": pod, "from": from, "to": to}));
        fields.insert("moves", Value::Array(moves.collect()));
    }
    let text = json::to_pretty_string(&document, "  ");
    Ok(writeln!(crate::output::stdout(), "{text}")?)
}

fn document(played: &SimulationResult) -> Value {
    let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let placed = played.placed.iter().map(|placed| {
        let mut object = json::Object::new();
        object.insert("pod", placed.pod.as_str());
        object.insert("node", placed.node.as_str());
        if let Some((score, parts)) = &placed.score {
            object.insert("score", *score);
            let parts: json::Object = parts.iter().map(|(plugin, score)| (*plugin, *score)).collect();
            object.insert("scores", Value::Object(parts));
        }
        if !placed.devices.is_empty() {
            let devices = placed.devices.iter().map(|(claim, devices)| {
                (claim.as_str(), Value::Array(devices.iter().map(|it| Value::from(it.as_str())).collect()))
            });
            object.insert("devices", Value::Object(devices.collect()));
        }
        Value::Object(object)
    });
    let pending = played.pending.iter().map(|it| api::json!({"pod": (it.pod.as_str()), "message": (it.why.as_str())}));
    let preempted = played
        .preempted
        .iter()
        .map(|(pod, node, by)| api::json!({"pod": (pod.as_str()), "node": (node.as_str()), "by": (by.as_str())}));
    let nodes = played.nodes.iter().map(|node| {
        api::json!({
            "name": (node.name.as_str()),
            "pods": {"used": (count(node.pods)), "allocatable": (node.pods_max)},
            "milliCPU": {"used": (node.milli_cpu.0), "allocatable": (node.milli_cpu.1)},
            "memoryBytes": {"used": (node.memory.0), "allocatable": (node.memory.1)}
        })
    });
    api::json!({
        "placed": (Value::Array(placed.collect())),
        "pending": (Value::Array(pending.collect())),
        "preempted": (Value::Array(preempted.collect())),
        "nodes": (Value::Array(nodes.collect())),
        "attempts": (count(played.attempts)),
        "virtualSeconds": (i64::try_from(played.virtual_time.as_secs()).unwrap_or(i64::MAX))
    })
}

fn percent((used, of): (i64, i64)) -> String {
    used.saturating_mul(100).checked_div(of).map_or_else(|| "-".to_owned(), |percent| format!("{percent}%"))
}

fn cores(milli: i64) -> String {
    if milli % 1000 == 0 { format!("{}", milli.checked_div(1000).unwrap_or(0)) } else { format!("{milli}m") }
}

/// In the largest unit that gives a whole number; what no unit does is rounded down to Mi.
fn bytes(number: i64) -> String {
    const UNITS: [(&str, i64); 3] = [("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];
    let exact = UNITS.iter().find(|(_, size)| number >= *size && number.checked_rem(*size) == Some(0));
    let rounded = UNITS.iter().find(|(unit, size)| *unit == "Mi" && number >= *size);
    match exact.or(rounded) {
        Some((unit, size)) => format!("{}{unit}", number.checked_div(*size).unwrap_or(0)),
        None => number.to_string(),
    }
}
