//! `PodCertificateRequest`: the request of a node for one of its pods is immutable, and a signer answers once.
//!
//! The server checks that the stub is signed with its key, and who may sign. Follows
//! `ValidatePodCertificateRequest…` of `pkg/apis/certificates/validation`.

mod status;

use api::field::{BadValue, Errors, Path};
use api::json::Value;
use api::x509::key::{self, KeyKind};
use api::x509::request::Request;
use api::{base64, names};

use super::{is_kubernetes_signer, validate_signer, validate_user_annotations};
use crate::core::pod::prepare::reset_metadata;
use crate::meta;
use crate::strategy::{PLAIN, Part, Strategy};

const STUB_MAX: usize = 10 * 1024;
const UID_MAX: usize = 128;
const EXPIRATION_SECONDS_MIN: i64 = 3600;
/// Maximum lifetime that signers may grant: 91 days.
pub(crate) const EXPIRATION_SECONDS_MAX: i64 = 91 * 86_400;
/// Maximum lifetime that Kubernetes' own signers may grant: a day.
pub(crate) const KUBERNETES_EXPIRATION_SECONDS_MAX: i64 = 86_400;
const NOT_A_REQUEST: &str = "must be a valid PKCS#10 CSR";

pub(crate) const POD_REQUEST: Strategy = Strategy {
    prepare_create: |request, _| request.unset("status"),
    validate_create: |request, _, errors| validate(request, errors),
    prepare_update: |request, old, _| request.set("status", old.field("status").clone()),
    validate_update: |request, old, _, errors| {
        meta::validate_update(request, old, errors);
        let (new, before) = (request.field("spec"), old.field("spec"));
        meta::immutable_shown(new, before, Path::new("spec"), || shown(new), errors);
    },
    subresources: &[(
        "status",
        Part {
            prepare: |request, old, _| {
                request.set("spec", old.field("spec").clone());
                reset_metadata(request, old);
            },
            validate: |request, old, context, errors| status::validate(request, old, context.now, errors),
        },
    )],
    ..PLAIN
};

/// The stub inside a request, as bytes; none if it is not given or cannot be read.
#[must_use]
pub fn stub_of_pod_request(object: &Value) -> Option<Vec<u8>> {
    base64::decode(object.field("spec").text("stubPKCS10Request")).ok().filter(|it| !it.is_empty())
}

/// As Go shows its struct, which still has the fields of older versions.
fn shown(spec: &Value) -> BadValue {
    let text = |field: &str| Value::from(spec.text(field));
    let or_null = |field: &str| spec.field(field).clone();
    BadValue::Value(api::json!({
        "SignerName": (text("signerName")),
        "PodName": (text("podName")),
        "PodUID": (text("podUID")),
        "ServiceAccountName": (text("serviceAccountName")),
        "ServiceAccountUID": (text("serviceAccountUID")),
        "NodeName": (text("nodeName")),
        "NodeUID": (text("nodeUID")),
        "MaxExpirationSeconds": (or_null("maxExpirationSeconds")),
        "PKIXPublicKey": null,
        "ProofOfPossession": null,
        "StubPKCS10Request": (or_null("stubPKCS10Request")),
        "UnverifiedUserAnnotations": (or_null("unverifiedUserAnnotations"))
    }))
}

fn validate(request: &Value, errors: &mut Errors) {
    meta::validate(request, true, names::dns1123_subdomain, errors);
    let (spec, at) = (request.field("spec"), Path::new("spec"));
    let signer = spec.text("signerName");
    validate_signer(signer, at.child("signerName"), errors);
    validate_user_annotations(spec.map("unverifiedUserAnnotations"), at.child("unverifiedUserAnnotations"), errors);
    for (name, uid) in [("podName", "podUID"), ("serviceAccountName", "serviceAccountUID"), ("nodeName", "nodeUID")] {
        meta::invalid(names::dns1123_subdomain(spec.text(name)), spec.text(name), at.child(name), errors);
        match spec.text(uid) {
            "" => errors.invalid(at.child(uid), "", "must not be empty"),
            text if text.len() > UID_MAX => errors.too_long(at.child(uid), UID_MAX),
            _ => {}
        }
    }
    let Some(seconds) = spec.optional_int("maxExpirationSeconds") else {
        errors.required(at.child("maxExpirationSeconds"), "must be set");
        return;
    };
    let max = if is_kubernetes_signer(signer) { KUBERNETES_EXPIRATION_SECONDS_MAX } else { EXPIRATION_SECONDS_MAX };
    if !(EXPIRATION_SECONDS_MIN..=max).contains(&seconds) {
        let detail = format!("must be in the range [{EXPIRATION_SECONDS_MIN}, {max}]");
        errors.invalid(at.child("maxExpirationSeconds"), seconds, detail);
    }
    if spec.text("stubPKCS10Request").is_empty() {
        let detail = "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set";
        errors.invalid(at, BadValue::Omitted, detail);
        return;
    }
    validate_stub(request, at.child("stubPKCS10Request"), errors);
}

fn validate_stub(request: &Value, at: Path<'_>, errors: &mut Errors) {
    let Some(stub) = stub_of_pod_request(request) else {
        errors.invalid(at, BadValue::Omitted, NOT_A_REQUEST);
        return;
    };
    if stub.len() > STUB_MAX {
        errors.too_long(at, STUB_MAX);
        return;
    }
    match Request::read(&stub).and_then(|stub| key::kind(stub.outline.key)) {
        None => errors.invalid(at, BadValue::Omitted, NOT_A_REQUEST),
        Some(KeyKind::Ed25519 | KeyKind::Ecdsa("P-256" | "P-384" | "P-521") | KeyKind::Rsa(3072 | 4096)) => {}
        Some(KeyKind::Ecdsa(curve)) => {
            let detail = "elliptic public keys must use curve P256, P384, or P521";
            errors.invalid(at, format!("curve {curve}"), detail);
        }
        Some(KeyKind::Rsa(bits)) => {
            errors.invalid(at, format!("{bits}-bit modulus"), "RSA keys must have modulus size 3072 or 4096");
        }
        Some(KeyKind::Other) => {
            let detail = "unknown public key type; supported types are Ed25519, ECDSA, and RSA";
            errors.invalid(at, BadValue::Omitted, detail);
        }
    }
}
