//! `…/scale`: the number of replicas of a workload, as an `autoscaling/v1` Scale.

use api::json::{Object, Value};
use api::meta::v1::LabelSelector;
use api::types::EmptyPositions;
use futures::future::BoxFuture;

use super::super::create::check_namespace;
use super::super::modify::{Decision, ModifyResult, Proposal, modify};
use super::super::patch::{keep_kind, kind_of, unfit_as};
use super::super::update::{Change, Preconditions, Tracking, change, check_name, wrong_uid};
use super::super::{Call, apply, ownership};
use crate::admission::{Attributes, Operation};
use crate::verbs::tables;
use crate::wire::answer::Answer;
use crate::wire::negotiation::Form;
use crate::wire::payload::{self, FieldValidation, Payload};
use crate::wire::status::{Failure, Result};
use api::metadata;
use patching::apply::{Element, SingleKind, Write, to_parent, to_scale};
use patching::patch::{PatchType, json_patch, merge_patch, sort_touched, strategic_merge_patch};

pub(super) async fn get(call: &Call<'_>) -> Result<Answer> {
    call.wait_for_now().await?;
    match call.cache().get(&call.key()) {
        Some(object) => {
            let converted = call.converted(&object).await?;
            let scale = scale_of(call, &call.decode(&converted))?;
            let is_table = call.accepted.form == Form::Table;
            Ok(Answer::json(200, &if is_table { tables::of_scale(call, scale) } else { scale }))
        }
        None => Err(Failure::not_found(call.resource, &call.target.name)),
    }
}

/// The Scale of a workload, or of a custom resource with a scale subresource.
fn scale_of(call: &Call<'_>, object: &Value) -> Result<Value> {
    let custom = call.custom().and_then(|custom| custom.meaning.scale());
    match custom {
        Some(scale) => custom_scale(scale, object),
        None => Ok(workload_scale(object)),
    }
}

fn metadata_of(object: &Value) -> Object {
    let mut metadata = Object::new();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object.at(&["metadata", field]) {
            metadata.insert(field, value.clone());
        }
    }
    metadata
}

fn custom_scale(scale: &registry::custom_resource::Scale, object: &Value) -> Result<Value> {
    let missing = || {
        let path = api::go_text::quote(&scale.spec_replicas);
        Failure::internal(format!("the spec replicas field {path} does not exist"))
    };
    let replicas = scale.wanted(object).map_err(Failure::internal)?.ok_or_else(missing)?;
    let mut spec = Object::new();
    if replicas != 0 {
        spec.insert("replicas", replicas);
    }
    let mut status = Object::new();
    status.insert("replicas", scale.actual(object).map_err(Failure::internal)?.unwrap_or_default());
    if let Some(selector) = scale.selector(object).map_err(Failure::internal)?.filter(|it| !it.is_empty()) {
        status.insert("selector", selector);
    }
    let metadata = metadata_of(object);
    Ok(api::json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status
    }))
}

fn workload_scale(object: &Value) -> Value {
    let metadata = metadata_of(object);
    let number = |path: &[&str]| object.int_at(path);
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
    let (mut scale, warnings) = decode(payload, validation)?;
    check_namespace(call, &mut scale)?;
    check_name(call, &scale)?;
    let manager = ownership::manager(call);
    let uid = metadata::text(&scale, "uid").to_owned();
    set(call, |old, now| {
        let found = metadata::text(old, "uid");
        if !uid.is_empty() && uid != found {
            return Err(wrong_uid(call, &uid, found));
        }
        Ok(updated(&manager, now, old, scale.clone()))
    })
    .await
    .map(|answer| answer.with_warnings(warnings))
}

