//! What selectors ask of an object: its labels, and the fields that its resource offers.
//!
//! They are taken out of an object once, by the first selector that is asked about it, and kept with it: a list or a
//! watch that selects does not decode the same objects again and again.

use api::json::Value;
use api::labels::Labels;

use crate::objects::field_selectors::value_of;
use crate::objects::metadata;

/// Labels and fields of one object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Attributes {
    /// INVARIANT: sorted by key.
    labels: Box<[(Box<str>, Box<str>)]>,
    fields: Box<[(&'static str, Box<str>)]>,
}

impl Attributes {
    /// The labels of an object, and what it has in the fields that its resource offers.
    pub(crate) fn of(object: &Value, offered: &[&'static str]) -> Self {
        let labels = metadata::labels(object).into_iter().flat_map(|labels| labels.iter());
        let labels = labels.filter_map(|(key, value)| Some((key.into(), value.as_str()?.into())));
        let mut labels: Vec<(Box<str>, Box<str>)> = labels.collect();
        labels.sort_unstable();
        let fields = offered.iter().map(|field| (*field, value_of(object, field, false).into()));
        Self { labels: labels.into(), fields: fields.collect() }
    }

    /// The value of a field, none if it is not among those that were taken out.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| *field == name).map(|(_, value)| &**value)
    }
}

impl Labels for Attributes {
    fn label(&self, key: &str) -> Option<&str> {
        let at = self.labels.binary_search_by(|(label, _)| (**label).cmp(key)).ok()?;
        self.labels.get(at).map(|(_, value)| &**value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_fields_are_found_by_name() {
        let pod = api::json!({
            "metadata": {"labels": {"b": "2", "a": "1"}},
            "spec": {"nodeName": "n"},
        });
        let attributes = Attributes::of(&pod, &["spec.nodeName", "spec.hostNetwork"]);
        assert_eq!(attributes.label("a"), Some("1"));
        assert_eq!(attributes.label("b"), Some("2"));
        assert_eq!(attributes.label("c"), None);
        assert_eq!(attributes.field("spec.nodeName"), Some("n"));
        assert_eq!(attributes.field("spec.hostNetwork"), Some("false"));
        assert_eq!(attributes.field("status.phase"), None);
    }
}
