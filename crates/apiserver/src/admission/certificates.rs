//! Certificates: authorization of requests, approval, signing and attestation.
//!
//! The plugins `CertificateApproval`, `CertificateSigning`, `CertificateSubjectRestriction` and
//! `ClusterTrustBundleAttest`, the proof of possession of the key, and the fields that the server itself sets
//! in a request: a client cannot use another identity.

use std::sync::Arc;

use api::field::{BadValue, Errors, Path};
use api::go_text::quote;
use api::json::{Object, Value};
use api::well_known::{GROUP_MASTERS, SIGNER_CLIENT};
use api::x509::request;

use super::role_escalation::changes_only_owners;
use super::{Attributes, Cluster, Operation, Plugin, Verdict, done};
use crate::authorization::Request;
use crate::certificates::issue;
use crate::identity::User;
use crate::resources::Resource;
use crate::wire::request::Target;
use crate::wire::status::{Failure, Result};
use api::metadata;

const GROUP: &str = "certificates.k8s.io";
const REQUESTS: &str = "certificatesigningrequests";
const POD_REQUESTS: &str = "podcertificaterequests";
const BUNDLES: &str = "clustertrustbundles";

/// Sets the requester of a new request.
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

/// The requester of a certificate must possess the key. Unreadable requests are reported elsewhere.
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
    let text = object.text_at(&["spec", "request"]);
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

/// A stub with an earlier error is not checked.
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

/// `CertificateSubjectRestriction`: certificates for clients do not name the group of administrators.
pub(super) struct CertificateSubjectRestriction;

impl Plugin for CertificateSubjectRestriction {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Create && attributes.is_for(GROUP, REQUESTS)
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>) -> Verdict<'a> {
        done(attributes.object.map_or(Ok(()), |object| restrict_subject(attributes, object)))
    }
}

fn restrict_subject(attributes: &Attributes<'_>, object: &Value) -> Result<()> {
    if object.str_at(&["spec", "signerName"]) != Some(SIGNER_CLIENT) {
        return Ok(());
    }
    match registry::certificates::subject_of_request(object) {
        Err(error) => refuse(attributes, object, &format!("failed to parse CSR: {error}")),
        Ok(names) if names.organizations.iter().any(|it| it == GROUP_MASTERS) => {
            let why = format!("use of {SIGNER_CLIENT} signer with system:masters group is not allowed");
            refuse(attributes, object, &why)
        }
        Ok(_) => Ok(()),
    }
}

/// `CertificateApproval`: requests are approved by users with the right for their signer.
pub(super) struct CertificateApproval(pub(super) Arc<dyn Cluster>);

impl Plugin for CertificateApproval {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        let is_request = attributes.resource_name() == (GROUP, REQUESTS);
        is_request && attributes.operation == Operation::Update && attributes.subresource == "approval"
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>) -> Verdict<'a> {
        let Some(old) = attributes.old else { return done(Ok(())) };
        let signer = old.text_at(&["spec", "signerName"]);
        if may(&*self.0, attributes.user, "approve", signer) {
            return done(Ok(()));
        }
        let why = format!("user not permitted to approve requests with signerName {}", quote(signer));
        done(refuse(attributes, old, &why))
    }
}

/// `CertificateSigning`: certificates are written by users with the right for their signer.
pub(super) struct CertificateSigning(pub(super) Arc<dyn Cluster>);

impl Plugin for CertificateSigning {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        let is_request = matches!(attributes.resource_name(), (GROUP, REQUESTS | POD_REQUESTS));
        is_request && attributes.operation == Operation::Update && attributes.subresource == "status"
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>) -> Verdict<'a> {
        let (Some(object), Some(old)) = (attributes.object, attributes.old) else { return done(Ok(())) };
        done(if attributes.resource.plural == REQUESTS {
            sign(&*self.0, attributes, object, old)
        } else {
            sign_for_pod(&*self.0, attributes, object, old)
        })
    }
}

fn sign(cluster: &dyn Cluster, attributes: &Attributes<'_>, object: &Value, old: &Value) -> Result<()> {
    let signer = old.text_at(&["spec", "signerName"]);
    let part = |object: &Value, field: &str| object.at(&["status", field]).cloned().unwrap_or_default();
    let is_same = ["certificate", "conditions"].iter().all(|field| part(object, field) == part(old, field));
    if is_same || may(cluster, attributes.user, "sign", signer) {
        return Ok(());
    }
    let why = format!("user not permitted to sign requests with signerName {}", quote(signer));
    refuse(attributes, old, &why)
}

fn sign_for_pod(cluster: &dyn Cluster, attributes: &Attributes<'_>, object: &Value, old: &Value) -> Result<()> {
    let signer = old.text_at(&["spec", "signerName"]);
    if object.at(&["status"]) == old.at(&["status"]) || may(cluster, attributes.user, "sign", signer) {
        return Ok(());
    }
    let (user, shown) = (quote(&attributes.user.name), quote(signer));
    let mut errors = Errors::new();
    let at = Path::new("spec");
    let why = format!("User {user} is not permitted to \"sign\" for signer {shown}");
    errors.forbidden(at.child("signerName"), why);
    let resource = attributes.resource;
    Err(Failure::invalid(resource.group, resource.kind, metadata::name(old), &errors))
}

/// `ClusterTrustBundleAttest`: the bundle of a signer is written by users with the right to attest for it.
pub(super) struct ClusterTrustBundleAttest(pub(super) Arc<dyn Cluster>);

impl Plugin for ClusterTrustBundleAttest {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        let writes = matches!(attributes.operation, Operation::Create | Operation::Update);
        writes && attributes.resource_name() == (GROUP, BUNDLES)
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>) -> Verdict<'a> {
        let Some(bundle) = attributes.object else { return done(Ok(())) };
        if attributes.old.is_some_and(|old| changes_only_owners(bundle, old)) {
            return done(Ok(()));
        }
        done(attest(&*self.0, attributes, bundle))
    }
}

/// A signer's bundle may be written only by users who may attest for the signer.
fn attest(cluster: &dyn Cluster, attributes: &Attributes<'_>, bundle: &Value) -> Result<()> {
    let signer = bundle.text_at(&["spec", "signerName"]);
    if signer.is_empty() || may(cluster, attributes.user, "attest", signer) {
        return Ok(());
    }
    let why = format!("user not permitted to attest for signerName {}", quote(signer));
    refuse(attributes, bundle, &why)
}

/// Whether a user may do something for a signer, or for all of its domain.
fn may(cluster: &dyn Cluster, user: &User, verb: &str, signer: &str) -> bool {
    let domain = signer.split('/').next().unwrap_or_default();
    [signer.to_owned(), format!("{domain}/*")].iter().any(|name| {
        let target = Target::of_check(GROUP, "signers", "", name);
        cluster.authorizer().allows(user, Request::Resource { verb, target: &target })
    })
}

fn refuse(attributes: &Attributes<'_>, object: &Value, why: &str) -> Result<()> {
    let (group, plural) = attributes.resource_name();
    Err(Failure::forbidden(group, plural, metadata::name(object), why))
}
