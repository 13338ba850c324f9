//! Certificate signing requests: approval, signing and cleanup.
//!
//! Three controllers share this folder and, as in Kubernetes, a service account. `rules` are the conditions of
//! each signer; `approve` approves requests of nodes for their own certificates, `sign` signs approved
//! requests, `clean` deletes old ones. Follows Kubernetes' `pkg/controller/certificates` and
//! `pkg/apis/certificates/helpers.go`.

pub mod approve;
pub mod clean;
pub mod clean_pods;
mod rules;
pub mod sign;

use api::certificates::v1::CertificateSigningRequest;
use api::x509::request;

/// The content of a request; nothing if it is not one.
fn content(object: &CertificateSigningRequest) -> Option<Vec<u8>> {
    let pem = api::base64::decode(&object.spec.request).ok()?;
    request::from_pem(str::from_utf8(&pem).ok()?)
}

/// Whether a condition exists; its status is always true.
fn has(object: &CertificateSigningRequest, condition: &str) -> bool {
    object.status.conditions.iter().any(|it| it.condition_type == condition)
}
