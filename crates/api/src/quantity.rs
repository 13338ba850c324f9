//! `Quantity`: an exact amount of a resource, as `500m`, `1.5Gi` or `12e6` write it.
//!
//! Parsing, rounding, canonical text and arithmetic equal Kubernetes' `resource.Quantity`, quirks included: an
//! amount is a scaled 64-bit integer while that is exact enough, else an arbitrary-precision decimal, and some
//! answers ([`Quantity::as_i64`], [`Quantity::value`]) depend on which of the two it is. Amounts that common
//! manifests hold are parsed, compared and added without allocation.

mod amount;
mod decimal;
mod text;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use amount::ScaledValue;
use decimal::Decimal;

/// A reason why a text is not a quantity; the messages are Kubernetes'.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// The text does not look like a number with a suffix.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// The number is invalid, or its exponent exceeds the range of this implementation.
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    /// The suffix is none of the known ones.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// The notation in which a quantity was written and will be printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// `12e6`
    DecimalExponent,
    /// `12Mi`
    BinarySi,
    /// `12M`
    #[default]
    DecimalSi,
}

impl Format {
    /// The name Kubernetes gives the notation.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Format::DecimalExponent => "DecimalExponent",
            Format::BinarySi => "BinarySI",
            Format::DecimalSi => "DecimalSI",
        }
    }
}

/// An exact amount with its notation. Equality and order are those of the amounts: `1k == 1000`.
#[derive(Debug, Clone, Default)]
pub struct Quantity {
    amount: Amount,
    format: Format,
    /// The text as written, kept only where Kubernetes keeps it and it differs from the canonical one.
    written: Option<Box<str>>,
}

#[derive(Debug, Clone)]
enum Amount {
    Scaled(ScaledValue),
    Decimal(Box<Decimal>),
}

impl Default for Amount {
    fn default() -> Self {
        Amount::Scaled(ScaledValue::ZERO)
    }
}

