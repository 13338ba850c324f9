//! Replacing an object, and what all changes of an object share.

use api::json::Value;
use api::types::EmptyPositions;
use futures::future::BoxFuture;
use registry::conversion;
use registry::pipeline::{self, Identity, Pipeline, Rules as _, ServerStep, Update, Write};

use super::create::normalize;
use super::modify::{Decision, ModifyResult, Proposal, modify};
use super::{Call, create, ownership};
use crate::admission::{Attributes, Operation};
use crate::resources;
use crate::wire::answer::Answer;
use crate::wire::payload::{self, DecodedBody, FieldValidation};
use crate::wire::status::{Failure, Result};
use crate::wire::warnings;
use api::metadata;

/// Maximum number of retries if the object is created or deleted meanwhile.
const ATTEMPTS: usize = 5;

pub(super) async fn update(call: &Call<'_>, subresource: &str) -> Result<Answer> {
    if call.target.name.is_empty() || call.resource.namespaced && call.target.namespace.is_empty() {
        return Err(Failure::method_not_allowed());
    }
    let dry_run = call.is_dry_run()?;
    let validation = FieldValidation::from_query(call.query, "UpdateOptions")?;
    let (DecodedBody { mut object, complaints, given_empty }, owner_warnings) = read(call)?;
    warnings::add(payload::check_fields(validation, call.resource.kind, &call.target.version, complaints)?);
    warnings::add(owner_warnings);
    let based_on = Preconditions::of(call, &object);
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
            let (given_empty, based_on) = (given_empty.clone(), based_on.clone());
            let is_whole = true;
            let change = Change { object, given_empty, based_on, subresource, tracking, dry_run, is_whole };
            Ok(Decision::Admit(Box::new(change)))
        });
        match changed.await {
            Ok(done) => return show(call, done).await,
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
async fn create_instead(call: &Call<'_>, given_empty: &EmptyPositions, dry_run: bool) -> Result<Answer> {
    let mut object = read(call)?.0.object;
    let uid = metadata::text(&object, "uid").to_owned();
    if !uid.is_empty() {
        return Err(wrong_uid(call, &uid, ""));
    }
    call.rules().fill_defaults(&mut object);
    pipeline::reset_metadata(&mut object);
    metadata::remove(&mut object, "resourceVersion");
    let managed_fields = ownership::create(call, &object).await;
    metadata::remove(&mut object, "managedFields");
    let creation = create::Creation { tracking: Tracking::Update, dry_run, needs_right: true };
    create::insert(call, object, given_empty, managed_fields, creation).await
}

/// Returns the request's object in the stored version, and warnings about its owners.
fn read(call: &Call<'_>) -> Result<(DecodedBody, Vec<String>)> {
    let (resource, version) = (call.resource, call.target.version.as_str());
    let payload = payload::read(call.headers, &call.body, resource.kind)?;
    let mut decoded = call.read(payload)?;
    check_name(call, &decoded.object)?;
    if !conversion::is_stored(resource, version) {
        conversion::to_stored(resource, version, &mut decoded.object);
        normalize(call, &mut decoded.object);
    }
    let mut write = call.write(decoded.object, &decoded.given_empty, None, Identity::default());
    let received = Pipeline::update().run_until(ServerStep::Keep, &mut write, &call.rules());
    received.map_err(|rejection| call.rejected(&rejection, &call.target.name, &Value::Null))?;
    let Write { object, warnings, .. } = write;
    decoded.object = object;
    Ok((decoded, warnings))
}

/// The answer after a change.
pub(super) async fn show(call: &Call<'_>, done: ModifyResult) -> Result<Answer> {
    match done {
        ModifyResult::Stored(object) => call.answer_stored(200, &object).await,
        ModifyResult::Deleted(value) | ModifyResult::Dry(value) => call.answer_value(200, &value),
    }
}

pub(super) fn check_name(call: &Call<'_>, object: &Value) -> Result<()> {
    let (name, expected) = (metadata::name(object), call.target.name.as_str());
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

/// The resource version and UID that the client sent as preconditions of its update.
#[derive(Clone)]
pub(super) struct Preconditions {
    version: String,
    uid: String,
}

impl Preconditions {
    /// Reads it from an object.
    pub(super) fn of(call: &Call<'_>, object: &Value) -> Result<Self> {
        let version = metadata::text(object, "resourceVersion").to_owned();
        if !version.is_empty() && version.parse::<u64>().is_err() {
            return Err(Failure::unclassified(format!("strconv.ParseUint: parsing \"{version}\": invalid syntax")));
        }
        if matches!(version.as_str(), "" | "0") && !call.resource.allows_unconditional_update(&call.target.version) {
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

    /// Checks that the UID is that of the stored object.
    fn check_uid(&self, call: &Call<'_>, old: &Value) -> Result<()> {
        let uid = metadata::text(old, "uid");
        if !self.uid.is_empty() && self.uid != uid {
            return Err(wrong_uid(call, &self.uid, uid));
        }
        Ok(())
    }

    /// Checks that the resource version is that of the stored object.
    fn check_version(&self, call: &Call<'_>, old: &Value) -> Result<()> {
        let is_set = !matches!(self.version.as_str(), "" | "0");
        if is_set && self.version != metadata::text(old, "resourceVersion") {
            return Err(Failure::modified(call.resource, &call.target.name));
        }
        Ok(())
    }
}

/// The rejection of a patch that gives an object another UID.
fn immutable_uid(call: &Call<'_>, uid: &str) -> Box<Failure> {
    let mut errors = api::field::Errors::new();
    let at = api::field::Path::new("metadata");
    errors.invalid(at.child("uid"), uid, "field is immutable");
    if call.resource.group == "apiregistration.k8s.io" {
        // The rules of this kind look at metadata once more, and the errors of both are listed.
        errors.invalid(at.child("uid"), uid, "field is immutable");
    }
    Failure::invalid(call.resource.group, call.resource.kind, &call.target.name, &errors)
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

/// Kubernetes' storage path of a resource, as in its rejections.
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

/// State of managed fields in a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tracking {
    /// Not updated yet: the writer will own the changed fields.
    Update,
    /// Already updated.
    Done,
    /// Dropped, because the object would become too large.
    Dropped,
}

/// As [`modify`], and once more without managed fields if they make the object too large for the store.
pub(super) async fn modify_tracked<'p>(
    call: &Call<'_>,
    dry_run: bool,
    mut decide: impl FnMut(&Value, Tracking) -> Result<Decision<'p>>,
) -> Result<ModifyResult> {
    match modify(call, dry_run, |old| decide(old, Tracking::Update)).await {
        Err(failure) if failure.code == 413 => modify(call, dry_run, |old| decide(old, Tracking::Dropped)).await,
        done => done,
    }
}

/// A changed document, in the stored version.
pub(super) struct Change<'p> {
    pub(super) object: Value,
    pub(super) given_empty: EmptyPositions,
    /// Checked once admission has seen the object.
    pub(super) based_on: Result<Preconditions>,
    pub(super) subresource: &'p str,
    pub(super) tracking: Tracking,
    pub(super) dry_run: bool,
    /// Whether admission receives the object; otherwise it has received the source of the change, such as a
    /// `Scale`.
    pub(super) is_whole: bool,
}

impl Proposal for Change<'_> {
    fn admit<'a>(self: Box<Self>, call: &'a Call<'_>, old: &'a Value) -> BoxFuture<'a, Result<Decision<'a>>>
    where
        Self: 'a,
    {
        Box::pin(async move {
            let subresource = self.subresource;
            let decision = change(call, *self, old).await?;
            warnings::add(decision.warnings(call, old, subresource));
            Ok(decision)
        })
    }
}

