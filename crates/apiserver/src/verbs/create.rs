//! Creating an object.

use api::json::Value;
use api::types::GivenEmpty;
use store::{Entry, Guard, Outcome, Write};

use super::update::Tracking;
use super::{Call, ownership};
use crate::admission::node_restriction::Change;
use crate::admission::{self, Operation};
use crate::clock;
use crate::http::answer::Answer;
use crate::http::payload::{self, FieldValidation};
use crate::http::status::{Failure, Result};
use crate::http::warnings;
use crate::objects::metadata;
use crate::objects::services;
use crate::random;
use crate::resources::Resource;
use crate::storage::stored::Served;
use registry::conversion;

/// What clients may not set in a new object.
pub(super) const SYSTEM_FIELDS: [&str; 3] = ["selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"];

/// So often another name is tried if a generated one is taken.
const GENERATE_ATTEMPTS: usize = 8;

pub(super) async fn create(call: &Call<'_>) -> Result<Answer> {
    if call.resource.namespaced && call.target.namespace.is_empty() || !call.target.name.is_empty() {
        return Err(Failure::method_not_allowed());
    }
    let dry_run = call.is_dry_run()?;
    let validation = FieldValidation::from_query(call.query, "CreateOptions")?;
    let (resource, version) = (call.resource, call.target.version.as_str());
    let payload = payload::read(call.headers, &call.body, resource.kind)?;
    let decoded = call.read(payload)?;
    warnings::add(payload::check_fields(validation, resource.kind, version, decoded.complaints)?);
    check_terminating(call, &decoded.object)?;
    let mut object = decoded.object;
    check_namespace(call, &mut object)?;
    warnings::add(merge_owners(&mut object, ""));
    // Only the store asks for that, and a dry run does not get there.
    if !dry_run && !metadata::text(&object, "resourceVersion").is_empty() {
        return Err(Failure::unclassified("resourceVersion should not be set on objects to be created"));
    }
    if !conversion::is_stored(resource, version) {
        conversion::to_stored(resource, version, &mut object);
        normalize(call, &mut object);
    }
    call.server.meaning.default(resource, &mut object);
    for field in SYSTEM_FIELDS {
        metadata::remove(&mut object, field);
    }
    let managed_fields = ownership::create(call, &object);
    metadata::remove(&mut object, "managedFields");
    insert(call, object, &decoded.given_empty, managed_fields, Tracking::Update, dry_run).await
}

/// Refuses new objects of a definition that is going.
pub(super) fn check_terminating(call: &Call<'_>, object: &Value) -> Result<()> {
    if !call.custom().is_some_and(|custom| custom.is_terminating) {
        return Ok(());
    }
    let why = "create not allowed while custom resource definition is terminating";
    let name = metadata::text(object, "name");
    Err(Failure::forbidden(call.resource.group, call.resource.plural, name, why))
}

