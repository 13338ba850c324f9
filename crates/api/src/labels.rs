//! Label selectors: `a in (b,c),!d,e!=f`.
//!
//! A selector is parsed once and matched often; matching does not allocate. Grammar, errors and canonical text
//! follow Kubernetes' `apimachinery/pkg/labels`.

mod parse;

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;

use crate::field::{Errors, Path};
use crate::go_text::quote;
use crate::json::{Object, Text, Value};
use crate::names;
use crate::sorted_map::SortedMap;

/// Requirements that must all hold, sorted by key. Without any, everything is selected.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector {
    requirements: Vec<Requirement>,
}

/// A condition on one label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// The label.
    pub key: Text,
    /// Comparison operator.
    pub operator: Operator,
    /// Values to compare with.
    pub values: Vec<Text>,
}

/// Comparison operator of a requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Operator {
    In,
    NotIn,
    Equals,
    DoubleEquals,
    NotEquals,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

/// Invalid selector; the text is Kubernetes'.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(String);

/// Anything that has labels.
pub trait Labels {
    /// The value of a label.
    fn label(&self, key: &str) -> Option<&str>;
}

impl<K: Borrow<str> + Ord, V: AsRef<str>> Labels for BTreeMap<K, V> {
    fn label(&self, key: &str) -> Option<&str> {
        self.get(key).map(AsRef::as_ref)
    }
}

impl<K: Borrow<str>, V: AsRef<str>> Labels for SortedMap<K, V> {
    fn label(&self, key: &str) -> Option<&str> {
        self.get(key).map(AsRef::as_ref)
    }
}

impl Labels for Object {
    fn label(&self, key: &str) -> Option<&str> {
        self.get(key).and_then(Value::as_str)
    }
}

impl Operator {
    /// The name in Kubernetes' own data.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Operator::In => "in",
            Operator::NotIn => "notin",
            Operator::Equals => "=",
            Operator::DoubleEquals => "==",
            Operator::NotEquals => "!=",
            Operator::Exists => "exists",
            Operator::DoesNotExist => "!",
            Operator::GreaterThan => "gt",
            Operator::LessThan => "lt",
        }
    }
}

impl SelectorError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    /// An operator that label selectors of objects do not have.
    pub(crate) fn not_an_operator(operator: &str) -> Self {
        Self(format!("{} is not a valid label selector operator", quote(operator)))
    }
}

impl Requirement {
    /// A requirement, if key, operator and values fit each other.
    ///
    /// # Errors
    /// All complaints in one message.
    pub fn new(key: &str, operator: Operator, values: Vec<Text>) -> Result<Self, SelectorError> {
        let mut errors = Errors::new();
        // Kubernetes shows a missing list as null.
        let shown = (!values.is_empty()).then_some(values.as_slice());
        Self::check(key, operator, shown, &Path::ROOT, &mut errors);
        if errors.is_empty() {
            Ok(Self { key: key.into(), operator, values })
        } else {
            Err(SelectorError(errors.message()))
        }
    }

    /// Checks that key, operator and values fit each other; complaints are about the fields `key` and `values` at a path.
    pub fn check(key: &str, operator: Operator, values: Option<&[Text]>, at: &Path<'_>, errors: &mut Errors) {
        let complaints = names::qualified_name(key);
        if !complaints.is_empty() {
            errors.invalid(at.child("key"), key, complaints.join("; "));
        }
        let at = at.child("values");
        let shown = || match values {
            Some(values) => Value::Array(values.iter().map(|value| Value::String(value.clone())).collect()),
            None => Value::Null,
        };
        let values = values.unwrap_or_default();
        match operator {
            Operator::In | Operator::NotIn if values.is_empty() => {
                errors.invalid(at, shown(), "for 'in', 'notin' operators, values set can't be empty");
            }
            Operator::Equals | Operator::DoubleEquals | Operator::NotEquals if values.len() != 1 => {
                errors.invalid(at, shown(), "exact-match compatibility requires one single value");
            }
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                errors.invalid(at, shown(), "values set must be empty for exists and does not exist");
            }
            Operator::GreaterThan | Operator::LessThan => {
                if values.len() != 1 {
                    errors.invalid(at, shown(), "for 'Gt', 'Lt' operators, exactly one value is required");
                }
                for (index, value) in values.iter().enumerate() {
                    if value.parse::<i64>().is_err() {
                        let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
                        errors.invalid(at.index(index), value.clone(), detail);
                    }
                }
            }
            _ => {}
        }
        for (index, value) in values.iter().enumerate() {
            let complaints = names::label_value(value);
            if !complaints.is_empty() {
                errors.invalid(at.index(index).key(key), value.clone(), complaints.join("; "));
            }
        }
    }

    /// Whether the labels meet the requirement.
    #[must_use]
    pub fn matches(&self, labels: &(impl Labels + ?Sized)) -> bool {
        let value = labels.label(&self.key);
        let has = |value: &str| self.values.iter().any(|it| it == value);
        match self.operator {
            Operator::In | Operator::Equals | Operator::DoubleEquals => value.is_some_and(has),
            Operator::NotIn | Operator::NotEquals => !value.is_some_and(has),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan | Operator::LessThan => {
                let number = |text: &str| text.parse::<i64>().ok();
                let [bound] = self.values.as_slice() else { return false };
                match (value.and_then(number), number(bound)) {
                    (Some(value), Some(bound)) if self.operator == Operator::GreaterThan => value > bound,
                    (Some(value), Some(bound)) => value < bound,
                    _ => false,
                }
            }
        }
    }
}

impl Selector {
    /// Selects everything.
    #[must_use]
    pub fn everything() -> Self {
        Self::default()
    }

    /// Reads a selector as queries write it.
    ///
    /// # Errors
    /// The first thing that is not understood.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        parse::parse(text).map(Self::from_requirements)
    }

    /// The selector of these requirements.
    #[must_use]
    pub fn from_requirements(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|left, right| left.key.cmp(&right.key));
        Self { requirements }
    }

    /// Whether nothing is required.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// A label and the one value that it must have, if there is such a requirement.
    #[must_use]
    pub fn required(&self) -> Option<(&str, &str)> {
        self.requirements.iter().find_map(|it| match (it.operator, it.values.as_slice()) {
            (Operator::Equals | Operator::DoubleEquals | Operator::In, [value]) => {
                Some((it.key.as_str(), value.as_str()))
            }
            _ => None,
        })
    }

    /// The requirements, sorted by key.
    #[must_use]
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// Whether the labels meet all requirements.
    #[must_use]
    pub fn matches(&self, labels: &(impl Labels + ?Sized)) -> bool {
        self.requirements.iter().all(|requirement| requirement.matches(labels))
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut values: Vec<&str> = self.values.iter().map(Text::as_str).collect();
        values.sort_unstable();
        let (key, values) = (&self.key, values.join(","));
        match self.operator {
            Operator::Exists => write!(f, "{key}"),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::In | Operator::NotIn => write!(f, "{key} {} ({values})", self.operator.name()),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
            _ => write!(f, "{key}{}{values}", self.operator.name()),
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            write!(f, "{separator}{requirement}")?;
        }
        Ok(())
    }
}
