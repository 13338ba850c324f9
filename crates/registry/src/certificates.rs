//! Kinds of `certificates.k8s.io`: requests for certificates, and bundles of trusted authorities.
//!
//! Who asks for a certificate is filled in by the server, and who may approve, sign or attest is decided in admission.
//! Follows `pkg/apis/certificates/validation` and `pkg/registry/certificates`.

mod signing_request;
mod trust_bundle;

use api::field::{Errors, Path};
use api::json::Value;
use api::names;
use api::x509::{self, Names};

pub(crate) use self::signing_request::SIGNING_REQUEST;
pub(crate) use self::trust_bundle::TRUST_BUNDLE;
use crate::document::Read;
use crate::meta;

/// Why the request inside a `CertificateSigningRequest` cannot be read, in Kubernetes' words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// It is not a PEM block of the right kind.
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    Pem,
    /// The block holds something else.
    #[error("asn1: structure error: malformed certificate request")]
    Malformed,
}

/// Whom the certificate would name that a `CertificateSigningRequest` asks for.
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
fn validate_signer(signer: &str, at: Path<'_>, errors: &mut Errors) {
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

fn validate_labels(text: &str, rule: meta::NameRule, at: Path<'_>, errors: &mut Errors) {
    let wrong = text.split('.').map(|label| (label, rule(label))).find(|(_, complaints)| !complaints.is_empty());
    for (label, complaint) in wrong.into_iter().flat_map(|(label, all)| all.into_iter().map(move |it| (label, it))) {
        errors.invalid(at, text, format!("validating label {}: {complaint}", api::go_text::quote(label)));
    }
}
