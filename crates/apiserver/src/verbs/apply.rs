//! Server-side apply: merges the applied fields into an object, or creates it.
//!
//! What that means is in [`patching::apply`]; here a request becomes a write, and a refusal becomes an answer.

use api::json::{self, Value};
use api::types::EmptyPositions;
use api::yaml;
use futures::future::BoxFuture;

use super::create::{Creation, check_namespace, check_terminating, insert, normalize};
use super::modify::{Decision, Proposal, modify};
use super::update::{Change, Preconditions, Tracking, check_name, show};
use super::{Call, FIELD_MANAGER_BYTES_MAX, ownership};
use crate::wire::answer::Answer;
use crate::wire::heavy;
use crate::wire::payload::{self, FieldValidation};
use crate::wire::status::{Failure, Result};
use crate::wire::warnings;
use api::metadata;
use patching::apply::{Refusal, Versions, conflict_message};
use registry::conversion;
use registry::pipeline::{self, Rules as _};

/// Maximum number of retries if the object is created or deleted meanwhile.
const ATTEMPTS: usize = 5;

pub(super) async fn apply(call: &Call<'_>, subresource: &str) -> Result<Answer> {
    let (config, complaints) = read_request(call)?;
    warnings::add(complaints);
    let dry_run = call.is_dry_run()?;
    let force = call.query.flag("force");
    let api_version = call.resource.api_version(&call.target.version);
    for attempt in 1..=ATTEMPTS {
        let changed = modify(call, dry_run, |_| {
            Ok(Decision::Admit(Box::new(Application { config: &config, force, subresource, dry_run })))
        });
        match changed.await {
            Ok(done) => return show(call, done).await,
            Err(failure) if failure.code == 404 && subresource.is_empty() && attempt < ATTEMPTS => {}
            Err(failure) => return Err(failure),
        }
        let empty = ownership::versions(call, subresource).empty(&api_version);
        let object = applied(call, subresource, &empty, &config, force).await?;
        let uid = metadata::text(&object, "uid").to_owned();
        if !uid.is_empty() {
            let why =
                format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
            return Err(Failure::conflict(call.resource, &call.target.name, &why));
        }
        check_terminating(call, &object)?;
        let mut object = checked(call, object)?;
        let managed_fields = metadata::make(&mut object).remove("managedFields");
        pipeline::reset_metadata(&mut object);
        metadata::remove(&mut object, "resourceVersion");
        normalize(call, &mut object);
        call.rules().fill_defaults(&mut object);
        let creation = Creation { tracking: Tracking::Done, dry_run, needs_right: true };
        match insert(call, object, &EmptyPositions::default(), managed_fields, creation).await {
            Ok(answer) => return Ok(answer),
            // Someone else was faster: then it is a change.
            Err(failure) if failure.reason == "AlreadyExists" && attempt < ATTEMPTS => {}
            Err(failure) => return Err(failure),
        }
    }
    Err(Failure::modified(call.resource, &call.target.name))
}

/// A configuration that is merged into an object.
struct Application<'p> {
    config: &'p Value,
    force: bool,
    subresource: &'p str,
    dry_run: bool,
}

impl Proposal for Application<'_> {
    fn admit<'a>(self: Box<Self>, call: &'a Call<'_>, old: &'a Value) -> BoxFuture<'a, Result<Decision<'a>>>
    where
        Self: 'a,
    {
        Box::pin(async move {
            let Self { config, force, subresource, dry_run } = *self;
            let mut live = old.clone();
            call.convert(&mut live);
            let object = applied(call, subresource, &live, config, force).await?;
            let object = checked(call, object)?;
            let based_on = Preconditions::of(call, &object);
            let (given_empty, tracking, is_whole) = (EmptyPositions::default(), Tracking::Done, true);
            let change = Change { object, given_empty, based_on, subresource, tracking, dry_run, is_whole };
            Box::new(change).admit(call, old).await
        })
    }
}

/// The configuration of a request, and what to warn about.
pub(super) fn read_request(call: &Call<'_>) -> Result<(Value, Vec<String>)> {
    check_options(call)?;
    let validation = FieldValidation::from_query(call.query, "PatchOptions")?;
    let (config, complaints) = read(&call.body)?;
    match (validation, complaints.first()) {
        (FieldValidation::Strict, Some(complaint)) => {
            Err(Failure::bad_request(format!("error strict decoding patch: {complaint}")))
        }
        (FieldValidation::Warn, _) => Ok((config, complaints)),
        _ => Ok((config, Vec::new())),
    }
}

/// Validates the options of an apply request.
fn check_options(call: &Call<'_>) -> Result<()> {
    let manager = call.query.get("fieldManager");
    let at = api::field::Path::new("fieldManager");
    let mut errors = api::field::Errors::new();
    if manager.is_empty() {
        errors.required(at, "is required for apply patch");
    }
    if manager.len() > FIELD_MANAGER_BYTES_MAX {
        errors.too_long(at, FIELD_MANAGER_BYTES_MAX);
    }
    for (position, letter) in manager.char_indices().filter(|(_, it)| !api::go_text::is_printable(*it)) {
        let detail = format!("invalid character U+{:04X} (at position {position})", u32::from(letter));
        errors.invalid(at, manager, detail);
    }
    if errors.is_empty() { Ok(()) } else { Err(Failure::invalid("meta.k8s.io", "PatchOptions", "", &errors)) }
}

