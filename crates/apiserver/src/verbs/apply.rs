//! Server-side apply: what a client wants of an object is merged into it, or becomes it.
//!
//! What that means is in [`crate::objects::apply`]; here a request becomes a write, and a refusal becomes an answer.

use api::json::{self, Value};
use api::types::GivenEmpty;
use api::yaml;

use super::create::{SYSTEM_FIELDS, check_namespace, check_terminating, insert, normalize};
use super::modify::modify;
use super::update::{BasedOn, Tracking, change, check_name, check_uid, show};
use super::{Call, FIELD_MANAGER_BYTES_MAX, ownership};
use crate::authorization;
use crate::clock;
use crate::http::answer::Answer;
use crate::http::payload::FieldValidation;
use crate::http::status::{Failure, Result};
use crate::http::warnings;
use crate::objects::apply::{Refusal, Write, conflict_message};
use crate::objects::metadata;
use registry::conversion;

/// So often apply starts over if the object appears or goes meanwhile.
const ATTEMPTS: usize = 5;

pub(super) async fn apply(call: &Call<'_>, subresource: &str) -> Result<Answer> {
    let (config, complaints) = read_request(call)?;
    warnings::add(complaints);
    let dry_run = call.is_dry_run()?;
    let force = call.query.flag("force");
    let versions = ownership::versions(call, subresource);
    let api_version = call.resource.api_version(&call.target.version);
    let (manager, now) = (ownership::manager(call), clock::now().to_string());
    let write = ownership::write(call, &*versions, &api_version, subresource, &manager, &now);
    for attempt in 1..=ATTEMPTS {
        let changed = modify(call, dry_run, |old| {
            let mut live = old.clone();
            call.convert(&mut live);
            let object = applied(call, &write, &live, &config, force)?;
            let object = checked(call, object)?;
            call.confirm_rights(&object, Some(old))?;
            let based_on = BasedOn::of(call, &object)?;
            based_on.check_version(call, &object, old, subresource)?;
            check_uid(call, &object, old)?;
            let decision = change(call, object, &GivenEmpty::default(), old, subresource, Tracking::Done)?;
            warnings::add(decision.warnings(call, old, subresource));
            Ok(decision)
        });
        match changed.await {
            Ok(done) => return show(call, done),
            Err(failure) if failure.code == 404 && subresource.is_empty() && attempt < ATTEMPTS => {}
            Err(failure) => return Err(failure),
        }
        let object = applied(call, &write, &versions.empty(&api_version), &config, force)?;
        let uid = metadata::text(&object, "uid").to_owned();
        if !uid.is_empty() {
            let why =
                format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
            return Err(Failure::conflict(call.resource, &call.target.name, &why));
        }
        let asked = authorization::Request::Resource { verb: "create", target: call.target };
        check_terminating(call, &object)?;
        let mut object = checked(call, object)?;
        let managed_fields = metadata::make(&mut object).remove("managedFields");
        for field in SYSTEM_FIELDS {
            metadata::remove(&mut object, field);
        }
        metadata::remove(&mut object, "resourceVersion");
        normalize(call, &mut object);
        call.server.meaning.default(call.resource, &mut object);
        call.server.authorizer.authorize(call.user, asked)?;
        match insert(call, object, &GivenEmpty::default(), managed_fields, Tracking::Done, dry_run).await {
            Ok(answer) => return Ok(answer),
            // Someone else was faster: then it is a change.
            Err(failure) if failure.reason == "AlreadyExists" && attempt < ATTEMPTS => {}
            Err(failure) => return Err(failure),
        }
    }
    Err(Failure::modified(call.resource, &call.target.name))
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

/// What a request to apply must say.
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
            let (documents, error) = yaml::parse_documents(text);
            if let Some(error) = error {
                return Err(Failure::bad_request(format!("error encoding patch: {}", error.message)));
            }
            documents.into_iter().next().unwrap_or_default()
        }
    };
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
fn applied(call: &Call<'_>, write: &Write<'_>, live: &Value, config: &Value, force: bool) -> Result<Value> {
    let applied = write.apply(live, config, force).map_err(refused)?;
    let mut object = applied.object.unwrap_or_else(|| live.clone());
    metadata::remove(&mut object, "managedFields");
    let Some(of) = call.resource.object_type(&call.target.version) else {
        return Ok(with_managed_fields(object, applied.managed_fields));
    };
    let decoded = api::types::decode(of, &object).map_err(|why| {
        let (namespace, name) = (metadata::text(config, "namespace"), metadata::text(config, "name"));
        let slash = if write.api_version.contains('/') { "" } else { "/" };
        let kind = format!("{slash}{}, Kind={}", write.api_version, write.kind);
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
