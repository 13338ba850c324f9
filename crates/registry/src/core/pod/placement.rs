//! Placement of a pod: tolerations, affinity, topology spread.
//!
//! Follows `ValidateTolerations`, `validateAffinity` and `validateTopologySpreadConstraints`; `expression` follows
//! KEP-5500, the semver operators KEP-5721.

use std::collections::BTreeMap;

use api::field::{Errors, Path};
use api::json::Value;
use api::names;
use api::semver::Version;
use api::well_known::{EFFECT_NO_EXECUTE, EFFECT_NO_SCHEDULE, EFFECT_PREFER_NO_SCHEDULE};

use super::options::Options;
use crate::core::expression_totals::{self, Group};
use crate::core::node_selector::{self, Cel};
use crate::expressions::{self, Place};
use crate::meta::{self, invalid, validate_label_name};
use crate::seen::SeenKeys;

const EFFECTS: &[&str] = &[EFFECT_NO_SCHEDULE, EFFECT_PREFER_NO_SCHEDULE, EFFECT_NO_EXECUTE];

/// The tolerations of a spec.
pub(crate) fn validate_tolerations(tolerations: &[Value], options: &Options<'_>, at: &Path<'_>, errors: &mut Errors) {
    for (index, toleration) in tolerations.iter().enumerate() {
        let here = at.index(index);
        if toleration.text("expression").is_empty() {
            validate_toleration(toleration, options, &here, errors);
        } else {
            validate_expression(toleration, options, here.child("expression"), errors);
        }
    }
}

fn validate_expression(toleration: &Value, options: &Options<'_>, at: Path<'_>, errors: &mut Errors) {
    let expression = toleration.text("expression");
    if !options.allow_toleration_cel {
        errors.forbidden(at, "toleration CEL expressions require feature gate TaintTolerationCEL");
    } else if ["key", "value", "operator", "effect"].iter().any(|name| !toleration.text(name).is_empty()) {
        errors.invalid(at, expression, "expression cannot be used with key, value, operator, or effect fields");
    } else if options.compiles_tolerations {
        expressions::validate(options.context.expressions, Place::Toleration, expression, at, errors);
    }
}

fn validate_toleration(toleration: &Value, options: &Options<'_>, at: &Path<'_>, errors: &mut Errors) {
    let (key, operator) = (toleration.text("key"), toleration.text("operator"));
    let (value, effect) = (toleration.text("value"), toleration.text("effect"));
    if !key.is_empty() {
        validate_label_name(key, at.child("key"), errors);
    }
    if key.is_empty() && operator != "Exists" {
        let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        errors.invalid(at.child("operator"), operator, detail);
    }
    if toleration.has("tolerationSeconds") && effect != EFFECT_NO_EXECUTE {
        let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        errors.invalid(at.child("effect"), effect, detail);
    }
    match operator {
        "Equal" | "" => {
            let complaints = names::label_value(value);
            if !complaints.is_empty() {
                errors.invalid(at.child("operator"), value, complaints.join(";"));
            }
        }
        "Exists" => {
            if !value.is_empty() {
                errors.invalid(at.child("operator"), value, "value must be empty when `operator` is 'Exists'");
            }
        }
        "Lt" | "Gt" if options.allow_comparison => validate_integer(value, at.child("value"), errors),
        // Kubernetes names the gated operators among those that are supported.
        "Lt" | "Gt" => errors.not_supported(at.child("operator"), operator, &["Equal", "Exists", "Lt", "Gt"]),
        "SemverLt" | "SemverGt" | "SemverEq" if options.allow_semver => {
            if value.is_empty() {
                errors.required(at.child("value"), "");
            } else if let Err(error) = Version::parse_tolerant(value) {
                errors.invalid(at.child("value"), value, error.as_written(value));
            }
        }
        _ => errors.not_supported(at.child("operator"), operator, &["Equal", "Exists"]),
    }
    if !effect.is_empty() && !EFFECTS.contains(&effect) {
        errors.not_supported(at.child("effect"), effect, EFFECTS);
    }
}

