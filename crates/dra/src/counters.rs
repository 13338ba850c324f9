//! Counters that devices of a pool share: capacity and remaining amounts.
//!
//! A pool numbers its counters and sets once; a search keeps two rows of amounts.

use std::collections::BTreeMap;

use api::json::Text;
use api::quantity::Quantity;
use api::resource::v1::{CounterSet, DeviceCounterConsumption};

/// The counters of a pool.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counters {
    /// Set → its number, and counter → its number.
    sets: BTreeMap<Text, (usize, BTreeMap<Text, usize>)>,
    /// Available amounts, by number.
    pub(crate) values: Vec<Quantity>,
}

/// Amounts that a device consumes, by number.
#[derive(Debug, Clone, Default)]
pub(crate) struct Consumption {
    pub(crate) amounts: Vec<(usize, Quantity)>,
    /// Set by number, and the groups that the device declares there.
    pub(crate) groups: Vec<(usize, Vec<Text>)>,
}

impl Counters {
    /// Numbers the counters of some sets.
    ///
    /// # Errors
    /// Two sets have one name.
    pub(crate) fn new<'s>(sets: impl Iterator<Item = &'s CounterSet>) -> Result<Self, String> {
        let mut counters = Counters::default();
        for set in sets {
            let number = counters.sets.len();
            let mut names = BTreeMap::new();
            for (name, counter) in &set.counters {
                names.insert(name.clone(), counters.values.len());
                counters.values.push(counter.value.clone());
            }
            if counters.sets.insert(set.name.clone(), (number, names)).is_some() {
                return Err(format!("duplicate counter set name {}", set.name));
            }
        }
        Ok(counters)
    }

    /// Returns the consumption of a device.
    ///
    /// # Errors
    /// It refers to a set or counter that does not exist.
    pub(crate) fn consumption(&self, consumes: &[DeviceCounterConsumption]) -> Result<Consumption, String> {
        let mut consumption = Consumption::default();
        for part in consumes {
            let Some((number, counters)) = self.sets.get(&part.counter_set) else {
                return Err(format!("counter set {} not found", part.counter_set));
            };
            for (name, counter) in &part.counters {
                let Some(index) = counters.get(name) else {
                    return Err(format!("counter {name} not found in counter set {}", part.counter_set));
                };
                consumption.amounts.push((*index, counter.value.clone()));
            }
            consumption.groups.push((*number, part.compatibility_groups.clone()));
        }
        Ok(consumption)
    }

    pub(crate) fn set_count(&self) -> usize {
        self.sets.len()
    }
}

/// Remaining amounts of a pool's counters, including changes by the search.
#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    /// Can be negative: then nothing is left.
    left: Vec<Quantity>,
}

impl Ledger {
    /// Returns the amounts that devices in use leave.
    pub(crate) fn new<'c>(counters: &Counters, in_use: impl Iterator<Item = &'c Consumption>) -> Self {
        let mut ledger = Ledger { left: counters.values.clone() };
        for consumption in in_use {
            ledger.apply(consumption, Quantity::sub);
        }
        ledger
    }

    /// Consumes the counters of a device; returns false, without effect, if the pool does not have enough.
    pub(crate) fn take(&mut self, consumption: &Consumption) -> bool {
        self.apply(consumption, Quantity::sub);
        // Kubernetes: a counter that is overdrawn bars every device that consumes counters, not only its own.
        let enough = self.left.iter().all(|left| left.sign() >= 0);
        if !enough {
            self.give_back(consumption);
        }
        enough
    }

    pub(crate) fn give_back(&mut self, consumption: &Consumption) {
        self.apply(consumption, Quantity::add);
    }

    fn apply(&mut self, consumption: &Consumption, change: fn(&mut Quantity, &Quantity)) {
        for (index, amount) in &consumption.amounts {
            if let Some(left) = self.left.get_mut(*index) {
                change(left, amount);
            }
        }
    }
}
