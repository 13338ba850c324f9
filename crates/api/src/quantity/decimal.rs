//! Arbitrary-precision decimals: the form in which large and finely divided amounts are held.
//!
//! Follows Go's `inf.Dec` where the scale of a result shows. Kubernetes aligns scales without limit, so that a
//! large exponent exhausts memory; here operands further apart than [`MAX_SHIFT`] digits are not aligned, and the
//! smaller one is left out of a sum.

use std::cmp::Ordering;

use num_bigint::{BigInt, Sign};

/// The most digits by which an operand is shifted to meet the scale of another.
pub(super) const MAX_SHIFT: u32 = 20_000;

/// `unscaled` × 10^-`scale`.
#[derive(Debug, Clone)]
pub(super) struct Decimal {
    pub(super) unscaled: BigInt,
    pub(super) scale: i32,
}

impl Decimal {
    pub(super) fn from_scaled(value: i64, scale: i32) -> Self {
        Self { unscaled: BigInt::from(value), scale: scale.saturating_neg() }
    }

    pub(super) fn sign(&self) -> i32 {
        match self.unscaled.sign() {
            Sign::Minus => -1,
            Sign::NoSign => 0,
            Sign::Plus => 1,
        }
    }

    pub(super) fn negated(&self) -> Self {
        Self { unscaled: negate(&self.unscaled), scale: self.scale }
    }

    pub(super) fn plus(&self, other: &Self) -> Self {
        let scale = self.scale.max(other.scale);
        let (Some(left), Some(right)) = (self.at_scale(scale), other.at_scale(scale)) else {
            return if self.cmp_magnitude(other) == Ordering::Less { other.clone() } else { self.clone() };
        };
        Self { unscaled: left.checked_add(&right).unwrap_or_default(), scale }
    }

    pub(super) fn times(&self, factor: i64) -> Self {
        Self { unscaled: self.unscaled.checked_mul(&BigInt::from(factor)).unwrap_or_default(), scale: self.scale }
    }

    pub(super) fn unscaled_fits_i64(&self) -> bool {
        i64::try_from(&self.unscaled).is_ok()
    }

    pub(super) fn unscaled_as_f64(&self) -> f64 {
        self.unscaled.to_string().parse().unwrap_or(f64::NAN)
    }

    /// Rounds away from zero to `scale` fraction digits; the result has exactly that scale, unless it is
    /// further away than [`MAX_SHIFT`].
    pub(super) fn rounded_up(&self, scale: i32) -> Self {
        if let Some(unscaled) = (scale >= self.scale).then(|| self.at_scale(scale)).flatten() {
            return Self { unscaled, scale };
        }
        if scale >= self.scale {
            return self.clone();
        }
        let shift = self.scale.abs_diff(scale);
        let signum = BigInt::from(self.sign());
        if shift > MAX_SHIFT && u64::from(shift) > self.unscaled.bits() {
            return Self { unscaled: signum, scale };
        }
        let divisor = power_of_ten(shift);
        let quotient = self.unscaled.checked_div(&divisor).unwrap_or_default();
        let exact = quotient.checked_mul(&divisor).is_some_and(|product| product == self.unscaled);
        let unscaled = if exact { quotient } else { quotient.checked_add(&signum).unwrap_or_default() };
        Self { unscaled, scale }
    }

    /// The amount in units of 10^-`scale` as Kubernetes computes it: rounded up, wrapping at 64 bits.
    pub(super) fn scaled_value(&self, scale: i32) -> i64 {
        let low = wrap_to_i64(&self.unscaled);
        if self.scale == scale {
            return low;
        }
        let shift = self.scale.abs_diff(scale);
        if self.scale < scale {
            // Go converts a float power of ten that is too large into the smallest integer.
            return low.wrapping_mul(10_i64.checked_pow(shift).unwrap_or(i64::MIN));
        }
        if shift < 19 && self.unscaled < BigInt::from(i64::MAX) {
            let divisor = 10_i64.checked_pow(shift).unwrap_or(i64::MAX);
            let quotient = low.checked_div(divisor).unwrap_or(0);
            return if low.checked_rem(divisor) == Some(0) { quotient } else { quotient.wrapping_add(1) };
        }
        if shift > MAX_SHIFT && u64::from(shift) > self.unscaled.bits() {
            return i64::from(self.sign() > 0);
        }
        // Euclidean division: the remainder is never negative.
        let divisor = power_of_ten(shift);
        let mut quotient = self.unscaled.checked_div(&divisor).unwrap_or_default();
        let exact = quotient.checked_mul(&divisor).is_some_and(|product| product == self.unscaled);
        if !exact && self.sign() < 0 {
            quotient = quotient.checked_sub(&BigInt::from(1)).unwrap_or_default();
        }
        wrap_to_i64(&quotient).wrapping_add(i64::from(!exact))
    }

