//! The answer to a `PodCertificateRequest`: issued with a certificate for the right key, denied, or failed; then final.

use api::field::{BadValue, Errors, Path};
use api::json::Value;
use api::time::Timestamp;
use api::x509::certificate::Certificate;
use api::x509::request::{AlternativeNames, Request};
use api::x509::{self, PemBlock};

use super::{NOT_A_REQUEST, stub_of_pod_request};
use crate::conditions;
use crate::document::same;
use crate::meta;

const ANSWERS: [&str; 3] = ["Issued", "Denied", "Failed"];
const CHAIN_MAX: usize = 100 * 1024;
const REFRESH_MARGIN_SECONDS: i64 = 600;
const SKEW_SECONDS: i64 = 300;
const LIFETIME_SECONDS_MIN: i64 = 3600;
const NANOS_PER_SECOND: i64 = 1_000_000_000;
const STATUS: Path<'static> = Path::new("status");

/// Adds what is wrong with a changed status.
pub(super) fn validate(request: &Value, old: &Value, now: &str, errors: &mut Errors) {
    let before = errors.len();
    meta::validate_update(request, old, errors);
    if errors.len() > before {
        return;
    }
    let (status, old_status) = (request.field("status"), old.field("status"));
    let list = status.list("conditions");
    validate_answers(list, errors);
    conditions::validate(list, &STATUS.child("conditions"), errors);
    if errors.len() > before {
        return;
    }
    let is = |status: &Value, answers: &[&str]| {
        let mut list = status.list("conditions").iter();
        list.any(|it| it.text("status") == "True" && answers.contains(&it.text("type")))
    };
    let mut refuse = |detail: &str| errors.invalid(STATUS, BadValue::Omitted, detail);
    if is(old_status, &ANSWERS) {
        if !same(status, old_status) {
            refuse("immutable after PodCertificateRequest is issued, denied, or failed");
        }
    } else if is(status, &["Denied", "Failed"]) {
        let others = ["certificateChain", "notBefore", "beginRefreshAt", "notAfter"];
        if others.iter().any(|field| status.has(field)) {
            refuse("non-condition status fields must be empty when denying or failing the PodCertificateRequest");
        }
    } else if is(status, &["Issued"]) {
        validate_issued(request, now, errors);
    } else if !same(status, old_status) {
        refuse("status is immutable unless transitioning to \"Issued\", \"Denied\", or \"Failed\"");
    }
}

/// Validates the conditions Issued, Denied and Failed: at most one is set, with status True.
fn validate_answers(list: &[Value], errors: &mut Errors) {
    let at = STATUS.child("conditions");
    let mut count = 0_usize;
    for (index, condition) in list.iter().enumerate() {
        // Kubernetes: the index is written as the name of a field.
        let index = format!("[{index}]");
        let here = at.child(&index);
        let kind = condition.text("type");
        if !ANSWERS.contains(&kind) {
            errors.not_supported(here.child("type"), kind, &ANSWERS);
            continue;
        }
        count = count.saturating_add(1);
        if count > 1 {
            let detail = "There may be at most one condition with type \"Issued\", \"Denied\", or \"Failed\"";
            errors.invalid(here.child("type"), kind, detail);
        }
        let value = condition.text("status");
        if value != "True" {
            errors.not_supported(here.child("status"), value, &["True"]);
        }
    }
}

fn validate_issued(request: &Value, now: &str, errors: &mut Errors) {
    let at = STATUS.child("certificateChain");
    let chain = request.field("status").text("certificateChain");
    if chain.len() > CHAIN_MAX {
        errors.too_long(at, CHAIN_MAX);
        return;
    }
    let blocks = x509::pem_blocks(chain);
    let mut refuse = |detail: &str| errors.invalid(at, chain, detail);
    let Some((leaf, others)) = blocks.split_first() else {
        return refuse("issued certificate chain must contain at least one certificate");
    };
    if leaf.kind != "CERTIFICATE" {
        return refuse("issued certificate chain must consist entirely of CERTIFICATE PEM blocks");
    }
    let Some(leaf) = Certificate::read(&leaf.bytes) else {
        return refuse("leaf certificate does not parse as valid X.509");
    };
    validate_names(&leaf.alternatives, at, errors);
    let stub = stub_of_pod_request(request).unwrap_or_default();
    let Some(stub) = Request::read(&stub) else {
        let spec = Path::new("spec");
        errors.invalid(spec.child("stubPKCS10Request"), BadValue::Omitted, NOT_A_REQUEST);
        return;
    };
    if stub.outline.key != leaf.key {
        errors.invalid(at, chain, "leaf certificate was not issued to the requested public key");
        return;
    }
    if validate_times(request, &leaf, now, errors).is_some() {
        validate_others(others, chain, at, errors);
    }
}