/// A 64-bit number in canonical form.
fn validate_integer(value: &str, at: Path<'_>, errors: &mut Errors) {
    let digits = value.strip_prefix('-').unwrap_or(value);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let is_canonical = is_number && (value == "0" || !digits.starts_with('0'));
    if value.is_empty() {
        errors.invalid(at, value, "must be non-empty");
    } else if !is_canonical {
        errors.invalid(at, value, "must be a valid decimal integer in canonical form");
    }
    // Go also takes a plus sign.
    let unsigned = value.strip_prefix(['-', '+']).unwrap_or(value);
    let parses = !unsigned.is_empty() && unsigned.bytes().all(|byte| byte.is_ascii_digit());
    let quoted = api::go_text::quote(value);
    if !parses {
        errors.invalid(at, value, format!("strconv.ParseInt: parsing {quoted}: invalid syntax"));
    } else if value.parse::<i64>().is_err() {
        errors.invalid(at, value, format!("strconv.ParseInt: parsing {quoted}: value out of range"));
    }
}

/// The effect of a taint.
pub(crate) fn validate_taint_effect(effect: &str, at: Path<'_>, errors: &mut Errors) {
    if effect.is_empty() {
        errors.required(at, "");
    } else if !EFFECTS.contains(&effect) {
        errors.not_supported(at, effect, EFFECTS);
    }
}

/// Number and costs of all expressions of a spec.
pub(crate) fn validate_expressions(groups: &[Group<'_>; 2], options: &Options<'_>, at: &Path<'_>, errors: &mut Errors) {
    // Plain specs are most: they do not look at what was there before.
    if groups.iter().all(|group| group.texts.is_empty()) {
        return;
    }
    let affinity = at.child("affinity");
    let paths = [at.child("tolerations"), affinity.child("nodeAffinity")];
    expression_totals::validate(groups, &options.old_expressions(), &paths, options.context.expressions, errors);
}

/// The expressions of a spec that are open: others are rejected one by one.
pub(crate) fn open_expressions<'v>(spec: &'v Value, options: &Options<'_>) -> [Group<'v>; 2] {
    let [mut tolerations, mut affinity] = Group::of_pod(spec);
    if !options.allow_toleration_cel {
        tolerations.texts.clear();
    }
    if matches!(options.cel, Cel::Never | Cel::GateOff) {
        affinity.texts.clear();
    }
    [tolerations, affinity]
}

/// The affinity of a spec.
pub(crate) fn validate_affinity(affinity: &Value, options: &Options<'_>, at: &Path<'_>, errors: &mut Errors) {
    if let Some(node) = affinity.optional("nodeAffinity") {
        validate_node_affinity(node, options, &at.child("nodeAffinity"), errors);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(affinity) = affinity.optional(kind) else { continue };
        let at = at.child(kind);
        let list = at.child("requiredDuringSchedulingIgnoredDuringExecution");
        for (index, term) in affinity.list("requiredDuringSchedulingIgnoredDuringExecution").iter().enumerate() {
            validate_pod_affinity_term(term, options, &list.index(index), errors);
        }
        let list = at.child("preferredDuringSchedulingIgnoredDuringExecution");
        for (index, term) in affinity.list("preferredDuringSchedulingIgnoredDuringExecution").iter().enumerate() {
            let here = list.index(index);
            validate_weight(term, &here, errors);
            let at = here.child("podAffinityTerm");
            validate_pod_affinity_term(term.field("podAffinityTerm"), options, &at, errors);
        }
    }
}

/// The node affinity of a spec.
pub(crate) fn validate_node_affinity(node: &Value, options: &Options<'_>, at: &Path<'_>, errors: &mut Errors) {
    if let Some(required) = node.optional("requiredDuringSchedulingIgnoredDuringExecution") {
        let here = at.child("requiredDuringSchedulingIgnoredDuringExecution");
        node_selector::validate(required, options.affinity_rules(), &here, errors);
    }
    let list = at.child("preferredDuringSchedulingIgnoredDuringExecution");
    let rules = node_selector::Rules { allow_bad_values: true, ..options.affinity_rules() };
    for (index, term) in node.list("preferredDuringSchedulingIgnoredDuringExecution").iter().enumerate() {
        let here = list.index(index);
        validate_weight(term, &here, errors);
        node_selector::validate_term(term.field("preference"), rules, &here.child("preference"), errors);
    }
}

