//! The selection of pods by labels, namespace, kind of owner and image, for rules of a fleet.
//!
//! All given conditions must hold. `*` in a namespace or an image matches any characters.

use api::core::v1::Pod;
use api::json::Value;
use api::labels::{Selector, SelectorError};

/// The pods that a rule is for.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PodSelector {
    labels: Option<Selector>,
    namespace: Option<String>,
    owner: Option<String>,
    image: Option<String>,
}

/// A reason to reject a selection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectError {
    /// The selection has the wrong form.
    #[error("`select` is an object with the texts image, labels, namespace, owner")]
    Form,
    /// The selection has an unknown field.
    #[error("`select` has no field `{0}`: it has image, labels, namespace, owner")]
    Unknown(String),
    /// The selection selects everything.
    #[error("`select` is empty: rules for all pods belong at the top level")]
    Empty,
    /// `labels` is no label selector.
    #[error("`select.labels` is not a label selector: {0}")]
    Labels(SelectorError),
}

impl PodSelector {
    /// Reads a selection, such as `{owner: Job, labels: "app in (a, b)"}`.
    pub(super) fn new(document: &Value) -> Result<Self, SelectError> {
        let fields = document.as_object().ok_or(SelectError::Form)?;
        let mut select = PodSelector { labels: None, namespace: None, owner: None, image: None };
        for (name, value) in fields.iter() {
            let text = value.as_str().ok_or(SelectError::Form);
            match name {
                "labels" => select.labels = Some(Selector::parse(text?).map_err(SelectError::Labels)?),
                "namespace" => select.namespace = Some(text?.to_owned()),
                "owner" => select.owner = Some(text?.to_owned()),
                "image" => select.image = Some(text?.to_owned()),
                other => return Err(SelectError::Unknown(other.to_owned())),
            }
        }
        if fields.is_empty() { Err(SelectError::Empty) } else { Ok(select) }
    }

    /// Whether the rule is for a pod.
    pub(super) fn matches(&self, pod: &Pod) -> bool {
        let owner = || pod.metadata.controller().map_or("", |owner| owner.kind.as_str());
        let mut images = pod.spec.containers.iter().map(|container| container.image.as_str());
        self.namespace.as_ref().is_none_or(|pattern| is_like(pattern, &pod.metadata.namespace))
            && self.owner.as_ref().is_none_or(|kind| owner() == kind)
            && self.image.as_ref().is_none_or(|pattern| images.any(|image| is_like(pattern, image)))
            && self.labels.as_ref().is_none_or(|labels| labels.matches(&pod.metadata.labels))
    }
}

/// Whether a text matches a pattern in which `*` matches any characters.
fn is_like(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(start) else { return false };
    let mut parts = rest.split('*').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return text.ends_with(part);
        }
        match text.split_once(part) {
            Some((_, after)) => text = after,
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_with_any_number_of_stars() {
        for (pattern, text, expected) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "", true),
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*c", "abc", true),
            ("a*c", "abd", false),
            ("*b*", "abc", true),
            ("a*b*c", "aXbYc", true),
            ("a*b*c", "acb", false),
            ("ab*ba", "aba", false),
        ] {
            assert_eq!(is_like(pattern, text), expected, "{pattern} {text}");
        }
    }
}