impl Quantity {
    /// Whether a text is one of the plain amounts that are printed as they are written: a small whole number that no
    /// larger suffix could show, in thousandths at most. This is a quick look: other texts may be printed so, too.
    #[must_use]
    pub fn is_usual(text: &str) -> bool {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, suffix) = text.split_at_checked(digits).unwrap_or(("", text));
        let step = match suffix {
            "" | "m" | "k" | "M" | "G" | "T" => 1000_u32,
            "Ki" | "Mi" | "Gi" | "Ti" => 1024,
            _ => return false,
        };
        let is_short = (1..=6).contains(&digits) && !number.starts_with('0');
        is_short && number.parse::<u32>().is_ok_and(|number| !number.is_multiple_of(step))
    }

    /// Reads a quantity. Values below a nano are rounded up, binary ones above 2^63-1 are capped.
    ///
    /// # Errors
    /// The first rule of the notation that `text` breaks.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        text::parse(text)
    }

    /// `value` as a whole number.
    #[must_use]
    pub fn new(value: i64, format: Format) -> Self {
        Self::scaled(value, 0, format)
    }

    /// `value` thousandths.
    #[must_use]
    pub fn new_milli(value: i64, format: Format) -> Self {
        Self::scaled(value, -3, format)
    }

    /// `value` × 10^`scale`.
    #[must_use]
    pub fn scaled(value: i64, scale: i32, format: Format) -> Self {
        Self { amount: Amount::Scaled(ScaledValue { value, scale }), format, written: None }
    }

    /// The notation.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// -1, 0 or 1.
    #[must_use]
    pub fn sign(&self) -> i32 {
        match &self.amount {
            Amount::Scaled(scaled) => match scaled.value.cmp(&0) {
                Ordering::Less => -1,
                Ordering::Equal => 0,
                Ordering::Greater => 1,
            },
            Amount::Decimal(decimal) => decimal.sign(),
        }
    }

    /// Whether the amount is zero.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.sign() == 0
    }

    /// The amount as a 64-bit integer if it is held as one: no fraction digits (`1.0` has one) and not held as a
    /// decimal, as large and fractional binary amounts are. This is CEL's `isInteger` and `asInteger`.
    #[must_use]
    pub fn as_i64(&self) -> Option<i64> {
        match &self.amount {
            Amount::Scaled(scaled) => scaled.as_i64(),
            Amount::Decimal(_) => None,
        }
    }

    /// The nearest float, within the error of one multiplication.
    #[must_use]
    pub fn as_approximate_f64(&self) -> f64 {
        let (base, exponent) = match &self.amount {
            Amount::Scaled(scaled) => (scaled.value_as_f64(), scaled.scale),
            Amount::Decimal(decimal) => (decimal.unscaled_as_f64(), decimal.scale.saturating_neg()),
        };
        if exponent == 0 { base } else { base * amount::power_of_ten_f64(exponent) }
    }

    /// The amount rounded up to a whole number; wraps on overflow as Kubernetes does.
    #[must_use]
    pub fn value(&self) -> i64 {
        self.scaled_value(0)
    }

    /// The amount in thousandths, rounded up; wraps on overflow as Kubernetes does.
    #[must_use]
    pub fn milli_value(&self) -> i64 {
        self.scaled_value(-3)
    }

    /// The amount in units of 10^`scale`, rounded up (away from zero while held as an integer); wraps on overflow.
    #[must_use]
    pub fn scaled_value(&self, scale: i32) -> i64 {
        match &self.amount {
            Amount::Scaled(scaled) => scaled.scaled_value(scale),
            Amount::Decimal(decimal) => decimal.scaled_value(scale.saturating_neg()),
        }
    }

    /// Rounds away from zero to a multiple of 10^`scale`; returns whether the result is exact.
    pub fn round_up(&mut self, scale: i32) -> bool {
        match &mut self.amount {
            Amount::Scaled(scaled) => {
                if scaled.scale >= scale {
                    return true;
                }
                let (rounded, exact) = scaled.rounded_up(scale);
                *scaled = rounded;
                self.written = None;
                exact
            }
            Amount::Decimal(decimal) => {
                let rounded = decimal.rounded_up(scale.saturating_neg());
                let exact = rounded.cmp(decimal) == Ordering::Equal;
                **decimal = rounded;
                self.written = None;
                exact
            }
        }
    }

    /// Adds `other`. Zero takes over the notation of the other quantity.
    pub fn add(&mut self, other: &Quantity) {
        self.written = None;
        if self.is_zero() {
            self.format = other.format;
        }
        if let (Amount::Scaled(left), Amount::Scaled(right)) = (&mut self.amount, &other.amount)
            && left.add(*right)
        {
            return;
        }
        let sum = self.to_decimal().plus(&other.to_decimal());
        self.amount = Amount::Decimal(Box::new(sum));
    }

    /// Subtracts `other`. Zero takes over the notation of the other quantity.
    pub fn sub(&mut self, other: &Quantity) {
        self.written = None;
        if self.is_zero() {
            self.format = other.format;
        }
        if let (Amount::Scaled(left), Amount::Scaled(right)) = (&mut self.amount, &other.amount)
            && left.add(ScaledValue { value: right.value.wrapping_neg(), scale: right.scale })
        {
            return;
        }
        let difference = self.to_decimal().plus(&other.to_decimal().negated());
        self.amount = Amount::Decimal(Box::new(difference));
    }

    /// Multiplies by `factor`; false when the result no longer fits a scaled 64-bit integer.
    pub fn mul(&mut self, factor: i64) -> bool {
        self.written = None;
        if let Amount::Scaled(scaled) = &mut self.amount
            && scaled.multiply(factor)
        {
            return true;
        }
        let product = self.to_decimal().times(factor);
        let fits = product.unscaled_fits_i64();
        self.amount = Amount::Decimal(Box::new(product));
        fits
    }

    /// Changes the sign.
    pub fn neg(&mut self) {
        self.written = None;
        match &mut self.amount {
            Amount::Scaled(scaled) => scaled.value = scaled.value.wrapping_neg(),
            Amount::Decimal(decimal) => **decimal = decimal.negated(),
        }
    }

    /// Compares with a whole number.
    #[must_use]
    pub fn cmp_i64(&self, other: i64) -> Ordering {
        match &self.amount {
            Amount::Scaled(scaled) => scaled.cmp(ScaledValue { value: other, scale: 0 }),
            Amount::Decimal(decimal) => decimal.as_ref().cmp(&Decimal::from_scaled(other, 0)),
        }
    }

    /// The amount as a plain decimal number, with the fraction digits it is held with.
    #[must_use]
    pub fn to_plain_string(&self) -> String {
        self.to_decimal().to_plain_string()
    }

    fn to_decimal(&self) -> Cow<'_, Decimal> {
        match &self.amount {
            Amount::Scaled(scaled) => Cow::Owned(Decimal::from_scaled(scaled.value, scaled.scale)),
            Amount::Decimal(decimal) => Cow::Borrowed(decimal),
        }
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.amount, &other.amount) {
            (Amount::Scaled(left), Amount::Scaled(right)) => left.cmp(*right),
            _ => self.to_decimal().as_ref().cmp(other.to_decimal().as_ref()),
        }
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Quantity {}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.written {
            Some(written) => f.write_str(written),
            None => text::write_canonical(self, f),
        }
    }
}

impl FromStr for Quantity {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::parse(text)
    }
}

impl crate::shared::Shareable for Quantity {
    fn feed<H: std::hash::Hasher>(&self, hasher: &mut H) {
        use std::hash::Hash;
        self.value().hash(hasher);
        self.written.hash(hasher);
    }

    /// Whether the representation and the printed form are equal, too.
    fn is_alike(&self, other: &Self) -> bool {
        let is_held_alike = match (&self.amount, &other.amount) {
            (Amount::Scaled(left), Amount::Scaled(right)) => left.value == right.value && left.scale == right.scale,
            // Too rare to look into.
            _ => false,
        };
        is_held_alike && self.format == other.format && self.written == other.written
    }
}

impl serde::Serialize for Quantity {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Quantity {
    /// Text (spaces around it are ignored), a number, or null, which is zero.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Quantity;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Quantity, E> {
                Quantity::parse(text.trim()).map_err(E::custom)
            }
            fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Quantity, E> {
                Quantity::parse(&value.to_string()).map_err(E::custom)
            }
            fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Quantity, E> {
                Quantity::parse(&value.to_string()).map_err(E::custom)
            }
            fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Quantity, E> {
                let text = crate::go_text::format_json_float(value).unwrap_or_default();
                Quantity::parse(&text).map_err(E::custom)
            }
            fn visit_bool<E: serde::de::Error>(self, _: bool) -> Result<Quantity, E> {
                Err(E::custom(ParseError::Format))
            }
            fn visit_unit<E: serde::de::Error>(self) -> Result<Quantity, E> {
                Ok(Quantity::default())
            }
            fn visit_newtype_struct<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Quantity, D::Error> {
                deserializer.deserialize_any(self)
            }
        }
        deserializer.deserialize_newtype_struct(crate::json::NUMBER_TEXT, Visitor)
    }
}
