//! Reports: for people, as JSON, as SARIF.

use std::io::Write;

use api::features::Features;
use api::json::Position;
use serde_json::{Value, json};

use super::judge::{FileReport, ObjectReport};
use crate::style::Style;

/// For people: one line per error, pictures below it, a summary.
pub(super) fn text(
    reports: &[FileReport],
    features: Features,
    is_verbose: bool,
    style: Style,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let mut refused = 0_usize;
    let mut objects = 0_usize;
    let mut unevaluated = 0_usize;
    for report in reports {
        for object in &report.objects {
            objects = objects.saturating_add(1);
            refused = refused.saturating_add(usize::from(!object.findings.is_empty()));
            for finding in &object.findings {
                let place = style.bold(place(&report.name, finding.position));
                let path = if finding.path.is_empty() { String::new() } else { format!("{}: ", finding.path) };
                writeln!(out, "{place}: {}: {path}{}", style.bad(&object.title), finding.message)?;
            }
            for warning in &object.warnings {
                let place = place(&report.name, warning.position);
                writeln!(out, "{place}: {}: {} {}", object.title, style.warning("warning:"), warning.message)?;
            }
            for why in &object.unevaluated {
                let place = place(&report.name, object.position);
                writeln!(out, "{}", style.dim(format!("{place}: {}: not evaluated: {why}", object.title)))?;
            }
            unevaluated = unevaluated.saturating_add(object.unevaluated.len());
            if is_verbose {
                verbose(report, object, style, out)?;
            }
        }
        if let Some((position, error)) = &report.unreadable {
            let place = position.map_or_else(|| report.name.clone(), |position| place(&report.name, position));
            writeln!(out, "{}: {}", style.bold(place), style.bad(error))?;
        }
    }
    if is_verbose {
        let gates: Vec<String> = assumed(features).map(|(name, is_on)| format!("{name}={is_on}")).collect();
        writeln!(out, "{}", style.dim(format!("feature gates: {}", gates.join(","))))?;
    }
    let all = || reports.iter().flat_map(|report| &report.objects);
    let warned = all().filter(|object| !object.warnings.is_empty()).count();
    let partial = all().filter(|object| object.is_partial).count();
    let mut summary = format!("{} in {}: {refused} refused", counted(objects, "object"), counted(reports.len(), "file"));
    if warned > 0 {
        summary.push_str(&format!(", {warned} with warnings"));
    }
    if partial > 0 {
        summary.push_str(&format!(", {partial} not validated (no schema)"));
    }
    if unevaluated > 0 {
        summary.push_str(&format!(", {unevaluated} policy checks not evaluated"));
    }
    writeln!(out, "{}", if refused == 0 { style.good(summary) } else { style.bad(summary) })
}

/// A number with its noun.
fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// The gates that decide about what is judged: those of the proposals, and all that are not at their default.
fn assumed(features: Features) -> impl Iterator<Item = (&'static str, bool)> {
    let defaults = Features::default().states().zip(Features::all_proposals().states());
    let all = features.states().zip(defaults);
    let matters = all.filter(|((_, _, is_on), (default, proposals))| is_on != &default.2 || default.2 != proposals.2);
    matters.map(|((name, _, is_on), _)| (name, is_on))
}

fn verbose(report: &FileReport, object: &ObjectReport, style: Style, out: &mut dyn Write) -> std::io::Result<()> {
    if object.findings.is_empty() {
        let place = place(&report.name, object.position);
        let how = if object.is_partial { "not validated (no schema); gated fields OK" } else { "accepted" };
        writeln!(out, "{place}: {}: {}", object.title, style.good(how))?;
    }
    for (position, path, cost) in &object.costs {
        let place = place(&report.name, *position);
        let most = if cost.max == u64::MAX { "no bound".to_owned() } else { cost.max.to_string() };
        writeln!(out, "{}", style.dim(format!("{place}: {path}: estimated cost {} to {most}", cost.min)))?;
    }
    for (position, path, search) in &object.searches {
        let place = place(&report.name, *position);
        writeln!(out, "{}", style.dim(format!("{place}: {path}: search: {search}")))?;
    }
    Ok(())
}

