//! Help beyond the texts of Kubernetes and of the proposals, which stay as they are.
//!
//! The server sends hints as `Warning` headers with a refusal; `celplane check` and `celplane cel` print them below the
//! error.

use api::features::{Features, Gate};
use api::field::{Error, Errors};
use api::json::Value;

use crate::expressions::{Expressions, Place, Refusal};

/// The number of hints for one object.
const HINTS_MAX: usize = 8;

/// Functions that are suggested for a misspelled name, in addition to the variables of a place.
const FUNCTIONS: &[&str] = &[
    "all",
    "compareTo",
    "contains",
    "distinct",
    "endsWith",
    "exists",
    "exists_one",
    "filter",
    "has",
    "indexOf",
    "isGreaterThan",
    "isLessThan",
    "isQuantity",
    "isSemver",
    "join",
    "lowerAscii",
    "major",
    "map",
    "matches",
    "max",
    "min",
    "minor",
    "patch",
    "quantity",
    "semver",
    "size",
    "split",
    "startsWith",
    "sum",
    "upperAscii",
];

/// Hints about the errors of an object, each with the path of its field.
#[must_use]
pub fn of_errors(
    object: &Value,
    errors: &Errors,
    features: Features,
    expressions: &dyn Expressions,
) -> Vec<(String, String)> {
    let hint = |error: &Error| {
        let hint = of_error(object, error, features, expressions)?;
        Some((error.field.clone(), hint))
    };
    errors.iter().filter_map(hint).take(HINTS_MAX).collect()
}

fn of_error(object: &Value, error: &Error, features: Features, expressions: &dyn Expressions) -> Option<String> {
    let (field, detail) = (error.field.as_str(), error.detail.as_str());
    if let Some(place) = place_of(field) {
        let text = lookup(object, field).and_then(Value::as_str)?;
        return of_expression(place, text, detail, expressions);
    }
    if field.ends_with(".operator") && is_placement(field) {
        return of_operator(object, field, detail, features);
    }
    let is_version = (field.ends_with(".value") || field.contains(".values")) && is_placement(field);
    if is_version && (detail.starts_with("strconv.ParseUint") || detail.contains("character(s) found in")) {
        return Some(
            "a version such as \"1.2.3\" is expected here (major.minor.patch; \"1.2\" and \"v1.2\" are taken, too)"
                .to_owned(),
        );
    }
    None
}

/// Whether a field belongs to tolerations or node selector terms.
fn is_placement(field: &str) -> bool {
    field.contains("olerations[") || field.contains("odeSelectorTerm") || field.contains(".preference.")
}

/// Hints about an operator that is not known, or whose gate is off.
fn of_operator(object: &Value, field: &str, detail: &str, features: Features) -> Option<String> {
    let operator = lookup(object, field).and_then(Value::as_str).unwrap_or_default();
    if detail.starts_with("operator must be Exists when `key` is empty") {
        // Kubernetes' answer to `expression: ""`, which is the same as no expression.
        return features.enabled(Gate::TaintTolerationCEL).then(|| {
            "a toleration without a key needs `operator: Exists`, or an `expression` that is not empty".to_owned()
        });
    }
    let gate = Gate::TaintTolerationNodeAffinitySemverComparisonOperators;
    let known = ["SemverLt", "SemverGt", "SemverEq"];
    if known.contains(&operator) {
        return (!features.enabled(gate))
            .then(|| format!("operator {operator} requires the feature gate {}", gate.name()));
    }
    // Kubernetes answers to its own operators without a warning.
    if !operator.starts_with("Semver") {
        return None;
    }
    let others: &[&str] = match field.contains("olerations[") {
        true => &["Equal", "Exists", "Lt", "Gt"],
        false => &["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"],
    };
    let all: Vec<&str> = others.iter().chain(known.iter().filter(|_| features.enabled(gate))).copied().collect();
    let meant = closest(operator, all.iter().copied()).map(|it| format!("did you mean {it}? ")).unwrap_or_default();
    Some(format!("{meant}operators are {}", all.join(", ")))
}

/// A hint about an expression that was refused with `detail`.
#[must_use]
pub fn of_expression(place: Place, text: &str, detail: &str, expressions: &dyn Expressions) -> Option<String> {
    if let Some((_, rest)) = detail.split_once("undeclared reference to '") {
        return of_name(place, rest.split('\'').next().unwrap_or_default());
    }
    if detail.contains("exceeds cost limit")
        && let Err(Refusal::TooCostly { estimated, limit, .. }) = expressions.check(place, None, text)
    {
        return Some(of_cost(estimated, limit));
    }
    None
}

/// The hint about a name that is not declared at a place; none about functions that exist elsewhere.
#[must_use]
pub fn of_name(place: Place, name: &str) -> Option<String> {
    if FUNCTIONS.contains(&name) {
        return None;
    }
    let (variable, description) = place.variable()?;
    let meant = closest(name, FUNCTIONS.iter().copied().chain([variable]));
    let meant = meant.map(|it| format!("did you mean {it}? ")).unwrap_or_default();
    Some(format!("{meant}the variable here is {description}"))
}

/// The hint about an expression that may cost too much.
#[must_use]
pub fn of_cost(estimated: u64, limit: u64) -> String {
    let estimated = if estimated == u64::MAX { "has no bound".to_owned() } else { format!("is {estimated}") };
    format!("the estimated cost {estimated}, the limit is {limit}; `celplane cel cost` shows it for variants")
}

