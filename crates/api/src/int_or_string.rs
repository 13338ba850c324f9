//! `IntOrString`: a number, or a text that is most often a percentage.
//!
//! Follows Kubernetes' `apimachinery/pkg/util/intstr`.

use std::fmt;

use crate::go_text::quote;
use crate::json::{Text, Value};

/// A 32-bit number or a text.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum IntOrString {
    /// A number.
    Int(i32),
    /// A text.
    String(Text),
}

/// A value that cannot be scaled; the text is Kubernetes'.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid value for IntOrString: {0}")]
pub struct ScaleError(String);

impl Default for IntOrString {
    fn default() -> Self {
        IntOrString::Int(0)
    }
}

impl IntOrString {
    /// A number if the text is one that fits, else the text.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        text.parse().map_or_else(|_| IntOrString::String(text.into()), IntOrString::Int)
    }

    /// Decodes a value; null is 0.
    ///
    /// # Errors
    /// Go's text for a value that is neither a 32-bit number nor a text.
    pub fn from_value(value: &Value) -> Result<Self, String> {
        let error = |value: &str| format!("json: cannot unmarshal {value} into Go value of type int32");
        match value {
            Value::Null => Ok(Self::default()),
            Value::String(text) => Ok(IntOrString::String(text.clone())),
            Value::Int(number) => {
                i32::try_from(*number).map(IntOrString::Int).map_err(|_| error(&format!("number {number}")))
            }
            Value::Float(number) => Err(error(&format!("number {}", number.text()))),
            other => Err(error(other.kind())),
        }
    }

    /// The number, or the one that the text holds, else 0.
    #[must_use]
    pub fn int_value(&self) -> i32 {
        match self {
            IntOrString::Int(value) => *value,
            IntOrString::String(text) => text
                .parse::<i64>()
                .map_or(0, |value| i32::try_from(value).unwrap_or(if value < 0 { i32::MIN } else { i32::MAX })),
        }
    }

    /// The number, or that percentage of `total`, rounded up or down.
    ///
    /// # Errors
    /// A text that is not a percentage.
    pub fn scaled(&self, total: i64, round_up: bool) -> Result<i64, ScaleError> {
        let text = match self {
            IntOrString::Int(value) => return Ok(i64::from(*value)),
            IntOrString::String(text) => text,
        };
        let Some(number) = text.strip_suffix('%') else {
            return Err(ScaleError("invalid type: string is not a percentage".into()));
        };
        let percent: i64 = number.parse().map_err(|_| {
            let digits = number.strip_prefix(['+', '-']).unwrap_or(number);
            let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            let reason = if is_number { "value out of range" } else { "invalid syntax" };
            ScaleError(format!("invalid value {}: strconv.Atoi: parsing {}: {reason}", quote(text), quote(number)))
        })?;
        // Go divides floats; with a hundred below, integers give the same.
        let product = i128::from(percent).saturating_mul(i128::from(total));
        let floor = product.div_euclid(100);
        let rounded = if round_up && product.rem_euclid(100) != 0 { floor.saturating_add(1) } else { floor };
        Ok(i64::try_from(rounded).unwrap_or(if rounded < 0 { i64::MIN } else { i64::MAX }))
    }
}

impl fmt::Display for IntOrString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IntOrString::Int(value) => write!(f, "{value}"),
            IntOrString::String(text) => f.write_str(text),
        }
    }
}

impl From<&IntOrString> for Value {
    fn from(value: &IntOrString) -> Self {
        match value {
            IntOrString::Int(value) => Value::from(*value),
            IntOrString::String(text) => Value::String(text.clone()),
        }
    }
}

impl serde::Serialize for IntOrString {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            IntOrString::Int(value) => serializer.serialize_i32(*value),
            IntOrString::String(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> serde::Deserialize<'de> for IntOrString {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Self::from_value(&value).map_err(serde::de::Error::custom)
    }
}
