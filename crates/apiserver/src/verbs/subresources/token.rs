//! Tokens for service accounts, good for a time and, if they are bound, while an object exists.
//!
//! Follows Kubernetes' `registry/core/serviceaccount/storage/token.go`.

use api::field::{Errors, Path};
use api::json;
use api::json::Value;

use super::super::ownership;
use super::super::reviews::texts;
use super::Call;
use crate::admission::{Attributes, Operation};
use crate::identity::service_accounts::{BoundObjects, Lifetime, Reference};
use crate::resources::{self, Resource};
use crate::wire::answer::Answer;
use crate::wire::payload::{self, FieldValidation};
use crate::wire::status::{Failure, Result};
use crate::wire::warnings;
use api::metadata;

const GROUP: &str = "authentication.k8s.io";
const KIND: &str = "TokenRequest";

const DEFAULT_SECONDS: i64 = 3600;
const SECONDS_MIN: i64 = 600;
const SECONDS_MAX: i64 = 1 << 32;
/// Lifetime that the kubelet requests on behalf of old clients that do not reload a token.
const WARN_SECONDS: i64 = 3607;
/// Lifetime of the token that is issued for such a request.
const EXTENDED_SECONDS: i64 = 365 * 24 * 3600;

pub(super) async fn create(call: &Call<'_>) -> Result<Answer> {
    let dry_run = call.is_dry_run()?;
    let validation = FieldValidation::from_query(call.query, "CreateOptions")?;
    let payload = payload::read(call.headers, &call.body, KIND)?;
    let of = api::types::by_kind(GROUP, "v1", KIND);
    let decoded = payload::decode_kind(GROUP, "v1", KIND, of, payload)?;
    warnings::add(payload::check_fields(validation, KIND, "v1", decoded.complaints)?);
    let mut request = decoded.object;
    let (namespace, name) = (call.target.namespace.as_str(), call.target.name.as_str());
    let given = metadata::namespace(&request);
    if !given.is_empty() && given != namespace {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Failure::bad_request(message));
    }
    metadata::set(&mut request, "namespace", namespace);
    if let Some(spec) = request.get_mut("spec").and_then(Value::as_object_mut)
        && spec.get("expirationSeconds").is_none_or(Value::is_null)
    {
        spec.insert("expirationSeconds", DEFAULT_SECONDS);
    }
    // Requests have managed fields, like objects.
    ownership::own(call, (GROUP, KIND), "token", &mut request);
    call.wait_for_now().await?;
    let options = || call.options("CreateOptions");
    let attributes = call.attributes(Operation::Create, "token", dry_run, &options);
    call.server.admission.mutate(&attributes, &mut request).await?;
    let given = metadata::name(&request);
    if !given.is_empty() && given != name {
        let mut errors = Errors::new();
        let detail = "must match the service account name if specified";
        errors.invalid(Path::new("metadata").child("name"), given, detail);
        return Err(Failure::invalid(GROUP, KIND, name, &errors));
    }
    let Some(account) = call.cache().get(&call.key()).map(|account| account.decode()) else {
        return Err(Failure::not_found(call.resource, name));
    };
    let (uid, given) = (metadata::text(&account, "uid"), metadata::text(&request, "uid"));
    if !given.is_empty() && given != uid {
        let why =
            format!("the UID in the token request ({given}) does not match the UID of the service account ({uid})");
        return Err(conflict(GROUP, KIND, name, &why));
    }
    let accounts = &call.server.authenticator.service_accounts;
    let mut audiences = texts(request.at(&["spec", "audiences"]));
    if audiences.is_empty() {
        audiences = accounts.audiences().to_vec();
    }
    let seconds = request.i64_at(&["spec", "expirationSeconds"]).unwrap_or(DEFAULT_SECONDS);
    let errors = validate(&request, seconds);
    if !errors.is_empty() {
        return Err(Failure::invalid(GROUP, KIND, "", &errors));
    }
    let now = call.now();
    metadata::set(&mut request, "name", name);
    metadata::set(&mut request, "uid", uid);
    metadata::set(&mut request, "creationTimestamp", now.to_string());
    call.server.admission.validate(&Attributes { object: Some(&request), ..attributes }).await?;
    let bound = bind(call, &request, name)?;
    let mut lifetime = Lifetime { seconds, warn_after_seconds: None };
    let for_server = audiences.iter().all(|it| accounts.audiences().contains(it));
    if bound.pod.is_some() && seconds == WARN_SECONDS && for_server {
        lifetime = Lifetime { seconds: EXTENDED_SECONDS, warn_after_seconds: Some(seconds) };
    }
    let issued = accounts.issue(&account, &bound, &audiences, now, lifetime);
    let (token, id) = issued.ok_or_else(|| Failure::internal("failed to generate token"))?;
    crate::audit::annotate("authentication.kubernetes.io/issued-credential-id", &format!("JTI={id}"));
    if let Some(spec) = request.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("expirationSeconds", seconds);
    }
    if let Some(spec) = request.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("audiences", Value::Array(audiences.into_iter().map(Into::into).collect()));
    }
    if let Some(fields) = request.as_object_mut() {
        let expires = now.plus_seconds(seconds).to_string();
        fields.insert("status", json!({"token": token, "expirationTimestamp": expires}));
    }
    let normal = of.and_then(|of| api::types::decode(of, &request).ok()).map_or(request, |normal| normal.value);
    Ok(Answer::json(201, &normal))
}

