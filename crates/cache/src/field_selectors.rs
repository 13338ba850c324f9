//! Field selectors: `spec.nodeName=a,status.phase!=Failed`, and which fields each resource offers.

use std::borrow::Cow;

use api::json::Value;

use crate::stored::ServedObject;
use registry::resources::Resource;

/// An invalid selector, in Kubernetes' words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(pub String);

/// Conditions on fields; all must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector {
    terms: Vec<Term>,
    /// Fields that the resource offers besides name and namespace.
    offered: &'static [&'static str],
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    field: String,
    equal: bool,
    value: String,
    /// Whether the field is located at the path of its name, as in custom resources.
    is_plain: bool,
    is_namespaced: bool,
}

impl Selector {
    /// Reads a selector for a resource.
    ///
    /// # Errors
    /// It is not understood, or names a field that the resource does not offer.
    pub fn parse(text: &str, resource: &Resource<'_>) -> Result<Self, Error> {
        let mut terms = Vec::new();
        for part in split(text) {
            if part.is_empty() {
                continue;
            }
            let Some((field, equal, value)) = operator(&part) else {
                return Err(Error(format!("invalid selector: '{text}'; can't understand '{part}'")));
            };
            check(&field, resource)?;
            let (is_plain, is_namespaced) = (resource.custom.is_some(), resource.namespaced);
            terms.push(Term { field, equal, value: unescape(&value), is_plain, is_namespaced });
        }
        Ok(Self { terms, offered: resource.fields })
    }

    /// Whether nothing is required.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Returns the name that objects must have, if that is the selector's only condition.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self.terms.as_slice() {
            [Term { field, equal: true, value, .. }] if field == "metadata.name" => Some(value),
            _ => None,
        }
    }

    /// Returns the value that the selector requires for a field.
    #[must_use]
    pub fn required(&self, field: &str) -> Option<&str> {
        self.terms.iter().find(|term| term.equal && term.field == field).map(|term| term.value.as_str())
    }

    /// The fields that are taken out of objects for selectors of this resource.
    pub fn offered(&self) -> &'static [&'static str] {
        self.offered
    }

    /// As [`Selector::matches`], for an object that is not decoded if what was taken out of it suffices.
    pub fn matches_served(&self, key: &str, object: &ServedObject) -> bool {
        let (name, namespace) = (|| key.rsplit('/').next(), || key.rsplit('/').nth(1));
        self.terms.iter().all(|term| {
            let equal = match term.field.as_str() {
                "metadata.name" => name() == Some(term.value.as_str()),
                "metadata.namespace" if term.is_namespaced => namespace() == Some(term.value.as_str()),
                field
                    if !term.is_plain
                        && let Some(value) = object.attributes(self.offered).field(field) =>
                {
                    value == term.value
                }
                field => value_in(object, field, term.is_plain) == term.value,
            };
            equal == term.equal
        })
    }

    /// Whether an object, as it is stored, is selected.
    #[must_use]
    pub fn matches(&self, object: &Value) -> bool {
        let has_it = |term: &Term| value_of(object, &term.field, term.is_plain) == term.value;
        self.terms.iter().all(|term| has_it(term) == term.equal)
    }
}

/// Returns the fields that a selector requires to have one value; empty if the selector is not understood,
/// which leaves the request unrestricted.
#[must_use]
pub fn equalities(text: &str) -> Vec<(String, String)> {
    understood_equalities(text).unwrap_or_default()
}

/// Like [`equalities`]; `None` if the selector is not understood.
#[must_use]
pub fn understood_equalities(text: &str) -> Option<Vec<(String, String)>> {
    let parts = split(text).into_iter().filter(|part| !part.is_empty());
    let terms: Option<Vec<_>> = parts.map(|part| operator(&part)).collect();
    let equal = terms?.into_iter().filter(|(_, equal, _)| *equal);
    Some(equal.map(|(field, _, value)| (field, unescape(&value))).collect())
}

/// Splits at commas that are not escaped.
fn split(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut escaped = false;
    for character in text.chars() {
        if character == ',' && !escaped {
            parts.push(String::new());
            continue;
        }
        escaped = character == '\\' && !escaped;
        if let Some(part) = parts.last_mut() {
            part.push(character);
        }
    }
    parts
}

fn operator(part: &str) -> Option<(String, bool, String)> {
    for (index, _) in part.char_indices() {
        let rest = part.get(index..)?;
        for (text, equal) in [("!=", false), ("==", true), ("=", true)] {
            if let Some(value) = rest.strip_prefix(text) {
                // In values, too, an equals sign must be escaped.
                let is_bare = value.replace("\\\\", "").replace("\\=", "").contains('=');
                return if is_bare { None } else { Some((part.get(..index)?.to_owned(), equal, value.to_owned())) };
            }
        }
    }
    None
}

fn unescape(value: &str) -> String {
    value.replace("\\,", ",").replace("\\=", "=").replace("\\\\", "\\")
}