/// The configuration, and what strict reading complains about.
fn read(body: &[u8]) -> Result<(Value, Vec<String>)> {
    let text = std::str::from_utf8(body)
        .map_err(|_| Failure::bad_request("error encoding patch: yaml: invalid leading UTF-8 octet"))?;
    let document = match json::parse_document(body) {
        Ok(mut document) => {
            whole_numbers(&mut document.value);
            document
        }
        Err(_) => {
            let (documents, error) = yaml::parse_documents_while(text, &heavy::is_wanted);
            if let Some(error) = error {
                return Err(Failure::bad_request(format!("error encoding patch: {}", error.message)));
            }
            documents.into_iter().next().unwrap_or_default()
        }
    };
    payload::check_elements(&document.value, body)?;
    let value = match document.value {
        Value::Null => Value::object(),
        value @ Value::Object(_) => value,
        other => {
            let kind = other.kind();
            return Err(Failure::bad_request(format!(
                "error decoding patch: json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"
            )));
        }
    };
    let lines: Vec<String> =
        document.duplicates.iter().map(|it| format!("\n  {}", repeated_key(text, it.offset))).collect();
    if lines.is_empty() {
        return Ok((value, Vec::new()));
    }
    Ok((value, vec![format!("error converting YAML to JSON: yaml: unmarshal errors:{}", lines.concat())]))
}

/// Numbers pass through YAML, for which `1.0` and `1` are the same.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Float(number) => {
            if let Ok(whole) = number.to_string().parse::<i64>() {
                *value = Value::Int(whole);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(fields) => fields.values_mut().for_each(whole_numbers),
        _ => {}
    }
}

/// Names the key that starts at `offset`.
fn repeated_key(text: &str, offset: usize) -> String {
    let (before, rest) = text.split_at_checked(offset).unwrap_or((text, ""));
    let line = before.bytes().filter(|byte| *byte == b'\n').count().saturating_add(1);
    let quoted = json::parse_prefix(rest.as_bytes()).ok();
    let key = match quoted {
        Some((Value::String(key), _)) => key.to_string(),
        _ => rest.split(':').next().unwrap_or_default().trim().to_owned(),
    };
    format!("line {line}: key {} already set in map", api::go_text::quote(&key))
}

/// The object with the configuration in it, in the client's version and in normal form, with managed fields.
async fn applied(call: &Call<'_>, subresource: &str, live: &Value, config: &Value, force: bool) -> Result<Value> {
    let api_version = call.resource.api_version(&call.target.version);
    let (manager, now) = (ownership::manager(call), call.now().to_string());
    let work = |versions: &dyn Versions| {
        ownership::write(call, versions, &api_version, subresource, &manager, &now).apply(live, config, force)
    };
    let applied = ownership::tracked(call, subresource, work).await.map_err(Failure::unclassified)?;
    let applied = applied.map_err(refused)?;
    let mut object = applied.object.unwrap_or_else(|| live.clone());
    metadata::remove(&mut object, "managedFields");
    let Some(of) = call.resource.object_type(&call.target.version) else {
        return Ok(with_managed_fields(object, applied.managed_fields));
    };
    let decoded = api::types::decode(of, &object).map_err(|why| {
        // Kubernetes converts the merged object from maps, which has other texts than reading JSON.
        let why = api::types::restore_error(of, &object).unwrap_or(why);
        let (namespace, name) = (metadata::namespace(config), metadata::name(config));
        let slash = if api_version.contains('/') { "" } else { "/" };
        let kind = format!("{slash}{api_version}, Kind={}", call.resource.kind);
        Failure::unclassified(format!(
            "failed to convert new object ({namespace}/{name}; {kind}) to proper version: \
             unable to convert unstructured object to {kind}: {why}"
        ))
    })?;
    Ok(with_managed_fields(decoded.value, applied.managed_fields))
}

fn with_managed_fields(mut object: Value, managed_fields: Option<Value>) -> Value {
    if let Some(managed_fields) = managed_fields {
        metadata::set(&mut object, "managedFields", managed_fields);
    }
    object
}

pub(super) fn refused(refusal: Refusal) -> Box<Failure> {
    match refusal {
        Refusal::BadRequest(message) => Failure::bad_request(message),
        Refusal::Unfit(message) => Failure::unclassified(message),
        Refusal::Conflicts(conflicts) => {
            let (message, causes) = conflict_message(&conflicts);
            Failure::new(409, "Conflict", message).with_detail("causes", causes)
        }
    }
}

/// The object in the stored version, if it is the one that the path names.
fn checked(call: &Call<'_>, mut object: Value) -> Result<Value> {
    check_namespace(call, &mut object)?;
    check_name(call, &object)?;
    conversion::to_stored(call.resource, &call.target.version, &mut object);
    Ok(object)
}
