//! Replacing an object, and what all changes of an object share.

use api::json::Value;
use api::types::GivenEmpty;

use super::create::{check_namespace, normalize};
use super::modify::{Decision, Done, modify};
use super::{Call, create, ownership};
use crate::admission::node_restriction::Change;
use crate::admission::{self, Operation};
use crate::authorization;
use crate::http::answer::Answer;
use crate::http::payload::{self, Decoded, FieldValidation};
use crate::http::status::{Failure, Result};
use crate::http::warnings;
use crate::objects::metadata;
use registry::conversion;

/// So often an update starts over if the object appears or goes meanwhile.
const ATTEMPTS: usize = 5;

pub(super) async fn update(call: &Call<'_>, subresource: &str) -> Result<Answer> {
    if call.target.name.is_empty() || call.resource.namespaced && call.target.namespace.is_empty() {
        return Err(Failure::method_not_allowed());
    }
    let dry_run = call.is_dry_run()?;
    let validation = FieldValidation::from_query(call.query, "UpdateOptions")?;
    let (Decoded { mut object, complaints, given_empty }, owner_warnings) = read(call)?;
    warnings::add(payload::check_fields(validation, call.resource.kind, &call.target.version, complaints)?);
    warnings::add(owner_warnings);
    let based_on = BasedOn::of(call, &object);
    for attempt in 1..=ATTEMPTS {
        let changed = modify_tracked(call, dry_run, |old, tracking| {
            // Most often the first attempt succeeds; another one reads the body again.
            let object = match object.take() {
                Value::Null => read(call)?.0.object,
                object => object,
            };
            if let Ok(based_on) = &based_on {
                based_on.check_uid(call, old)?;
            }
            call.confirm_rights(&object, Some(old))?;
            let based_on = based_on.as_ref().map_err(Clone::clone)?;
            based_on.check_version(call, &object, old, subresource)?;
            let decision = change(call, object, &given_empty, old, subresource, tracking)?;
            warnings::add(decision.warnings(call, old, subresource));
            Ok(decision)
        });
        match changed.await {
            Ok(done) => return show(call, done),
            Err(failure) if failure.code == 404 && is_created(call, subresource) => {}
            Err(failure) => return Err(failure),
        }
        match create_instead(call, &given_empty, dry_run).await {
            // Someone else was faster: then it is a change.
            Err(failure) if failure.reason == "AlreadyExists" && attempt < ATTEMPTS => {}
            answer => return answer,
        }
    }
    Err(Failure::modified(call.resource, &call.target.name))
}

/// Whether an update makes an object that does not exist.
fn is_created(call: &Call<'_>, subresource: &str) -> bool {
    subresource.is_empty() && call.resource.created_by_update
}

/// Makes the object of an update that found none.
async fn create_instead(call: &Call<'_>, given_empty: &GivenEmpty, dry_run: bool) -> Result<Answer> {
    let mut object = read(call)?.0.object;
    let uid = metadata::text(&object, "uid").to_owned();
    if !uid.is_empty() {
        return Err(wrong_uid(call, &uid, ""));
    }
    call.confirm_rights(&object, None)?;
    let asked = authorization::Request::Resource { verb: "create", target: call.target };
    call.server.authorizer.authorize(call.user, asked)?;
    call.server.meaning.default(call.resource, &mut object);
    for field in create::SYSTEM_FIELDS {
        metadata::remove(&mut object, field);
    }
    metadata::remove(&mut object, "resourceVersion");
    let managed_fields = ownership::create(call, &object);
    metadata::remove(&mut object, "managedFields");
    create::insert(call, object, given_empty, managed_fields, Tracking::Update, dry_run).await
}

/// The object that was sent, in the stored version, and what users are told about its owners.
fn read(call: &Call<'_>) -> Result<(Decoded, Vec<String>)> {
    let (resource, version) = (call.resource, call.target.version.as_str());
    let payload = payload::read(call.headers, &call.body, resource.kind)?;
    let mut decoded = call.read(payload)?;
    let object = &mut decoded.object;
    check_name(call, object)?;
    check_namespace(call, object)?;
    let warnings = create::merge_owners(object, "");
    if !conversion::is_stored(resource, version) {
        conversion::to_stored(resource, version, object);
        normalize(call, object);
    }
    Ok((decoded, warnings))
}

/// The answer after a change.
pub(super) fn show(call: &Call<'_>, done: Done) -> Result<Answer> {
    match done {
        Done::Stored(object) => call.answer(200, &object),
        Done::Deleted(value) | Done::Dry(value) => call.answer_value(200, &value),
    }
}