pub(super) async fn patch(call: &Call<'_>) -> Result<Answer> {
    let kind = kind_of(call.headers)?;
    let manager = ownership::manager(call);
    if kind == PatchType::Apply {
        let (config, complaints) = apply::read_request(call)?;
        let force = call.query.flag("force");
        let answer = set(call, |old, now| {
            let applied = write(&manager, now).apply(old, &config, force).map_err(apply::refused)?;
            let scale = applied.object.unwrap_or_else(|| old.clone());
            check_name(call, &scale)?;
            Ok((decode(Payload::of(scale), FieldValidation::Ignore)?.0, applied.managed_fields))
        });
        return Ok(answer.await?.with_warnings(complaints));
    }
    set(call, |old, now| {
        let mut patched = match kind {
            PatchType::Json => json_patch(old, &call.body)?,
            PatchType::Merge => merge_patch(old, &call.body)?,
            PatchType::Strategic | PatchType::Apply => {
                let of = api::types::by_kind("autoscaling", "v1", "Scale");
                let of = of.ok_or_else(|| Failure::internal("Scale has no type"))?;
                strategic_merge_patch(old, &call.body, of)?.0
            }
        };
        if kind == PatchType::Strategic {
            keep_kind(old, &mut patched);
        }
        let shown = match kind {
            PatchType::Strategic => api::go_text::plain(&api::json::parse(&call.body).unwrap_or_default()),
            _ => {
                let mut shown = patched.clone();
                sort_touched(kind, &mut shown, &call.body);
                api::json::to_string(&shown)
            }
        };
        let scale = decode(Payload::of(patched), FieldValidation::Ignore);
        let mut scale = scale.map_err(|failure| unfit_as("Scale", "v1", || shown, failure))?.0;
        check_namespace(call, &mut scale)?;
        check_name(call, &scale)?;
        Ok(updated(&manager, now, old, scale))
    })
    .await
}

fn decode(payload: Payload, validation: FieldValidation) -> Result<(Value, Vec<String>)> {
    let of = api::types::by_kind("autoscaling", "v1", "Scale");
    let decoded = payload::decode_kind("autoscaling", "v1", "Scale", of, payload)?;
    let warnings = payload::check_fields(validation, "Scale", "v1", decoded.complaints)?;
    Ok((decoded.object, warnings))
}

/// A Scale and its managed fields.
type ScaleWithOwners = (Value, Option<Value>);

/// Updates the managed fields after an ordinary write.
fn updated(manager: &str, now: &str, old: &Value, scale: Value) -> ScaleWithOwners {
    let managed_fields = write(manager, now).update(old, &scale);
    (scale, managed_fields)
}

fn write<'a>(manager: &'a str, now: &'a str) -> Write<'a> {
    static VERSIONS: SingleKind = SingleKind::new("Scale");
    let (api_version, kind, subresource) = ("autoscaling/v1", "Scale", "scale");
    Write { versions: &VERSIONS, api_version, kind, subresource, manager, now }
}

/// The field that holds the number of replicas in a version; none if the version is not known.
fn replicas_in(call: &Call<'_>, api_version: &str) -> Option<Vec<Element>> {
    let is_it = |version: &str| call.resource.api_version(version) == api_version;
    let Some(custom) = call.custom() else {
        return call.resource.versions.iter().any(|it| is_it(it)).then(|| vec!["spec".into(), "replicas".into()]);
    };
    let (_, meaning) = custom.all().iter().find(|(version, _)| is_it(version))?;
    let path = meaning.scale().map_or("", |scale| &scale.spec_replicas);
    Some(path.split('.').filter(|it| !it.is_empty()).map(Element::from).collect())
}

/// Writes the result of `new`, called with the Scale, which has the relevant managed fields of the object.
async fn set(call: &Call<'_>, mut new: impl FnMut(&Value, &str) -> Result<ScaleWithOwners>) -> Result<Answer> {
    let dry_run = call.is_dry_run()?;
    let now = call.now().to_string();
    let done = modify(call, dry_run, |old| {
        let mut old_scale = scale_of(call, old)?;
        if let Some(entries) = to_scale(old.at(&["metadata", "managedFields"]), &|it: &str| replicas_in(call, it)) {
            metadata::set(&mut old_scale, "managedFields", entries);
        }
        let (scale, managed_fields) = new(&old_scale, &now)?;
        Ok(Decision::Admit(Box::new(ScaleChange { scale, managed_fields, old_scale, dry_run })))
    })
    .await?;
    Ok(match done {
        ModifyResult::Stored(object) => {
            let converted = call.converted(&object).await?;
            Answer::json(200, &scale_of(call, &call.decode(&converted))?)
        }
        ModifyResult::Deleted(value) | ModifyResult::Dry(value) => Answer::json(200, &scale_of(call, &value)?),
    })
}

