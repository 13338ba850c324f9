//! `CertificateSigningRequest`: the request never changes, `approval` decides about it, `status` holds the certificate.

use api::field::{Errors, Path};
use api::json::Value;
use api::well_known::SIGNER_LEGACY;
use api::x509;

use super::{subject_of_request, validate_signer};
use crate::document::same;
use crate::meta;
use crate::seen::{SeenKeys, repeats};
use crate::strategy::{Context, PLAIN, Part, Strategy};

const EXPIRATION_SECONDS_MIN: i64 = 600;

const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

pub(crate) const SIGNING_REQUEST: Strategy = Strategy {
    prepare_create: |request, _| request.set("status", Value::object()),
    validate_create: |request, _, errors| {
        validate(request, None, errors);
        validate_decisions(request, None, errors);
    },
    prepare_update: |request, old, _| {
        request.set("spec", old.field("spec").clone());
        request.set("status", old.field("status").clone());
    },
    validate_update: |request, old, _, errors| validate_change(request, old, Writer::Owner, errors),
    subresources: &[
        (
            "status",
            Part {
                prepare: |request, old, context| {
                    request.set("spec", old.field("spec").clone());
                    keep_decisions(request, old);
                    fill_times(request, old, context);
                },
                validate: |request, old, _, errors| validate_change(request, old, Writer::Signer, errors),
            },
        ),
        (
            "approval",
            Part {
                prepare: |request, old, context| {
                    fill_times(request, old, context);
                    let conditions = request.field("status").field("conditions").clone();
                    request.set("spec", old.field("spec").clone());
                    request.set("status", old.field("status").clone());
                    if conditions.as_array().is_some_and(|it| !it.is_empty()) {
                        request.make("status").set("conditions", conditions);
                    } else {
                        request.make("status").unset("conditions");
                    }
                },
                validate: |request, old, _, errors| validate_change(request, old, Writer::Approver, errors),
            },
        ),
    ],
    ..PLAIN
};

/// Through which part a request is changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writer {
    Owner,
    Approver,
    Signer,
}

fn conditions<'a>(request: &'a Value, of: &str) -> Vec<&'a Value> {
    request.field("status").list("conditions").iter().filter(|it| it.text("type") == of).collect()
}

/// Signers cannot change decisions.
fn keep_decisions(request: &mut Value, old: &Value) {
    for of in ["Approved", "Denied"] {
        let before: Vec<Value> = conditions(old, of).into_iter().cloned().collect();
        if before.len() != conditions(request, of).len() {
            continue;
        }
        let list = request.make("status").list_mut("conditions").iter_mut().filter(|it| it.text("type") == of);
        for (condition, before) in list.zip(before) {
            *condition = before;
        }
    }
}

/// Sets the times of new and changed conditions.
fn fill_times(request: &mut Value, old: &Value, context: &Context<'_>) {
    if request.field("status").list("conditions").is_empty() {
        return;
    }
    for condition in request.make("status").list_mut("conditions") {
        if condition.text("lastUpdateTime").is_empty() {
            condition.set("lastUpdateTime", context.now);
        }
        if condition.text("lastTransitionTime").is_empty() {
            let same = |it: &&Value| {
                ["type", "status"].iter().all(|field| it.text(field) == condition.text(field))
                    && !it.text("lastTransitionTime").is_empty()
            };
            let before = old.field("status").list("conditions").iter().find(same);
            let time = before.map_or(context.now, |it| it.text("lastTransitionTime")).to_owned();
            condition.set("lastTransitionTime", time);
        }
    }
}

fn validate(request: &Value, old: Option<&Value>, errors: &mut Errors) {
    meta::validate(request, false, |_| Vec::new(), errors);
    let (spec, at) = (request.field("spec"), Path::new("spec"));
    if let Err(error) = subject_of_request(request) {
        // Go shows missing bytes as null.
        let shown = if spec.text("request").is_empty() { Value::Null } else { spec.field("request").clone() };
        errors.invalid(at.child("request"), shown, error.to_string());
    }
    let usages: Vec<&str> = spec.texts("usages").collect();
    if usages.is_empty() {
        errors.required(at.child("usages"), "");
    }
    let usages_at = at.child("usages");
    let had: Vec<&str> = old.map(|old| old.field("spec").texts("usages").collect()).unwrap_or_default();
    if !had.iter().any(|usage| !USAGES.contains(usage)) {
        for (index, usage) in usages.iter().enumerate().filter(|(_, usage)| !USAGES.contains(usage)) {
            errors.not_supported(usages_at.index(index), *usage, &USAGES);
        }
    }
    if repeats(&had).next().is_none() {
        for index in repeats(&usages) {
            errors.duplicate(usages_at.index(index), usages.get(index).copied().unwrap_or_default());
        }
    }
    let signer = spec.text("signerName");
    if signer == SIGNER_LEGACY && old.is_none_or(|old| old.field("spec").text("signerName") != SIGNER_LEGACY) {
        errors.invalid(at.child("signerName"), signer, "the legacy signerName is not allowed via this API version");
    } else {
        validate_signer(signer, at.child("signerName"), errors);
    }
    if let Some(seconds) = spec.optional_int("expirationSeconds").filter(|it| *it < EXPIRATION_SECONDS_MIN) {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.invalid(at.child("expirationSeconds"), seconds, detail);
    }
    validate_conditions(request, old, errors);
    let certificate = request.field("status").text("certificate");
    if old.is_none_or(|old| old.field("status").text("certificate") != certificate)
        && let Some(complaint) = wrong_certificate(certificate)
    {
        let at = Path::new("status");
        errors.invalid(at.child("certificate"), "<certificate data>", complaint);
    }
}

