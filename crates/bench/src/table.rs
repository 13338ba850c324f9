//! A table on the terminal: first column to the left, the others to the right.

use std::fmt;

/// Shown where there is no value.
pub const NONE: &str = "–";

/// Rows under a header; columns are as wide as their widest cell.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table with this header.
    pub fn new(header: impl IntoIterator<Item = String>) -> Self {
        Self { rows: vec![header.into_iter().collect()] }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in &self.rows {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                match column {
                    0 => line.push_str(&format!("{cell:<width$}")),
                    _ => line.push_str(&format!("  {cell:>width$}")),
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// A time in the unit that reads best, three digits.
#[must_use]
pub fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{} ns", three_digits(ns)),
        ns if ns < 1e6 => format!("{} µs", three_digits(ns / 1e3)),
        ns => format!("{} ms", three_digits(ns / 1e6)),
    }
}

/// Ratio of two times: `12.4 ×`.
#[must_use]
pub fn ratio(theirs_ns: f64, ours_ns: f64) -> String {
    format!("{} ×", three_digits(theirs_ns / ours_ns))
}

fn three_digits(value: f64) -> String {
    match value {
        value if value < 10.0 => format!("{value:.2}"),
        value if value < 100.0 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_by_characters_not_bytes() {
        let mut table = Table::new(["case", "ours", "theirs"].map(String::from));
        table.row(["or", "30.0 ns", "1.20 µs"].map(String::from));
        table.row(["exists", NONE, "20.0 µs"].map(String::from));
        let expected = "\
case       ours   theirs
or      30.0 ns  1.20 µs
exists        –  20.0 µs
";
        assert_eq!(table.to_string(), expected);
    }

    #[test]
    fn times_are_shown_in_the_unit_that_reads_best() {
        assert_eq!(time(7.126), "7.13 ns");
        assert_eq!(time(646.0), "646 ns");
        assert_eq!(time(2_899.0), "2.90 µs");
        assert_eq!(time(17_709.0), "17.7 µs");
        assert_eq!(time(1_500_000.0), "1.50 ms");
    }

    #[test]
    fn a_ratio_above_one_means_that_we_are_faster() {
        assert_eq!(ratio(300.0, 25.0), "12.0 ×");
        assert_eq!(ratio(10.0, 20.0), "0.50 ×");
    }
}
