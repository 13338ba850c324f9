//! Whether a label selector selects a template, with the semantics of controllers.

use api::json::{self, Object, Value};
use api::labels::Selector;
use api::meta::v1::LabelSelector;

/// Result of parsing a selector.
pub(crate) enum Selection {
    /// The selector is invalid.
    Bad,
    /// There is no selector: nothing is selected.
    Nothing,
    /// Objects that meet all requirements.
    All(Selector),
}

impl Selection {
    /// Reads a selector; null selects nothing.
    pub(crate) fn new(selector: &Value) -> Self {
        if selector.is_null() {
            return Selection::Nothing;
        }
        let view: Result<LabelSelector, _> = json::from_value(selector);
        view.ok().and_then(|view| view.to_selector().ok()).map_or(Selection::Bad, Selection::All)
    }

    /// Whether labels are selected; a bad selector selects nothing.
    pub(crate) fn matches(&self, labels: &Object) -> bool {
        matches!(self, Selection::All(selector) if selector.matches(labels))
    }

    /// Whether the selector has no requirement, and so matches everything.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Selection::All(selector) if selector.is_empty())
    }
}