fn check(field: &str, resource: &Resource<'_>) -> Result<(), Error> {
    // Kubernetes' text differs for kinds with a custom conversion of field labels.
    let own_conversion = !resource.fields.is_empty() || resource.custom.is_some();
    let is_name = match field {
        "metadata.name" => true,
        "metadata.namespace" => !own_conversion || resource.namespaced && resource.plural != "podcertificaterequests",
        _ => false,
    };
    if is_name || resource.offers(field) {
        return Ok(());
    }
    Err(Error(match (resource.group, resource.plural) {
        ("batch", "jobs") => format!("field label \"{field}\" not supported for Job"),
        ("resource.k8s.io", "resourceslices") => {
            format!("field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: {field}")
        }
        _ if own_conversion => format!("field label not supported: {field}"),
        _ => format!("\"{field}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""),
    }))
}

/// The text of a field of an object, empty if it is missing.
pub fn value_of<'o>(object: &'o Value, field: &str, is_plain: bool) -> Cow<'o, str> {
    value(field, is_plain, &|path| match object.at(path)? {
        Value::Null => None,
        Value::String(text) => Some(Cow::Borrowed(text.as_str())),
        other => Some(Cow::Owned(other.to_string())),
    })
}

/// The value of a field in an object that is not decoded.
pub fn value_in<'o>(object: &'o ServedObject, field: &str, is_plain: bool) -> Cow<'o, str> {
    value(field, is_plain, &|path| object.text_at(path))
}

/// Returns the text of a field: `at` reads a path. A plain field is located at the path of its name.
fn value<'o>(field: &str, is_plain: bool, at: &dyn Fn(&[&str]) -> Option<Cow<'o, str>>) -> Cow<'o, str> {
    let by_name = || at(&field.split('.').collect::<Vec<_>>());
    if is_plain {
        return by_name().unwrap_or_default();
    }
    let found = match field {
        // Events are stored as core/v1 has them.
        "reportingController" => at(&["reportingComponent"]),
        "source" => at(&["source", "component"]),
        "status.successful" => at(&["status", "succeeded"]),
        "spec.host" => at(&["spec", "nodeName"]),
        "name" => at(&["metadata", "name"]),
        _ => match field.strip_prefix("regarding.") {
            Some(rest) => at(&["involvedObject", rest]),
            None => by_name(),
        },
    };
    found.unwrap_or_else(|| match field {
        "spec.unschedulable" | "spec.hostNetwork" => Cow::Borrowed("false"),
        "status.successful" | "status.replicas" => Cow::Borrowed("0"),
        "source" => at(&["reportingComponent"]).unwrap_or_default(),
        "status.podIP" => {
            let all = at(&["status", "podIPs"]).and_then(|all| api::json::parse(all.as_bytes()).ok());
            let first = all.as_ref().and_then(Value::as_array).and_then(|all| all.first());
            Cow::Owned(first.and_then(|it| it.str_at(&["ip"])).unwrap_or_default().to_owned())
        }
        _ => Cow::Borrowed(""),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use registry::resources;

    #[test]
    fn selectors_match_fields() {
        let pods = resources::find("", "v1", "pods").unwrap();
        let selector = Selector::parse("spec.nodeName=a,status.phase!=Failed", pods).unwrap();
        let pod = api::json!({"spec": {"nodeName": "a"}, "status": {"phase": "Running"}});
        assert!(selector.matches(&pod));
        assert!(!selector.matches(&api::json!({"spec": {"nodeName": "b"}})));
        assert_eq!(Selector::parse("metadata.name=x", pods).unwrap().name(), Some("x"));
        assert!(Selector::parse("spec.hostNetwork=false", pods).unwrap().matches(&pod));
    }

    #[test]
    fn recorded_fields_agree() {
        let (mut count, mut wrong) = (0, Vec::new());
        for line in include_str!("../tests/data/fields.jsonl").lines() {
            let case = api::json::parse(line.as_bytes()).unwrap();
            let (id, input, expected) =
                (case.str_at(&["id"]).unwrap(), case.get("input").unwrap(), case.get("expected").unwrap());
            let about = input.get("object").unwrap_or(input);
            let (api_version, kind) = (about.str_at(&["apiVersion"]).unwrap(), about.str_at(&["kind"]).unwrap());
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            let is_it = |it: &&Resource<'_>| it.group == group && it.kind == kind && it.versions.contains(&version);
            let resource = resources::all().iter().find(is_it).unwrap();
            count += 1;
            if let Some(label) = input.str_at(&["label"]) {
                let found = check(label, resource).err().map(|failure| failure.0.clone());
                if found.as_deref() != expected.str_at(&["error"]) {
                    wrong.push(format!("{id}: {found:?} instead of {expected}"));
                }
                continue;
            }
            let of = api::types::by_api_version(api_version, kind).unwrap();
            let mut object = api::types::decode(of, about).unwrap().value;
            registry::defaults::apply(of, &mut object, "");
            api::metadata::set(&mut object, "creationTimestamp", "t");
            let stored = crate::stored::encode(&mut object.clone()).unwrap();
            let served = ServedObject::new(&stored, 1).unwrap();
            for (field, value) in expected.get("fields").and_then(Value::as_object).unwrap().iter() {
                for found in [value_of(&object, field, false), value_in(&served, field, false)] {
                    if Some(&*found) != value.as_str() {
                        wrong.push(format!("{id}: {field} is {found} instead of {value}"));
                    }
                }
            }
        }
        assert!(count > 130, "{count}");
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn unknown_fields_and_broken_selectors_are_refused() {
        let pods = resources::find("", "v1", "pods").unwrap();
        let deployments = resources::find("apps", "v1", "deployments").unwrap();
        let message = |text: &str, of| Selector::parse(text, of).unwrap_err().0.clone();
        assert_eq!(message("spec.bogus=1", pods), "field label not supported: spec.bogus");
        assert_eq!(
            message("spec.replicas=1", deployments),
            "\"spec.replicas\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        );
        assert_eq!(
            message("spec.nodeName", pods),
            "invalid selector: 'spec.nodeName'; can't understand 'spec.nodeName'"
        );
    }
}
