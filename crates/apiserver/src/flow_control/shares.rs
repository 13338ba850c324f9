//! Seats of each priority level: by its shares, and temporarily by seats that others lend.
//!
//! Follows Kubernetes' `conc_alloc.go`: every level gets the same multiple of what it has wanted lately, within the bounds
//! of what it must keep and what it may borrow.

use super::demand::ObservedDemand;

/// Minimum target: zero could not be multiplied.
const TARGET_MIN: f64 = 0.001;

/// The seats of a level that follow from its configuration.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Seats {
    pub(super) is_exempt: bool,
    pub(super) nominal: f64,
    /// Guaranteed seats.
    pub(super) min: f64,
    /// Maximum number of seats.
    pub(super) max: f64,
}

/// Seats in a level's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Shares {
    pub(super) is_exempt: bool,
    pub(super) nominal: f64,
    pub(super) lendable_percent: f64,
    pub(super) borrowing_limit_percent: Option<f64>,
}

/// The seats of all levels when there are `total`.
pub(super) fn nominal(total: f64, levels: &[Shares]) -> Vec<Seats> {
    let sum: f64 = levels.iter().map(|it| it.nominal).sum();
    let seats = |it: &Shares| {
        let nominal = if sum > 0.0 { (total * it.nominal / sum).ceil() } else { 0.0 };
        let lendable = (nominal * it.lendable_percent / 100.0).round();
        let borrowed = it.borrowing_limit_percent.map(|percent| (nominal * percent / 100.0).round());
        Seats { is_exempt: it.is_exempt, nominal, min: nominal - lendable, max: nominal + borrowed.unwrap_or(total) }
    };
    levels.iter().map(seats).collect()
}

/// Returns the seats of each level for the next period, given the demand of the last one.
pub(super) fn current(levels: &[(Seats, ObservedDemand)]) -> Vec<f64> {
    let total: f64 = levels.iter().map(|(seats, _)| seats.nominal).sum();
    let least = |(seats, observed): &(Seats, ObservedDemand)| {
        if seats.is_exempt {
            seats.min.max(observed.highest)
        } else {
            seats.min.max(observed.highest.min(seats.nominal))
        }
    };
    let of_exempt: f64 = levels.iter().filter(|(seats, _)| seats.is_exempt).map(least).sum();
    let remaining = total - of_exempt;
    let limited = || levels.iter().filter(|(seats, _)| !seats.is_exempt);
    let min_sum: f64 = limited().map(|(seats, _)| seats.min).sum();
    let least_sum: f64 = limited().map(least).sum();
    let factor = fair_factor(total, limited().map(|it| Item::of(it.0, it.1, least(it))).collect());
    let seats_of = |it: &(Seats, ObservedDemand)| {
        let (seats, observed) = *it;
        if seats.is_exempt {
            least(it)
        } else if remaining <= min_sum {
            seats.min
        } else if remaining <= least_sum {
            seats.min + ((least(it) - seats.min) * (remaining - min_sum) / (least_sum - min_sum)).round()
        } else {
            Item::of(seats, observed, least(it)).at(factor).round()
        }
    };
    levels.iter().map(seats_of).collect()
}

/// A level among those that share.
#[derive(Debug, Clone, Copy)]
struct Item {
    target: f64,
    min: f64,
    max: f64,
}

impl Item {
    fn of(seats: Seats, observed: ObservedDemand, least: f64) -> Self {
        Self { target: least.max(observed.smoothed).max(TARGET_MIN), min: least, max: seats.max.max(least) }
    }

    fn at(&self, factor: f64) -> f64 {
        (self.target * factor).clamp(self.min, self.max)
    }
}

/// Returns the factor with which the sum of all items is `total`: the sum grows with it, so it is found by
/// bisection.
fn fair_factor(total: f64, items: Vec<Item>) -> f64 {
    let sum = |factor: f64| items.iter().map(|item| item.at(factor)).sum::<f64>();
    let highest = items.iter().map(|item| item.max / item.target).fold(0.0, f64::max);
    let (mut low, mut high) = (0.0, highest);
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if sum(middle) < total { low = middle } else { high = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(nominal: f64, lendable_percent: f64) -> Shares {
        Shares { nominal, lendable_percent, ..Shares::default() }
    }

    fn wanted(seats: Seats, highest: f64) -> (Seats, ObservedDemand) {
        (seats, ObservedDemand { highest, average: highest, deviation: 0.0, smoothed: highest })
    }

    #[test]
    fn shares_become_seats() {
        // The limited levels that every cluster begins with.
        let all = [(5.0, 0.0), (20.0, 50.0), (10.0, 0.0), (40.0, 25.0), (30.0, 33.0), (40.0, 50.0), (100.0, 90.0)];
        let seats = nominal(600.0, &all.map(|(shares, lendable)| level(shares, lendable)));
        let nominal: Vec<f64> = seats.iter().map(|it| it.nominal).collect();
        assert_eq!(nominal, [13.0, 49.0, 25.0, 98.0, 74.0, 98.0, 245.0]);
        let min: Vec<f64> = seats.iter().map(|it| it.min).collect();
        assert_eq!(min, [13.0, 24.0, 25.0, 73.0, 50.0, 49.0, 24.0]);
    }

    #[test]
    fn busy_level_borrows_lendable_seats() {
        let seats = nominal(100.0, &[level(50.0, 50.0), level(50.0, 50.0)]);
        let now = current(&[wanted(seats[0], 500.0), wanted(seats[1], 0.0)]);
        assert_eq!(now, [75.0, 25.0]);
        let now = current(&[wanted(seats[0], 500.0), wanted(seats[1], 500.0)]);
        assert_eq!(now, [50.0, 50.0]);
        let now = current(&[wanted(seats[0], 0.0), wanted(seats[1], 0.0)]);
        assert_eq!(now, [50.0, 50.0]);
    }

    #[test]
    fn level_without_borrowing_keeps_its_seats() {
        let mut limited = level(50.0, 0.0);
        limited.borrowing_limit_percent = Some(0.0);
        let seats = nominal(100.0, &[limited, level(50.0, 50.0)]);
        let now = current(&[wanted(seats[0], 500.0), wanted(seats[1], 0.0)]);
        assert_eq!(now, [50.0, 50.0]);
    }

    #[test]
    fn exempt_requests_reduce_other_seats() {
        let exempt = Shares { is_exempt: true, ..Shares::default() };
        let seats = nominal(100.0, &[exempt, level(50.0, 50.0), level(50.0, 50.0)]);
        let now = current(&[wanted(seats[0], 60.0), wanted(seats[1], 50.0), wanted(seats[2], 50.0)]);
        assert_eq!(now, [60.0, 25.0, 25.0]);
    }
}
