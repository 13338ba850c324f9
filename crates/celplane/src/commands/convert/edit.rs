//! Edits of YAML text that move parts between fields and annotations.
//!
//! One edit at a time: the text is parsed again after each, so that positions are always those of the current text.

use std::sync::LazyLock;

use anyhow::{Context as _, Result, anyhow, bail};
use api::annotations::{COLUMNS, PLACEMENT, POSITIONS};
use api::features::Features;
use api::json::Value;
use api::types;
use registry::annotations;
use registry::expressions::Environments;
use registry::strategy::Context;

use super::places::{self, Part, Place};
use super::text::{Text, child};

/// Form of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Direction {
    /// Fields become annotations.
    Annotations,
    /// Annotations become fields.
    Fields,
}

/// Converts all documents of a text.
pub(super) fn convert(source: &str, to: Direction) -> Result<String> {
    if source.trim_start().starts_with('{') {
        return convert_json(source, to);
    }
    // Errors name the line in the whole text.
    let whole = Text::new(source)?;
    let parts = document_parts(source);
    if parts.len() < 2 || whole.documents.len() < 2 {
        return convert_text(whole, to);
    }
    let mut converted = String::with_capacity(source.len());
    for part in parts {
        match part {
            DocumentPart::Marker(line) => converted.push_str(line),
            DocumentPart::Content(text) => converted.push_str(&convert_text(Text::new(text)?, to)?),
        }
    }
    Ok(converted)
}

/// A part of a text with several documents.
enum DocumentPart<'a> {
    /// The line between two documents.
    Marker(&'a str),
    /// A document.
    Content(&'a str),
}

/// Splits a text at the lines between its documents, because an edit costs time in proportion to the text around it. YAML reserves these
/// lines: they cannot be part of a value. A text with other markers is one part.
fn document_parts(source: &str) -> Vec<DocumentPart<'_>> {
    let (mut parts, mut start, mut at) = (Vec::new(), 0_usize, 0_usize);
    let content = |from: usize, to: usize| source.get(from..to).filter(|text| !text.is_empty());
    for line in source.split_inclusive('\n') {
        let end = at.saturating_add(line.len());
        let rest = line.strip_prefix("---").map(str::trim);
        if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('#')) {
            parts.extend(content(start, at).map(DocumentPart::Content));
            parts.push(DocumentPart::Marker(line));
            start = end;
        } else if line.starts_with("---") || line.starts_with("...") || line.starts_with('%') {
            return vec![DocumentPart::Content(source)];
        }
        at = end;
    }
    parts.extend(content(start, source.len()).map(DocumentPart::Content));
    parts
}

fn convert_text(mut text: Text, to: Direction) -> Result<String> {
    for index in 0..text.documents.len() {
        for base in objects(&text, index) {
            let before = object_at(&text, index, &base)?;
            let name = before.text_at(&["metadata", "name"]).to_owned();
            let kind = before.text("kind").to_owned();
            convert_object(&mut text, index, &base, to).with_context(|| format!("{kind} {name}"))?;
            let after = object_at(&text, index, &base)?;
            if !means_the_same(&before, &after)? {
                bail!("{kind} {name}: the result would mean something else; write the object in block style");
            }
        }
    }
    Ok(text.into_source())
}

/// JSON has no comments: it is converted as YAML, and printed as JSON again.
fn convert_json(source: &str, to: Direction) -> Result<String> {
    let (documents, error) = api::yaml::parse_manifests(source);
    if let Some(error) = error {
        bail!("{}", error.message);
    }
    let mut text = String::new();
    for document in documents {
        let converted = convert(&api::yaml::to_string(&document.value), to)?;
        let (documents, _) = api::yaml::parse_documents(&converted);
        let value = documents.into_iter().next().map(|it| it.value).unwrap_or_default();
        text.push_str(&api::json::to_pretty_string(&value, "  "));
        text.push('\n');
    }
    Ok(text)
}

