//! Sets of devices: what looking for one costs, for constraints of several kinds, sizes and orders.

mod plot;
mod scenario;

use cel_kubernetes::compile::CompiledExpression;
use cel_kubernetes::environments::device::Device;
use cel_kubernetes::environments::devices::Devices;
use dra::constraints::first_set::{FirstSet, Outcome};
use dra::constraints::outlook::{Outlooks, combinations};
pub use plot::{Point, plot};
pub use scenario::{Order, SCENARIOS, Scenario};

/// Measurements.
#[derive(Debug)]
pub struct Measurement {
    /// `found` or `none`.
    pub result: &'static str,
    /// Number of sets.
    pub sets: u64,
    /// Cost of trying them until one is found.
    pub all: u64,
    /// Whether that is an estimate.
    pub is_estimate: bool,
    /// Number of partial and complete sets visited.
    pub visits: u64,
    /// Cost of the search.
    pub cost: u64,
    /// Number of cached results used.
    pub remembered: u64,
}

/// More sets than this are not tried one by one.
const SETS_TRIED_MAX: u64 = 20_000;

/// Cost limit of a search; exceeding it counts as failure.
const COST_MAX: u64 = 100_000_000;

/// Searches, and tries every set.
#[must_use]
pub fn measure(scenario: &Scenario, count_devices: usize, count: usize, order: Order) -> Option<Measurement> {
    let compiled = scenario.compile(count)?;
    let size = if scenario.name.contains("one too short") { count } else { count_devices };
    let mut owned = Vec::with_capacity(count_devices);
    for index in 0..count_devices {
        owned.push((index, (scenario.device)(index, size)?));
    }
    order.sort(&mut owned);
    let devices: Vec<&Device> = owned.iter().map(|(_, device)| device).collect();
    let mut search = FirstSet::new(&compiled, &devices, COST_MAX, Some(Outlooks::default()));
    let outcome = search.run(count);
    let (visits, meter) = (search.visits, search.meter);
    let sets = combinations(count_devices, count);
    let tried = match &outcome {
        Outcome::Found(set) => rank(count_devices, set),
        _ => sets,
    };
    let (all, is_estimate) = if tried <= SETS_TRIED_MAX {
        let mut exhaustive = FirstSet::new(&compiled, &devices, u64::MAX, None);
        let expected = exhaustive.run(count);
        assert_eq!(expected, outcome, "{} {count_devices} {count} {order:?}", scenario.name);
        (exhaustive.meter.cost, false)
    } else {
        (mean_cost(&compiled, &devices, count).saturating_mul(tried), true)
    };
    let result = match outcome {
        Outcome::Found(_) => "found",
        Outcome::None => "none",
        Outcome::Failed(_) => "failed",
        Outcome::TooCostly => "too costly",
    };
    Some(Measurement { result, sets, all, is_estimate, visits, cost: meter.cost, remembered: meter.remembered })
}

/// Number of sets up to and including this one.
fn rank(of: usize, set: &[usize]) -> u64 {
    let mut before = 1_u64;
    let mut start = 0;
    for (place, index) in set.iter().enumerate() {
        for skipped in start..*index {
            let rest = of.saturating_sub(skipped).saturating_sub(1);
            let places = set.len().saturating_sub(place).saturating_sub(1);
            before = before.saturating_add(combinations(rest, places));
        }
        start = index.saturating_add(1);
    }
    before
}

/// Mean cost of a set, from a sample of a thousand.
fn mean_cost(compiled: &CompiledExpression, devices: &[&Device], count: usize) -> u64 {
    const SAMPLES: u64 = 1_000;
    let mut state = 0x1234_5678_9ABC_DEF1_u64;
    let mut total = 0_u64;
    for _ in 0..SAMPLES {
        let mut indices: Vec<usize> = (0..devices.len()).collect();
        let mut set = Vec::with_capacity(count);
        for _ in 0..count {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let at = usize::try_from(state >> 33).unwrap_or_default().checked_rem(indices.len()).unwrap_or_default();
            set.push(indices.swap_remove(at));
        }
        set.sort_unstable();
        let seen: Vec<&Device> = set.iter().filter_map(|index| devices.get(*index).copied()).collect();
        total = total.saturating_add(compiled.eval(&Devices(&seen)).cost);
    }
    total / SAMPLES
}