fn validate(request: &Value, seconds: i64) -> Errors {
    let mut errors = Errors::new();
    let spec = Path::new("spec");
    let at = spec.child("expirationSeconds");
    if seconds < SECONDS_MIN {
        errors.invalid(at, seconds, "may not specify a duration less than 10 minutes");
    }
    if seconds > SECONDS_MAX {
        errors.invalid(at, seconds, "may not specify a duration larger than 2^32 seconds");
    }
    let attestations =
        request.at(&["spec", "attestations"]).filter(|it| it.as_object().is_some_and(|it| !it.is_empty()));
    if let Some(attestations) = attestations {
        let detail = "attestations may only be specified with a webhook bound object reference";
        errors = Errors::new();
        errors.invalid(spec.child("attestations"), attestations.clone(), detail);
    }
    errors
}

fn conflict(group: &str, kind: &str, name: &str, why: &str) -> Box<Failure> {
    let qualified = resources::qualified(kind, group);
    let message = format!("Operation cannot be fulfilled on {qualified} \"{name}\": {why}");
    let mut failure = Failure::new(409, "Conflict", message).with_detail("name", name);
    if !group.is_empty() {
        failure = failure.with_detail("group", group);
    }
    failure.with_detail("kind", kind)
}

/// Returns the objects that the token is bound to, as they exist now.
fn bind(call: &Call<'_>, request: &Value, account: &str) -> Result<BoundObjects> {
    let mut bound = BoundObjects::default();
    let Some(reference) = request.at(&["spec", "boundObjectRef"]).filter(|it| !it.is_null()) else {
        return Ok(bound);
    };
    let at = |field: &str| reference.text(field);
    let (kind, api_version, name) = (at("kind"), at("apiVersion"), at("name"));
    // Kubernetes: an unreadable version counts as empty, and the value may be a kind of its own group.
    let (group, version) = match api_version.split('/').collect::<Vec<_>>().as_slice() {
        [group, version] => (*group, *version),
        [version] => ("", *version),
        _ => ("", ""),
    };
    let (resource, namespace) = match (group, kind) {
        ("", "Pod") => (resources::PODS, call.target.namespace.as_str()),
        ("", "Secret") => (resources::SECRETS, call.target.namespace.as_str()),
        ("", "Node") => (resources::NODES, ""),
        _ => {
            let shown = format!("{group}/{version}, Kind={kind}");
            return Err(Failure::bad_request(format!("cannot bind token to object of type {shown}")));
        }
    };
    let find = |resource: &'static Resource<'static>, namespace: &str, name: &str| {
        Failure::check_name_parameter(name)?;
        let found = call.server.cache.resource(&resource.prefix()).get(&resource.key(namespace, name));
        found.map(|object| object.decode()).ok_or_else(|| Failure::not_found(resource, name))
    };
    let object = find(resource, namespace, name)?;
    let uid = metadata::text(&object, "uid").to_owned();
    let this = Reference { name: name.to_owned(), uid: uid.clone() };
    match kind {
        "Pod" => {
            if object.text_at(&["spec", "serviceAccountName"]) != account {
                return Err(Failure::bad_request(format!(
                    "cannot bind token for serviceaccount \"{account}\" to pod running with different serviceaccount name."
                )));
            }
            let node = object.str_at(&["spec", "nodeName"]).filter(|node| !node.is_empty());
            bound.node = node.map(|node| {
                let uid = find(resources::NODES, "", node).map(|node| metadata::text(&node, "uid").to_owned());
                Reference { name: node.to_owned(), uid: uid.unwrap_or_default() }
            });
            bound.pod = Some(this);
        }
        "Secret" => bound.secret = Some(this),
        _ => bound.node = Some(this),
    }
    let given = at("uid");
    if !given.is_empty() && given != uid {
        let why = format!(
            "the UID in the bound object reference ({given}) does not match the UID in record. The object might have been deleted and then recreated"
        );
        return Err(conflict(group, kind, name, &why));
    }
    Ok(bound)
}
