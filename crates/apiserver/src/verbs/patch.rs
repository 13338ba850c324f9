//! Changing an object by a patch.

use api::json::{Object, Value};
use http::HeaderMap;
use http::header::CONTENT_TYPE;

use super::Call;
use super::create::check_namespace;
use super::modify::Decision;
use super::update::{Change, Preconditions, modify_tracked, show};
use crate::wire::answer::Answer;
use crate::wire::payload::{self, DecodedBody, FieldValidation, Payload};
use crate::wire::status::{Failure, Result};
use crate::wire::warnings;
use api::metadata;
use patching::patch::{self, PatchType, json_patch, merge_patch, strategic_merge_patch};
use registry::{conversion, pipeline};

const MANAGED_FIELDS: &[u8] = b"managedFields";

pub(super) async fn patch(call: &Call<'_>, subresource: &str) -> Result<Answer> {
    if call.target.name.is_empty() || call.resource.namespaced && call.target.namespace.is_empty() {
        return Err(Failure::method_not_allowed());
    }
    let kind = kind_of(call.headers)?;
    if kind == PatchType::Strategic && call.custom().is_some() {
        return Err(Failure::unsupported_media_type(&[
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/apply-patch+yaml",
        ]));
    }
    if kind == PatchType::Apply {
        return super::apply::apply(call, subresource).await;
    }
    let dry_run = call.is_dry_run()?;
    if call.query.has("force") {
        let mut errors = api::field::Errors::new();
        errors.forbidden(api::field::Path::new("force"), "may not be specified for non-apply patch");
        return Err(Failure::invalid("meta.k8s.io", "PatchOptions", "", &errors));
    }
    let validation = FieldValidation::from_query(call.query, "PatchOptions")?;
    check_body(kind, &call.body)?;
    // Patches that do not mention managed fields need not carry them along.
    let mentions_managed =
        kind == PatchType::Json || call.body.windows(MANAGED_FIELDS.len()).any(|it| it == MANAGED_FIELDS);
    let done = modify_tracked(call, dry_run, |old, tracking| {
        let mut shown = if mentions_managed { old.clone() } else { without_managed_fields(old) };
        conversion::from_stored(call.resource, &call.target.version, &mut shown);
        let hidden = old.at(&["metadata", "managedFields"]).filter(|_| !mentions_managed);
        let patched = apply(call, kind, &shown);
        let is_refused = |complaints: &[String]| validation == FieldValidation::Strict && !complaints.is_empty();
        let DecodedBody { object, complaints, given_empty } = match (patched, hidden) {
            (Ok(decoded), _) if !is_refused(&decoded.complaints) => decoded,
            (patched, None) => patched?,
            // A refusal shows the whole object.
            (_, Some(hidden)) => {
                metadata::set(&mut shown, "managedFields", hidden.clone());
                apply(call, kind, &shown)?
            }
        };
        warnings::add(check_fields(validation, complaints, || text_of(call, kind, &shown))?);
        let name = metadata::name(&object);
        if name != call.target.name {
            let url = &call.target.name;
            let message = format!("the name of the object ({name}) does not match the name on the URL ({url})");
            return Err(Failure::bad_request(message));
        }
        let mut object = object;
        check_namespace(call, &mut object)?;
        let based_on = Preconditions::of(call, &object);
        warnings::add(pipeline::merge_owners(&mut object, " after mutating admission happens"));
        conversion::to_stored(call.resource, &call.target.version, &mut object);
        let change = Change { object, given_empty, based_on, subresource, tracking, dry_run, is_whole: true };
        Ok(Decision::Admit(Box::new(change)))
    })
    .await?;
    show(call, done).await
}

/// A copy of an object without its managed fields, which are often half of it.
fn without_managed_fields(object: &Value) -> Value {
    let Some(fields) = object.as_object() else { return object.clone() };
    let mut copy = Object::with_capacity(fields.len());
    for (key, value) in fields.iter() {
        let value = match value {
            Value::Object(metadata) if key == "metadata" => {
                let kept = metadata.iter().filter(|(key, _)| *key != "managedFields");
                Value::Object(Object::from_distinct(kept.map(|(key, value)| (key.into(), value.clone())).collect()))
            }
            value => value.clone(),
        };
        copy.insert(key, value);
    }
    Value::Object(copy)
}

/// The kind of patch that the content type names.
///
/// # Errors
/// 415 for another.
pub(super) fn kind_of(headers: &HeaderMap) -> Result<PatchType> {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    PatchType::from_content_type(content_type)
        .ok_or_else(|| Failure::new(415, "UnsupportedMediaType", "415: Unsupported Media Type").with_no_details())
}

/// Checks the body of a patch before the object is read.
fn check_body(kind: PatchType, body: &[u8]) -> Result<()> {
    let Ok(patch) = api::json::parse(body) else { return Err(Failure::bad_request("invalid JSON patch")) };
    payload::check_elements(&patch, body)?;
    let wanted = match (kind, &patch) {
        (PatchType::Json, Value::Array(_)) | (PatchType::Merge | PatchType::Strategic, Value::Object(_)) => {
            return Ok(());
        }
        (_, Value::Null) => return Ok(()),
        (PatchType::Json, _) => "[]handlers.jsonPatchOp",
        _ => "map[string]interface {}",
    };
    let found = patch.kind();
    Err(Failure::bad_request(format!(
        "error decoding patch: json: cannot unmarshal {found} into Go value of type {wanted}"
    )))
}

