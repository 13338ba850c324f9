//! What is stored and not yet followed: whoever writes it is told.
//!
//! Policies, webhooks and the levels of Pod Security are kept as given, and nothing is refused because of them.

use api::json::{Object, Value};

use crate::resources::Resource;

/// The start of the labels by which a namespace asks for a level of Pod Security.
const POD_SECURITY: &str = "pod-security.kubernetes.io/";

/// What who writes an object should know.
pub(crate) fn warnings(resource: &Resource<'_>, object: &Value, old: Option<&Value>) -> Vec<String> {
    let kind = resource.kind;
    match (resource.group, resource.plural) {
        ("admissionregistration.k8s.io", plural) => {
            let what = if plural.ends_with("webhookconfigurations") {
                "webhooks are not called"
            } else {
                "policies are not applied"
            };
            vec![format!("this server stores the {kind} but does not enforce it: {what}")]
        }
        ("", "namespaces") => {
            let labels = |object: &Value| -> Vec<String> {
                let all = object.at(&["metadata", "labels"]).and_then(Value::as_object);
                let own = all.into_iter().flat_map(Object::iter).filter(|(key, _)| key.starts_with(POD_SECURITY));
                own.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect()
            };
            let before = old.map(labels).unwrap_or_default();
            let new = labels(object).into_iter().filter(|label| !before.contains(label));
            new.map(|label| format!("this server stores the label {label} but does not enforce Pod Security")).collect()
        }
        _ => Vec::new(),
    }
}