fn validate_names(names: &AlternativeNames, at: Path<'_>, errors: &mut Errors) {
    for name in &names.dns {
        let mut refuse = |detail: &str| errors.invalid(at, name.as_str(), detail);
        if name.is_empty() {
            refuse("leaf certificate should not contain empty DNSName");
        }
        if name.contains("..") {
            refuse("leaf certificate's DNSName should not contain '..'");
        }
        if name.starts_with('.') || name.ends_with('.') {
            refuse("leaf certificate's DNSName should not start or end with '.'");
        }
    }
    for address in names.emails.iter().filter(|it| !is_address(it)) {
        errors.invalid(at, address.as_str(), "leaf certificate should not contain invalid EmailAddress");
    }
}

/// Whether a text is the address of a mailbox, without a name and without quotes.
fn is_address(text: &str) -> bool {
    let is_atom = |text: &str| {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~".contains(&byte);
        !text.is_empty() && text.bytes().all(is_part)
    };
    let is_dotted = |text: &str| text.split('.').all(is_atom);
    text.split_once('@').is_some_and(|(local, domain)| is_dotted(local) && is_dotted(domain))
}

/// The times of a status are those of the certificate; none if they are wrong.
fn validate_times(request: &Value, leaf: &Certificate<'_>, now: &str, errors: &mut Errors) -> Option<()> {
    let status = request.field("status");
    let range = "must be present and in the range [notbefore+10min, notafter-10min]";
    let consistent = "must be present and consistent with the issued certificate";
    let all = [("notBefore", consistent), ("notAfter", consistent), ("beginRefreshAt", range)];
    let times = all.map(|(field, _)| Timestamp::parse(status.text(field)).ok());
    for ((field, detail), _) in all.iter().zip(&times).filter(|(_, time)| time.is_none()) {
        errors.required(STATUS.child(field), *detail);
    }
    let [Some(begin), Some(end), Some(refresh)] = times else { return None };
    let mut wrong = |field: &str, detail: &str| {
        errors.invalid(STATUS.child(field), status.text(field), detail);
        None
    };
    if begin != leaf.not_before {
        return wrong("notBefore", "must be set to the NotBefore time encoded in the leaf certificate");
    }
    let now = Timestamp::parse(now).ok()?;
    let is_near = begin > now.plus_seconds(SKEW_SECONDS.saturating_neg()) && begin < now.plus_seconds(SKEW_SECONDS);
    if !is_near {
        return wrong("notBefore", "must be set to within 5 minutes of kube-apiserver's current time");
    }
    if end != leaf.not_after {
        return wrong("notAfter", "must be set to the NotAfter time encoded in the leaf certificate");
    }
    let seconds = end.seconds.saturating_sub(begin.seconds);
    let max = request.field("spec").int("maxExpirationSeconds");
    let lifetime = seconds.saturating_mul(NANOS_PER_SECOND);
    let chain = STATUS.child("certificateChain");
    if seconds < LIFETIME_SECONDS_MIN {
        errors.invalid(chain, lifetime, "leaf certificate lifetime must be >= 1 hour");
        return None;
    }
    if seconds > max {
        let detail = format!("leaf certificate lifetime must be <= spec.maxExpirationSeconds ({max})");
        errors.invalid(chain, lifetime, detail);
        return None;
    }
    if refresh < begin.plus_seconds(REFRESH_MARGIN_SECONDS) {
        return wrong("beginRefreshAt", "must be at least 10 minutes after status.notBefore");
    }
    if refresh > end.plus_seconds(REFRESH_MARGIN_SECONDS.saturating_neg()) {
        return wrong("beginRefreshAt", "must be at least 10 minutes before status.notAfter");
    }
    Some(())
}

fn validate_others(blocks: &[PemBlock], chain: &str, at: Path<'_>, errors: &mut Errors) {
    for block in blocks {
        let complaint = if block.kind != "CERTIFICATE" {
            // Kubernetes: the word lacks a letter here.
            "issued certificate chain must consist entirely of CERTFICATE PEM blocks"
        } else if Certificate::read(&block.bytes).is_none() {
            "intermediate certificate does not parse as valid X.509"
        } else {
            continue;
        };
        errors.invalid(at, chain, complaint);
        return;
    }
}