    pub(super) fn cmp(&self, other: &Self) -> Ordering {
        match self.sign().cmp(&other.sign()) {
            Ordering::Equal if self.sign() < 0 => self.cmp_magnitude(other).reverse(),
            Ordering::Equal => self.cmp_magnitude(other),
            different => different,
        }
    }

    /// Compares absolute values; numbers of different length are compared without alignment.
    fn cmp_magnitude(&self, other: &Self) -> Ordering {
        if self.sign() == 0 || other.sign() == 0 {
            return self.sign().abs().cmp(&other.sign().abs());
        }
        let (left, right) = (self.magnitude_range(), other.magnitude_range());
        if left.1 < right.0 {
            return Ordering::Less;
        }
        if right.1 < left.0 {
            return Ordering::Greater;
        }
        // The ranges overlap, so the shift is at most about the number of digits.
        let scale = self.scale.max(other.scale);
        let aligned = |it: &Self| {
            it.unscaled.checked_mul(&power_of_ten(scale.abs_diff(it.scale))).map(|product| product.into_parts().1)
        };
        aligned(self).cmp(&aligned(other))
    }

    /// Bounds for the decimal logarithm, in thousandths.
    fn magnitude_range(&self) -> (i128, i128) {
        // log10(2) is between 0.30102 and 0.30103.
        let bits = i128::from(self.unscaled.bits());
        let shift = i128::from(self.scale).saturating_mul(1000);
        let low = bits.saturating_sub(1).saturating_mul(30_102) / 100;
        let high = bits.saturating_mul(30_103).saturating_add(99) / 100;
        (low.saturating_sub(shift), high.saturating_sub(shift))
    }

    fn at_scale(&self, scale: i32) -> Option<BigInt> {
        let shift = self.scale.abs_diff(scale);
        if shift == 0 || self.sign() == 0 {
            return Some(self.unscaled.clone());
        }
        if shift > MAX_SHIFT {
            return None;
        }
        self.unscaled.checked_mul(&power_of_ten(shift))
    }

    pub(super) fn to_plain_string(&self) -> String {
        let mut digits = self.unscaled.magnitude().to_string();
        let places = usize::try_from(self.scale.unsigned_abs()).unwrap_or(0);
        if self.scale < 0 && self.sign() != 0 {
            digits.extend(std::iter::repeat_n('0', places));
        }
        if self.scale > 0 {
            if digits.len() <= places {
                let missing = places.saturating_sub(digits.len()).saturating_add(1);
                digits.insert_str(0, &"0".repeat(missing));
            }
            digits.insert(digits.len().saturating_sub(places), '.');
        }
        if self.sign() < 0 {
            digits.insert(0, '-');
        }
        digits
    }
}

/// 10^`exponent`.
pub(super) fn power_of_ten(exponent: u32) -> BigInt {
    BigInt::from(10).pow(exponent)
}

pub(super) fn negate(value: &BigInt) -> BigInt {
    BigInt::from(0).checked_sub(value).unwrap_or_default()
}

/// The low 64 bits in two's complement, as Go's `big.Int.Int64` gives them.
fn wrap_to_i64(value: &BigInt) -> i64 {
    let low = value.magnitude().iter_u64_digits().next().unwrap_or(0).cast_signed();
    if value.sign() == Sign::Minus { low.wrapping_neg() } else { low }
}
