//! The schema that types a custom resource: a file with a schema, or with a whole definition.

use anyhow::{Context, bail};
use api::json;

/// The OpenAPI schema in a document: the document itself, or that of a version of a CustomResourceDefinition. Without a version
/// it is the one that is stored.
pub(crate) fn find<'d>(document: &'d json::Value, version: Option<&str>) -> anyhow::Result<&'d json::Value> {
    const SCHEMA: &str = "openAPIV3Schema";
    if document.str_at(&["kind"]) != Some("CustomResourceDefinition") {
        if version.is_some() {
            bail!("the schema's file is not a CustomResourceDefinition: it has no versions");
        }
        return Ok(document.get(SCHEMA).unwrap_or(document));
    }
    let versions = document.at(&["spec", "versions"]).and_then(json::Value::as_array).unwrap_or_default();
    let is_asked_for = |it: &&json::Value| match version {
        Some(version) => it.str_at(&["name"]) == Some(version),
        None => it.get("storage").and_then(json::Value::as_bool) == Some(true),
    };
    let found = versions.iter().find(is_asked_for).with_context(|| match version {
        Some(version) => format!("the definition has no version `{version}`"),
        None => "the definition has no storage version".to_owned(),
    })?;
    found.at(&["schema", SCHEMA]).context("the version has no schema")
}
