//! Changing an object by a patch.

use api::json::Value;

use super::Call;
use super::create::check_namespace;
use super::modify::modify;
use super::update::{BasedOn, change, show};
use crate::answer::Answer;
use crate::conversion;
use crate::metadata;
use crate::patch::{PatchType, json_patch, merge_patch, strategic_merge_patch};
use crate::payload::{self, FieldValidation, Payload};
use crate::status::{Failure, Result};
use crate::warnings;

pub(super) async fn patch(call: &Call<'_>, subresource: &str) -> Result<Answer> {
    if call.target.name.is_empty() || call.resource.namespaced && call.target.namespace.is_empty() {
        return Err(Failure::method_not_allowed());
    }
    let dry_run = call.is_dry_run()?;
    let kind = PatchType::from_headers(call.headers)?;
    if kind == PatchType::Apply {
        return Err(Failure::unsupported_media_type(&[
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/strategic-merge-patch+json",
        ]));
    }
    if call.query.has("force") {
        let mut errors = api::field::Errors::new();
        errors.forbidden(api::field::Path::new("force"), "may not be specified for non-apply patch");
        return Err(Failure::invalid("meta.k8s.io", "PatchOptions", "", &errors));
    }
    let validation = FieldValidation::from_query(call.query, "PatchOptions")?;
    check_body(kind, &call.body)?;
    let done = modify(call, dry_run, |old| {
        let mut shown = old.clone();
        conversion::from_stored(call.resource, &call.target.version, &mut shown);
        let (object, complaints, text) = apply(call, kind, &shown)?;
        warnings::add(check_fields(call, validation, complaints, text)?);
        let name = metadata::text(&object, "name");
        if name != call.target.name {
            let url = &call.target.name;
            let message = format!("the name of the object ({name}) does not match the name on the URL ({url})");
            return Err(Failure::bad_request(message));
        }
        let based_on = BasedOn::of(call, &object)?;
        based_on.check(call, old)?;
        let mut object = object;
        check_namespace(call, &mut object)?;
        conversion::to_stored(call.resource, &call.target.version, &mut object);
        change(call, object, old, subresource)
    })
    .await?;
    show(call, done)
}

/// What the body of a patch must look like before the object is read.
fn check_body(kind: PatchType, body: &[u8]) -> Result<()> {
    let Ok(patch) = api::json::parse(body) else { return Err(Failure::bad_request("invalid JSON patch")) };
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
fn rejected(failure: Box<Failure>) -> Box<Failure> {
    if failure.code == 422 && failure.reason.is_empty() {
        let message = "the server rejected our request due to an error in our request";
        return Failure::new(422, "Invalid", message).with_no_details();
    }
    failure
}

/// The patched object in the client's version, and what strict reading complains about.
pub(super) fn apply(call: &Call<'_>, kind: PatchType, shown: &Value) -> Result<(Value, Vec<String>, String)> {
    let mut complaints = Vec::new();
    let patched = match kind {
        PatchType::Json => json_patch(shown, &call.body).map_err(rejected)?,
        PatchType::Merge => merge_patch(shown, &call.body)?,
        _ => {
            let of = call.resource.object_type(&call.target.version);
            let of = of.ok_or_else(|| Failure::internal("the resource has no type"))?;
            let (patched, duplicates) = strategic_merge_patch(shown, &call.body, of)?;
            complaints = duplicates;
            patched
        }
    };
    let mut text = patched.clone();
    text.sort_keys();
    let payload = Payload { value: patched, duplicates: Vec::new() };
    let decoded =
        payload::decode(call.resource, &call.target.version, payload).map_err(|failure| unfit(call, &text, failure))?;
    let text = api::json::to_string(&text);
    complaints.extend(decoded.complaints);
    let mut object = decoded.object;
    // A patch that removes the name or version does not mean another object.
    for field in ["name", "namespace"] {
        if metadata::text(&object, field).is_empty() {
            metadata::copy(&mut object, shown, field);
        }
    }
    Ok((object, complaints, text))
}

/// What does not fit the type after a patch is an invalid object, not a bad request.
fn unfit(call: &Call<'_>, patched: &Value, failure: Box<Failure>) -> Box<Failure> {
    let (kind, version) = (call.resource.kind, &call.target.version);
    let start = format!("{kind} in version \"{version}\" cannot be handled as a {kind}: ");
    match failure.message.strip_prefix(&start) {
        Some(why) => {
            let mut errors = api::field::Errors::new();
            errors.invalid(api::field::Path::new("patch"), api::json::to_string(patched), why);
            Failure::invalid(call.resource.group, kind, &call.target.name, &errors)
        }
        None => failure,
    }
}

fn check_fields(
    call: &Call<'_>,
    validation: FieldValidation,
    complaints: Vec<String>,
    text: String,
) -> Result<Vec<String>> {
    if validation != FieldValidation::Strict || complaints.is_empty() {
        let keep = validation == FieldValidation::Warn;
        return Ok(if keep { complaints } else { Vec::new() });
    }
    let mut errors = api::field::Errors::new();
    let detail = format!("strict decoding error: {}", complaints.join(", "));
    errors.invalid(api::field::Path::new("patch"), text, detail);
    Err(Failure::invalid(call.resource.group, call.resource.kind, &call.target.name, &errors))
}