fn place(name: &str, position: Position) -> String {
    format!("{name}:{}:{}", position.line, position.column)
}

/// One JSON object.
pub(super) fn json(reports: &[FileReport], features: Features, out: &mut dyn Write) -> std::io::Result<()> {
    let files: Vec<Value> = reports.iter().map(file).collect();
    let gates: serde_json::Map<String, Value> =
        assumed(features).map(|(name, is_on)| (name.to_owned(), is_on.into())).collect();
    serde_json::to_writer_pretty(&mut *out, &json!({ "featureGates": gates, "files": files }))?;
    writeln!(out)
}

fn file(report: &FileReport) -> Value {
    let objects: Vec<Value> = report
        .objects
        .iter()
        .map(|object| {
            let errors: Vec<Value> = object
                .findings
                .iter()
                .map(|it| {
                    json!({
                        "line": it.position.line, "column": it.position.column,
                        "path": it.path, "reason": it.reason, "message": it.message,
                    })
                })
                .collect();
            let costs: Vec<Value> = object
                .costs
                .iter()
                .map(|(position, path, cost)| json!({"line": position.line, "path": path, "min": cost.min, "max": cost.max}))
                .collect();
            let searches: Vec<Value> = object
                .searches
                .iter()
                .map(|(position, path, search)| json!({"line": position.line, "path": path, "search": search}))
                .collect();
            let warnings: Vec<&str> = object.warnings.iter().map(|it| it.message.as_str()).collect();
            json!({
                "object": object.title, "line": object.position.line, "accepted": errors.is_empty(),
                "gatedFieldsOnly": object.is_partial, "errors": errors, "warnings": warnings, "costs": costs,
                "searches": searches, "notEvaluated": object.unevaluated,
            })
        })
        .collect();
    let unreadable = report.unreadable.as_ref().map(|(_, error)| error.clone());
    json!({"file": report.name, "objects": objects, "unreadable": unreadable})
}

/// Writes the reports in SARIF, the format of code review tools.
pub(super) fn sarif(reports: &[FileReport], out: &mut dyn Write) -> std::io::Result<()> {
    let mut results = Vec::new();
    for report in reports {
        for object in &report.objects {
            for it in &object.findings {
                let path = if it.path.is_empty() { String::new() } else { format!("{}: ", it.path) };
                let message = format!("{}: {path}{}", object.title, it.message);
                results.push(result(&report.name, it.position, it.reason, "error", &message));
            }
            for warning in &object.warnings {
                let message = format!("{}: {}", object.title, warning.message);
                results.push(result(&report.name, warning.position, "Warning", "warning", &message));
            }
        }
        if let Some((position, error)) = &report.unreadable {
            let start = position.unwrap_or(Position { line: 1, column: 1 });
            results.push(result(&report.name, start, "Unreadable", "error", error));
        }
    }
    let mut rules: Vec<&str> = results.iter().filter_map(|it| it.get("ruleId").and_then(Value::as_str)).collect();
    rules.sort_unstable();
    rules.dedup();
    let rules: Vec<Value> = rules.into_iter().map(|id| json!({ "id": id })).collect();
    let driver = json!({"name": "celplane", "version": env!("CARGO_PKG_VERSION"), "rules": rules});
    let document = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}],
    });
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}

fn result(file: &str, position: Position, rule: &str, level: &str, message: &str) -> Value {
    json!({
        "ruleId": rule,
        "level": level,
        "message": {"text": message},
        "locations": [{"physicalLocation": {
            "artifactLocation": {"uri": file.replace('\\', "/")},
            "region": {"startLine": position.line, "startColumn": position.column},
        }}],
    })
}