/// The paths of the objects of a document: the document itself, or the items of a list.
fn objects(text: &Text, document: usize) -> Vec<Vec<String>> {
    let Some(value) = text.documents.get(document).map(|it| &it.value) else { return Vec::new() };
    if !value.str_at(&["kind"]).is_some_and(|kind| kind.ends_with("List")) {
        return vec![Vec::new()];
    }
    let count = value.get("items").and_then(Value::as_array).unwrap_or_default().len();
    (0..count).map(|index| vec!["items".to_owned(), format!("[{index}]")]).collect()
}

fn object_at(text: &Text, document: usize, base: &[String]) -> Result<Value> {
    text.value(document, base).cloned().context("the object is missing")
}

fn convert_object(text: &mut Text, document: usize, base: &[String], to: Direction) -> Result<()> {
    let object = object_at(text, document, base)?;
    let (version, kind) = (object.str_at(&["apiVersion"]), object.str_at(&["kind"]));
    let (version, kind) = (version.unwrap_or_default(), kind.unwrap_or_default());
    if registry::resources::find_by_api_version(version, kind).is_none() {
        return Ok(());
    }
    for place in places::of(kind, &object) {
        // Both forms at once: all of it becomes fields first.
        to_field(text, document, base, &place)?;
        if to == Direction::Annotations {
            to_annotation(text, document, base, &place)?;
        }
    }
    Ok(())
}

fn to_annotation(text: &mut Text, document: usize, base: &[String], place: &Place) -> Result<()> {
    let (mut content, mut positions) = (Vec::new(), None);
    for part in &place.parts {
        let path = [base, &place.owner, &part.path].concat();
        let Some(value) = text.value(document, &path).cloned() else { continue };
        if !part.is_list {
            if (part.needs)(&value) {
                text.make_block(document, &path)?;
                content.extend(text.cut_key(document, &path)?);
            }
            continue;
        }
        let entries = value.as_array().unwrap_or_default();
        let moved: Vec<usize> =
            entries.iter().enumerate().filter(|(_, entry)| (part.needs)(entry)).map(|(index, _)| index).collect();
        let (Some(first), Some(last)) = (moved.first(), moved.last()) else { continue };
        text.make_block(document, &path)?;
        let lines = text.cut_items(document, &path, &moved)?;
        if !part.key.is_empty() {
            content.push(format!("{}:", part.key));
        }
        content.extend(lines.into_iter().flatten());
        let is_tail = last.saturating_add(1) == entries.len()
            && last.saturating_sub(*first).saturating_add(1) == moved.len();
        if !is_tail {
            let list: Vec<String> = moved.iter().map(ToString::to_string).collect();
            positions = Some(list.join(","));
        }
    }
    if content.is_empty() {
        return Ok(());
    }
    let owner = [base, &place.owner].concat();
    text.add_annotation(document, &owner, &place.annotation, &content)?;
    if let Some(positions) = positions {
        text.add_annotation_line(document, &owner, &format!("{}{POSITIONS}", place.annotation), &positions)?;
    }
    Ok(())
}

fn to_field(text: &mut Text, document: usize, base: &[String], place: &Place) -> Result<()> {
    let owner = [base, &place.owner].concat();
    let annotations = child(&child(&owner, "metadata"), "annotations");
    let path = child(&annotations, &place.annotation);
    let Some(content) = text.value(document, &path).and_then(Value::as_str).map(ToOwned::to_owned) else {
        return Ok(());
    };
    let positions_path = child(&annotations, &format!("{}{POSITIONS}", place.annotation));
    let positions = text.value(document, &positions_path).and_then(Value::as_str).unwrap_or_default();
    let positions: Vec<usize> = positions.split(',').filter_map(|it| it.trim().parse().ok()).collect();
    let mut inner = Text::new(&content).context("the annotation cannot be read")?;
    if inner.documents.len() != 1 {
        bail!("{} is not one document", place.annotation);
    }
    if inner.is_flow(0, &[]) {
        inner = Text::new(&api::yaml::to_string(inner.value(0, &[]).unwrap_or(&Value::Null)))?;
    }
    text.make_block(document, &path)?;
    text.cut_annotation(document, &owner, &path)?;
    if text.value(document, &positions_path).is_some() {
        text.cut_annotation(document, &owner, &positions_path)?;
    }
    for part in &place.parts {
        let at = if part.key.is_empty() { Vec::new() } else { vec![part.key.to_owned()] };
        let Some(value) = inner.value(0, &at).cloned() else { continue };
        let target = [base, &place.owner, &part.path].concat();
        if part.is_list {
            inner.make_block(0, &at)?;
            let items = inner.items(0, &at)?;
            text.insert_items(document, &target, items, &positions)?;
        } else {
            insert_whole(text, document, &target, part, &value, &mut inner, &at)?;
        }
    }
    Ok(())
}

