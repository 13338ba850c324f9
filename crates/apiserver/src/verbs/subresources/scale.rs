//! `…/scale`: the number of replicas of a workload, as an `autoscaling/v1` Scale.

use api::json::{Object, Value};
use api::meta::v1::LabelSelector;

use super::super::Call;
use super::super::modify::{Done, modify};
use super::super::update::change;
use crate::answer::Answer;
use crate::metadata;
use crate::negotiation::Form;
use crate::patch::{PatchType, json_patch, merge_patch, strategic_merge_patch};
use crate::payload::{self, FieldValidation, Payload};
use crate::status::{Failure, Result};
use crate::tables;

pub(super) async fn get(call: &Call<'_>) -> Result<Answer> {
    call.wait_for_now().await?;
    match call.cache().get(&call.key()) {
        Some(object) => {
            let scale = scale_of(&object.decode());
            let is_table = call.accepted.form == Form::Table;
            Ok(Answer::json(200, &if is_table { tables::of_scale(call, scale) } else { scale }))
        }
        None => Err(Failure::not_found(call.resource, &call.target.name)),
    }
}

/// The Scale of a workload.
fn scale_of(object: &Value) -> Value {
    let mut metadata = Object::new();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object.at(&["metadata", field]) {
            metadata.insert(field, value.clone());
        }
    }
    let number = |path: &[&str]| object.at(path).and_then(Value::as_i64).unwrap_or_default();
    let mut spec = Object::new();
    if number(&["spec", "replicas"]) != 0 {
        spec.insert("replicas", number(&["spec", "replicas"]));
    }
    let mut status = Object::new();
    status.insert("replicas", number(&["status", "replicas"]));
    let selector = object.at(&["spec", "selector"]).map(|selector| match selector.get("matchLabels") {
        None if selector.get("matchExpressions").is_none() => api::json!({"matchLabels": (selector.clone())}),
        _ => selector.clone(),
    });
    let selector = selector.and_then(|selector| api::json::from_value::<LabelSelector>(&selector).ok());
    if let Some(selector) = selector.and_then(|selector| selector.to_selector().ok()) {
        status.insert("selector", selector.to_string());
    }
    api::json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status})
}

pub(super) async fn update(call: &Call<'_>) -> Result<Answer> {
    let payload = payload::read(call.headers, &call.body, "Scale")?;
    let validation = FieldValidation::from_query(call.query, "UpdateOptions")?;
    let (scale, warnings) = decode(payload, validation)?;
    set(call, |_| Ok(scale.clone())).await.map(|answer| answer.with_warnings(warnings))
}

pub(super) async fn patch(call: &Call<'_>) -> Result<Answer> {
    let kind = PatchType::from_headers(call.headers)?;
    set(call, |old| {
        let patched = match kind {
            PatchType::Json => json_patch(old, &call.body)?,
            PatchType::Merge => merge_patch(old, &call.body)?,
            PatchType::Strategic => {
                let of = api::types::by_kind("autoscaling", "v1", "Scale");
                let of = of.ok_or_else(|| Failure::internal("Scale has no type"))?;
                strategic_merge_patch(old, &call.body, of)?.0
            }
            PatchType::Apply => {
                return Err(Failure::unsupported_media_type(&[
                    "application/json-patch+json",
                    "application/merge-patch+json",
                    "application/strategic-merge-patch+json",
                ]));
            }
        };
        Ok(decode(Payload { value: patched, duplicates: Vec::new() }, FieldValidation::Ignore)?.0)
    })
    .await
}

fn decode(payload: Payload, validation: FieldValidation) -> Result<(Value, Vec<String>)> {
    let of = api::types::by_kind("autoscaling", "v1", "Scale");
    let decoded = payload::decode_kind("autoscaling", "v1", "Scale", of, payload)?;
    let warnings = payload::check_fields(validation, "Scale", "v1", decoded.complaints)?;
    Ok((decoded.object, warnings))
}

async fn set(call: &Call<'_>, mut new: impl FnMut(&Value) -> Result<Value>) -> Result<Answer> {
    let dry_run = call.is_dry_run()?;
    let done = modify(call, dry_run, |old| {
        let scale = new(&scale_of(old))?;
        let version = metadata::text(&scale, "resourceVersion");
        if !version.is_empty() && version != metadata::text(old, "resourceVersion") {
            return Err(Failure::modified(call.resource, &call.target.name));
        }
        let replicas = scale.at(&["spec", "replicas"]).and_then(Value::as_i64).unwrap_or_default();
        if replicas < 0 {
            let mut errors = api::field::Errors::new();
            let at = api::field::Path::new("spec");
            errors.invalid(at.child("replicas"), replicas, "must be greater than or equal to 0");
            return Err(Failure::invalid("autoscaling", "Scale", &call.target.name, &errors));
        }
        let mut object = old.clone();
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
            spec.insert("replicas", replicas);
        }
        change(call, object, old, "")
    })
    .await?;
    Ok(match done {
        Done::Stored(object) => Answer::json(200, &scale_of(&object.decode())),
        Done::Deleted(value) | Done::Dry(value) => Answer::json(200, &scale_of(&value)),
    })
}