/// An operation that does not apply is not explained.
fn rejected(error: patch::Error) -> Box<Failure> {
    match error {
        patch::Error::Inapplicable(_) => {
            let message = "the server rejected our request due to an error in our request";
            Failure::new(422, "Invalid", message).with_no_details()
        }
        other => other.into(),
    }
}

/// The patched document, and keys that the patch repeats.
fn patched(call: &Call<'_>, kind: PatchType, shown: &Value) -> Result<(Value, Vec<String>)> {
    match kind {
        PatchType::Json => Ok((json_patch(shown, &call.body).map_err(rejected)?, Vec::new())),
        PatchType::Merge => Ok((merge_patch(shown, &call.body)?, repeated_keys(&call.body))),
        _ => {
            let of = call.resource.object_type(&call.target.version);
            let of = of.ok_or_else(|| Failure::internal("the resource has no type"))?;
            Ok(strategic_merge_patch(shown, &call.body, of)?)
        }
    }
}

fn repeated_keys(body: &[u8]) -> Vec<String> {
    let duplicates = api::json::parse_strict(body).map(|(_, duplicates)| duplicates).unwrap_or_default();
    duplicates.into_iter().map(|it| format!("duplicate field \"{}\"", it.path)).collect()
}

/// The document shown in a rejection: the patched one, or the patch itself for a strategic merge patch.
fn text_of(call: &Call<'_>, kind: PatchType, shown: &Value) -> String {
    if kind == PatchType::Strategic {
        return api::go_text::plain(&api::json::parse(&call.body).unwrap_or_default());
    }
    let mut value = patched(call, kind, shown).map(|(value, _)| value).unwrap_or_default();
    patch::sort_touched(kind, &mut value, &call.body);
    api::json::to_string(&value)
}

/// The patched object in the client's version, and what strict reading complains about.
pub(super) fn apply(call: &Call<'_>, kind: PatchType, shown: &Value) -> Result<DecodedBody> {
    let (mut patched, mut complaints) = patched(call, kind, shown)?;
    if kind == PatchType::Strategic {
        keep_kind(shown, &mut patched);
    }
    if kind == PatchType::Strategic
        && let Some(of) = call.resource.object_type(&call.target.version)
        && let Some(why) = api::types::restore_error(of, &patched)
    {
        return Err(unfit_strategic(call, &why));
    }
    let payload = Payload::of(patched);
    let mut decoded = call.read(payload).map_err(|failure| unfit(call, || text_of(call, kind, shown), failure))?;
    complaints.append(&mut decoded.complaints);
    decoded.complaints = complaints;
    // A patch that removes the name or version does not mean another object.
    for field in ["name", "namespace"] {
        if metadata::text(&decoded.object, field).is_empty() {
            metadata::copy(&mut decoded.object, shown, field);
        }
    }
    Ok(decoded)
}

/// Restores version and kind after a strategic merge patch: Kubernetes patches the typed object and ignores both fields.
pub(super) fn keep_kind(shown: &Value, patched: &mut Value) {
    for field in ["apiVersion", "kind"] {
        if let (Some(fields), Some(known)) = (patched.as_object_mut(), shown.get(field)) {
            fields.insert(field, known.clone());
        }
    }
}

/// The same for strategic merge patches, where Kubernetes shows the patch and does not name the object.
fn unfit_strategic(call: &Call<'_>, why: &str) -> Box<Failure> {
    let patch = api::json::parse(&call.body).unwrap_or_default();
    let mut errors = api::field::Errors::new();
    errors.invalid(api::field::Path::new("patch"), api::go_text::plain(&patch), why);
    Failure::invalid("", "", "", &errors)
}

fn unfit(call: &Call<'_>, patched: impl FnOnce() -> String, failure: Box<Failure>) -> Box<Failure> {
    unfit_as(call.resource.kind, &call.target.version, patched, failure)
}

/// The error for a patched object that cannot be decoded: 422 (Invalid) instead of 400, as in Kubernetes.
pub(super) fn unfit_as(
    kind: &str,
    version: &str,
    patched: impl FnOnce() -> String,
    failure: Box<Failure>,
) -> Box<Failure> {
    let given = format!("{kind} in version \"{version}\"");
    let unknown = "no kind ";
    match failure.message.split_once(&format!(" cannot be handled as a {kind}: ")) {
        Some((what, why)) if what == given || why.starts_with(unknown) => {
            let mut errors = api::field::Errors::new();
            errors.invalid(api::field::Path::new("patch"), patched(), why);
            Failure::invalid("", "", "", &errors)
        }
        _ => failure,
    }
}

fn check_fields(
    validation: FieldValidation,
    complaints: Vec<String>,
    text: impl FnOnce() -> String,
) -> Result<Vec<String>> {
    if validation != FieldValidation::Strict || complaints.is_empty() {
        let keep = validation == FieldValidation::Warn;
        return Ok(if keep { complaints } else { Vec::new() });
    }
    let mut errors = api::field::Errors::new();
    let detail = format!("strict decoding error: {}", complaints.join(", "));
    errors.invalid(api::field::Path::new("patch"), text(), detail);
    Err(Failure::invalid("", "", "", &errors))
}
