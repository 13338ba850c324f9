//! Label selectors as objects hold them.

use super::StringMap;
use crate::json::Text;
use crate::labels::{Operator, Requirement, Selector, SelectorError};
use crate::view::view;

view! {
    /// Labels that must match: all of both lists.
    pub struct LabelSelector {
        pub match_labels: StringMap,
        pub match_expressions: Vec<LabelSelectorRequirement>,
    }

    /// A condition on one label.
    pub struct LabelSelectorRequirement {
        pub key: Text,
        pub operator: Text,
        pub values: Vec<Text>,
    }
}

impl LabelSelector {
    /// The selector to match with. Without any requirement it selects everything; a missing selector is the
    /// caller's matter, and most often selects nothing.
    ///
    /// # Errors
    /// The first requirement that is not valid.
    pub fn to_selector(&self) -> Result<Selector, SelectorError> {
        let mut requirements = Vec::with_capacity(self.match_labels.len().saturating_add(self.match_expressions.len()));
        for (key, value) in &self.match_labels {
            requirements.push(Requirement::new(key, Operator::Equals, vec![value.clone()])?);
        }
        for expression in &self.match_expressions {
            let operator = match expression.operator.as_str() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => return Err(SelectorError::not_an_operator(other)),
            };
            requirements.push(Requirement::new(&expression.key, operator, expression.values.clone())?);
        }
        Ok(Selector::from_requirements(requirements))
    }
}