pub(super) fn check_name(call: &Call<'_>, object: &Value) -> Result<()> {
    let (name, expected) = (metadata::text(object, "name"), call.target.name.as_str());
    if name.is_empty() {
        return Err(Failure::bad_request(format!(
            "the name of the object ({expected} based on URL) was undeterminable: name must be provided"
        )));
    }
    if name != expected {
        return Err(Failure::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({expected})"
        )));
    }
    Ok(())
}

/// What an update says about the object that it is based on.
pub(super) struct BasedOn {
    version: String,
    uid: String,
}

impl BasedOn {
    /// Reads it from an object.
    pub(super) fn of(call: &Call<'_>, object: &Value) -> Result<Self> {
        let version = metadata::text(object, "resourceVersion").to_owned();
        if !version.is_empty() && version.parse::<u64>().is_err() {
            return Err(Failure::unclassified(format!("strconv.ParseUint: parsing \"{version}\": invalid syntax")));
        }
        if matches!(version.as_str(), "" | "0") && !call.resource.unconditional_update {
            let mut errors = api::field::Errors::new();
            let at = api::field::Path::new("metadata");
            let shown = if version.is_empty() { 0_i64 } else { version.parse().unwrap_or_default() };
            errors.invalid(at.child("resourceVersion"), shown, "must be specified for an update");
            // Kubernetes names the resource here, not the kind.
            let (group, kind) = (call.resource.group, call.resource.plural);
            return Err(Failure::invalid(group, kind, &call.target.name, &errors));
        }
        Ok(Self { version, uid: metadata::text(object, "uid").to_owned() })
    }

    /// Whether it is the stored object.
    fn check_uid(&self, call: &Call<'_>, old: &Value) -> Result<()> {
        let uid = metadata::text(old, "uid");
        if !self.uid.is_empty() && self.uid != uid {
            return Err(wrong_uid(call, &self.uid, uid));
        }
        Ok(())
    }

    /// Whether it is the stored object as it is now.
    pub(super) fn check_version(&self, call: &Call<'_>, object: &Value, old: &Value, subresource: &str) -> Result<()> {
        let is_set = !matches!(self.version.as_str(), "" | "0");
        if is_set && self.version != metadata::text(old, "resourceVersion") {
            // A node that may not change the object need not know that it has changed.
            call.restrict_node(subresource, Change::Update(object, old))?;
            return Err(Failure::modified(call.resource, &call.target.name));
        }
        Ok(())
    }
}

/// A patch may name the object that it is for, and cannot make it another one.
pub(super) fn check_uid(call: &Call<'_>, object: &Value, old: &Value) -> Result<()> {
    let uid = metadata::text(object, "uid");
    if uid.is_empty() || uid == metadata::text(old, "uid") {
        return Ok(());
    }
    let mut errors = api::field::Errors::new();
    let at = api::field::Path::new("metadata");
    errors.invalid(at.child("uid"), uid, "field is immutable");
    Err(Failure::invalid(call.resource.group, call.resource.kind, &call.target.name, &errors))
}

/// The object is another one than the update names.
pub(super) fn wrong_uid(call: &Call<'_>, wanted: &str, found: &str) -> Box<Failure> {
    let place = upstream_place(call);
    // A dry run does not get as far as the store.
    let root = if call.is_dry_run().unwrap_or_default() { "" } else { "/registry" };
    let namespace = if call.resource.namespaced { format!("{}/", call.target.namespace) } else { String::new() };
    let name = &call.target.name;
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {root}/{place}/{namespace}{name}, \
         ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}"
    );
    Failure::conflict(call.resource, name, &why)
}

/// Where Kubernetes keeps the objects of a resource, as its refusals show it.
fn upstream_place(call: &Call<'_>) -> String {
    let (group, plural) = (call.resource.group, call.resource.plural);
    match (group, plural) {
        ("", "services") => "services/specs".to_owned(),
        ("", "endpoints") => "services/endpoints".to_owned(),
        ("", "nodes") => "minions".to_owned(),
        ("", "replicationcontrollers") => "controllers".to_owned(),
        ("networking.k8s.io", "ingresses") => "ingress".to_owned(),
        ("apiextensions.k8s.io" | "apiregistration.k8s.io", _) => format!("{group}/{plural}"),
        _ if call.custom().is_some() => format!("{group}/{plural}"),
        _ => plural.to_owned(),
    }
}