/// Inserts a part that moves as a whole. Where the field has one already, both must hold, which no text of either says.
fn insert_whole(
    text: &mut Text,
    document: usize,
    target: &[String],
    part: &Part,
    value: &Value,
    inner: &mut Text,
    at: &[String],
) -> Result<()> {
    let Some(own) = text.value(document, target).filter(|own| !own.is_null()).cloned() else {
        inner.make_block(0, at)?;
        let lines = inner.key_lines(0, at)?;
        return text.insert_key(document, target, lines);
    };
    let key = part.key;
    let affinity = api::json!({key: (value.clone())});
    let annotation = api::yaml::to_string(&affinity);
    let kind = if part.key == "required" { "PersistentVolume" } else { "Pod" };
    let spec = match kind {
        "Pod" => api::json!({"affinity": {"nodeAffinity": {key: own}}}),
        _ => api::json!({"nodeAffinity": {"required": own}}),
    };
    let name = api::annotations::NODE_AFFINITY;
    let mut object = api::json!({"metadata": {"annotations": {name: annotation}}, "spec": spec});
    merge(kind, &mut object)?;
    let path: Vec<&str> = match kind {
        "Pod" => vec!["spec", "affinity", "nodeAffinity", part.key],
        _ => vec!["spec", "nodeAffinity", "required"],
    };
    let merged = object.at(&path).cloned().unwrap_or_default();
    text.make_block(document, target)?;
    text.cut_key(document, target)?;
    let mut lines = vec![format!("{}:", part.key)];
    lines.extend(api::yaml::to_string(&merged).lines().map(|line| format!("  {line}")));
    text.insert_key(document, target, lines)
}

fn merge(kind: &str, object: &mut Value) -> Result<bool> {
    /// Compiled once for all objects.
    static ENVIRONMENTS: LazyLock<Option<Environments>> = LazyLock::new(|| Environments::new().ok());
    let environments = ENVIRONMENTS.as_ref().context("the environments of expressions cannot be set up")?;
    let features = Features::all_proposals().with_flag("TaintTolerationComparisonOperators=true")?;
    let context = Context::without_request(features, environments);
    annotations::merge(kind, object, &context).map_err(|errors| anyhow!("{}", errors.message()))
}

/// Whether two objects have the same fields once their annotations are merged.
fn means_the_same(before: &Value, after: &Value) -> Result<bool> {
    let normal = |object: &Value| -> Result<Value> {
        let mut object = object.clone();
        let (version, kind) = (object.str_at(&["apiVersion"]), object.str_at(&["kind"]));
        let (version, kind) = (version.unwrap_or_default().to_owned(), kind.unwrap_or_default().to_owned());
        if registry::resources::find_by_api_version(&version, &kind).is_some() {
            merge(&kind, &mut object)?;
        }
        if let Some(of) = types::by_api_version(&version, &kind) {
            types::normalize(of, &mut object);
        }
        prune(&mut object);
        object.sort_keys();
        Ok(object)
    };
    Ok(before == after || normal(before)? == normal(after)?)
}

/// Drops empty lists and maps: conversion leaves some behind, which mark a place.
fn prune(value: &mut Value) {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    match value {
        Value::Array(items) => items.iter_mut().for_each(prune),
        Value::Object(fields) => fields.retain(|name, value| {
            prune(value);
            !is_empty(value) && !name.starts_with(PLACEMENT) && !name.starts_with(COLUMNS)
        }),
        _ => {}
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
