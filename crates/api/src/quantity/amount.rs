//! Scaled 64-bit integers: the form in which common amounts are held.
//!
//! Overflow behaves as in Kubernetes' `int64Amount`: an operation reports that the result did not fit, and the
//! caller falls back to decimals; where Kubernetes uses the wrapped number, so does this code.

use std::cmp::Ordering;

use super::decimal::Decimal;

/// `value` × 10^`scale`.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScaledValue {
    pub(super) value: i64,
    pub(super) scale: i32,
}

impl ScaledValue {
    pub(super) const ZERO: ScaledValue = ScaledValue { value: 0, scale: 0 };

    pub(super) fn as_i64(self) -> Option<i64> {
        if self.scale < 0 {
            return None;
        }
        let (value, fits) = scale_up(self.value, self.scale);
        fits.then_some(value)
    }

    #[expect(clippy::cast_precision_loss, reason = "the nearest float is what is asked for")]
    pub(super) fn value_as_f64(self) -> f64 {
        self.value as f64
    }

    pub(super) fn scaled_value(self, scale: i32) -> i64 {
        if self.scale < scale {
            scale_down(self.value, scale.saturating_sub(self.scale)).0
        } else {
            scale_up(self.value, self.scale.saturating_sub(scale)).0
        }
    }

    pub(super) fn rounded_up(self, scale: i32) -> (ScaledValue, bool) {
        if self.scale >= scale {
            return (self, true);
        }
        let (value, exact) = scale_down(self.value, scale.saturating_sub(self.scale));
        (ScaledValue { value, scale }, exact)
    }

    /// Adds in place; false, and nothing changed, when the sum does not fit.
    pub(super) fn add(&mut self, other: ScaledValue) -> bool {
        if other.value == 0 {
            return true;
        }
        if self.value == 0 {
            *self = other;
            return true;
        }
        let scale = self.scale.min(other.scale);
        let (left, left_fits) = scale_up(self.value, self.scale.saturating_sub(scale));
        let (right, right_fits) = scale_up(other.value, other.scale.saturating_sub(scale));
        match left.checked_add(right) {
            Some(value) if left_fits && right_fits => {
                *self = ScaledValue { value, scale };
                true
            }
            _ => false,
        }
    }

    /// Multiplies in place; false, and nothing changed, when the product does not fit.
    pub(super) fn multiply(&mut self, factor: i64) -> bool {
        if self.value == 0 {
            return true;
        }
        if factor == 0 {
            *self = ScaledValue::ZERO;
            return true;
        }
        let (product, fits) = multiply(self.value, factor);
        // For negative scales, Kubernetes also requires that the product is a whole number.
        let kept = match self.scale.cmp(&0) {
            Ordering::Equal => true,
            Ordering::Greater => scale_up(product, self.scale).1,
            Ordering::Less => scale_down(product, self.scale.saturating_neg()).1,
        };
        if fits && kept {
            self.value = product;
        }
        fits && kept
    }

    pub(super) fn cmp(self, other: ScaledValue) -> Ordering {
        if self.scale == other.scale {
            return self.value.cmp(&other.value);
        }
        if self.value.signum() != other.value.signum() || self.value == 0 {
            return self.value.signum().cmp(&other.value.signum());
        }
        if self.scale < other.scale {
            return other.cmp(self).reverse();
        }
        // Same sign, and `self` has the larger scale: bring it to the scale of `other`, in 128 bits.
        let difference = self.scale.abs_diff(other.scale);
        match 10_i128.checked_pow(difference).and_then(|power| i128::from(self.value).checked_mul(power)) {
            Some(value) => value.cmp(&i128::from(other.value)),
            // Too large for 128 bits is larger in magnitude than any 64-bit integer.
            None => self.value.signum().cmp(&0),
        }
    }

    /// Moves factors of ten into the exponent, which is then made a multiple of three; `None` when that overflows.
    pub(super) fn canonical(self) -> Option<(i64, i32)> {
        let mut amount = self.value;
        let mut exponent = self.scale;
        while amount.unsigned_abs() >= 10 && amount.checked_rem(10) == Some(0) && amount != i64::MIN {
            amount = amount.checked_div(10)?;
            exponent = exponent.checked_add(1)?;
        }
        let surplus = exponent.rem_euclid(3);
        let factor = match surplus {
            1 => 10,
            2 => 100,
            _ => return Some((amount, exponent)),
        };
        Some((amount.checked_mul(factor)?, exponent.checked_sub(surplus)?))
    }

    pub(super) fn to_decimal(self) -> Decimal {
        Decimal::from_scaled(self.value, self.scale)
    }
}

/// `value` × `factor` and whether it fits.
pub(super) fn multiply(value: i64, factor: i64) -> (i64, bool) {
    if value == 0 || factor == 0 || value == 1 || factor == 1 {
        return (value.wrapping_mul(factor), true);
    }
    if value == i64::MIN || factor == i64::MIN {
        return (0, false);
    }
    let (product, overflowed) = value.overflowing_mul(factor);
    (product, !overflowed)
}

/// Returns `value` × 10^`places`, and whether it fits. If not, the number is the one that Kubernetes would
/// continue with.
fn scale_up(value: i64, places: i32) -> (i64, bool) {
    match places {
        0 => (value, true),
        1 => multiply(value, 10),
        2 => multiply(value, 100),
        3 => multiply(value, 1_000),
        6 => multiply(value, 1_000_000),
        9 => multiply(value, 1_000_000_000),
        _ if value == 0 => (0, true),
        _ => {
            let scaled = u32::try_from(places)
                .ok()
                .and_then(|places| 10_i64.checked_pow(places))
                .and_then(|power| value.checked_mul(power));
            scaled.map_or((0, false), |scaled| (scaled, true))
        }
    }
}

/// `value` / 10^`places` rounded away from zero, and whether nothing was lost.
fn scale_down(value: i64, places: i32) -> (i64, bool) {
    let power = u32::try_from(places).ok().and_then(|places| 10_i64.checked_pow(places));
    let Some(power) = power else {
        return (value.signum(), value == 0);
    };
    let quotient = value.checked_div(power).unwrap_or(0);
    if value.checked_rem(power) == Some(0) {
        return (quotient, true);
    }
    (quotient.saturating_add(value.signum()), false)
}

/// 10^`exponent` as Go's `math.Pow10` computes it: a product or quotient of two table entries.
pub(super) fn power_of_ten_f64(exponent: i32) -> f64 {
    const SMALL: [f64; 32] = [
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19,
        1e20, 1e21, 1e22, 1e23, 1e24, 1e25, 1e26, 1e27, 1e28, 1e29, 1e30, 1e31,
    ];
    const LARGE: [f64; 10] = [1e0, 1e32, 1e64, 1e96, 1e128, 1e160, 1e192, 1e224, 1e256, 1e288];
    const TINY: [f64; 11] = [1e0, 1e-32, 1e-64, 1e-96, 1e-128, 1e-160, 1e-192, 1e-224, 1e-256, 1e-288, 1e-320];
    let magnitude = usize::try_from(exponent.unsigned_abs()).unwrap_or(usize::MAX);
    let (high, low) = (magnitude >> 5, magnitude & 31);
    let small = SMALL.get(low).copied().unwrap_or(1.0);
    match exponent {
        0..=308 => LARGE.get(high).copied().unwrap_or(f64::INFINITY) * small,
        -323..0 => TINY.get(high).copied().unwrap_or(0.0) / small,
        _ if exponent > 0 => f64::INFINITY,
        _ => 0.0,
    }
}