fn validate_conditions(request: &Value, old: Option<&Value>, errors: &mut Errors) {
    let status = Path::new("status");
    let at = status.child("conditions");
    let list = request.field("status").list("conditions");
    let had: Vec<&str> = old
        .map(|old| old.field("status").list("conditions").iter().map(|it| it.text("type")).collect())
        .unwrap_or_default();
    let was_repeated = repeats(&had).next().is_some();
    let mut seen = SeenKeys::default();
    for (index, condition) in list.iter().enumerate() {
        let here = at.index(index);
        let kind = condition.text("type");
        if kind.is_empty() && !had.contains(&"") {
            errors.required(here.child("type"), "");
        }
        let decides = matches!(kind, "Approved" | "Denied" | "Failed");
        let allowed: &[&str] = if decides { &["True"] } else { &["False", "True", "Unknown"] };
        match condition.text("status") {
            "" => errors.required(here.child("status"), ""),
            value if !allowed.contains(&value) => errors.not_supported(here.child("status"), value, allowed),
            _ => {}
        }
        if !seen.insert(kind) && !was_repeated {
            errors.duplicate(here.child("type"), kind);
        }
    }
}

/// A request is approved or denied, not both; one that was may stay so.
fn validate_decisions(request: &Value, old: Option<&Value>, errors: &mut Errors) {
    let is_both = |request: &Value| ["Approved", "Denied"].iter().all(|of| !conditions(request, of).is_empty());
    if is_both(request) && !old.is_some_and(is_both) {
        let both = ["Approved", "Denied"].map(|of| format!("conditions[{{\"type\": \"{of}\"}}]"));
        let status = Path::new("status");
        let [approved, denied] = &both;
        let detail = format!("must specify at most one of: `{approved}`, `{denied}`");
        errors.invalid(status.child("conditions"), format!("{{{}}}", both.join(", ")), detail);
    }
}

/// Returns the error of a status certificate.
fn wrong_certificate(certificate: &str) -> Option<String> {
    if certificate.is_empty() {
        return None;
    }
    let pem = api::base64::decode(certificate).ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
    let blocks = x509::pem_blocks(&pem);
    if blocks.is_empty() {
        return Some("must contain at least one CERTIFICATE PEM block".to_owned());
    }
    blocks.iter().find_map(|block| {
        if block.kind != "CERTIFICATE" {
            let kind = api::go_text::quote(&block.kind);
            return Some(format!("only CERTIFICATE PEM blocks are allowed, found {kind}"));
        }
        if block.has_headers {
            return Some("no PEM block headers are permitted".to_owned());
        }
        if block.bytes.is_empty() {
            return Some("found CERTIFICATE PEM block containing 0 certificates".to_owned());
        }
        x509::certificate_subject(&block.bytes).is_none().then(|| "x509: malformed certificate".to_owned())
    })
}

fn validate_change(request: &Value, old: &Value, writer: Writer, errors: &mut Errors) {
    validate(request, Some(old), errors);
    let status = Path::new("status");
    let at = status.child("conditions");
    for of in ["Approved", "Denied", "Failed"] {
        if conditions(request, of).len() < conditions(old, of).len() {
            errors.forbidden(at, format!("updates may not remove a condition of type \"{of}\""));
        }
    }
    if writer != Writer::Approver {
        for of in ["Approved", "Denied"] {
            let (new, before) = (conditions(request, of), conditions(old, of));
            if new.len() > before.len() {
                errors.forbidden(at, format!("updates may not add a condition of type \"{of}\""));
            } else if new.len() == before.len() && new.iter().zip(&before).any(|(new, old)| !same(new, old)) {
                errors.forbidden(at, format!("updates may not modify a condition of type \"{of}\"\n"));
            }
        }
    }
    let (new, before) = (request.field("status").text("certificate"), old.field("status").text("certificate"));
    if new != before {
        let at = status.child("certificate");
        if writer != Writer::Signer {
            errors.forbidden(at, "updates may not set certificate content");
        } else if !before.is_empty() {
            errors.forbidden(at, "updates may not modify existing certificate content");
        }
    }
    meta::validate_update(request, old, errors);
    // Declared rules come behind the written ones.
    validate_decisions(request, Some(old), errors);
}
