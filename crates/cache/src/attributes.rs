//! Inputs of selectors: the labels of an object, and the fields that its resource offers.
//!
//! They are extracted once, by the first selector that is evaluated on the object, and cached with it: lists
//! and watches with selectors do not decode the same objects repeatedly.

use api::json::Value;
use api::labels::Labels;

use crate::field_selectors::value_of;
use api::metadata;

/// Labels and fields of one object, in one text: many objects have them, some of those many times.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attributes {
    /// Keys and values of labels, and the values of the fields.
    text: Box<str>,
    /// End offsets of the parts.
    ends: Box<[u32]>,
    fields: &'static [&'static str],
}

impl Attributes {
    /// The labels of an object, and the values of the fields that its resource offers.
    pub fn of(object: &Value, offered: &'static [&'static str]) -> Self {
        let labels = metadata::labels(object).into_iter().flat_map(|labels| labels.iter());
        let labels = labels.filter_map(|(key, value)| Some([key, value.as_str()?]));
        let (mut text, mut ends) = (String::new(), Vec::new());
        let mut add = |part: &str| {
            text.push_str(part);
            // Objects are shorter than that.
            ends.push(u32::try_from(text.len()).unwrap_or(u32::MAX));
        };
        labels.flatten().for_each(&mut add);
        offered.iter().for_each(|field| add(&value_of(object, field, false)));
        Self { text: text.into(), ends: ends.into(), fields: offered }
    }

    fn part(&self, at: usize) -> Option<&str> {
        let start = at.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied())?;
        let range = usize::try_from(start).ok()?..usize::try_from(*self.ends.get(at)?).ok()?;
        self.text.get(range)
    }

    /// Number of parts that are keys and values of labels.
    fn of_labels(&self) -> usize {
        self.ends.len().saturating_sub(self.fields.len())
    }

    /// The value of a field, none if it is not among those that were taken out.
    pub fn field(&self, name: &str) -> Option<&str> {
        let at = self.fields.iter().position(|field| *field == name)?;
        self.part(self.of_labels().saturating_add(at))
    }
}

impl Labels for Attributes {
    fn label(&self, key: &str) -> Option<&str> {
        let mut keys = (0..self.of_labels()).step_by(2);
        let at = keys.find(|at| self.part(*at) == Some(key))?;
        self.part(at.saturating_add(1))
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
