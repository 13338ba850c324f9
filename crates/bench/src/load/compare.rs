//! Two programs under the same load, in turn: is one slower than the other?
//!
//! The runs alternate, and which of the two comes first does as well, so that a busy moment of the machine hits both; what
//! counts is the median of all runs.

use super::plan::Measurements;
use super::report::{Unit, values};
use crate::table::Table;

/// By how much rates and times of lists may be worse.
const TOLERANCE: f64 = 0.05;

/// Measurements of both programs.
#[derive(Debug, Default)]
pub struct Comparison {
    /// Runs of the server that the other one is compared with.
    pub before: Vec<Measurements>,
    /// Runs of the other server.
    pub after: Vec<Measurements>,
}

/// One figure of both.
#[derive(Debug)]
struct Row {
    name: String,
    unit: Unit,
    before: f64,
    after: f64,
    /// Whether it has to be as good.
    counts: bool,
}

impl Row {
    /// Improvement of the second program: above 1 if it is better.
    fn ratio(&self) -> f64 {
        match self.unit {
            Unit::PerSecond => self.after / self.before,
            Unit::Seconds | Unit::Bytes => self.before / self.after,
        }
    }

    fn is_worse(&self) -> bool {
        self.counts && self.ratio() < 1.0 - TOLERANCE
    }
}

impl Comparison {
    fn rows(&self) -> Vec<Row> {
        let of = |runs: &[Measurements]| -> Vec<Vec<(String, Unit, f64)>> { runs.iter().map(values).collect() };
        let (before, after) = (of(&self.before), of(&self.after));
        let names = after.first().map(Vec::as_slice).unwrap_or_default().iter().enumerate();
        let rows = names.map(|(place, (name, unit, _))| {
            let median = |runs: &[Vec<(String, Unit, f64)>]| {
                median(runs.iter().filter_map(|run| run.get(place)).map(|(_, _, value)| *value).collect())
            };
            let counts = *unit == Unit::PerSecond || name.starts_with("list");
            Row { name: name.clone(), unit: *unit, before: median(&before), after: median(&after), counts }
        });
        rows.collect()
    }

    /// Medians side by side.
    #[must_use]
    pub fn table(&self) -> Table {
        let mut table = Table::new(["median", "before", "after", "ratio", ""].map(String::from));
        for row in self.rows() {
            let verdict = match (row.counts, row.is_worse()) {
                (false, _) => "",
                (true, false) => "yes",
                (true, true) => "no",
            };
            let (before, after) = (row.unit.show(row.before), row.unit.show(row.after));
            let ratio = format!("{:.3}", row.ratio());
            table.row([row.name, before, after, ratio, verdict.to_owned()]);
        }
        table
    }

    /// Whether nothing that counts is worse.
    #[must_use]
    pub fn is_reached(&self) -> bool {
        !self.rows().iter().any(Row::is_worse)
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slower_is_worse_beyond_the_tolerance() {
        let row = |unit, before, after, counts| Row { name: String::new(), unit, before, after, counts }.is_worse();
        assert!(row(Unit::PerSecond, 1000.0, 940.0, true));
        assert!(!row(Unit::PerSecond, 1000.0, 960.0, true));
        assert!(row(Unit::Seconds, 0.100, 0.107, true));
        assert!(!row(Unit::Seconds, 0.100, 0.050, true));
        assert!(!row(Unit::Bytes, 1e6, 2e6, false));
        assert!((median(vec![5.0, 1.0, 3.0]) - 3.0).abs() < f64::EPSILON);
    }
}