fn validate_weight(term: &Value, at: &Path<'_>, errors: &mut Errors) {
    let weight = term.int("weight");
    if !(1..=100).contains(&weight) {
        errors.invalid(at.child("weight"), weight, "must be in the range 1-100");
    }
}

fn validate_pod_affinity_term(term: &Value, options: &Options<'_>, at: &Path<'_>, errors: &mut Errors) {
    let allow = options.allow_bad_selector_values;
    meta::validate_selector(term.field("labelSelector"), allow, &at.child("labelSelector"), errors);
    meta::validate_selector(term.field("namespaceSelector"), allow, &at.child("namespaceSelector"), errors);
    for namespace in term.texts("namespaces") {
        invalid(names::dns1123_label(namespace), namespace, at.child("namespace"), errors);
    }
    validate_label_keys(term, at, errors);
    let key = term.text("topologyKey");
    if key.is_empty() {
        errors.required(at.child("topologyKey"), "can not be empty");
    }
    validate_label_name(key, at.child("topologyKey"), errors);
}

/// `matchLabelKeys` and `mismatchLabelKeys`, after their labels were merged into the selector.
fn validate_label_keys(term: &Value, at: &Path<'_>, errors: &mut Errors) {
    for name in ["matchLabelKeys", "mismatchLabelKeys"] {
        let at = at.child(name);
        if term.list(name).is_empty() {
            continue;
        }
        if !term.has("labelSelector") {
            errors.forbidden(at, "must not be specified when labelSelector is not set");
            continue;
        }
        for (index, key) in term.texts(name).enumerate() {
            validate_label_name(key, at.index(index), errors);
        }
    }
    if let Some(selector) = term.optional("labelSelector") {
        let mut seen: SeenKeys<&str> = selector.map("matchLabels").keys().collect();
        let positions: BTreeMap<&str, usize> =
            term.texts("matchLabelKeys").enumerate().map(|(index, key)| (key, index)).collect();
        for requirement in selector.list("matchExpressions") {
            let key = requirement.text("key");
            if let (Some(index), true) = (positions.get(key), seen.contains(&key)) {
                errors.invalid(at.index(*index), key, "exists in both matchLabelKeys and labelSelector");
            }
            seen.insert(key);
        }
    }
    let list = at.child("matchLabelKeys");
    let mismatched: SeenKeys<&str> = term.texts("mismatchLabelKeys").collect();
    for (index, key) in term.texts("matchLabelKeys").enumerate() {
        if mismatched.contains(&key) {
            errors.invalid(list.index(index), key, "exists in both matchLabelKeys and mismatchLabelKeys");
        }
    }
}

/// The older rule of `matchLabelKeys` in topology spread, for pods that break the newer one.
fn validate_label_keys_before_merge(constraint: &Value, at: &Path<'_>, errors: &mut Errors) {
    if constraint.list("matchLabelKeys").is_empty() {
        return;
    }
    let selector = constraint.field("labelSelector");
    if selector.is_null() {
        errors.forbidden(*at, "must not be specified when labelSelector is not set");
    }
    for (index, key) in constraint.texts("matchLabelKeys").enumerate() {
        validate_label_name(key, at.index(index), errors);
        let is_selected = selector.map("matchLabels").contains_key(key)
            || selector.list("matchExpressions").iter().any(|it| it.text("key") == key);
        if is_selected {
            errors.invalid(at.index(index), key, "exists in both matchLabelKeys and labelSelector");
        }
    }
}

