//! Kinds of `certificates.k8s.io`: requests for certificates, and bundles of trusted authorities.
//!
//! The server fills in the requester of a certificate, and admission decides who may approve, sign or attest.
//! Follows `pkg/apis/certificates/validation` and `pkg/registry/certificates`.

mod pod_request;
mod signing_request;
mod trust_bundle;

use api::field::{Errors, Path};
use api::json::{Object, Value};
use api::names;
use api::x509::{self, Names};

pub use self::pod_request::stub_of_pod_request;
pub(crate) use self::pod_request::{EXPIRATION_SECONDS_MAX, KUBERNETES_EXPIRATION_SECONDS_MAX, POD_REQUEST};
pub(crate) use self::signing_request::SIGNING_REQUEST;
pub(crate) use self::trust_bundle::{TRUST_BUNDLE, wrong_name};
use crate::meta;

/// A reason why the request inside a `CertificateSigningRequest` cannot be read, in Kubernetes' words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The request is not a PEM block of the right kind.
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    Pem,
    /// The block holds something else.
    #[error("asn1: structure error: malformed certificate request")]
    Malformed,
}

/// Returns the subject of a `CertificateSigningRequest`.
///
/// # Errors
/// [`RequestError`].
pub fn subject_of_request(object: &Value) -> Result<Names, RequestError> {
    let text = object.field("spec").text("request");
    let pem = api::base64::decode(text).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let block = x509::pem_blocks(&pem.ok_or(RequestError::Pem)?).into_iter().next();
    let block = block.filter(|it| it.kind == "CERTIFICATE REQUEST").ok_or(RequestError::Pem)?;
    x509::request_subject(&block.bytes).ok_or(RequestError::Malformed)
}

/// `example.com/signer`
pub(crate) fn validate_signer(signer: &str, at: Path<'_>, errors: &mut Errors) {
    const DOMAIN_MAX: usize = 253;
    const SIGNER_MAX: usize = DOMAIN_MAX + 253 + 63 + 1 + 1;
    if signer.is_empty() {
        errors.required(at, "");
        return;
    }
    let segments: Vec<&str> = signer.split('/').collect();
    let [domain, path] = segments.as_slice() else {
        let detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        errors.invalid(at, signer, detail);
        return;
    };
    if domain.len() > DOMAIN_MAX {
        errors.too_long(at, DOMAIN_MAX);
    }
    // One label is enough to complain about.
    validate_labels(domain, names::dns1123_label, at, errors);
    if !domain.contains('.') {
        errors.invalid(at, *domain, "should be a domain with at least two segments separated by dots");
    }
    validate_labels(path, names::dns1123_subdomain, at, errors);
    if signer.len() > SIGNER_MAX {
        errors.too_long(at, SIGNER_MAX);
    }
}

/// Whether the domain of a signer is `kubernetes.io` or below it, which Kubernetes reserves.
pub(crate) fn is_kubernetes_signer(signer: &str) -> bool {
    let domain = signer.split('/').next().unwrap_or_default();
    domain == "kubernetes.io" || domain.ends_with(".kubernetes.io")
}

/// Validates annotations from authors of pods for a signer: keys with a domain, and a limited size.
pub(crate) fn validate_user_annotations(annotations: &Object, at: Path<'_>, errors: &mut Errors) {
    let mut size = 0_usize;
    for (key, value) in annotations.iter() {
        size = size.saturating_add(key.len()).saturating_add(value.as_str().unwrap_or_default().len());
        let key = key.to_lowercase();
        let complaints = names::qualified_name(&key);
        if key.is_empty() {
            errors.required(at, "");
        } else if !complaints.is_empty() {
            meta::invalid(complaints, &key, at, errors);
        } else if !key.contains('/') {
            errors.invalid(at, key, "must be a domain-prefixed key (such as \"acme.io/foo\")");
        }
    }
    if size > meta::ANNOTATIONS_MAX_BYTES {
        errors.too_long(at, meta::ANNOTATIONS_MAX_BYTES);
    }
}

fn validate_labels(text: &str, rule: meta::NameRule, at: Path<'_>, errors: &mut Errors) {
    let wrong = text.split('.').map(|label| (label, rule(label))).find(|(_, complaints)| !complaints.is_empty());
    for (label, complaint) in wrong.into_iter().flat_map(|(label, all)| all.into_iter().map(move |it| (label, it))) {
        errors.invalid(at, text, format!("validating label {}: {complaint}", api::go_text::quote(label)));
    }
}
