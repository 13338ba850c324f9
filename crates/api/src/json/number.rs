//! Numbers with a fraction, an exponent, or more digits than 64 bits hold.

use crate::go_text::format_json_float;

/// A float, with its text if that carries more information: `1.0`, `1e3`, `9223372036854775808`.
#[derive(Debug, Clone)]
pub struct Float {
    value: f64,
    /// Kept only if it differs from how Go writes `value`.
    text: Option<Box<str>>,
}

impl Float {
    /// A computed number. Non-finite numbers have no JSON form and are written as `null`.
    #[must_use]
    pub fn new(value: f64) -> Self {
        Self { value, text: None }
    }

    /// A number that was read; `None` if it is beyond the range of floats.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let value: f64 = text.parse().ok()?;
        let canonical = format_json_float(value)?;
        Some(Self { value, text: (canonical != text).then(|| text.into()) })
    }

    /// The float.
    #[must_use]
    pub fn get(&self) -> f64 {
        self.value
    }

    /// The number as it was read.
    #[must_use]
    pub fn text(&self) -> String {
        match &self.text {
            Some(text) => text.to_string(),
            None => self.to_string(),
        }
    }
}

impl std::fmt::Display for Float {
    /// Formats the float as Go does, regardless of its original text.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(format_json_float(self.value).as_deref().unwrap_or("null"))
    }
}

impl PartialEq for Float {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}
