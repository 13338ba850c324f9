//! Samples of measurements, by contestant.

use super::machine::load_average;
use crate::memory;
use crate::table::time;

/// Unit of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Operations per second: more is better.
    PerSecond,
    /// Time: less is better.
    Seconds,
    /// Memory: less is better.
    Bytes,
}

impl Unit {
    /// A value with its unit.
    #[must_use]
    pub fn show(self, value: f64) -> String {
        match self {
            Self::PerSecond => format!("{value:.0}/s"),
            Self::Seconds => time(value * 1e9),
            Self::Bytes => memory::size(value),
        }
    }

    /// The factor by which `value` is better than `other`.
    #[must_use]
    pub fn ratio(self, value: f64, other: f64) -> f64 {
        match self {
            Self::PerSecond => value / other,
            Self::Seconds | Self::Bytes => other / value,
        }
    }
}

/// A group of measurements: one table and one plot.
#[derive(Debug, Clone)]
pub struct Group {
    /// Name of its files.
    pub id: &'static str,
    /// Heading.
    pub title: &'static str,
    /// The setup, as a paragraph.
    pub setup: String,
    /// Contestants; figures compare the first with the others.
    pub contestants: Vec<String>,
    /// Measurements in order.
    pub figures: Vec<Figure>,
}

/// One measurement.
#[derive(Debug, Clone)]
pub struct Figure {
    /// Name of the measurement.
    pub name: String,
    /// Unit of the samples.
    pub unit: Unit,
    /// Samples of each contestant.
    samples: Vec<Vec<f64>>,
    /// Load averages at the samples.
    loads: Vec<f64>,
}

/// The middle and the ends of samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The least sample.
    pub min: f64,
    /// The greatest sample.
    pub max: f64,
}

impl Group {
    /// A group without measurements.
    #[must_use]
    pub fn new(id: &'static str, title: &'static str, contestants: &[String]) -> Self {
        Self { id, title, setup: String::new(), contestants: contestants.to_vec(), figures: Vec::new() }
    }

    /// Adds a sample of a contestant.
    pub fn add(&mut self, name: &str, unit: Unit, contestant: usize, value: f64) {
        if !value.is_finite() {
            return;
        }
        if !self.figures.iter().any(|figure| figure.name == name) {
            let samples = vec![Vec::new(); self.contestants.len()];
            self.figures.push(Figure { name: name.to_owned(), unit, samples, loads: Vec::new() });
        }
        let Some(figure) = self.figures.iter_mut().find(|figure| figure.name == name) else { return };
        if let Some(samples) = figure.samples.get_mut(contestant) {
            samples.push(value);
            figure.loads.push(load_average());
        }
    }
}

impl Figure {
    /// The spread of a contestant's samples; `None` without samples.
    #[must_use]
    pub fn spread(&self, contestant: usize) -> Option<Spread> {
        spread(self.samples.get(contestant)?)
    }

    /// The factor by which the median of the first contestant is better than that of another.
    #[must_use]
    pub fn ratio(&self, contestant: usize) -> Option<f64> {
        let (ours, theirs) = (self.spread(0)?, self.spread(contestant)?);
        Some(self.unit.ratio(ours.median, theirs.median))
    }

    /// The load averages at which samples were taken.
    #[must_use]
    pub fn load(&self) -> Option<Spread> {
        spread(&self.loads)
    }
}

fn spread(samples: &[f64]) -> Option<Spread> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len().checked_sub(1)?.checked_div(2)?;
    Some(Spread { median: *sorted.get(middle)?, min: *sorted.first()?, max: *sorted.last()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_above_one_mean_that_the_first_is_better() {
        let mut group = Group::new("g", "G", &["ours".to_owned(), "theirs".to_owned()]);
        for (contestant, values) in [(0, [30.0, 20.0, 40.0]), (1, [10.0, 15.0, 20.0])] {
            for value in values {
                group.add("rate", Unit::PerSecond, contestant, value);
                group.add("memory", Unit::Bytes, contestant, value);
            }
        }
        group.add("memory", Unit::Bytes, 1, f64::NAN);
        let [rate, memory] = group.figures.as_slice() else { panic!("two figures") };
        assert_eq!(rate.spread(0), Some(Spread { median: 30.0, min: 20.0, max: 40.0 }));
        assert_eq!((rate.ratio(1), memory.ratio(1)), (Some(2.0), Some(0.5)));
        assert!(rate.load().is_some_and(|load| load.min >= 0.0));
        assert_eq!(rate.spread(2), None);
    }
}
