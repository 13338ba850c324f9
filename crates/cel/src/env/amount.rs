//! Ranges of sizes and costs, whose sums and products stop at the largest number.

/// Range of the size of a string, list or map: code points, elements, entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Size {
    /// At least.
    pub min: u64,
    /// At most; `u64::MAX` where nothing is known.
    pub max: u64,
}

/// Minimum and maximum cost of an expression.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Cost {
    /// At least.
    pub min: u64,
    /// At most; `u64::MAX` where nothing is known.
    pub max: u64,
}

impl Size {
    /// Nothing is known.
    pub const UNKNOWN: Size = Size { min: 0, max: u64::MAX };

    /// Exactly so large.
    pub const fn exactly(size: u64) -> Size {
        Size { min: size, max: size }
    }

    /// At most so large.
    pub const fn at_most(max: u64) -> Size {
        Size { min: 0, max }
    }

    /// The size of both in a row.
    #[must_use]
    pub const fn plus(self, other: Size) -> Size {
        Size { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    /// Returns the product of both sizes.
    #[must_use]
    pub const fn times(self, other: Size) -> Size {
        Size { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    /// A cost for each.
    #[must_use]
    pub const fn times_cost(self, cost: Cost) -> Cost {
        Cost { min: self.min.saturating_mul(cost.min), max: self.max.saturating_mul(cost.max) }
    }

    /// A fraction of a cost unit for each, rounded up.
    #[must_use]
    pub fn times_factor(self, factor: f64) -> Cost {
        Cost { min: times_factor(self.min, factor), max: times_factor(self.max, factor) }
    }

    /// One cost unit for each. Uses floating point as the reference does, so the largest number is unchanged.
    #[must_use]
    pub fn as_cost(self) -> Cost {
        self.times_factor(1.0)
    }

    /// The range that holds both.
    #[must_use]
    pub fn union(self, other: Size) -> Size {
        Size { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

impl Cost {
    /// Nothing is known.
    pub const UNKNOWN: Cost = Cost { min: 0, max: u64::MAX };

    /// Exactly so much.
    pub const fn exactly(cost: u64) -> Cost {
        Cost { min: cost, max: cost }
    }

    /// Both, one after the other.
    #[must_use]
    pub const fn plus(self, other: Cost) -> Cost {
        Cost { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    /// Returns the product of both sizes.
    #[must_use]
    pub const fn times(self, other: Cost) -> Cost {
        Cost { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    /// A fraction of it, rounded up.
    #[must_use]
    pub fn times_factor(self, factor: f64) -> Cost {
        Cost { min: times_factor(self.min, factor), max: times_factor(self.max, factor) }
    }

    /// The range that holds both.
    #[must_use]
    pub fn union(self, other: Cost) -> Cost {
        Cost { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// Rounds up; goes through floating point as the reference does, which shows above 2^53.
pub(crate) fn times_factor(amount: u64, factor: f64) -> u64 {
    // A cast saturates, as the reference does beyond 2^64.
    (amount as f64 * factor).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_of_everything_goes_through_floating_point() {
        assert_eq!(Size::UNKNOWN.times_factor(0.1).max, 1_844_674_407_370_955_264);
        assert_eq!(Size::UNKNOWN.as_cost().max, u64::MAX);
        assert_eq!(Size::exactly(11).times_factor(0.1), Cost::exactly(2));
    }
}
