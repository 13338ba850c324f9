//! Whether a label selector selects a template, as controllers will ask.

use api::json::{self, Object, Value};
use api::labels::Selector;
use api::meta::v1::LabelSelector;

/// What a selector selects.
pub(crate) enum Selection {
    /// It cannot be understood.
    Bad,
    /// There is no selector: nothing is selected.
    Nothing,
    /// What meets all requirements.
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

    /// Whether it requires nothing.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Selection::All(selector) if selector.is_empty())
    }
}
