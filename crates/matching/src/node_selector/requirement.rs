//! Conditions on one label.

use std::cmp::Ordering;

use api::core::v1::{self, NodeSelectorOperator};
use api::features::Gate;
use api::field::{Errors, Path};
use api::json::Text;
use api::labels::{Operator, Requirement as LabelRequirement};
use api::semver::Version;

use crate::features::Features;
use crate::node::Labels;

/// A condition on one label.
#[derive(Debug)]
pub(crate) struct Requirement {
    pub(crate) key: Text,
    rule: Rule,
}

#[derive(Debug)]
enum Rule {
    In(Box<[Text]>),
    NotIn(Box<[Text]>),
    Exists,
    DoesNotExist,
    Number(Ordering, i64),
    Version(Ordering, Version),
    /// The value is not a version: no label is like it.
    Never,
}

const SUPPORTED: [&str; 6] = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"];
const SUPPORTED_WITH_SEMVER: [&str; 9] =
    ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "SemverEq", "SemverGt", "SemverLt"];

impl Requirement {
    /// A requirement, or nothing where it could not be parsed, or the gate that it needs.
    pub(crate) fn new(
        requirement: &v1::NodeSelectorRequirement,
        at: &Path<'_>,
        features: &Features,
        errors: &mut Errors,
    ) -> Result<Option<Self>, Gate> {
        let values = requirement.values.as_deref();
        let key = &requirement.key;
        let operator = NodeSelectorOperator::from_name(&requirement.operator);
        let Some(operator) = operator.filter(|operator| features.semver || !operator.is_semver()) else {
            let supported: &[&str] = if features.semver { &SUPPORTED_WITH_SEMVER } else { &SUPPORTED };
            errors.not_supported(at.child("operator"), requirement.operator.as_str(), supported);
            return match operator {
                Some(_) => Err(Gate::TaintTolerationNodeAffinitySemverComparisonOperators),
                None => Ok(None),
            };
        };
        let count = errors.len();
        let plain = match operator {
            NodeSelectorOperator::In => Operator::In,
            NodeSelectorOperator::NotIn => Operator::NotIn,
            NodeSelectorOperator::Gt => Operator::GreaterThan,
            NodeSelectorOperator::Lt => Operator::LessThan,
            NodeSelectorOperator::DoesNotExist => Operator::DoesNotExist,
            // For a version, only the key is validated here: a bad value matches nothing.
            _ => Operator::Exists,
        };
        let judged = if operator.is_semver() { None } else { values };
        LabelRequirement::check(key, plain, judged, at, errors);
        if errors.len() > count {
            return Ok(None);
        }
        let values = values.unwrap_or_default();
        let rule = match operator {
            NodeSelectorOperator::In => Rule::In(values.into()),
            NodeSelectorOperator::NotIn => Rule::NotIn(values.into()),
            NodeSelectorOperator::Exists => Rule::Exists,
            NodeSelectorOperator::DoesNotExist => Rule::DoesNotExist,
            NodeSelectorOperator::Gt => Rule::number(Ordering::Greater, values),
            NodeSelectorOperator::Lt => Rule::number(Ordering::Less, values),
            NodeSelectorOperator::SemverGt => Rule::version(Ordering::Greater, values),
            NodeSelectorOperator::SemverLt => Rule::version(Ordering::Less, values),
            NodeSelectorOperator::SemverEq => Rule::version(Ordering::Equal, values),
        };
        Ok(Some(Requirement { key: key.clone(), rule }))
    }

    /// Returns key, value and parse error of a label that would be compared as a version.
    pub(crate) fn not_a_version(&self, labels: &Labels) -> Option<(Text, Text, String)> {
        let Rule::Version(..) = &self.rule else { return None };
        let value = labels.get(&self.key)?;
        let error = Version::parse_tolerant(value).err()?;
        Some((self.key.clone(), value.into(), error.to_string()))
    }

    /// Whether the value is no version, so that no label is like it.
    pub(crate) fn is_never(&self) -> bool {
        matches!(self.rule, Rule::Never)
    }

    pub(crate) fn matches(&self, labels: &Labels) -> bool {
        let label = labels.get(&self.key);
        let is_one_of = |values: &[Text]| label.is_some_and(|label| values.iter().any(|value| value == label));
        match &self.rule {
            Rule::In(values) => is_one_of(values),
            Rule::NotIn(values) => !is_one_of(values),
            Rule::Exists => label.is_some(),
            Rule::DoesNotExist => label.is_none(),
            Rule::Number(order, bound) => {
                let number = label.and_then(|label| label.parse::<i64>().ok());
                number.is_some_and(|number| number.cmp(bound) == *order)
            }
            Rule::Version(order, bound) => {
                let version = label.and_then(|label| Version::parse_tolerant(label).ok());
                version.is_some_and(|version| version.cmp(bound) == *order)
            }
            Rule::Never => false,
        }
    }
}

impl Rule {
    fn number(order: Ordering, values: &[Text]) -> Rule {
        match values {
            [value] => value.parse().map_or(Rule::Never, |bound| Rule::Number(order, bound)),
            _ => Rule::Never,
        }
    }

    fn version(order: Ordering, values: &[Text]) -> Rule {
        match values {
            [value] => Version::parse_tolerant(value).map_or(Rule::Never, |bound| Rule::Version(order, bound)),
            _ => Rule::Never,
        }
    }
}