/// The topology spread constraints of a spec.
pub(crate) fn validate_spread(constraints: &[Value], options: &Options<'_>, at: &Path<'_>, errors: &mut Errors) {
    for (index, constraint) in constraints.iter().enumerate() {
        let here = at.index(index);
        positive(constraint.int("maxSkew"), here.child("maxSkew"), errors);
        let (key, action) = (constraint.text("topologyKey"), constraint.text("whenUnsatisfiable"));
        if key.is_empty() {
            errors.required(here.child("topologyKey"), "can not be empty");
        }
        if !matches!(action, "DoNotSchedule" | "ScheduleAnyway") {
            errors.not_supported(here.child("whenUnsatisfiable"), action, &["DoNotSchedule", "ScheduleAnyway"]);
        }
        let mut others = constraints.iter().skip(index.saturating_add(1));
        if others.any(|it| it.text("topologyKey") == key && it.text("whenUnsatisfiable") == action) {
            errors.duplicate(here.child("{topologyKey, whenUnsatisfiable}"), format!("{{{key}, {action}}}"));
        }
        if let Some(domains) = constraint.optional_int("minDomains") {
            positive(domains, here.child("minDomains"), errors);
            if action != "DoNotSchedule" {
                let detail = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
                errors.invalid(here.child("minDomains"), domains, detail);
            }
        }
        for name in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            if let Some(policy) = constraint.optional_text(name)
                && !matches!(policy, "Honor" | "Ignore")
            {
                errors.not_supported(here.child(name), policy, &["Honor", "Ignore"]);
            }
        }
        if options.old_breaks_match_label_keys {
            validate_label_keys_before_merge(constraint, &here.child("matchLabelKeys"), errors);
        } else {
            validate_label_keys(constraint, &here, errors);
        }
        if !options.allow_bad_spread_selector {
            meta::validate_selector(constraint.field("labelSelector"), false, &here.child("labelSelector"), errors);
        }
    }
}

pub(crate) fn positive(value: i64, at: Path<'_>, errors: &mut Errors) {
    if value <= 0 {
        errors.invalid(at, value, "must be greater than zero");
    }
}

/// All terms of pod affinity and anti-affinity of a spec.
pub(crate) fn pod_affinity_terms(spec: &Value) -> impl Iterator<Item = &Value> {
    ["podAffinity", "podAntiAffinity"].into_iter().flat_map(move |kind| {
        let affinity = spec.field("affinity").field(kind);
        let required = affinity.list("requiredDuringSchedulingIgnoredDuringExecution").iter();
        let preferred = affinity.list("preferredDuringSchedulingIgnoredDuringExecution").iter();
        required.chain(preferred.map(|term| term.field("podAffinityTerm")))
    })
}

/// All terms of node affinity of a spec.
pub(crate) fn node_affinity_terms(spec: &Value) -> impl Iterator<Item = &Value> {
    let affinity = spec.field("affinity").field("nodeAffinity");
    let required = affinity.field("requiredDuringSchedulingIgnoredDuringExecution").list("nodeSelectorTerms").iter();
    let preferred = affinity.list("preferredDuringSchedulingIgnoredDuringExecution").iter();
    required.chain(preferred.map(|term| term.field("preference")))
}

/// Whether a toleration of the spec has an expression.
pub(crate) fn uses_toleration_cel(spec: &Value) -> bool {
    spec.list("tolerations").iter().any(|it| !it.text("expression").is_empty())
}

/// Whether a toleration of the spec compares numbers.
pub(crate) fn uses_comparison(spec: &Value) -> bool {
    spec.list("tolerations").iter().any(|it| matches!(it.text("operator"), "Lt" | "Gt"))
}

/// Whether the spec compares versions.
pub(crate) fn uses_semver(spec: &Value) -> bool {
    let mut tolerations = spec.list("tolerations").iter();
    tolerations.any(|it| it.text("operator").starts_with("Semver"))
        || node_affinity_terms(spec).any(node_selector::term_uses_semver)
}

/// Whether node affinity of the spec has expressions.
pub(crate) fn uses_affinity_cel(spec: &Value) -> bool {
    node_affinity_terms(spec).any(node_selector::term_uses_cel)
}

pub(crate) fn has_bad_spread_selector(spec: &Value) -> bool {
    let mut errors = Errors::new();
    for constraint in spec.list("topologySpreadConstraints") {
        meta::validate_selector(constraint.field("labelSelector"), false, &Path::NIL, &mut errors);
    }
    !errors.is_empty()
}

pub(crate) fn breaks_match_label_keys(spec: &Value) -> bool {
    let mut errors = Errors::new();
    for constraint in spec.list("topologySpreadConstraints") {
        validate_label_keys(constraint, &Path::NIL, &mut errors);
    }
    !errors.is_empty()
}
