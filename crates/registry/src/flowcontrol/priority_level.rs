//! Validation of PriorityLevelConfigurations.

use api::field::{Errors, Path};
use api::json::{self, Value};
use api::names;

use super::{PACKAGE, validate_status};
use crate::document::same;
use crate::meta;
use crate::render;

const QUEUES_MAX: i64 = 10_000_000;
/// Number of hash bits that choose the queues of a flow.
const HASH_BITS: f64 = 60.0;

/// Annotation for zero shares in an older version.
const OLD_ANNOTATION: &str = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";

const EXEMPT: &str = r#"{"type":"Exempt","exempt":{"nominalConcurrencyShares":0,"lendablePercent":0}}"#;
const CATCH_ALL: &str = r#"{"type":"Limited","limited":{"nominalConcurrencyShares":5,"limitResponse":{"type":"Reject"},"lendablePercent":0}}"#;

pub(super) fn validate(level: &Value, errors: &mut Errors) {
    meta::validate(level, false, names::dns1123_subdomain, errors);
    if level.field("metadata").map("annotations").contains_key(OLD_ANNOTATION) {
        errors.forbidden(Path::new("metadata.annotations"), format!("annotation '{OLD_ANNOTATION}' is forbidden"));
    }
    let name = level.field("metadata").text("name");
    let spec = level.field("spec");
    validate_spec(name, spec, errors);
    validate_fixed(name, spec, errors);
    validate_status(level, errors);
    validate_parts(spec, errors);
}

/// The levels that every server has can hardly be other than they are.
fn validate_fixed(name: &str, spec: &Value, errors: &mut Errors) {
    let text = match name {
        "exempt" => EXEMPT,
        "catch-all" => CATCH_ALL,
        _ => return,
    };
    let Ok(fixed) = json::parse(text.as_bytes()) else { return };
    let mut compared = spec.clone();
    let mut except = "";
    if name == "exempt" {
        except = " except the 'spec.exempt' field";
        compared.set("exempt", fixed.field("exempt").clone());
    }
    if !same(&compared, &fixed) {
        let shown = render::internal(PACKAGE, "PriorityLevelConfigurationSpec", spec);
        errors.invalid(Path::new("spec"), shown, format!("spec of '{name}'{except} must equal the fixed value"));
    }
}

fn validate_spec(name: &str, spec: &Value, errors: &mut Errors) {
    let at = Path::new("spec");
    let kind = spec.text("type");
    if (name == "exempt") != (kind == "Exempt") {
        errors.invalid(at.child("type"), kind, "must be 'Exempt' if and only if `name` is 'exempt'");
    }
    let (limited, exempt) = (spec.optional("limited"), spec.optional("exempt"));
    match (kind, limited, exempt) {
        ("Exempt", _, Some(exempt)) => {
            let at = at.child("exempt");
            validate_shares(exempt, &at, errors);
            validate_lendable(exempt, &at, errors);
        }
        ("Limited", Some(limited), _) => validate_limited(limited, &at.child("limited"), errors),
        ("" | "Exempt" | "Limited", ..) => {}
        _ => errors.not_supported(at.child("type"), kind, &["Exempt", "Limited"]),
    }
}

/// Declarative rules, after the handwritten ones: a part exists if and only if the type requires it.
fn validate_parts(spec: &Value, errors: &mut Errors) {
    let at = Path::new("spec");
    let kind = spec.text("type");
    if spec.has("exempt") && kind != "Exempt" {
        errors.forbidden(at.child("exempt"), "");
    }
    validate_part(spec.has("limited"), kind == "Limited", at.child("limited"), errors);
    if kind.is_empty() {
        errors.required(at.child("type"), "");
    }
    let Some(limited) = spec.optional("limited") else { return };
    let at = at.child("limited");
    let (response, at) = (limited.field("limitResponse"), at.child("limitResponse"));
    let kind = response.text("type");
    validate_part(response.has("queuing"), kind == "Queue", at.child("queuing"), errors);
    if kind.is_empty() {
        errors.required(at.child("type"), "");
    }
}

fn validate_part(is_there: bool, is_expected: bool, at: Path<'_>, errors: &mut Errors) {
    match (is_there, is_expected) {
        (true, false) => errors.forbidden(at, ""),
        (false, true) => errors.required(at, ""),
        _ => {}
    }
}

fn validate_shares(of: &Value, at: &Path<'_>, errors: &mut Errors) {
    let shares = of.int("nominalConcurrencyShares");
    if shares < 0 {
        errors.invalid(at.child("nominalConcurrencyShares"), shares, "must be a non-negative integer");
    }
}

fn validate_lendable(of: &Value, at: &Path<'_>, errors: &mut Errors) {
    if let Some(percent) = of.optional_int("lendablePercent").filter(|it| !(0..=100).contains(it)) {
        errors.invalid(at.child("lendablePercent"), percent, "must be between 0 and 100, inclusive");
    }
}

fn validate_limited(limited: &Value, at: &Path<'_>, errors: &mut Errors) {
    validate_shares(limited, at, errors);
    let response = limited.field("limitResponse");
    let here = at.child("limitResponse");
    let queuing = response.optional("queuing");
    match (response.text("type"), queuing) {
        ("Queue", Some(queuing)) => validate_queuing(queuing, &here.child("queuing"), errors),
        ("" | "Queue" | "Reject", _) => {}
        (other, _) => errors.not_supported(here.child("type"), other, &["Queue", "Reject"]),
    }
    validate_lendable(limited, at, errors);
    if let Some(percent) = limited.optional_int("borrowingLimitPercent").filter(|it| *it < 0) {
        let detail = "if specified, must be a non-negative integer";
        errors.invalid(at.child("borrowingLimitPercent"), percent, detail);
    }
}

fn validate_queuing(queuing: &Value, at: &Path<'_>, errors: &mut Errors) {
    let (queues, hand) = (queuing.int("queues"), queuing.int("handSize"));
    let length = queuing.int("queueLengthLimit");
    if length <= 0 {
        errors.invalid(at.child("queueLengthLimit"), length, "must be positive");
    }
    if queues <= 0 {
        errors.invalid(at.child("queues"), queues, "must be positive");
    } else if queues > QUEUES_MAX {
        errors.invalid(at.child("queues"), queues, format!("must not be greater than {QUEUES_MAX}"));
    }
    let hand_at = at.child("handSize");
    if hand <= 0 {
        errors.invalid(hand_at, hand, "must be positive");
    } else if hand > queues {
        errors.invalid(hand_at, hand, format!("should not be greater than queues ({queues})"));
    } else if entropy_bits(queues, hand) > HASH_BITS {
        let detail = format!(
            "required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {HASH_BITS}"
        );
        errors.invalid(hand_at, hand, detail);
    }
}

#[expect(clippy::cast_precision_loss, reason = "both are small where the result counts")]
fn entropy_bits(queues: i64, hand: i64) -> f64 {
    ((queues as f64).log2() * hand as f64).ceil()
}