/// Stores an object that does not exist yet. It is in the stored version, with defaults and without managed fields.
pub(super) async fn insert(
    call: &Call<'_>,
    mut object: Value,
    given_empty: &GivenEmpty,
    mut managed_fields: Option<Value>,
    tracking: Tracking,
    dry_run: bool,
) -> Result<Answer> {
    let resource = call.resource;
    let stem = metadata::text(&object, "generateName").to_owned();
    let generated = metadata::text(&object, "name").is_empty() && !stem.is_empty();
    for attempt in 1..=GENERATE_ATTEMPTS {
        // Only a generated name can be taken and tried again.
        let mut object = if generated { object.clone() } else { object.take() };
        metadata::set(&mut object, "uid", random::uid());
        metadata::set(&mut object, "creationTimestamp", clock::now().to_string());
        admission::mutate_new(call.server, call.resource, &mut object, call.user).await?;
        call.restrict_node("", Change::Create(&object))?;
        call.confirm_rights(&object, None)?;
        if generated {
            metadata::set(&mut object, "name", generate_name(&stem));
        }
        let name = metadata::text(&object, "name").to_owned();
        call.server.meaning.prepare_create(resource, &mut object);
        admission::name_sender(resource, &mut object, call.user);
        let errors = call.server.meaning.validate_create(resource, &given_empty.in_place(&object));
        let errors = admission::complain(resource, &object, errors);
        if !errors.is_empty() {
            return Err(Failure::invalid(resource.group, resource.kind, &name, &errors));
        }
        given_empty.settle(&mut object);
        call.server.meaning.canonicalize(resource, &mut object);
        // What preparation leaves empty is filled in, so that the next change does not seem to set it.
        call.server.meaning.default(resource, &mut object);
        normalize(call, &mut object);
        admission::validate(call.server, resource, &object, None, Operation::Create, call.user).await?;
        warnings::add(call.server.meaning.warnings(resource, &object, None, ""));
        warnings::add(admission::unenforced::warnings(resource, &object, None));
        let reserved = services::reserve(call.server, resource, &mut object, None, dry_run).await?;
        if let Err(failure) = admission::charge(call.server, resource, &object, dry_run).await {
            services::revert(call.server, &object, &reserved).await;
            return Err(failure);
        }
        let managed_fields = if generated { managed_fields.clone() } else { managed_fields.take() };
        if let Some(managed_fields) = managed_fields {
            metadata::set(&mut object, "managedFields", managed_fields);
        }
        if dry_run {
            if let Some(entry) = call.server.store.get(&key(call, &name), 0).await?.entry {
                return Err(taken(resource, &name, &stem, Some(entry)));
            }
            return call.answer_value(201, &object);
        }
        let mut bytes = call.encode(&mut object).ok_or_else(|| Failure::internal("the object has no metadata"))?;
        let write = |value| {
            let change = store::Change::Put { value, ttl: call.server.time_to_live(resource) };
            call.server.store.write(Write { key: key(call, &name), guard: Guard::Absent, change })
        };
        let mut outcome = write(bytes.clone()).await;
        if matches!(outcome, Err(store::Error::TooLarge { .. })) && tracking == Tracking::Update {
            // Managed fields may be what makes it too large; it is worth more without them.
            metadata::remove(&mut object, "managedFields");
            bytes = call.encode(&mut object).ok_or_else(|| Failure::internal("the object has no metadata"))?;
            outcome = write(bytes.clone()).await;
        }
        let outcome = outcome?;
        if matches!(outcome, Outcome::Conflict { .. }) {
            services::revert(call.server, &object, &reserved).await;
        }
        match outcome {
            Outcome::Done { revision } => {
                let served =
                    Served::new(&bytes, revision).ok_or_else(|| Failure::internal("the object was not encoded"))?;
                return call.answer(201, &served);
            }
            Outcome::Conflict { .. } if generated && attempt < GENERATE_ATTEMPTS => {}
            Outcome::Conflict { current } => return Err(taken(resource, &name, &stem, current)),
        }
    }
    Err(Failure::already_exists(resource, &stem))
}

/// The name belongs to another object.
fn taken(resource: &Resource<'_>, name: &str, stem: &str, current: Option<Entry>) -> Box<Failure> {
    let mut failure = Failure::already_exists(resource, name);
    if !stem.is_empty() {
        failure.message.push_str(", the server was not able to generate a unique name for the object");
        failure = failure.with_detail("retryAfterSeconds", Value::Int(1));
    }
    let existing = current.and_then(|entry| Served::new(&entry.value, entry.revision));
    if existing.is_some_and(|existing| metadata::is_deleting(&existing.decode())) {
        failure.message = format!("object is being deleted: {}", failure.message);
    }
    failure
}

fn key(call: &Call<'_>, name: &str) -> String {
    call.resource.key(&call.target.namespace, name)
}

/// Makes equal references to owners one; gives back what users are told.
pub(super) fn merge_owners(object: &mut Value, when: &str) -> Vec<String> {
    object.get_mut("metadata").map(|it| registry::admit::merge_owners(it, when)).unwrap_or_default()
}

/// A name that starts with `stem` and fits into a label.
fn generate_name(stem: &str) -> String {
    let end = stem.char_indices().map(|(at, _)| at).chain([stem.len()]).take_while(|at| *at <= 58).last().unwrap_or(0);
    format!("{}{}", stem.get(..end).unwrap_or_default(), random::suffix())
}

/// Takes the namespace from the path where the object has none.
pub(super) fn check_namespace(call: &Call<'_>, object: &mut Value) -> Result<()> {
    let expected = if call.resource.namespaced { call.target.namespace.as_str() } else { "" };
    let given = metadata::text(object, "namespace");
    if given == expected {
        return Ok(());
    }
    if !given.is_empty() && !expected.is_empty() {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Failure::bad_request(message));
    }
    if expected.is_empty() {
        metadata::remove(object, "namespace");
    } else {
        metadata::set(object, "namespace", expected);
    }
    Ok(())
}

/// Brings a document of the stored version into its normal form.
pub(super) fn normalize(call: &Call<'_>, object: &mut Value) {
    if call.custom().is_some() {
        return;
    }
    let api_version = conversion::stored_api_version(call.resource);
    if let Some(of) = api::types::by_api_version(&api_version, call.resource.kind) {
        api::types::normalize(of, object);
    }
}
