//! Creating an object.

use std::sync::Arc;

use api::json::Value;
use api::types::EmptyPositions;
use registry::conversion;
use registry::pipeline::{self, Identity, Pipeline, ServerStep};
use store::{Entry, Guard, Outcome, Write};

use super::update::Tracking;
use super::{Call, ownership};
use crate::admission::{Attributes, Operation};
use crate::authorization;
use crate::random;
use crate::resources::Resource;
use crate::verbs::services;
use crate::wire::answer::Answer;
use crate::wire::payload::{self, FieldValidation};
use crate::wire::status::{Failure, Result};
use crate::wire::warnings;
use api::metadata;
use cache::stored::ServedObject;

/// Maximum number of attempts if a generated name is in use.
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
    if !conversion::is_stored(resource, version) {
        conversion::to_stored(resource, version, &mut object);
        normalize(call, &mut object);
    }
    let mut write = call.write(object, &decoded.given_empty, None, Identity::default());
    let received = Pipeline::create().run_until(ServerStep::Mutate, &mut write, &call.rules());
    warnings::add(write.warnings);
    let mut object = write.object;
    received.map_err(|rejection| call.rejected(&rejection, metadata::name(&object), &object))?;
    // Only the store checks it, which a dry run does not reach; a text that is not a number is ignored.
    let revision = metadata::text(&object, "resourceVersion").parse::<u64>().unwrap_or_default();
    if !dry_run && revision != 0 {
        return Err(Failure::unclassified("resourceVersion should not be set on objects to be created"));
    }
    if !dry_run {
        metadata::remove(&mut object, "resourceVersion");
    }
    let managed_fields = ownership::create(call, &object).await;
    metadata::remove(&mut object, "managedFields");
    let creation = Creation { tracking: Tracking::Update, dry_run, needs_right: false };
    insert(call, object, &decoded.given_empty, managed_fields, creation).await
}

/// Refuses new objects of a definition that is going.
pub(super) fn check_terminating(call: &Call<'_>, object: &Value) -> Result<()> {
    if !call.custom().is_some_and(|custom| custom.is_terminating) {
        return Ok(());
    }
    let why = "create not allowed while custom resource definition is terminating";
    let name = metadata::name(object);
    Err(Failure::forbidden(call.resource.group, call.resource.plural, name, why))
}

/// Parameters of a creation.
#[derive(Clone, Copy)]
pub(super) struct Creation {
    pub(super) tracking: Tracking,
    pub(super) dry_run: bool,
    /// Whether the right to create has not been checked yet, because the request is an update or apply.
    pub(super) needs_right: bool,
}