/// A changed Scale.
struct ScaleChange {
    scale: Value,
    managed_fields: Option<Value>,
    old_scale: Value,
    dry_run: bool,
}

impl Proposal for ScaleChange {
    fn admit<'a>(self: Box<Self>, call: &'a Call<'_>, old: &'a Value) -> BoxFuture<'a, Result<Decision<'a>>>
    where
        Self: 'a,
    {
        Box::pin(async move {
            let Self { mut scale, managed_fields, old_scale, dry_run } = *self;
            let options = || call.options("UpdateOptions");
            let attributes = call.attributes(Operation::Update, "scale", dry_run, &options);
            let attributes = Attributes { old: Some(&old_scale), ..attributes };
            if let Some(managed_fields) = &managed_fields {
                metadata::set(&mut scale, "managedFields", managed_fields.clone());
            }
            call.server.admission.mutate(&attributes, &mut scale).await?;
            metadata::remove(&mut scale, "managedFields");
            let object = scaled(call, old, &scale, managed_fields.as_ref())?;
            let (given_empty, subresource, tracking) = (EmptyPositions::default(), "", Tracking::Done);
            let based_on = Preconditions::of(call, &object);
            let change_ = Change { object, given_empty, based_on, subresource, tracking, dry_run, is_whole: false };
            let decision = change(call, change_, old).await?;
            // Kubernetes: validating admission sees the numbers of the objects before and after, without owners.
            let after = match &decision {
                Decision::Put(object) => scale_of(call, object)?,
                _ => scale,
            };
            let mut before = old_scale.clone();
            metadata::remove(&mut before, "managedFields");
            let attributes = Attributes { object: Some(&after), old: Some(&before), ..attributes };
            call.server.admission.validate(&attributes).await?;
            Ok(decision)
        })
    }
}

/// The object with the number of replicas of a Scale.
fn scaled(call: &Call<'_>, old: &Value, scale: &Value, managed_fields: Option<&Value>) -> Result<Value> {
    let (uid, found) = (metadata::text(scale, "uid"), metadata::text(old, "uid"));
    if !uid.is_empty() && uid != found {
        let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {found}");
        return Err(Failure::conflict_of_part(call.resource, "scale", &call.target.name, &why));
    }
    let version = metadata::text(scale, "resourceVersion");
    if !version.is_empty() && version != metadata::text(old, "resourceVersion") {
        return Err(Failure::modified(call.resource, &call.target.name));
    }
    let replicas = scale.int_at(&["spec", "replicas"]);
    if replicas < 0 {
        let mut errors = api::field::Errors::new();
        let at = api::field::Path::new("spec");
        errors.invalid(at.child("replicas"), replicas, "must be greater than or equal to 0");
        return Err(Failure::invalid("autoscaling", "Scale", &call.target.name, &errors));
    }
    let mut object = old.clone();
    let custom = call.custom().and_then(|custom| custom.meaning.scale());
    if let Some(scale) = custom {
        scale.set_wanted(&mut object, replicas).map_err(Failure::internal)?;
    } else if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("replicas", replicas);
    }
    let api_version = call.resource.api_version(&call.target.version);
    let entries = old.at(&["metadata", "managedFields"]);
    match to_parent(entries, managed_fields, &api_version, &|it: &str| replicas_in(call, it)) {
        Some(entries) => metadata::set(&mut object, "managedFields", entries),
        None => metadata::remove(&mut object, "managedFields"),
    }
    Ok(object)
}