/// Metadata that the server knows, whether or not it is sent.
const SYSTEM_FIELDS: [&str; 5] =
    ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion"];

/// Turns a changed document into what is to be written, or into a deletion if the last finalizer of an object that is
/// being deleted was removed.
pub(super) async fn change(call: &Call<'_>, change: Change<'_>, old: &Value) -> Result<Decision<'static>> {
    let Change { mut object, given_empty, based_on, subresource, tracking, dry_run, is_whole } = change;
    let resource = call.resource;
    // The parts of pods take only what they are about.
    let is_part_of_pod = resource.is(resources::PODS) && !subresource.is_empty();
    let rules = call.rules();
    let judged = !is_part_of_pod && rules.judges_metadata();
    // A patch may name the object that it is for, and cannot make it another one.
    let other_uid = Some(metadata::text(&object, "uid"))
        .filter(|uid| !uid.is_empty() && *uid != metadata::text(old, "uid"))
        .map(ToOwned::to_owned);
    // Kubernetes: mutating admission sees the object as it was sent.
    let unsent: Vec<&str> =
        SYSTEM_FIELDS.into_iter().filter(|field| object.at(&["metadata", field]).is_none()).collect();
    for field in ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let given = object.at(&["metadata", field]).cloned();
        let before = old.at(&["metadata", field]);
        // Kinds with their own rules report the error themselves.
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
    let part = Some(subresource).filter(|it| !it.is_empty());
    let update = Update { old, subresource: part };
    let mut write = call.write(object, &given_empty, Some(update), Identity::default());
    let mut steps = Pipeline::update().after(ServerStep::Keep);
    let done = steps.run_until(ServerStep::Mutate, &mut write, &rules);
    done.map_err(|rejection| call.rejected(&rejection, &call.target.name, &write.object))?;
    let object = &mut write.object;
    let managed_fields = match tracking {
        Tracking::Update => ownership::update(call, old, object, subresource).await,
        Tracking::Done => object.at(&["metadata", "managedFields"]).cloned(),
        Tracking::Dropped => None,
    };
    match managed_fields {
        Some(managed_fields) => metadata::set(object, "managedFields", managed_fields),
        None => metadata::remove(object, "managedFields"),
    }
    let options = || call.options("UpdateOptions");
    let mut attributes = call.attributes(Operation::Update, subresource, dry_run, &options);
    attributes.old = Some(old);
    if is_whole {
        unsent.iter().for_each(|field| metadata::remove(object, field));
        call.server.admission.mutate(&attributes, object).await?;
        for field in unsent {
            if object.at(&["metadata", field]).is_none() {
                metadata::copy(object, old, field);
            }
        }
    }
    // Kubernetes: mutating webhooks are called before this is rejected.
    if let Some(uid) = other_uid {
        return Err(immutable_uid(call, &uid));
    }
    let managed_fields = metadata::make(object).remove("managedFields");
    based_on?.check_version(call, old)?;
    // A webhook may have set it.
    let version = metadata::text(object, "resourceVersion");
    if !matches!(version, "" | "0") && version != metadata::text(old, "resourceVersion") {
        return Err(Failure::modified(resource, &call.target.name));
    }
    let completed = steps.run_until(ServerStep::Complete, &mut write, &rules);
    // A webhook may have changed the name, which is then refused under the new one.
    completed.map_err(|rejection| call.rejected(&rejection, metadata::name(&write.object), &write.object))?;
    if let Some(managed_fields) = managed_fields {
        metadata::set(&mut write.object, "managedFields", managed_fields);
        patching::apply::keep_times(&mut write.object, old);
    }
    let done = steps.run_until(ServerStep::Admit, &mut write, &rules);
    done.map_err(|rejection| call.rejected(&rejection, &call.target.name, &write.object))?;
    // Plugins may still refuse the change; the client gets these warnings nevertheless.
    warnings::add(std::mem::take(&mut write.warnings));
    if is_whole {
        call.server.admission.validate(&Attributes { object: Some(&write.object), ..attributes }).await?;
    }
    let finished = steps.run_rest(&mut write, &rules);
    finished.map_err(|rejection| call.rejected(&rejection, &call.target.name, &write.object))?;
    let mut object = write.object;
    if !given_empty.is_empty() {
        // A list that was sent empty may have been the only difference.
        patching::apply::keep_times(&mut object, old);
    }
    if metadata::is_deleting(&object) && metadata::finalizers(&object).is_empty() {
        let grace = object.i64_at(&["metadata", "deletionGracePeriodSeconds"]);
        let is_namespace = resource.is(resources::NAMESPACES);
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

/// Finalizers of a namespace besides its metadata.
pub(super) fn spec_finalizers(object: &Value) -> Vec<String> {
    let list = object.list_at(&["spec", "finalizers"]);
    list.iter().filter_map(Value::as_str).map(ToOwned::to_owned).collect()
}