/// Stores an object that does not exist yet. It is in the stored version, with defaults and without managed fields.
pub(super) async fn insert(
    call: &Call<'_>,
    mut object: Value,
    given_empty: &EmptyPositions,
    managed_fields: Option<Value>,
    Creation { tracking, dry_run, needs_right }: Creation,
) -> Result<Answer> {
    let resource = call.resource;
    let options = || call.options("CreateOptions");
    let named = match call.target.name.as_str() {
        "" => metadata::name(&object).to_owned(),
        name => name.to_owned(),
    };
    let mut attributes = call.attributes(Operation::Create, "", dry_run, &options);
    attributes.name = &named;
    if let Some(managed_fields) = managed_fields {
        metadata::set(&mut object, "managedFields", managed_fields);
    }
    call.server.admission.mutate(&attributes, &mut object).await?;
    let mut managed_fields = metadata::make(&mut object).remove("managedFields");
    if needs_right {
        let asked = authorization::Request::Resource { verb: "create", target: call.target };
        call.server.authorizer.authorize(call.user, asked)?;
    }
    let stem = metadata::text(&object, "generateName").to_owned();
    let generated = metadata::name(&object).is_empty() && !stem.is_empty();
    for attempt in 1..=GENERATE_ATTEMPTS {
        // Only a generated name can be taken and tried again.
        let object = if generated { object.clone() } else { object.take() };
        let (uid, rules) = (random::uid(), call.rules());
        let name_suffix = if generated && !resource.keeps_name_prefix() { random::suffix() } else { String::new() };
        let identity = Identity { uid: &uid, now: rules.now(), name_suffix: &name_suffix };
        let mut write = call.write(object, given_empty, None, identity);
        let mut steps = Pipeline::create().after(ServerStep::Mutate);
        let prepared = steps.run_until(ServerStep::Complete, &mut write, &rules);
        let name = metadata::name(&write.object).to_owned();
        prepared.map_err(|rejection| call.rejected(&rejection, &name, &write.object))?;
        let reserved = services::reserve(call.server, resource, &mut write.object, None, dry_run).await?;
        let managed_fields = if generated { managed_fields.clone() } else { managed_fields.take() };
        if let Some(managed_fields) = managed_fields {
            metadata::set(&mut write.object, "managedFields", managed_fields);
        }
        let completed = steps.run_until(ServerStep::Admit, &mut write, &rules);
        completed.map_err(|rejection| call.rejected(&rejection, &name, &write.object))?;
        // Plugins may still refuse the object; the client gets these warnings nevertheless.
        warnings::add(std::mem::take(&mut write.warnings));
        let shown = if attributes.name.is_empty() { &name } else { attributes.name };
        let admitted = Attributes { name: shown, object: Some(&write.object), ..attributes };
        if let Err(failure) = call.server.admission.validate(&admitted).await {
            services::revert(call.server, &write.object, &reserved).await;
            return Err(failure);
        }
        let finished = steps.run_rest(&mut write, &rules);
        finished.map_err(|rejection| call.rejected(&rejection, &name, &write.object))?;
        let mut object = write.object;
        if dry_run {
            if let Some(entry) = call.server.store.get(&key(call, &name), 0).await?.entry {
                return Err(taken(resource, &name, &stem, Some(entry)));
            }
            call.check_encoding(&object).await?;
            return call.answer_value(201, &object);
        }
        if metadata::text(&object, "resourceVersion").parse::<u64>().is_ok_and(|it| it != 0) {
            // A webhook set it.
            services::revert(call.server, &object, &reserved).await;
            return Err(Failure::unclassified("resourceVersion should not be set on objects to be created"));
        }
        let mut bytes = call.encoded(&mut object).await?;
        let write = |value| {
            let change = store::Change::Put { value, ttl: call.server.time_to_live(resource) };
            call.server.store.write(Write { key: key(call, &name), guard: Guard::Absent, change })
        };
        let mut outcome = write(bytes.clone()).await;
        if matches!(outcome, Err(store::Error::TooLarge { .. })) && tracking == Tracking::Update {
            // Managed fields may be what makes it too large; it is worth more without them.
            metadata::remove(&mut object, "managedFields");
            bytes = call.encoded(&mut object).await?;
            outcome = write(bytes.clone()).await;
        }
        let outcome = outcome?;
        if matches!(outcome, Outcome::Conflict { .. }) {
            services::revert(call.server, &object, &reserved).await;
        }
        match outcome {
            Outcome::Done { revision } => {
                let served = ServedObject::new(&bytes, revision)
                    .ok_or_else(|| Failure::internal("the object was not encoded"))?;
                call.warm(key(call, &name), revision);
                return call.answer_stored(201, &Arc::new(served)).await;
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
    let existing = current.and_then(|entry| ServedObject::new(&entry.value, entry.revision));
    if existing.is_some_and(|existing| metadata::is_deleting(&existing.decode())) {
        failure.message = format!("object is being deleted: {}", failure.message);
    }
    failure
}

fn key(call: &Call<'_>, name: &str) -> String {
    call.resource.key(&call.target.namespace, name)
}

/// Takes the namespace from the path where the object has none.
pub(super) fn check_namespace(call: &Call<'_>, object: &mut Value) -> Result<()> {
    pipeline::check_namespace(object, call.namespace()).map_err(|rejection| call.rejected(&rejection, "", &Value::Null))
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
