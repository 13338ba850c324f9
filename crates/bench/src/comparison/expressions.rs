//! CEL and printer columns, in this process.

use super::Size;
use super::figures::{Group, Unit};
use crate::columns::{ALL, Way, cell, compile};
use crate::harness::{Harness, Settings};
use crate::{cases, ours, recorded};

/// Number of samples of each case, and their duration.
const SAMPLES: usize = 51;

/// Measures expressions, and printer columns.
#[must_use]
pub fn measure(size: Size) -> (Group, Group) {
    let start = std::time::Instant::now();
    let samples = if size.rounds > 1 { SAMPLES } else { 3 };
    let harness = Harness::new(move || start.elapsed(), Settings { samples, ..Settings::default() });
    let names = ["Celplane", "cel-go, recorded"].map(str::to_owned);
    let mut expressions = Group::new("expressions", "CEL", &names);
    expressions.setup = format!(
        "In one process, the expressions of [benchmarks.md](../benchmarks.md), {samples} samples of 2 ms each. Compilation \
         includes parsing, type check, cost estimate and plan. The figures of cel-go were recorded in another run and are \
         the fastest samples of that run."
    );
    for case in cases::all() {
        let works = [
            ("compile", (ours::ENGINE.compile)(&case), recorded::compile_ns(case.name)),
            ("evaluate", (ours::ENGINE.evaluate)(&case).map(|it| it.batch), recorded::evaluate_ns(case.name)),
        ];
        for (work, batch, recorded) in works {
            let name = format!("{}, {work}", case.name);
            for timing in harness.side_by_side(&mut [batch]).into_iter().flatten() {
                for sample in [timing.min_ns, timing.median_ns] {
                    expressions.add(&name, Unit::Seconds, 0, sample / 1e9);
                }
            }
            expressions.add(&name, Unit::Seconds, 1, recorded.unwrap_or(f64::NAN) / 1e9);
        }
    }
    let mut columns = Group::new("columns", "Printer columns", &["CEL".to_owned(), "JSONPath".to_owned()]);
    columns.setup = "In one process, as the server fills cells, with schemas, budgets and metrics: each column as an \
        expression and as a JSONPath, interleaved; fastest and median sample. Columns named *all* print all results by an \
        expression and only the first by a path; the others print the same."
        .to_owned();
    for column in ALL {
        let works: [(&str, fn(_, _) -> _); 2] = [("compile", compile), ("cell", cell)];
        for (work, make) in works {
            let mut batches = [Way::Expression, Way::Path].map(|way| Some(make(column, way)));
            for (contestant, timing) in harness.side_by_side(&mut batches).into_iter().enumerate() {
                let Some(timing) = timing else { continue };
                for sample in [timing.min_ns, timing.median_ns] {
                    columns.add(&format!("{}, {work}", column.name), Unit::Seconds, contestant, sample / 1e9);
                }
            }
        }
    }
    (expressions, columns)
}
