//! Certificates: who asks for one, and who may approve, sign or attest.
//!
//! The plugins `CertificateApproval`, `CertificateSigning`, `CertificateSubjectRestriction` and `ClusterTrustBundleAttest`,
//! what may be asked only with the key, and what the server itself writes into a request: a client cannot ask in someone else's name.

use std::sync::Arc;

use api::field::{BadValue, Errors, Path};
use api::go_text::quote;
use api::json::{Object, Value};
use api::x509::request;

use super::role_escalation::changes_only_owners;
use crate::authorization::Request;
use crate::http::request::Target;
use crate::http::status::{Failure, Result};
use crate::identity::User;
use crate::objects::metadata;
use crate::resources::Resource;
use crate::server::Server;
use crate::serving::certificates::issue;

const GROUP: &str = "certificates.k8s.io";
const REQUESTS: &str = "certificatesigningrequests";
const POD_REQUESTS: &str = "podcertificaterequests";
const BUNDLES: &str = "clustertrustbundles";
/// Certificates for clients of this server.
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// Writes into a new request who asks.
pub(super) fn name_requester(resource: &Resource<'_>, object: &mut Value, user: &User) {
    if (resource.group, resource.plural) != (GROUP, REQUESTS) {
        return;
    }
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let texts = |list: &[String]| Value::Array(list.iter().map(|it| it.as_str().into()).collect());
    for field in ["username", "uid", "groups", "extra"] {
        spec.remove(field);
    }
    spec.insert("username", user.name.as_str());
    if !user.uid.is_empty() {
        spec.insert("uid", user.uid.as_str());
    }
    if !user.groups.is_empty() {
        spec.insert("groups", texts(&user.groups));
    }
    if !user.extra.is_empty() {
        let extra: Object = user.extra.iter().map(|(key, values)| (key.as_str(), texts(values))).collect();
        spec.insert("extra", extra);
    }
}

/// Who asks for a certificate must have the key. What cannot be read is complained about elsewhere.
pub(super) fn validate_signature(resource: &Resource<'_>, object: &Value, mut errors: Errors) -> Errors {
    match (resource.group, resource.plural) {
        (GROUP, REQUESTS) => {
            let mut all = Errors::new();
            validate_request_signature(object, &mut all);
            all.append(errors);
            all
        }
        (GROUP, POD_REQUESTS) => {
            validate_stub_signature(object, &mut errors);
            errors
        }
        _ => errors,
    }
}

fn validate_request_signature(object: &Value, errors: &mut Errors) {
    let text = object.str_at(&["spec", "request"]).unwrap_or_default();
    let pem = api::base64::decode(text).ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
    let request = request::from_pem(&pem).unwrap_or_default();
    if registry::certificates::subject_of_request(object).is_err() {
        return;
    }
    let verified = request::Request::read(&request)
        .map_or(Err("x509: malformed certificate request"), |request| issue::verify_signature(&request));
    if let Err(why) = verified {
        let at = Path::new("spec");
        errors.invalid(at.child("request"), text, why);
    }
}

/// A stub that has been complained about is not looked at.
fn validate_stub_signature(object: &Value, errors: &mut Errors) {
    let spec = Path::new("spec");
    let at = spec.child("stubPKCS10Request");
    let field = at.to_string();
    if errors.iter().any(|it| it.field == field || it.field == "spec") {
        return;
    }
    let stub = registry::certificates::stub_of_pod_request(object).unwrap_or_default();
    let is_signed = request::Request::read(&stub).is_some_and(|stub| issue::verify_signature(&stub).is_ok());
    if !is_signed {
        errors.invalid(at, BadValue::Omitted, "invalid signature");
    }
}

/// Checks a new object.
///
/// # Errors
/// 403 with the reason.
pub(super) fn validate_create(
    server: &Arc<Server>,
    resource: &Resource<'_>,
    object: &Value,
    user: &User,
) -> Result<()> {
    match (resource.group, resource.plural) {
        (GROUP, REQUESTS) if object.str_at(&["spec", "signerName"]) == Some(CLIENT_SIGNER) => {
            match registry::certificates::subject_of_request(object) {
                Err(error) => refuse(resource, object, &format!("failed to parse CSR: {error}")),
                Ok(names) if names.organizations.iter().any(|it| it == "system:masters") => {
                    let why = format!("use of {CLIENT_SIGNER} signer with system:masters group is not allowed");
                    refuse(resource, object, &why)
                }
                Ok(_) => Ok(()),
            }
        }
        (GROUP, BUNDLES) => attest(server, resource, object, user),
        _ => Ok(()),
    }
}

/// Checks a change.
///
/// # Errors
/// 403 with the reason.
pub(super) fn validate_update(
    server: &Arc<Server>,
    resource: &Resource<'_>,
    object: &Value,
    old: &Value,
    subresource: &str,
    user: &User,
) -> Result<()> {
    let signer = old.str_at(&["spec", "signerName"]).unwrap_or_default();
    match (resource.group, resource.plural, subresource) {
        (GROUP, REQUESTS, "approval") if !may(server, user, "approve", signer) => {
            let why = format!("user not permitted to approve requests with signerName {}", quote(signer));
            refuse(resource, old, &why)
        }
        (GROUP, REQUESTS, "status") => {
            let part = |object: &Value, field: &str| object.at(&["status", field]).cloned().unwrap_or_default();
            let is_same = ["certificate", "conditions"].iter().all(|field| part(object, field) == part(old, field));
            if is_same || may(server, user, "sign", signer) {
                return Ok(());
            }
            let why = format!("user not permitted to sign requests with signerName {}", quote(signer));
            refuse(resource, old, &why)
        }
        (GROUP, POD_REQUESTS, "status") if object.at(&["status"]) != old.at(&["status"]) => {
            if may(server, user, "sign", signer) {
                return Ok(());
            }
            let (user, shown) = (quote(&user.name), quote(signer));
            let mut errors = Errors::new();
            let at = Path::new("spec");
            let why = format!("User {user} is not permitted to \"sign\" for signer {shown}");
            errors.forbidden(at.child("signerName"), why);
            Err(Failure::invalid(resource.group, resource.kind, metadata::text(old, "name"), &errors))
        }
        (GROUP, BUNDLES, _) if !changes_only_owners(object, old) => attest(server, resource, object, user),
        _ => Ok(()),
    }
}

/// A bundle of a signer is written by who may speak for the signer.
fn attest(server: &Arc<Server>, resource: &Resource<'_>, bundle: &Value, user: &User) -> Result<()> {
    let signer = bundle.str_at(&["spec", "signerName"]).unwrap_or_default();
    if signer.is_empty() || may(server, user, "attest", signer) {
        return Ok(());
    }
    let why = format!("user not permitted to attest for signerName {}", quote(signer));
    refuse(resource, bundle, &why)
}

/// Whether a user may do something for a signer, or for all of its domain.
fn may(server: &Arc<Server>, user: &User, verb: &str, signer: &str) -> bool {
    let domain = signer.split('/').next().unwrap_or_default();
    [signer.to_owned(), format!("{domain}/*")].iter().any(|name| {
        let target = Target::of_check(GROUP, "signers", "", name);
        server.authorizer.allows(user, Request::Resource { verb, target: &target })
    })
}

fn refuse(resource: &Resource<'_>, object: &Value, why: &str) -> Result<()> {
    Err(Failure::forbidden(resource.group, resource.plural, metadata::text(object, "name"), why))
}