/// The place that a field is, if it takes an expression of the proposals. Selectors of devices are Kubernetes' own, which
/// sends no warnings about them.
fn place_of(field: &str) -> Option<Place> {
    if field.contains("olerations[") && field.ends_with(".expression") {
        Some(Place::Toleration)
    } else if field.contains(".matchCELExpressions[") {
        Some(Place::NodeAffinity)
    } else if field.contains("constraints[") && field.ends_with(".cel.expression") {
        Some(Place::DeviceConstraint)
    } else {
        None
    }
}

/// The value of a field by its path.
fn lookup<'v>(object: &'v Value, path: &str) -> Option<&'v Value> {
    let mut parts = path.split(['.', '[']).filter(|part| !part.is_empty());
    parts.try_fold(object, |value, part| match part.strip_suffix(']') {
        Some(index) => value.as_array()?.get(index.parse::<usize>().ok()?),
        None => Some(value.field(part)),
    })
}

/// The name that differs least, if it differs little.
fn closest<'n>(name: &str, all: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let most = if name.len() > 4 { 2 } else { 1 };
    let all = all.filter(|it| *it != name && it.len().abs_diff(name.len()) <= most);
    all.map(|it| (distance(name, it), it)).filter(|(distance, _)| *distance <= most).min().map(|(_, it)| it)
}

/// The number of letters to add, to remove or to replace; letters that differ in case only are the same.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (index, letter) in left.chars().enumerate() {
        let mut diagonal = index;
        let mut last = index.saturating_add(1);
        let mut next = vec![last];
        for (above, other) in row.iter().skip(1).zip(&right) {
            let replaced = diagonal.saturating_add(usize::from(!letter.eq_ignore_ascii_case(other)));
            last = replaced.min(above.saturating_add(1)).min(last.saturating_add(1));
            diagonal = *above;
            next.push(last);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::expressions::Environments;
    use api::field::Path;

    #[track_caller]
    fn check(object: &str, field: &str, detail: &str, features: Features, expected: Option<&str>) {
        let object = api::json::parse(object.as_bytes()).unwrap();
        let mut errors = Errors::new();
        errors.invalid(Path::new(field), "", detail);
        let hints = of_errors(&object, &errors, features, &Environments::new().unwrap());
        let found: Vec<&str> = hints.iter().map(|(_, hint)| hint.as_str()).collect();
        assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{field}: {detail}");
    }

    fn toleration(text: &str) -> String {
        format!(r#"{{"spec": {{"tolerations": [{text}]}}}}"#)
    }

    #[test]
    fn hints_name_variables_functions_gates_and_versions() {
        let on = Features::all_proposals();
        let (expression, operator) = ("spec.tolerations[0].expression", "spec.tolerations[0].operator");
        let undeclared =
            |name: &str| format!("compilation failed: ERROR: undeclared reference to '{name}' (in container '')");
        let variable = "the variable here is `taint`, with key, value, effect and timeAdded";
        let text = toleration(r#"{"expression": "x"}"#);
        check(&text, expression, &undeclared("tain"), on, Some(&format!("did you mean taint? {variable}")));
        check(&text, expression, &undeclared("startswith"), on, Some(&format!("did you mean startsWith? {variable}")));
        check(&text, expression, &undeclared("node"), on, Some(variable));
        check(&text, expression, "something else", on, None);
        let semver = toleration(r#"{"key": "k", "operator": "SemverGt", "value": "1.2"}"#);
        let gate = "operator SemverGt requires the feature gate TaintTolerationNodeAffinitySemverComparisonOperators";
        check(&semver, operator, "", Features::none(), Some(gate));
        let near = toleration(r#"{"key": "k", "operator": "SemverGte", "value": "1.2"}"#);
        let all = "operators are Equal, Exists, Lt, Gt, SemverLt, SemverGt, SemverEq";
        check(&near, operator, "", on, Some(&format!("did you mean SemverGt? {all}")));
        let version =
            "a version such as \"1.2.3\" is expected here (major.minor.patch; \"1.2\" and \"v1.2\" are taken, too)";
        check(
            &semver,
            "spec.tolerations[0].value",
            "strconv.ParseUint: parsing \"\": invalid syntax",
            on,
            Some(version),
        );
        let empty = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        let help = "a toleration without a key needs `operator: Exists`, or an `expression` that is not empty";
        check(&toleration("{}"), operator, empty, on, Some(help));
        check(&toleration("{}"), operator, empty, Features::none(), None);
    }

    #[test]
    fn hint_about_the_cost_names_estimate_and_limit() {
        let lists = "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20]";
        let nested =
            (0..6).fold("taint.key == 'a'".to_owned(), |inner, level| format!("{lists}.all(x{level}, {inner})"));
        let object = toleration(&format!(r#"{{"expression": "{nested}"}}"#));
        let object = api::json::parse(object.as_bytes()).unwrap();
        let mut errors = Errors::new();
        errors.forbidden(Path::new("spec.tolerations[0].expression"), "too complex, exceeds cost limit");
        let hints = of_errors(&object, &errors, Features::all_proposals(), &Environments::new().unwrap());
        let [(_, hint)] = hints.as_slice() else { panic!("{hints:?}") };
        assert!(hint.starts_with("the estimated cost is ") && hint.contains("the limit is "), "{hint}");
    }
}