/// Whether the document says who owns its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tracking {
    /// It does not: who writes comes to own what changes.
    Update,
    /// It does.
    Done,
    /// Nobody owns fields: the object would become too large.
    Dropped,
}

/// As [`modify`], and once more without managed fields if they make the object too large for the store.
pub(super) async fn modify_tracked(
    call: &Call<'_>,
    dry_run: bool,
    mut decide: impl FnMut(&Value, Tracking) -> Result<Decision>,
) -> Result<Done> {
    match modify(call, dry_run, |old| decide(old, Tracking::Update)).await {
        Err(failure) if failure.code == 413 => modify(call, dry_run, |old| decide(old, Tracking::Dropped)).await,
        done => done,
    }
}

/// Turns a changed document (in the stored version) into what is to be written, or into a deletion if the last finalizer
/// of an object that is being deleted went.
pub(super) fn change(
    call: &Call<'_>,
    mut object: Value,
    given_empty: &GivenEmpty,
    old: &Value,
    subresource: &str,
    tracking: Tracking,
) -> Result<Decision> {
    let resource = call.resource;
    // The parts of pods take only what they are about.
    let is_part_of_pod = (resource.group, resource.plural) == ("", "pods") && !subresource.is_empty();
    let judged = !is_part_of_pod && call.server.meaning.judges_metadata(resource);
    for field in ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let given = object.at(&["metadata", field]).cloned();
        let before = old.at(&["metadata", field]);
        // Kinds that have rules of their own say themselves that it may not be set.
        if judged && before.is_none() && field.starts_with("deletion") {
            continue;
        }
        if let (Some(given), "deletionTimestamp") = (&given, field)
            && Some(given) != before
            && !given.is_null()
            && !is_part_of_pod
        {
            let mut errors = api::field::Errors::new();
            let at = api::field::Path::new("metadata");
            errors.invalid(at.child(field), given.clone(), "field is immutable");
            let name = &call.target.name;
            return Err(Failure::invalid(resource.group, resource.kind, name, &errors));
        }
        metadata::copy(&mut object, old, field);
    }
    metadata::remove(&mut object, "selfLink");
    metadata::copy(&mut object, old, "resourceVersion");
    call.server.meaning.default(resource, &mut object);
    let managed_fields = match tracking {
        Tracking::Update => ownership::update(call, old, &object, subresource),
        Tracking::Done => object.at(&["metadata", "managedFields"]).cloned(),
        Tracking::Dropped => None,
    };
    metadata::remove(&mut object, "managedFields");
    admission::mutate(call.server, resource, &mut object, Operation::Update, call.user)?;
    call.restrict_node(subresource, Change::Update(&object, old))?;
    call.server.meaning.prepare_update(resource, &mut object, old, subresource);
    let errors = call.server.meaning.validate_update(resource, &given_empty.in_place(&object), old, subresource);
    if !errors.is_empty() {
        return Err(Failure::invalid(resource.group, resource.kind, &call.target.name, &errors));
    }
    given_empty.settle(&mut object);
    call.server.meaning.canonicalize(resource, &mut object);
    // What preparation leaves empty is filled in, so that the next change does not seem to set it.
    call.server.meaning.default(resource, &mut object);
    create::normalize(call, &mut object);
    admission::validate_update(call.server, resource, &object, old, subresource, call.user)?;
    if let Some(managed_fields) = managed_fields {
        metadata::set(&mut object, "managedFields", managed_fields);
        crate::objects::apply::keep_times(&mut object, old);
    }
    if metadata::is_deleting(&object) && metadata::finalizers(&object).is_empty() {
        let grace = object.at(&["metadata", "deletionGracePeriodSeconds"]).and_then(Value::as_i64);
        let is_namespace = (resource.group, resource.plural) == ("", "namespaces");
        let waits = is_namespace && !spec_finalizers(&object).is_empty();
        if grace.unwrap_or_default() == 0 && !waits {
            let version = metadata::text(old, "resourceVersion").to_owned();
            metadata::set(&mut object, "resourceVersion", version);
            create::normalize(call, &mut object);
            return Ok(Decision::Delete(object));
        }
    }
    Ok(Decision::Put(object))
}

/// What holds a namespace back beside its metadata.
pub(super) fn spec_finalizers(object: &Value) -> Vec<String> {
    let list = object.at(&["spec", "finalizers"]).and_then(Value::as_array).unwrap_or_default();
    list.iter().filter_map(Value::as_str).map(ToOwned::to_owned).collect()
}
