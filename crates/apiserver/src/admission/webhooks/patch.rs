//! Patches of mutating webhooks, and the versions of the documents that they apply to.
//!
//! Texts are Kubernetes' and Go's.

use api::go_text::quote;
use api::json::{self, Value};
use registry::admission::{Cluster as _, GroupVersionKind, Request};
use registry::conversion;

use super::super::Attributes;
use super::super::policies::world::World;
use crate::outbound::reviews::VALUES_MAX;
use crate::resources;

/// The operations of a patch; none if it is absent or null.
///
/// # Errors
/// It is not a JSON patch.
pub(super) fn operations(patch: &[u8]) -> Result<Vec<Value>, String> {
    if patch.is_empty() {
        return Ok(Vec::new());
    }
    let unfit = |value: &Value, of: &str| {
        let kind = if matches!(value, Value::Int(_) | Value::Float(_)) { "number" } else { value.kind() };
        Err(format!("json: cannot unmarshal {kind} into Go value of type jsonpatch.{of}"))
    };
    if json::has_more_values(patch, VALUES_MAX) {
        return Err(format!("the patch holds more than {VALUES_MAX} values"));
    }
    let operations = match json::parse(patch) {
        Ok(Value::Array(operations)) => operations,
        Ok(Value::Null) => return Ok(Vec::new()),
        Ok(other) => return unfit(&other, "Patch"),
        Err(error) => return Err(error.message),
    };
    match operations.iter().find(|it| it.as_object().is_none() && !it.is_null()) {
        Some(other) => unfit(other, "Operation"),
        None => Ok(operations),
    }
}

/// Applies a JSON patch to a document of a kind.
///
/// # Errors
/// The patch does not apply, or its result is no object of the kind.
pub(super) fn apply(object: &Value, kind: &GroupVersionKind, patch: &[u8]) -> Result<Value, String> {
    let patched = patching::patch::json_patch(object, patch).map_err(|error| error.to_string())?;
    check_type(&patched, kind)?;
    match api::types::by_kind(&kind.group, &kind.version, &kind.kind) {
        Some(of) => api::types::decode(of, &patched).map(|decoded| decoded.value),
        None => Ok(patched),
    }
}

/// Rejects a patch that changes `apiVersion` or `kind` of a built-in object. The error is that of Kubernetes, which
/// decodes the result as the new type.
fn check_type(patched: &Value, kind: &GroupVersionKind) -> Result<(), String> {
    let given = |field: &str| patched.text(field);
    let (api_version, name) = (given("apiVersion"), given("kind"));
    let is_built_in = api::types::by_kind(&kind.group, &kind.version, &kind.kind).is_some();
    let is_same = |given: &str, expected: &str| given.is_empty() || given == expected;
    if !is_built_in || is_same(api_version, &kind.api_version()) && is_same(name, &kind.kind) {
        return Ok(());
    }
    Err(match api::types::by_api_version(api_version, name) {
        Some(of) => api::types::decode(of, patched).err().unwrap_or_else(|| format!("unexpected kind {}", quote(name))),
        None => format!(
            "no kind {} is registered for version {} in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
            quote(name),
            quote(api_version)
        ),
    })
}

/// A document of a request in the version of another kind.
///
/// # Errors
/// It cannot be converted.
pub(super) async fn converted(
    world: &World,
    asked: &Request,
    document: &Value,
    kind: &GroupVersionKind,
) -> Result<Value, String> {
    match world.webhook(asked, kind) {
        // A document of a subresource, such as a `Scale`, is the same in all versions.
        _ if document.str_at(&["apiVersion"]) == Some(&kind.api_version()) => Ok(document.clone()),
        Some(serving) => serving.converted_value(document.clone()).await,
        None => world.convert(asked, document, kind),
    }
}

/// A patched document in the form that the chain passes on.
///
/// # Errors
/// It cannot be converted.
pub(super) async fn stored(
    attributes: &Attributes<'_>,
    world: &World,
    asked: &Request,
    kind: &GroupVersionKind,
    mut patched: Value,
) -> Result<Value, String> {
    if !attributes.is_whole() {
        return Ok(patched);
    }
    if attributes.resource.custom.is_some() {
        if *kind == asked.kind {
            return Ok(patched);
        }
        return converted(world, asked, &patched, &asked.kind).await;
    }
    let row = resources::find(&kind.group, &kind.version, attributes.resource.plural).unwrap_or(attributes.resource);
    conversion::to_stored(row, &kind.version, &mut patched);
    Ok(patched)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_objects_and_limited() {
        let check = |patch: &str| operations(patch.as_bytes()).map(|it| it.len());
        assert_eq!(check(""), Ok(0));
        assert_eq!(check("null"), Ok(0));
        assert_eq!(check(r#"[{"op":"remove","path":"/a"}]"#), Ok(1));
        assert_eq!(check("{}"), Err("json: cannot unmarshal object into Go value of type jsonpatch.Patch".to_owned()));
        let why = "json: cannot unmarshal number into Go value of type jsonpatch.Operation";
        assert_eq!(check("[1]"), Err(why.to_owned()));
        let long = format!("[{}{{}}]", "{},".repeat(VALUES_MAX));
        assert_eq!(check(&long), Err("the patch holds more than 262144 values".to_owned()));
    }
}
