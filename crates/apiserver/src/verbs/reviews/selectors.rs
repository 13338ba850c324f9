//! The selectors to which an access review limits its question: which are allowed, and what is understood of them.
//!
//! Unsupported selectors are omitted and reported: a review without them covers more. Follows Kubernetes'
//! `apis/authorization/validation` and `registry/authorization/util`.

use api::field::{Errors, Path};
use api::json::Value;
use api::labels::Selector;
use api::meta::v1::LabelSelector;
use api::names;

use super::texts;
use cache::field_selectors;

/// The supported part of a selector.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SupportedSelector {
    /// Fields that must have one value.
    pub(super) equalities: Vec<(String, String)>,
    /// A note that something was omitted.
    pub(super) ignored: Option<&'static str>,
}

const ALL: Option<&str> = Some("ignored due to parse error");
const SOME: Option<&str> = Some("partially ignored due to parse error");

fn raw(selector: &Value) -> &str {
    selector.text("rawSelector")
}

fn requirements(selector: &Value) -> &[Value] {
    selector.get("requirements").and_then(Value::as_array).unwrap_or_default()
}

fn operator(requirement: &Value) -> &str {
    requirement.text("operator")
}

fn key(requirement: &Value) -> &str {
    requirement.text("key")
}

fn ignored(understood: usize, all: usize) -> Option<&'static str> {
    match understood {
        _ if understood == all => None,
        0 => ALL,
        _ => SOME,
    }
}

/// The fields that a review limits its question to.
pub(super) fn fields_of(selector: &Value) -> SupportedSelector {
    if !raw(selector).is_empty() {
        let equalities = field_selectors::understood_equalities(raw(selector));
        let ignored = if equalities.is_none() { ALL } else { None };
        return SupportedSelector { equalities: equalities.unwrap_or_default(), ignored };
    }
    let all = requirements(selector);
    let mut understood: usize = 0;
    let mut equalities = Vec::new();
    for requirement in all {
        match (operator(requirement), texts(requirement.get("values")).as_slice()) {
            ("In", [value]) => equalities.push((key(requirement).to_owned(), value.clone())),
            ("NotIn", [_]) => {}
            _ => continue,
        }
        understood = understood.saturating_add(1);
    }
    SupportedSelector { equalities, ignored: ignored(understood, all.len()) }
}

/// Checks the label selector of a review. No authorizer uses it.
pub(super) fn labels_of(selector: &Value) -> SupportedSelector {
    if !raw(selector).is_empty() {
        let ignored = if Selector::parse(raw(selector)).is_err() { ALL } else { None };
        return SupportedSelector { ignored, ..SupportedSelector::default() };
    }
    let all = requirements(selector);
    let is_understood = |requirement: &&Value| {
        let one = api::json!({"matchExpressions": [((*requirement).clone())]});
        api::json::from_value::<LabelSelector>(&one).is_ok_and(|it| it.to_selector().is_ok())
    };
    let understood = all.iter().filter(is_understood).count();
    SupportedSelector { ignored: ignored(understood, all.len()), ..SupportedSelector::default() }
}

/// Checks both selectors of a question. Operators that are not known may be those of a newer client.
pub(super) fn validate(attributes: &Value, errors: &mut Errors) {
    for name in ["fieldSelector", "labelSelector"] {
        let Some(selector) = attributes.get(name).filter(|it| !it.is_null()) else { continue };
        let at = Path::new("spec.resourceAttributes");
        let at = at.child(name);
        if !raw(selector).is_empty() && !requirements(selector).is_empty() {
            errors.invalid(
                at.child("rawSelector"),
                raw(selector),
                "may not specified at the same time as requirements",
            );
        }
        if raw(selector).is_empty() && requirements(selector).is_empty() {
            let detail =
                format!("when spec.resourceAttributes.{name} is specified, requirements or rawSelector is required");
            errors.required(at.child("requirements"), detail);
        }
        let list = at.child("requirements");
        for (index, requirement) in requirements(selector).iter().enumerate() {
            validate_requirement(requirement, name == "labelSelector", &list.index(index), errors);
        }
    }
}

fn validate_requirement(requirement: &Value, of_labels: bool, at: &Path<'_>, errors: &mut Errors) {
    let (key, values) = (key(requirement), texts(requirement.get("values")));
    if !of_labels && key.is_empty() {
        errors.required(at.child("key"), "must be specified");
    }
    match operator(requirement) {
        "In" | "NotIn" if values.is_empty() => {
            errors.required(at.child("values"), "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            errors.forbidden(at.child("values"), "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
        }
        _ => {}
    }
    if !of_labels {
        return;
    }
    for complaint in names::qualified_name(key) {
        errors.invalid(at.child("key"), key, complaint);
    }
    let list = at.child("values");
    for (index, value) in values.iter().enumerate() {
        for complaint in names::label_value(value) {
            errors.invalid(list.index(index), value.as_str(), complaint);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(selector: &str, equalities: &[(&str, &str)], ignored: Option<&str>) {
        let understood = fields_of(&api::json::parse(selector.as_bytes()).unwrap());
        let found: Vec<(&str, &str)> =
            understood.equalities.iter().map(|(key, it)| (key.as_str(), it.as_str())).collect();
        assert_eq!((found.as_slice(), understood.ignored), (equalities, ignored), "{selector}");
    }

    #[test]
    fn unsupported_selectors_are_omitted_and_reported() {
        check(r#"{"rawSelector": "a=b,c!=d"}"#, &[("a", "b")], None);
        check(r#"{"rawSelector": "a=b,c"}"#, &[], ALL);
        check(r#"{"requirements": [{"key": "a", "operator": "In", "values": ["b"]}]}"#, &[("a", "b")], None);
        check(r#"{"requirements": [{"key": "a", "operator": "In", "values": ["b", "c"]}]}"#, &[], ALL);
        let mixed =
            r#"{"requirements": [{"key": "a", "operator": "In", "values": ["b"]}, {"key": "c", "operator": "New"}]}"#;
        check(mixed, &[("a", "b")], SOME);
    }
}
